"""Commands in README.md and docs/ are parsed with the command line's own grammar, not run; Python is compiled."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from hushrec.cli.verbs import app
from hushrec.registry import SYSTEMS

BASE = Path(__file__).parents[1]
DOCS = BASE / "docs"
MADE = {"_build", "reference"}  # by `make docs`
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if not MADE & set(path.relative_to(DOCS).parts))
PAGES = [path for path in (BASE / "README.md", *WRITTEN) if path.exists()]
ROOT: Any = typer.main.get_command(app)
SHELLS = {"", "sh", "bash", "shell", "console", "text"}


class Block(NamedTuple):
    """One fenced block of code."""

    page: str
    line: int
    language: str
    text: str


def blocks(text: str, page: str = "") -> Iterator[Block]:
    fence, language, first, lines = "", "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        opening = re.match(r"\s*(`{3,}|~{3,})\s*([\w+-]*)", line)
        if not fence and opening:
            fence, language, first, lines = opening[1], opening[2].lower(), number, []
        elif fence and line.strip() == fence:
            yield Block(page, first, language, "\n".join(lines))
            fence = ""
        elif fence:
            lines.append(line)
    assert not fence, f"{page}: the block of line {first} is not closed"


def command_lines(block: Block) -> Iterator[str]:
    """Lines that call hushrec, with continued lines joined, without prompts, comments, pipes and redirections.

    What stands in a column of its own, three or more spaces behind the command, explains it.
    """
    if block.language not in SHELLS:
        return
    for line in re.sub(r"\s*\\\n\s*", " ", block.text).splitlines():
        line = re.sub(r"\s+#.*$|\s{3,}.*$", "", line.strip().removeprefix("$ "))
        for part in re.split(r"\s(?:&&|\|\||\||;)\s|\s\d?>{1,2}\s?", line):
            if re.match(r"(?:[A-Z_]+=\S+ )*(?:\S*/)?hushrec(?: |$)", part.strip()):
                yield part.strip()


def parse(line: str) -> None:
    """Refuse verbs and options that do not exist, what is missing, and values of the wrong type."""
    command, words = lead(line)
    if not hasattr(command, "commands") and not {"--help", "-h"} & set(words):
        command.make_context("hushrec", words)


def lead(line: str) -> tuple[Any, list[str]]:
    """The command that a line's verbs lead to, and the words that follow."""
    words = shlex.split(line)
    words = words[next(place for place, word in enumerate(words) if Path(word).name == "hushrec") + 1 :]
    command = ROOT
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        inner = command.get_command(None, words[0])
        assert inner is not None, f"no command {words[0]!r}"
        command, words = inner, words[1:]
    return command, words


ALL_BLOCKS = [
    block for path in PAGES for block in blocks(path.read_text(encoding="utf-8"), str(path.relative_to(BASE)))
]
COMMANDS = [(f"{block.page}:{block.line}", line) for block in ALL_BLOCKS for line in command_lines(block)]
PYTHON = [block for block in ALL_BLOCKS if block.language in ("python", "py", "pycon")]


# --- The checker itself ------------------------------------------------------------------------------------


def test_commands_are_found_in_blocks() -> None:
    text = """
hushrec nosuch is prose
```sh
$ hushrec systems | less
# hushrec nosuch: a comment
pip install hushrec
.venv/bin/hushrec run fedrec \\
  --data x  # why
hushrec data list    what there is
HUSHREC_DATA=d hushrec data list > list.txt && hushrec report r
```
~~~python
import hushrec
~~~
"""
    found = [line for block in blocks(text) for line in command_lines(block)]
    assert found == [
        "hushrec systems",
        ".venv/bin/hushrec run fedrec --data x",
        "hushrec data list",
        "HUSHREC_DATA=d hushrec data list",
        "hushrec report r",
    ]
    for line in found:
        parse(line)


@pytest.mark.parametrize(
    "line",
    [
        "hushrec nosuch",
        "hushrec run nosuch --data x",
        "hushrec run fedrec --data x --denoisers 1",
        "hushrec run fedrec --data x --rho three",
        "hushrec run fedrec --rho 3",
        "hushrec data list --bogus",
        "hushrec recommend",
    ],
)
def test_wrong_commands_are_refused(line: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Typer's errors, wherever this version keeps them
        parse(line)
    assert isinstance(caught.value, AssertionError) or "UsageError" in [
        kind.__name__ for kind in type(caught.value).__mro__
    ]


# --- The pages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=[f"{where} {line}" for where, line in COMMANDS])
def test_commands_of_the_pages_exist(where: str, line: str) -> None:
    parse(line)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_sentences_exist(path: Path) -> None:
    """They may be parts only, as `hushrec run --resume`: verbs and options must be there."""
    for line in re.findall(r"(?<!`)`(hushrec [^`]+)`(?!`)", path.read_text(encoding="utf-8")):
        command, words = lead(line.replace("...", "").replace(" SYSTEM", ""))
        is_group = hasattr(command, "commands")
        leaves = (
            [command.get_command(None, name) for name in command.list_commands(None)] if is_group else [command]
        )
        known = {flag for leaf in leaves for entry in leaf.params for flag in entry.opts} | {"-h", "--help"}
        known |= {flag for entry in command.params for flag in entry.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.page}:{block.line}")
def test_python_of_the_pages_compiles(block: Block) -> None:
    text = block.text
    if ">>> " in text:
        kept = [line[4:] for line in text.splitlines() if line.startswith((">>> ", "... "))]
        text = "\n".join(kept)
    compile(text, f"{block.page}:{block.line}", "exec")


# --- The table of systems ------------------------------------------------------------------------------------


def table_of_systems() -> list[tuple[list[str], str, str]]:
    """The rows of the README: systems, feedback, where published."""
    text = (BASE / "README.md").read_text(encoding="utf-8")
    head, *rows = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)[: 2 + len(SYSTEMS)]
    assert [cell.strip() for cell in head.split("|")] == [
        "system",
        "feedback",
        "what the server sees",
        "published",
    ]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows[1:] if row.strip().startswith("`")]
    return [(re.findall(r"`([^`]+)`", names), feedback, published) for names, feedback, _, published in cells]


def test_the_readme_says_of_systems_what_they_say_of_themselves() -> None:
    """The table has the systems that hushrec began with, and nothing wrong; `hushrec systems` lists all."""
    listed = [name for names, _, _ in table_of_systems() for name in names]
    assert set(listed) <= set(SYSTEMS)
    assert len(set(listed)) == len(listed) >= 17
    for names, feedback, published in table_of_systems():
        for name in names:
            paper = SYSTEMS[name].about.paper
            assert SYSTEMS[name].feedback.name in feedback, name
            assert f"{paper.venue.split(', ')[-1]} {paper.year}" in published, name
    assert "`hushrec systems` lists all" in (BASE / "README.md").read_text(encoding="utf-8")
