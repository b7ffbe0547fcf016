"""Text tables: what separates the columns, what they are called, and in which line a fault lies."""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from hushrec.data.arrow_columns import MISSING
from hushrec.data.field_scan import has_byte, has_leading_zeros
from hushrec.data.reading import guessed_column
from hushrec.data.sources import EXPECTED, Source
from hushrec.errors import HushrecError, option

DEFAULT_NAMES = ("user", "item", "rating", "timestamp")
TEXT_CODES = pa.dictionary(pa.int32(), pa.string())  # repeated text is kept and parsed once

_DELIMITERS = (",", ";", "|")  # beside "::" and tabs, which are sure signs
_RECBOLE_FIELD = re.compile(r"[^:]+:(token|token_seq|float|float_seq)")
_UNIT_SEPARATOR = "\x1f"  # stands in for "::", as Arrow separates by one character only
_SNIFFED_BYTES = 1 << 16
_SNIFFED_LINES = 1000
_TIME = re.compile(r"\d{9,}|(19|20)\d\d-\d\d-\d\d.*")  # Unix seconds since 1973, or a date


@dataclass(frozen=True)
class TextFormat:
    """How the lines of a text table are to be read."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    has_quotes: bool
    decimal: str = "."


def _encoding_hint() -> str:
    return f"for another encoding name it, as in {option('encoding', 'latin-1')}"


def sniff(source: Source, decimal: str = ".", named: Iterable[str] = (), one_user: bool = False) -> TextFormat:
    """The format of a table, judged by its first line, and by the next ones where that has no usual name.

    A line with one of the `named` columns is a header. With `one_user` there need be no column of users.
    """
    head = bytes(source.content[:_SNIFFED_BYTES])
    if b"\0" in head:
        raise HushrecError(
            f"{source.path}: not a table of text; {EXPECTED}; UTF-16 needs {option('encoding', 'utf-16')}"
        )
    first = next((line for line in re.split(rb"[\r\n]", head) if line), b"")
    if not head.strip():
        raise HushrecError(f"{source.path}: the file is empty; {EXPECTED}")
    try:
        line = first.decode()
    except UnicodeDecodeError:
        raise HushrecError(f"{source.path}: not a table of UTF-8 text; {EXPECTED}; {_encoding_hint()}") from None
    delimiter = _delimiter_of(line, decimal)
    fields = _fields(line, delimiter)
    is_recbole = all(_RECBOLE_FIELD.fullmatch(field) for field in fields)
    has_names = all(guessed_column(fields, role) for role in ("user", "item"))
    if not has_names and not set(named) & set(fields):
        rows = [fields, *_next_rows(head, delimiter, len(fields))]
        is_list = one_user and len(fields) == 1 and guessed_column(fields, "item") is None
        if is_list or any(_is_number(field.replace(decimal, ".")) for field in fields) or _is_row(rows):
            return _headless(source, delimiter, rows, decimal, one_user)
    names = tuple(
        (field.split(":")[0] if is_recbole else field) or f"column {place}"
        for place, field in enumerate(fields, start=1)
    )
    if len(set(names)) < len(names):
        raise HushrecError(
            f"{source.path}, line 1: two columns have the same name; rename one of: {', '.join(names)}"
        )
    has_quotes = delimiter != "::" and not is_recbole
    return TextFormat(delimiter, names, has_header=True, has_quotes=has_quotes, decimal=decimal)


def _delimiter_of(line: str, decimal: str) -> str:
    """Of commas, semicolons and bars, the one that is there most often; a decimal comma only if no other is."""
    if (sure := next((mark for mark in ("::", "\t") if mark in line), None)) is not None:
        return sure
    others = [mark for mark in _DELIMITERS if mark != decimal]
    best = max(others, key=line.count)
    return best if best in line or decimal != "," else decimal


def _fields(line: str, delimiter: str) -> list[str]:
    fields = next(csv.reader([line])) if delimiter == "," else line.split(delimiter)
    return [field.strip().strip('"') for field in fields]


def _next_rows(head: bytes, delimiter: str, num_columns: int) -> list[list[str]]:
    """Rows below the first, as far as they can be told without reading the table."""
    whole = head if len(head) < _SNIFFED_BYTES else head[: head.rfind(b"\n") + 1]
    lines = [line for line in re.split(rb"[\r\n]+", whole) if line][1:_SNIFFED_LINES]
    rows = (_fields(line.decode(errors="replace"), delimiter) for line in lines)
    return [row for row in rows if len(row) == num_columns]


def _is_row(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line is no header: none of its names is a usual one, and one of them comes again below."""
    first, *others = rows
    if any(guessed_column(first, role) for role in DEFAULT_NAMES):
        return False
    return any(field and any(row[place] == field for row in others) for place, field in enumerate(first))


def _has_user(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first column is that of one user: alike in all rows, before one that is not a rating."""
    if len(rows) == 1:
        return not _is_number(rows[0][1])
    return len({row[0] for row in rows}) == 1


def _headless(
    source: Source, delimiter: str, rows: Sequence[Sequence[str]], decimal: str, one_user: bool
) -> TextFormat:
    num_columns = len(rows[0])
    names: tuple[str, ...] = DEFAULT_NAMES
    # Of one user, who stands in every row or in none.
    if one_user and (num_columns == 1 or (num_columns < 4 and not _has_user(rows))):
        names = DEFAULT_NAMES[1:]
    if num_columns == names.index("rating") + 1 and all(_TIME.fullmatch(row[-1]) for row in rows):
        names = tuple(name for name in names if name != "rating")
    if not names.index("item") < num_columns <= len(names):
        raise HushrecError(
            f"{source.path}, line 1: {num_columns} columns and no header; "
            "expected a header line, or user, item and if known rating, timestamp"
        )
    names = names[:num_columns]
    return TextFormat(delimiter, names, has_header=False, has_quotes=delimiter in ",;", decimal=decimal)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_text(
    source: Source,
    text_format: TextFormat,
    types: Mapping[str, pa.DataType],
    fast_types: Mapping[str, pa.DataType | None] | None = None,
) -> pa.Table:
    """The columns named in `types`, each of the type given there. Blank lines are no rows.

    With `fast_types` the file is first read with these, which is quicker (None: Arrow chooses); where a value does
    not fit, or a number of a whole column has leading zeros, with `types`.
    """
    if text_format.has_header and not _has_more_lines(source.content):
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    if fast_types is not None and not _loses_zeros(source, text_format):
        try:
            table = _read_csv(
                source, text_format, {name: kind for name, kind in fast_types.items() if kind}, types
            )
        except pa.ArrowInvalid:
            table = None
        whole = [name for name, kind in fast_types.items() if kind == pa.int64()]
        if table is not None and not any(table[name].null_count for name in whole):
            return table
    try:
        return _read_csv(source, text_format, types, types)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
    raise HushrecError(_find_fault(source, text_format) or f"{source.path}: {reason}; {EXPECTED}")


def _has_more_lines(content: pa.Buffer) -> bool:
    """Whether there is something below the first line; Arrow asks for one that ends."""
    return re.search(rb"[\r\n]\s*\S", bytes(content[:_SNIFFED_BYTES])) is not None or content.size > _SNIFFED_BYTES


def _loses_zeros(source: Source, text_format: TextFormat) -> bool:
    delimiter = text_format.delimiter[-1].encode()[0]
    return bool(has_leading_zeros(np.frombuffer(source.content, np.uint8), delimiter))


def _read_csv(
    source: Source, text_format: TextFormat, types: Mapping[str, pa.DataType], names: Mapping[str, pa.DataType]
) -> pa.Table:
    content, delimiter = source.content, text_format.delimiter
    has_quotes = text_format.has_quotes and _has_quote_below(content)  # to look for none is quicker
    if delimiter == "::":
        content = pa.py_buffer(bytes(content).replace(b"::", _UNIT_SEPARATOR.encode()))
        delimiter = _UNIT_SEPARATOR
    return pa_csv.read_csv(
        pa.BufferReader(content),
        pa_csv.ReadOptions(
            column_names=list(text_format.names), skip_rows_after_names=int(text_format.has_header)
        ),
        pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if has_quotes else False,
            newlines_in_values=has_quotes,
        ),
        pa_csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(names),
            strings_can_be_null=False,
            null_values=MISSING,
            decimal_point=text_format.decimal,
        ),
    )


def _has_quote_below(content: pa.Buffer) -> bool:
    """Whether there is a quotation mark below the first line: only then a value can hold the end of a line."""
    first_line = bytes(content[:_SNIFFED_BYTES]).find(b"\n") + 1
    return bool(has_byte(np.frombuffer(content, np.uint8)[first_line:], ord('"')))


def line_of_row(source: Source, text_format: TextFormat, row: int) -> int:
    """The line (from 1, the header counted) where a row (from 0) starts."""
    rows = itertools.islice(_rows(source, text_format), row + text_format.has_header, None)
    return next(rows)[0]


def _rows(source: Source, text_format: TextFormat) -> Iterator[tuple[int, list[str]]]:
    """The line and the fields of each row. Slow, and only run once a fault is known.

    Bytes that are not UTF-8 come out as lone surrogates.
    """
    file = io.TextIOWrapper(
        io.BufferedReader(pa.BufferReader(source.content)), "utf-8", errors="surrogateescape", newline=""
    )
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


def _find_fault(source: Source, text_format: TextFormat) -> str | None:
    """What is wrong with the first malformed row."""
    names, path = text_format.names, source.path
    line = 0
    try:
        for line, fields in _rows(source, text_format):
            if len(fields) != len(names):
                return (
                    f"{path}, line {line}: expected {len(names)} columns ({', '.join(names)}), found {len(fields)}"
                )
            if any("\udc80" <= mark <= "\udcff" for field in fields for mark in field):
                return f"{path}, line {line}: not UTF-8 text; {EXPECTED}; {_encoding_hint()}"
    except csv.Error as error:
        return f"{path}, after line {line}: {error}; {EXPECTED}"
    return None
