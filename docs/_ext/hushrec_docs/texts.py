"""Markdown from plain text: what is escaped, tables, blocks of code."""

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_<>|\[\]#~])")


def escaped(text: str) -> str:
    """Plain text as Markdown that shows it; what stands between backticks is code already.

    >>> escaped("the items I_u of `U_u`, |I_u| of them")
    'the items I\\\\_u of `U_u`, \\\\|I\\\\_u\\\\| of them'
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts))


def cell(text: str) -> str:
    """Markdown that fits into a cell of a table: one line, without a bar of its own."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, its cells Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(cell(text) for text in line)} |" for line in lines]


def block(language: str, text: str) -> list[str]:
    """A block of code."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return [f"{fence}{language}", *text.splitlines(), fence]


def docstring_as_markdown(text: str) -> list[str]:
    """A docstring of ours: paragraphs, numbered steps, indented names with what they mean, doctests.

    Doctests become blocks of code; `name: meaning` lines that are indented below a heading become a list.
    """
    found: list[str] = []
    if not text.strip():
        return found
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.splitlines()
        if lines[0].lstrip().startswith(">>> "):
            found += block("python", "\n".join(line.strip("\n") for line in lines))
        else:
            found += _prose(lines)
        found.append("")
    return found[:-1]


def _prose(lines: Sequence[str]) -> list[str]:
    """Lines of text; those that are indented below others are the entries of a list."""
    found: list[str] = []
    for line in lines:
        if line.startswith("    ") and found:
            name, colon, meaning = line.strip().partition(": ")
            if not any(one.startswith("- ") for one in found):
                found.append("")
            found.append(f"- `{name}`: {escaped(meaning)}" if colon else f"- {escaped(line.strip())}")
        elif re.match(r"(\d+\.|-) ", line):
            found.append(escaped(line))
        else:
            indent = line[: len(line) - len(line.lstrip())]
            found.append(indent + escaped(line.strip()))
    return found
