"""`llms.txt`: what the site has, page by page, as text for programs that read it."""

import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

HEAD = """# hushrec

> A Python library and command line for federated recommender systems: it runs published systems, reproduces their
> papers' tables, counts every byte, attacks what each party saw, deploys them over a network and gives
> recommendations, all from one implementation of each.

Every page is also there as plain Markdown, under the address given here.
"""


class Page(NamedTuple):
    """A page of the site."""

    address: str
    title: str
    text: str  # its Markdown


def first_sentence(text: str) -> str:
    """What a page says first below its title, in one line.

    >>> first_sentence("# Start\\n\\nTwo [commands](x.md) do it. More follows.\\n")
    'Two commands do it.'
    """
    if text.lstrip().startswith("{"):  # a notebook
        text = "".join(json.loads(text)["cells"][0]["source"])
    without_front = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n[ \t]*\n", without_front):
        line = " ".join(paragraph.split())
        if line and not re.match(r"#|```|\||!\[|<|:::|\(", line):
            plain = re.sub(r"\{[\w:]+\}`([^`]+)`", r"\1", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line))
            plain = re.sub(r"\\([*_<>|\[\]#~\\])", r"\1", plain)
            return re.split(r"(?<=[.?!])\s", plain)[0]
    return ""


def llms_txt(sections: Iterable[tuple[str, Iterable[str]]], page_of: Callable[[str], Page]) -> str:
    """The file, from the sections of the index and the pages in each."""
    lines = [HEAD]
    for title, names in sections:
        lines += [f"## {title}", ""]
        for name in names:
            page = page_of(name)
            said = first_sentence(page.text)
            lines.append(f"- [{page.title}]({page.address})" + (f": {said}" if said else ""))
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"
