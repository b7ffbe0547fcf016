"""Times of a table (Arrow) as Unix seconds, however they are written."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.arrow_columns import MISSING, is_number
from hushrec.data.checking import RowError
from hushrec.data.field_scan import span_of
from hushrec.errors import option

Times = npt.NDArray[np.int64]
_UNKNOWN = -1

# From these on, a time is in thousandths of the unit before. No second of a rating lies beyond the year 5000.
_LARGEST_SECONDS = 10**11
_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_FIRST_DAY, _LAST_DAY = 19_000_101, 21_001_231  # written as whole numbers

# What Arrow reads by itself, which is quick.
_KINDS = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
# What is put into such a form first: dates with and without a time or a zone, with or without marks between.
_ISO_8601 = (
    r"^(?P<year>\d{4})-?(?P<month>\d\d)-?(?P<day>\d\d)"
    r"(?:[Tt ](?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,6})\d*)?)?)?"
    r" ?(?P<zone>[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?$"
)
_NUMBER = r"^-?\d+(?:\.\d+)?$"


def timestamps_of(column: pa.ChunkedArray, decimal: str = ".") -> tuple[Times, str]:
    """Unix seconds, -1 where there is none; and how they were written, if that had to be guessed.

    Text may be a number or a date of ISO 8601. Numbers are seconds, thousandths, millionths or billionths of them,
    judged by the largest, or days like 20240131.
    """
    if not (is_number(column.type) or pa.types.is_temporal(column.type)):
        column = _parsed(column, decimal)
    if pa.types.is_temporal(column.type):
        column = pc.floor_temporal(column, unit="second") if pa.types.is_timestamp(column.type) else column
        return _filled(column.cast(pa.timestamp("s", getattr(column.type, "tz", None))).cast(pa.int64())), ""
    if pa.types.is_integer(column.type):
        return _in_seconds(_filled(column))
    values = column.cast(pa.float64())
    in_range = pc.less(pc.abs(values), 2.0**63)
    is_wrong = pc.fill_null(pc.invert(in_range), False).to_numpy()
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise RowError(row, f"timestamp is {column[row]}; expected Unix seconds")
    return _in_seconds(_filled(pc.floor(values)))


def _filled(column: pa.ChunkedArray) -> Times:
    column = pc.fill_null(column, _UNKNOWN) if column.null_count else column
    times: Times = column.cast(pa.int64()).to_numpy()
    return times


# --- Numbers ---------------------------------------------------------------------------------------------


def _in_seconds(times: Times) -> tuple[Times, str]:
    if not times.size:
        return times, ""
    low, high = span_of(times)
    known = times
    if low == _UNKNOWN:  # which is no time to judge by
        known = times[times != _UNKNOWN]
        low, high = span_of(known) if known.size else (low, high)
    if low >= _FIRST_DAY and high <= _LAST_DAY and _are_days(known):
        days = (times // 10_000 - 1970).astype("datetime64[Y]").astype("datetime64[M]")
        days = (days + (times // 100 % 100 - 1)).astype("datetime64[D]") + (times % 100 - 1)
        return _where_known(times, days.astype("datetime64[s]").astype(np.int64)), "days like 20240131"
    unit = sum(high >= _LARGEST_SECONDS * 1000**power for power in range(len(_UNITS) - 1))
    return (_where_known(times, times // 1000**unit), _UNITS[unit]) if unit else (times, "")


def _where_known(times: Times, seconds: Times) -> Times:
    return np.where(times == _UNKNOWN, _UNKNOWN, seconds)


def _are_days(times: Times) -> bool:
    months, days = times // 100 % 100, times % 100
    return bool(((months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all())


# --- Texts -----------------------------------------------------------------------------------------------


def _parsed(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Numbers, or times of Arrow's own kind."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    text = pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)
    text = pc.replace_substring(text, ",", ".") if decimal == "," else text
    for kind in _KINDS:
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    return _of_iso_8601(text)


def _of_iso_8601(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates in any form of the standard, mixed; in UTC where they name no zone."""
    parts = pc.extract_regex(text, _ISO_8601)
    is_wrong = pc.and_(pc.is_valid(text), pc.is_null(parts))
    if pc.any(is_wrong).as_py():
        is_number = pc.fill_null(pc.match_substring_regex(text, _NUMBER), False)
        is_neither = pc.and_not(is_wrong, is_number)
        row = pc.index(is_neither, True).as_py()
        if row < 0:
            row = pc.index(is_wrong, True).as_py()
            raise RowError(row, f"timestamp is {str(text[row])!r}, others are dates; write all in one way")
        raise _no_time(text, row)

    def part(name: str, otherwise: str) -> pa.ChunkedArray:
        found = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(found, ""), otherwise, found)

    clock = [part("hour", "00"), ":", part("minute", "00"), ":", part("second", "00"), ".", part("fraction", "0")]
    zone = pc.replace_substring_regex(part("zone", "Z"), "^[zUG].*", "Z")
    date = [part("year", ""), "-", part("month", ""), "-", part("day", "")]
    whole = pc.binary_join_element_wise(*date, "T", *clock, zone, "")

    def cast(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        return texts.cast(pa.timestamp("us", "UTC"))

    try:
        return cast(whole)
    except pa.ArrowInvalid:  # as the 31st of June
        raise _no_time(text, _first_refused(whole, cast)) from None


def _first_refused(text: pa.ChunkedArray, cast: Callable[[pa.ChunkedArray], object]) -> int:
    """The first value that cannot be cast, found by halves; there is one."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(text.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _no_time(text: pa.ChunkedArray, row: int) -> RowError:
    typed = option("columns", "timestamp=")
    without = typed if typed.startswith("-") else f"{option('columns')}{{'timestamp': ''}}"
    expected = "expected Unix seconds or a date like 2024-01-31"
    return RowError(row, f"timestamp is {str(text[row])!r}; {expected}; without times: {without}")
