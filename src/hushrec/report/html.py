"""Pieces of an HTML page. Texts go in as they are and come out escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


class Cell(NamedTuple):
    """A cell of a table. Texts are not escaped yet."""

    text: str
    kind: str = ""  # its class in the style sheet
    below: str = ""  # a smaller line under the text


Cells = Sequence[Cell | str]
_MOST_COLUMNS = 12  # beside each other on a page


def _cell(entry: Cell | str) -> Cell:
    return Cell(entry) if isinstance(entry, str) else entry


def table_row(cells: Cells, num_heads: int = 1, kind: str = "") -> str:
    """A row; its first cells are headings."""
    parts = []
    for place, entry in enumerate(cells):
        cell = _cell(entry)
        tag = "th" if place < num_heads else "td"
        text = prose(cell.text) if cell.kind == "prose" else escape(cell.text)
        below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
        parts.append(f"<{tag}{class_of(cell.kind)}>{text}{below}</{tag}>")
    return f"<tr{class_of(kind)}>{''.join(parts)}</tr>"


def class_of(kind: str) -> str:
    """The attribute of a class of the style sheet, if there is one."""
    return f' class="{kind}"' if kind else ""


def html_table(head: Cells, rows: Iterable[str]) -> str:
    """A table of rows as `table_row` makes them, which scrolls where it is too wide."""
    names = [_cell(entry).text for entry in head]
    body = "\n".join(_labelled(row, names) for row in rows)
    columns = table_row(head, num_heads=len(head))
    table = f"<table>\n<thead>{columns}</thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def table_of_runs(head: Cells, rows: Sequence[Cells]) -> str:
    """A table with a row per run and a column per number; the other way round if these are too many for a page."""
    if len(head) > max(_MOST_COLUMNS, len(rows) + 1):
        head, *rows = zip(head, *rows, strict=True)
        head = [_cell(head[0]), *(Cell(_cell(entry).text, "number") for entry in head[1:])]
        rows = [[Cell(_cell(row[0]).text, "name"), *row[1:]] for row in rows]
    return html_table(head, [table_row(row) for row in rows])


def _labelled(row: str, heads: Sequence[str]) -> str:
    """A row whose cells know their headings: on a narrow screen each stands on a line of its own."""
    if "colspan" in row:
        return row
    places, is_first = iter(heads), True

    def labelled(found: re.Match[str]) -> str:
        nonlocal is_first
        leads, is_first = is_first and found[1] == "h", False
        head = next(places, "")
        return f'{found[0]} data-label="{escape(head)}"' if head and not leads else found[0]

    return re.sub(r"<t([hd])(?=[ >])", labelled, row)


def html_figure(svg: str, caption: str) -> str:
    """A picture with its caption."""
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f"<p{class_of(kind)}>{escape(text)}</p>"


def prose(text: str) -> str:
    """Text of a docstring or comment, where backquotes mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def number_cell(text: str) -> Cell:
    """A cell with a number."""
    return Cell(text, "number")


def name_cell(text: str) -> Cell:
    """A cell with a name."""
    return Cell(text, "name")
