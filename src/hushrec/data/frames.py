"""Data that is in memory already: frames of pandas, polars and others, Arrow tables, sparse matrices, arrays.

All become an Arrow table with the columns that a file has, and go through the same door as files.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec.data.interactions import Interactions
from hushrec.data.readers import Reading
from hushrec.data.tables import Columns, Rows, Tell, checked_rows, choose_columns, draft_of
from hushrec.data.titles import with_named_items
from hushrec.errors import HushrecError

TAKEN = (
    "a frame of pandas, polars or Arrow, a SciPy sparse matrix, a dict of columns, or a tuple of arrays "
    "(users, items, ratings, times)"
)
ColumnNames = Columns | Mapping[str, str]
_ROLES = ("user", "item", "rating", "timestamp")  # of the arrays of a tuple
_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def interactions_of(
    source: object, reading: Reading | None = None, name: str = "frame", notify: Tell | None = None
) -> Interactions:
    """What a frame, a sparse matrix or arrays say, with the checks that a file goes through.

    The rows and columns of a sparse matrix are users and items; those without an entry are known, too.
    """
    reading = reading or Reading()
    table = _table_of(source, reading, name)
    if not table.num_rows:
        raise HushrecError(f"{name} has no rows; expected one for each rating")
    rows = Rows(table, name, lambda row: f"{name}, row {row} (the first is 0)", name)
    used, draft = draft_of(rows, reading.rating_range, reading.missing, reading.decimal, notify)
    if _is_sparse(source):
        draft = _with_all_numbers(draft, *source.shape)  # type: ignore[attr-defined]
    data = checked_rows(used, draft, reading.duplicates)
    if reading.items is None:
        return data
    return with_named_items(data, reading.items, reading.encoding, notify)


def ids_of_array(ids: object, what: str) -> NDArray[Any]:
    """Ids that somebody asks about, one or many, of any library, as an array of numbers or texts."""
    array = np.asarray(ids)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise HushrecError(f"a {what} id is missing; leave such rows out")
    if array.dtype.kind != "O":
        return array
    values = array.ravel().tolist()
    if any(value is None or value != value for value in values):
        raise HushrecError(f"a {what} id is missing; leave such rows out")
    if all(isinstance(value, str) for value in values):
        return np.array(values, np.str_).reshape(array.shape)
    return array


def is_frame(source: object) -> bool:
    """Whether something has named columns."""
    return isinstance(source, Mapping | pa.Table | pa.RecordBatch) or _narwhals_frame(source) is not None


def column_of(frame: object, role: str, columns: ColumnNames | None = None) -> NDArray[Any]:
    """The ids in a frame's column of users or of items."""
    named, names = _columns(frame), Columns.of(columns)
    found = choose_columns("frame", list(named), names, implicit=True, one_user=role != "user")
    return ids_of_array(_arrow(named[found[role]], found[role]).to_numpy(zero_copy_only=False), role)


# --- To Arrow ----------------------------------------------------------------------------------------------


def _table_of(source: object, reading: Reading, name: str) -> pa.Table:
    """A table whose columns are called user, item and, where present, rating, timestamp, order."""
    if isinstance(source, tuple):
        return _of_arrays(source, reading.implicit, name)
    if _is_sparse(source):
        entries = source.tocoo()  # type: ignore[attr-defined]
        parts = {"user": entries.row, "item": entries.col, "rating": entries.data}
        return pa.table({role: part for role, part in parts.items() if role != "rating" or not reading.implicit})
    named = _columns(source)
    columns = Columns.of(reading.columns)
    chosen = choose_columns(name, list(named), columns, reading.implicit, reading.one_user)
    return _joined({role: _arrow(named[column], column) for role, column in chosen.items()}, name)


def _of_arrays(arrays: tuple[object, ...], implicit: bool, name: str) -> pa.Table:
    if not 2 <= len(arrays) <= len(_ROLES):
        raise HushrecError(
            f"a tuple of {len(arrays)} is not (users, items, ratings, times); give two to four arrays"
        )
    given = {role: array for role, array in zip(_ROLES, arrays, strict=False) if array is not None}
    if implicit:
        given.pop("rating", None)
    return _joined({role: _arrow(array, f"{role}s") for role, array in given.items()}, name)


def _joined(parts: Mapping[str, pa.ChunkedArray], name: str) -> pa.Table:
    lengths = {role: len(part) for role, part in parts.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{role} {length}" for role, length in lengths.items())
        raise HushrecError(f"{name}: the columns have different lengths ({told}); give one value per row")
    return pa.table(dict(parts))


def _columns(source: object) -> Mapping[str, Any]:
    """The columns of something with names, by their names; nothing is copied yet."""
    if isinstance(source, Mapping):
        return {str(name): column for name, column in source.items()}
    frame = _narwhals_frame(source)
    if frame is not None:
        return _unique({str(name): name for name in frame.columns}, frame)
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.ChunkedArray):
        try:
            table = pa.table(source)
        except _NOT_ARROW:
            raise HushrecError(f"{type(source).__name__} is no table; give {TAKEN}") from None
        return dict(zip(table.column_names, table.columns, strict=True))
    raise HushrecError(f"{type(source).__name__} is not taken; give {TAKEN}")


def _unique(names: Mapping[str, Any], frame: Any) -> dict[str, Any]:
    if len(names) < len(frame.columns):
        raise HushrecError("the frame has two columns of one name; rename one of them")
    return {text: frame.get_column(name) for text, name in names.items()}


def _narwhals_frame(source: object) -> Any:
    """The frame as Narwhals sees it, whatever library it is of; None if it is no frame."""
    import narwhals  # not before a frame comes: it looks for all libraries of frames
    from narwhals.exceptions import NarwhalsError

    try:
        frame = narwhals.from_native(source, pass_through=True)
        frame = frame.collect() if isinstance(frame, narwhals.LazyFrame) else frame
    except (NarwhalsError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise HushrecError(f"the frame cannot be read ({reason}); correct it, or give {TAKEN}") from None
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _arrow(column: Any, name: str) -> pa.ChunkedArray:
    """A column of any library as Arrow's; not a number is as missing as a null."""
    try:
        if hasattr(column, "to_arrow"):
            column = column.to_arrow()
        elif hasattr(column, "__arrow_c_stream__"):
            column = pa.chunked_array(column)
        elif not isinstance(column, pa.Array | pa.ChunkedArray):
            column = pa.array(np.asarray(column) if isinstance(column, range) else column, from_pandas=True)
    except _NOT_ARROW as error:
        reason = " ".join(str(error).split())
        raise HushrecError(f"column {name!r} is not of one kind ({reason}); make it numbers or text") from None
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


# --- Sparse matrices ---------------------------------------------------------------------------------------


def _is_sparse(source: object) -> bool:
    return type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocoo")


def _with_all_numbers(draft: Interactions, num_users: int, num_items: int) -> Interactions:
    """The draft with a user for every row of the matrix, and an item for every column."""
    return replace(
        draft,
        users=draft.user_ids[draft.users].astype(np.int32),
        items=draft.item_ids[draft.items].astype(np.int32),
        user_ids=np.arange(num_users, dtype=np.int64),
        item_ids=np.arange(num_items, dtype=np.int64),
    )
