"""From columns of a table (Arrow) to the NumPy columns of `Interactions`, with every value checked."""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.checking import RowError
from hushrec.data.field_scan import numbered, span_of
from hushrec.data.interactions import Ids

# What stands for a rating that is not there, or a time.
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "NaN", "nan", "NAN", "<NA>"]

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_LARGEST_TABLE = 1 << 20
# From these on, a time is in thousandths of the unit before. No second of a rating lies beyond the year 5000.
_LARGEST_SECONDS = 10**11
_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_FIRST_DAY, _LAST_DAY = 19_000_101, 21_001_231  # written as whole numbers


# --- Ids -------------------------------------------------------------------------------------------------


def ids_of(column: pa.ChunkedArray, what: str) -> tuple[npt.NDArray[np.int32], Ids]:
    """Numbers from 0 and the ids they stand for, sorted.

    Ids are int64 where every one is a whole number without leading zeros, else strings. Spaces around
    an id are no part of it.
    """
    _refuse_nulls(column, f"{what} id")
    if pa.types.is_floating(column.type):
        column = _whole(column, what)
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return _number_integers(column.to_numpy().astype(np.int64, copy=False))
    codes, texts = _dictionary(column)
    texts = [text.strip() for text in texts]
    is_wrong = np.array([not text or "\0" in text for text in texts], bool)
    if is_wrong.any():
        raise RowError(_first_row(codes, is_wrong), f"{what} id is blank or not text; expected an id")
    ids: Ids
    if all(_WHOLE_NUMBER.fullmatch(text) for text in texts):
        ids, number_of = np.unique(np.array([int(text) for text in texts], np.int64), return_inverse=True)
    else:
        ids, number_of = np.unique(np.array(texts, np.str_), return_inverse=True)
    return number_of.astype(np.int32)[codes], ids


def _number_integers(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    if not values.size:
        return np.empty(0, np.int32), np.empty(0, np.int64)
    low, high = span_of(values)
    if high - low <= max(4 * values.size, _LARGEST_TABLE):
        numbers, ids = numbered(values, low, high - low + 1)  # saves sorting the rows
        return numbers, ids
    distinct = pa.array(values).dictionary_encode()
    ids, number_of = np.unique(distinct.dictionary.to_numpy(), return_inverse=True)
    return number_of.astype(np.int32)[distinct.indices.to_numpy()], ids


def _whole(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    values = column.to_numpy()
    is_wrong = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) >= 2.0**53)
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise RowError(row, f"{what} id is {values[row]}; expected a whole number or text")
    return column.cast(pa.int64())


# --- Ratings ---------------------------------------------------------------------------------------------


def ratings_of(column: pa.ChunkedArray, decimal: str = ".") -> npt.NDArray[np.float32]:
    """Finite ratings, NaN where one is missing."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if _is_number(column.type):
        with np.errstate(over="ignore"):
            ratings: npt.NDArray[np.float32] = column.cast(pa.float64()).to_numpy().astype(np.float32)
        is_wrong = np.isinf(ratings)
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            raise RowError(row, f"rating is {column[row]}; expected a finite number")
        return ratings
    codes, texts = _dictionary(column)
    is_missing = np.array([text.strip() in MISSING for text in texts], np.bool_)
    with np.errstate(over="ignore"):
        values = np.array([_number(text, decimal) for text in texts], np.float64).astype(np.float32)
    is_wrong = ~np.isfinite(values) & ~is_missing
    if is_wrong.any():
        row = _first_row(codes, is_wrong)
        hint = "; for decimal commas add --decimal ," if re.fullmatch(r"\d+,\d+", texts[codes[row]]) else ""
        raise RowError(row, f"rating is {texts[codes[row]]!r}; expected a finite number{hint}")
    values[is_missing] = np.nan
    return values[codes]


def blanks_of(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Of each row, whether there is no id."""
    is_null: npt.NDArray[np.bool_] = column.is_null(nan_is_null=True).to_numpy()
    if _is_number(column.type):
        return is_null
    codes, texts = _dictionary(column)
    return np.array([not text.strip() for text in texts], np.bool_)[codes]


# --- Times -----------------------------------------------------------------------------------------------


def timestamps_of(column: pa.ChunkedArray, decimal: str = ".") -> tuple[npt.NDArray[np.int64], str]:
    """Unix seconds, -1 where there is none; and how they were written, if that had to be guessed.

    Text may be a number or a date of ISO 8601. Numbers are seconds, thousandths, millionths or billionths of them,
    judged by the largest, or days like 20240131.
    """
    if not (_is_number(column.type) or pa.types.is_temporal(column.type)):
        column = _parsed_times(column, decimal)
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


def _filled(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    column = pc.fill_null(column, -1) if column.null_count else column
    times: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return times


def _in_seconds(times: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], str]:
    if not times.size:
        return times, ""
    low, high = span_of(times)
    if low >= _FIRST_DAY and high <= _LAST_DAY and _are_days(times):
        days = (times // 10_000 - 1970).astype("datetime64[Y]").astype("datetime64[M]")
        days = (days + (times // 100 % 100 - 1)).astype("datetime64[D]") + (times % 100 - 1)
        return days.astype("datetime64[s]").astype(np.int64), "days like 20240131"
    unit = sum(high >= _LARGEST_SECONDS * 1000**power for power in range(len(_UNITS) - 1))
    if not unit:
        return times, ""
    return np.where(times == -1, -1, times // 1000**unit), _UNITS[unit]


def _are_days(times: npt.NDArray[np.int64]) -> bool:
    months, days = times // 100 % 100, times % 100
    return bool(((months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all())


def _parsed_times(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    text = pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)
    if decimal != ".":
        text = pc.replace_substring(text, decimal, ".")
    kinds = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"),
             pa.timestamp("ns", "UTC"))  # fmt: skip
    for kind in kinds:
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    can_be = [_casts(kind) for kind in kinds]
    rows = (row for row, value in enumerate(text) if not any(test(value) for test in can_be))
    row = next(rows, None)
    if row is None:  # each is a time, but not of one kind
        return _mixed_times(text)
    raise RowError(
        row,
        f"timestamp is {str(text[row])!r}; expected Unix seconds or a date like 2024-01-31; "
        "without times: --columns timestamp=",
    )


def _mixed_times(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times some of which name their zone; the others are taken to be in UTC."""
    has_zone = pc.match_substring_regex(text, r"(?:[Zz]|[+-]\d\d:?\d\d)$")
    is_number = pc.match_substring_regex(text, r"^-?\d+(?:\.\d+)?$")
    if pc.any(is_number).as_py():
        row = pc.index(pc.fill_null(is_number, False), True).as_py()
        raise RowError(row, f"timestamp is {str(text[row])!r}, others are dates; write all in one way")
    return pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", "")).cast(pa.timestamp("ns", "UTC"))


def _casts(kind: pa.DataType) -> Callable[[pa.Scalar], bool]:
    def test(value: pa.Scalar) -> bool:
        try:
            value.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True

    return test


# --- Order, and texts ------------------------------------------------------------------------------------


def order_of(column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Places in the users' histories."""
    _refuse_nulls(column, "order")
    texts = column.cast(pa.string()).to_pylist() if not pa.types.is_integer(column.type) else []
    for row, text in enumerate(texts):
        if not _WHOLE_NUMBER.fullmatch(text):
            raise RowError(row, f"order is {text!r}; expected a whole number")
    numbers = column.cast(pa.int64()).to_numpy()
    is_wrong = (numbers < 0) | (numbers >= 2**31)
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise RowError(row, f"order is {numbers[row]}; expected a whole number from 0 to {2**31 - 1}")
    places: npt.NDArray[np.int32] = numbers.astype(np.int32)
    return places


def texts_of(column: pa.ChunkedArray) -> list[str]:
    """The column as text, "" for nulls; what a list holds goes between bars."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.binary_join(column.cast(pa.list_(pa.string())), "|")
    if pa.types.is_floating(column.type):  # whole numbers that became floats because some are missing
        column = _whole_where_it_can_be(column)
    return [text or "" for text in column.cast(pa.string()).to_pylist()]


def _whole_where_it_can_be(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


# --- Parts -----------------------------------------------------------------------------------------------


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _refuse_nulls(column: pa.ChunkedArray, what: str) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise RowError(row, f"{what} is missing; expected a value")


def _dictionary(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """One code a row and the distinct texts that the codes stand for; a null is as a text without letters."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.empty(0, np.int32), []
    texts = column.chunk(0).dictionary.cast(pa.string()).to_pylist()
    codes = np.concatenate(
        [pc.fill_null(chunk.indices, len(texts)).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    )
    texts = [text or "" for text in texts] + [""]
    is_used = np.bincount(codes, minlength=len(texts)) > 0  # a dictionary may hold what no row has
    places = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return places[codes], [text for text, used in zip(texts, is_used.tolist(), strict=True) if used]


def _number(text: str, decimal: str) -> float:
    try:
        return float("nan") if "_" in text else float(text.replace(decimal, "."))
    except ValueError:
        return float("nan")


def _first_row(codes: npt.NDArray[np.int32], is_wrong: npt.NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(is_wrong[codes])[0])
