"""What makes hushrec's documentation site out of its pages, its code and its records.

Before the build: pages of systems and of commands are written to `docs/reference/`. While pages are read: names of
the reference are filled in, and pages that no list has come at the end of the how-to guides. After it: `llms.txt`.
"""

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

from hushrec_docs import api, command_pages, system_pages
from hushrec_docs.llms import Page, llms_txt

UNLISTED = "@unlisted"
_LISTS = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_lexer("output", TextLexer)
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir)))
    app.connect("source-read", _fill)
    app.connect("build-finished", _write_llms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(docs: Path) -> None:
    """Write the pages that are made of code; one that stays as it is, is not touched."""
    for room, texts in (("systems", system_pages.pages()), ("commands", command_pages.pages())):
        folder = docs / "reference" / room
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.md"):
            if path.stem not in texts:
                path.unlink()
        for name, text in texts.items():
            path = folder / f"{name}.md"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")

    notebook = docs.parent / "examples" / "frames.ipynb"
    (docs / "reference" / notebook.name).write_text(notebook.read_text(encoding="utf-8"), encoding="utf-8")


def listed(text: str) -> list[str]:
    """The names in a page's lists of pages."""
    lines = [line.strip() for found in _LISTS.findall(text) for line in found.splitlines()]
    names = [re.sub(r".*<(.+)>", r"\1", line) for line in lines if line and not line.startswith(":")]
    return [name.removesuffix(".md") for name in names if name != UNLISTED]


def unlisted(docs: Path) -> list[str]:
    """Pages of `docs/` itself that no list names: they come after the how-to guides."""
    known = {name for path in docs.glob("*.md") for name in listed(path.read_text(encoding="utf-8"))}
    return sorted(path.stem for path in docs.glob("*.md") if path.stem not in known | {"index"})


def with_unlisted(text: str, docs: Path) -> str:
    """A list of pages, with those that no list names in their place."""
    return text.replace(f"{UNLISTED}\n", "".join(f"{page}\n" for page in unlisted(docs)))


def _fill(app: Any, name: str, source: list[str]) -> None:
    source[0] = with_unlisted(source[0], Path(app.srcdir))
    if name.startswith("api/"):
        source[0] = api.expanded(source[0])


def _write_llms(app: Any, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    docs = Path(app.srcdir)
    text = with_unlisted((docs / "index.md").read_text(encoding="utf-8"), docs)
    sections = []
    for block in re.findall(r"```\{toctree\}\n(?:.*?)```", text, re.DOTALL):
        title = re.search(r":caption: (.*)", block)
        names = [name for one in listed(block) for name in (_with_children(app, one))]
        if title:
            sections.append((title[1], names))

    def page_of(name: str) -> Page:
        path = Path(app.env.doc2path(name))
        return Page(
            f"_sources/{path.relative_to(docs)}", app.env.titles[name].astext(), path.read_text(encoding="utf-8")
        )

    (Path(app.outdir) / "llms.txt").write_text(llms_txt(sections, page_of), encoding="utf-8")


def _with_children(app: Any, name: str) -> list[str]:
    """A page, and those that it lists."""
    return [
        name,
        *(below for child in app.env.toctree_includes.get(name, []) for below in _with_children(app, child)),
    ]
