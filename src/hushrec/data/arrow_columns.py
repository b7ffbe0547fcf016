"""From columns of a table (Arrow) to the NumPy columns of `Interactions`, with every value checked."""

import itertools
import re
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.data.checking import RowError
from hushrec.data.field_scan import look_up, mark, span_of
from hushrec.data.interactions import Ids
from hushrec.errors import is_typed, option

# What stands for a rating that is not there, or a time.
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "NaN", "nan", "NAN", "<NA>"]

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_LARGEST_TABLE = 1 << 20
_UUID = "arrow.uuid"


# --- Kinds -----------------------------------------------------------------------------------------------


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without what only says how it is stored; kinds of other libraries are refused."""
    kind = column.type
    if getattr(kind, "extension_name", "") == _UUID:
        return _uuid_texts(column)
    if isinstance(kind, pa.BaseExtensionType):
        raise pa.ArrowTypeError(f"{kind} is of another library")
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(column)
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        return plain_column(column.cast(kind.value_type))
    return column


def _uuid_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    stored = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.binary(16)).combine_chunks()
    encoded = stored.dictionary_encode()
    texts = pa.array([str(UUID(bytes=value)) for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, texts)])


def is_number(kind: pa.DataType) -> bool:
    """Whether it is a kind of numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether it is a kind of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
        return _number_integers(
            [part.to_numpy().astype(np.int64, copy=False) for part in column.chunks if len(part)]
        )
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


def _number_integers(parts: list[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    size = sum(part.size for part in parts)
    if not size:
        return np.empty(0, np.int32), np.empty(0, np.int64)
    spans = [span_of(part) for part in parts]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    if high - low <= max(4 * size, _LARGEST_TABLE):  # a table over the span saves sorting the rows
        does_occur = np.zeros(high - low + 1, np.bool_)
        for part in parts:
            mark(part, low, does_occur)
        place_of = np.cumsum(does_occur, dtype=np.int32) - np.int32(1)
        numbers = np.empty(size, np.int32)
        for part, end in zip(parts, itertools.accumulate(part.size for part in parts), strict=True):
            look_up(part, low, place_of, numbers[end - part.size : end])
        return numbers, np.flatnonzero(does_occur) + low
    distinct = pa.array(np.concatenate(parts)).dictionary_encode()
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
    if is_number(column.type):
        ratings, end = np.empty(len(column), np.float32), 0
        with np.errstate(over="ignore"):
            for part in column.chunks:
                start, end = end, end + len(part)
                ratings[start:end] = part.cast(pa.float64()).to_numpy(zero_copy_only=False)
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
        is_comma = re.fullmatch(r"\d+,\d+", texts[codes[row]])
        hint = f"for decimal commas add {option('decimal', ',')}" if is_comma else _how_without_ratings()
        raise RowError(row, f"rating is {texts[codes[row]]!r}; expected a finite number; {hint}")
    values[is_missing] = np.nan
    return values[codes]


def _how_without_ratings() -> str:
    left_out = option("columns", "rating=") if is_typed() else f"{option('columns')}{{'rating': ''}}"
    return f"write numbers, or leave the column out with {left_out}"


def blanks_of(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Of each row, whether there is no id."""
    is_null: npt.NDArray[np.bool_] = column.is_null(nan_is_null=True).to_numpy()
    if is_number(column.type):
        return is_null
    codes, texts = _dictionary(column)
    return np.array([not text.strip() for text in texts], np.bool_)[codes]


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
    column = plain_column(column)
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
