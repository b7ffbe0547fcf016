"""JSON lines: an object per line, as logs and databases write them."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from hushrec.data.sources import EXPECTED, Source
from hushrec.errors import HushrecError

_BLOCK_BYTES = 1 << 24  # Arrow takes no longer object
_SNIFFED_BYTES = 1 << 16


def is_json(source: Source) -> bool:
    """Whether the text begins as JSON does."""
    return _first_mark(source) in (b"{", b"[")


def _first_mark(source: Source) -> bytes:
    return bytes(source.content[:_SNIFFED_BYTES]).lstrip()[:1]


def read_json(source: Source) -> pa.Table | None:
    """All columns; None where Arrow finds a fault, or several kinds of value in one column."""
    if _first_mark(source) == b"[":
        raise HushrecError(
            f"{source.path}: a list in JSON; write JSON lines, an object per line without brackets around"
        )
    try:
        table = pa_json.read_json(pa.BufferReader(source.content), pa_json.ReadOptions(block_size=_BLOCK_BYTES))
        return table if all(table.column_names) else None  # a name that is no text fails here
    except (pa.ArrowException, ValueError):
        return None


def names_in(source: Source) -> list[str]:
    """The names in all objects, in order of appearance. Slow, as what follows: a line at a time."""
    names: dict[str, None] = {}
    for _, found in _objects(source):
        names |= dict.fromkeys(found)
    return list(names)


def read_json_as_text(source: Source, names: Sequence[str]) -> pa.Table:
    """The columns of these names as texts; the first line at fault is an error."""
    columns: dict[str, list[str | None]] = {name: [] for name in names}
    for line, found in _objects(source):
        for name in names:
            value = found.get(name)
            if isinstance(value, dict | list):
                raise HushrecError(f"{source.path}, line {line}: {name} is neither a number nor text")
            columns[name].append(value if value is None or isinstance(value, str) else json.dumps(value))
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def line_of_object(source: Source, row: int) -> int:
    """The line (from 1) of an object (from 0); blank lines hold none."""
    return next(line for place, (line, _) in enumerate(_objects(source)) if place == row)


def _objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    file = io.TextIOWrapper(io.BufferedReader(pa.BufferReader(source.content)), "utf-8", errors="surrogateescape")
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            text.encode()  # bytes that are no text came out as lone surrogates
            found = json.loads(text)
            json.dumps(found, ensure_ascii=False).encode()  # and so may what is written as \ud800
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise HushrecError(
                f'{source.path}, line {line}: not an object in JSON, as in {{"user": 1, "item": 2}}; {EXPECTED}'
            )
        yield line, found
