"""Text tables: what separates the columns, what they are called, and in which line a fault lies."""

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from hushrec.errors import HushrecError

EXPECTED = "expected .inter, u.data, ratings.dat, CSV, TSV or Parquet"
DEFAULT_NAMES = ("user", "item", "rating", "timestamp")

_DELIMITERS = ("::", "\t", ",", ";", "|")
_RECBOLE_FIELD = re.compile(r"[^:]+:(token|token_seq|float|float_seq)")
_UNIT_SEPARATOR = "\x1f"  # stands in for "::", as Arrow separates by one character only
_SNIFFED_BYTES = 1 << 16


@dataclass(frozen=True)
class TextFormat:
    """How the lines of a text table are to be read."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    has_quotes: bool
    encoding: str = "utf-8"


def sniff(path: Path) -> TextFormat:
    """The format of a table, judged by its first line."""
    with path.open("rb") as file:
        head = file.read(_SNIFFED_BYTES)
    if b"\0" in head:
        raise HushrecError(f"{path}: not a table of text; {EXPECTED}")
    first = next((line for line in re.split(rb"[\r\n]", head.removeprefix(codecs.BOM_UTF8)) if line), None)
    if first is None:
        raise HushrecError(f"{path}: the file is empty; {EXPECTED}")
    try:
        line = first.decode()
    except UnicodeDecodeError:
        raise HushrecError(f"{path}: not a table of UTF-8 text; {EXPECTED}") from None
    delimiter = next((mark for mark in _DELIMITERS if mark in line), ",")
    fields = next(csv.reader([line])) if delimiter == "," else line.split(delimiter)
    fields = [field.strip().strip('"') for field in fields]
    is_recbole = all(_RECBOLE_FIELD.fullmatch(field) for field in fields)
    if any(_is_number(field) for field in fields):
        return _headless(path, delimiter, len(fields))
    names = tuple(
        (field.split(":")[0] if is_recbole else field) or f"column {place}"
        for place, field in enumerate(fields, start=1)
    )
    if len(set(names)) < len(names):
        raise HushrecError(f"{path}, line 1: two columns have the same name; rename one of: {', '.join(names)}")
    return TextFormat(delimiter, names, has_header=True, has_quotes=delimiter != "::" and not is_recbole)


def _headless(path: Path, delimiter: str, num_columns: int) -> TextFormat:
    if not 2 <= num_columns <= len(DEFAULT_NAMES):
        raise HushrecError(
            f"{path}, line 1: {num_columns} columns and no header; "
            "expected a header line, or user, item and if known rating, timestamp"
        )
    names = DEFAULT_NAMES[:num_columns]
    return TextFormat(delimiter, names, has_header=False, has_quotes=delimiter in ",;")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_text(path: Path, text_format: TextFormat, types: dict[str, pa.DataType]) -> pa.Table:
    """The columns named in `types`, each of the type given there. Blank lines are no rows."""
    source: str | io.BytesIO = str(path)
    delimiter = text_format.delimiter
    if delimiter == "::":
        source = io.BytesIO(path.read_bytes().replace(b"::", _UNIT_SEPARATOR.encode()))
        delimiter = _UNIT_SEPARATOR
    try:
        return pa_csv.read_csv(
            source,
            pa_csv.ReadOptions(
                column_names=list(text_format.names),
                skip_rows_after_names=int(text_format.has_header),
                encoding=text_format.encoding,
            ),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if text_format.has_quotes else False,
                newlines_in_values=text_format.has_quotes,
            ),
            pa_csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
    raise HushrecError(_find_fault(path, text_format) or f"{path}: {reason}; {EXPECTED}")


def line_of_row(path: Path, text_format: TextFormat, row: int) -> int:
    """The line (from 1, the header counted) where a row (from 0) starts."""
    rows = itertools.islice(_rows(path, text_format), row + text_format.has_header, None)
    return next(rows)[0]


def _rows(path: Path, text_format: TextFormat) -> Iterator[tuple[int, list[str]]]:
    """The line and the fields of each row. Slow, and only run once a fault is known.

    Bytes that are not text in the encoding come out as lone surrogates.
    """
    with path.open(newline="", encoding=text_format.encoding, errors="surrogateescape") as file:
        if text_format.has_quotes:
            reader = csv.reader(file, delimiter=text_format.delimiter)
            line = 1
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        else:
            for line, text in enumerate(file, start=1):
                if text := text.rstrip("\r\n"):
                    yield line, text.split(text_format.delimiter)


def _find_fault(path: Path, text_format: TextFormat) -> str | None:
    """What is wrong with the first malformed row."""
    names = text_format.names
    line = 0
    try:
        for line, fields in _rows(path, text_format):
            if len(fields) != len(names):
                return (
                    f"{path}, line {line}: expected {len(names)} columns ({', '.join(names)}), found {len(fields)}"
                )
            if any("\udc80" <= mark <= "\udcff" for field in fields for mark in field):
                return f"{path}, line {line}: not UTF-8 text; {EXPECTED}"
    except csv.Error as error:
        return f"{path}, after line {line}: {error}; {EXPECTED}"
    return None
