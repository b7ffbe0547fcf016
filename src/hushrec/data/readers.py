"""Readers of rating files: RecBole .inter, MovieLens u.data and ratings.dat, CSV, TSV, JSON lines and Parquet."""

import bisect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from hushrec.data.interactions import Interactions
from hushrec.data.json_lines import is_json, line_of_object, names_in, read_json, read_json_as_text
from hushrec.data.reading import Columns, Reading, Tell, choose_columns, guessed_column
from hushrec.data.sources import EXPECTED, Source, sources_of
from hushrec.data.tables import Rows, checked_rows, draft_of
from hushrec.data.text_tables import DEFAULT_NAMES, TEXT_CODES, line_of_row, read_text, sniff
from hushrec.data.titles import about_items, items_beside, with_items, with_named_items
from hushrec.errors import HushrecError, option

_TEXT_TYPES = {"timestamp": pa.string(), "order": pa.string()}  # the others repeat
# What most files hold, which is quicker to read; times are what they look like.
_FAST_TYPES = {"user": pa.int64(), "item": pa.int64(), "rating": pa.float64(), "timestamp": None}


def read(path: str | Path, reading: Reading | None = None, notify: Tell | None = None) -> Interactions:
    """Read a file of interactions. The first bad row is an error; no row is dropped in silence.

    A file without a rating column, or any file with `implicit`, gives implicit feedback. With `one_user` a file
    without a user column is that of one user. Numeric ids are numbered by value, others by code point. A folder of
    `part-*` files is read as one.
    """
    path, reading = Path(path), reading or Reading()
    rows, draft = read_draft(path, reading, notify)
    data = checked_rows(rows, draft, reading.duplicates)
    if reading.items is not None:
        return with_named_items(data, reading.items, reading.encoding, notify)
    beside = items_beside(path)
    return data if beside is None else with_items(data, about_items(beside))


def read_draft(path: Path, reading: Reading, notify: Tell | None = None) -> tuple[Rows, Interactions]:
    """What the file says, not yet checked for duplicates and the range of ratings."""
    rows = _read_rows(path, reading)
    if not rows.table.num_rows:
        raise HushrecError(f"{path}: there are no rows; {EXPECTED}")
    return draft_of(rows, reading, notify)


def _read_rows(path: Path, reading: Reading) -> Rows:
    sources = sources_of(path, reading.encoding)
    parts = [_Part.of(source, reading) for source in sources]
    if not parts:
        raise HushrecError(f"{path}: all its files are empty; {EXPECTED}")
    tables = [part.read() for part in parts]
    if len({table.schema for table in tables}) > 1:  # a column of numbers here, of text there
        tables = [part.read(is_fast=False) for part in parts]
    try:
        table = pa.concat_tables(tables)
    except pa.ArrowInvalid:
        raise HushrecError(f"{path}: its parts have different columns; give parts of one table") from None
    starts = list(itertools.accumulate((len(part) for part in tables), initial=0))

    def place(row: int) -> str:
        number = bisect.bisect_right(starts, row) - 1
        return parts[number].place(row - starts[number])

    return Rows(table, path.name, place, str(path))


@dataclass(frozen=True)
class _Part:
    """One file: where it is, how a table comes from it, and in which line a row is."""

    names: Mapping[str, str]  # from role to column
    read_columns: Callable[[bool], pa.Table]
    place: Callable[[int], str]

    @classmethod
    def of(cls, source: Source, reading: Reading) -> "_Part":
        kind = _parquet_part if source.is_parquet else _json_part if is_json(source) else _text_part
        return kind(source, reading)

    def read(self, is_fast: bool = True) -> pa.Table:
        """A table with roles for names; if it is not to be fast, of texts."""
        table = self.read_columns(is_fast)
        table = pa.table({role: table[name] for role, name in self.names.items()})
        return table if is_fast else pa.table({role: _as_text(table[role]) for role in table.column_names})


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise HushrecError(f"a column of {column.type} in some parts; expected numbers and text") from None


def _chosen(source: Source, names: list[str], reading: Reading) -> dict[str, str]:
    columns = Columns.of(reading.columns)
    try:
        return choose_columns(str(source.path), names, columns, reading.implicit, reading.one_user)
    except HushrecError as error:
        if reading.encoding is None:
            raise
        raise HushrecError(f"{error}; or check {option('encoding', reading.encoding)}") from None


def _parquet_part(source: Source, reading: Reading) -> _Part:
    damaged = HushrecError(f"{source.path}: not a Parquet file, or a damaged one; write it again")
    try:
        file = pa_parquet.ParquetFile(pa.BufferReader(source.content))
        names = _chosen(source, file.schema_arrow.names, reading)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise damaged from None

    def read_columns(_is_fast: bool) -> pa.Table:
        try:
            table = file.read(columns=list(names.values()))
            table.validate(full=True)
            return table
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError):
            raise damaged from None

    return _Part(names, read_columns, lambda row: f"{source.path}, row {row + 1}")


def _json_part(source: Source, reading: Reading) -> _Part:
    table = read_json(source)
    names = _chosen(source, names_in(source) if table is None else table.column_names, reading)

    def read_columns(_is_fast: bool) -> pa.Table:
        return read_json_as_text(source, list(names.values())) if table is None else table

    return _Part(names, read_columns, lambda row: f"{source.path}, line {line_of_object(source, row)}")


def _text_part(source: Source, reading: Reading) -> _Part:
    columns = Columns.of(reading.columns)
    named = [name for name in asdict(columns).values() if name]
    text_format = sniff(source, reading.decimal, named, reading.one_user)
    if not text_format.has_header and named:
        raise HushrecError(
            f"{source.path}: has no header line, so no column can be named; add one, or leave the names out"
        )
    try:
        names = _chosen(source, list(text_format.names), reading)
    except HushrecError as error:
        if named or any(guessed_column(text_format.names, role) for role in DEFAULT_NAMES):
            raise
        raise HushrecError(f"{error}; or have the first line name the columns") from None
    types = {name: _TEXT_TYPES.get(role, TEXT_CODES) for role, name in names.items()}
    fast_types = {name: _FAST_TYPES.get(role, pa.string()) for role, name in names.items()}
    return _Part(
        names,
        lambda is_fast: read_text(source, text_format, types, fast_types if is_fast else None),
        lambda row: f"{source.path}, line {line_of_row(source, text_format, row)}",
    )
