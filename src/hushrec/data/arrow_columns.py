"""From columns of a table (Arrow) to the NumPy columns of `Interactions`, with every value checked."""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.checking import RowError
from hushrec.data.interactions import Ids

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_LARGEST_TABLE = 1 << 20


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
    low, high = int(values.min()), int(values.max())
    if high - low > max(4 * values.size, _LARGEST_TABLE):
        ids, numbers = np.unique(values, return_inverse=True)
        return numbers.astype(np.int32), ids
    # A table over the span of the ids saves sorting the rows.
    offsets = values - low
    occurs = np.zeros(high - low + 1, bool)
    occurs[offsets] = True
    number_of = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return number_of[offsets], np.flatnonzero(occurs) + low


def _whole(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    values = column.to_numpy()
    is_wrong = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) >= 2.0**53)
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise RowError(row, f"{what} id is {values[row]}; expected a whole number or text")
    return column.cast(pa.int64())


def ratings_of(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Finite ratings."""
    _refuse_nulls(column, "rating")
    if _is_number(column.type):
        with np.errstate(over="ignore"):
            ratings: npt.NDArray[np.float32] = column.cast(pa.float64()).to_numpy().astype(np.float32)
        is_wrong = ~np.isfinite(ratings)
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            raise RowError(row, f"rating is {column[row]}; expected a finite number")
        return ratings
    codes, texts = _dictionary(column)
    with np.errstate(over="ignore"):
        values = np.array([_number(text) for text in texts], np.float64).astype(np.float32)
    is_wrong = ~np.isfinite(values)
    if is_wrong.any():
        row = _first_row(codes, is_wrong)
        raise RowError(row, f"rating is {texts[codes[row]]!r}; expected a finite number")
    return values[codes]


def timestamps_of(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Unix seconds, -1 where there is none. Text may be a number or a date of ISO 8601."""
    if not (_is_number(column.type) or pa.types.is_temporal(column.type)):
        column = _parsed_times(column)
    if pa.types.is_temporal(column.type):
        column = pc.floor_temporal(column.cast(_utc_microseconds(column.type)), unit="second")
        column = pc.divide(column.cast(pa.int64()), 1_000_000)
    elif not pa.types.is_integer(column.type):
        values = column.cast(pa.float64())
        in_range = pc.less(pc.abs(values), 2.0**63)
        is_wrong = pc.fill_null(pc.invert(in_range), False).to_numpy()
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            raise RowError(row, f"timestamp is {column[row]}; expected Unix seconds")
        column = pc.floor(values).cast(pa.int64(), safe=False)
    times: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return times


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
    """The column as text, "" for nulls."""
    return [text or "" for text in column.cast(pa.string()).to_pylist()]


def _parsed_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    kinds = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
    for kind in kinds:
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    can_be = [_casts(kind) for kind in kinds]
    row = next(row for row, value in enumerate(text) if not any(test(value) for test in can_be))
    raise RowError(row, f"timestamp is {str(text[row])!r}; expected Unix seconds or a date like 2024-01-31")


def _casts(kind: pa.DataType) -> Callable[[pa.Scalar], bool]:
    def test(value: pa.Scalar) -> bool:
        try:
            value.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True

    return test


def _utc_microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.timestamp("us")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _refuse_nulls(column: pa.ChunkedArray, what: str) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise RowError(row, f"{what} is missing; expected a value")


def _dictionary(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """One code a row and the distinct texts that the codes stand for."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.empty(0, np.int32), []
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return codes.astype(np.int32, copy=False), column.chunk(0).dictionary.cast(pa.string()).to_pylist()


def _number(text: str) -> float:
    try:
        return float("nan") if "_" in text else float(text)
    except ValueError:
        return float("nan")


def _first_row(codes: npt.NDArray[np.int32], is_wrong: npt.NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(is_wrong[codes])[0])
