"""What is in memory already, by columns of Arrow: frames of pandas, polars and others, sparse matrices, arrays."""

from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec.data.arrow_columns import plain_column
from hushrec.errors import HushrecError

TAKEN = (
    "a frame of pandas, polars or Arrow, a SciPy sparse matrix, a dict of columns, or a tuple of arrays "
    "(users, items, ratings, times)"
)
ROLES = ("user", "item", "rating", "timestamp")  # of the arrays of a tuple
_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


# --- Kinds -----------------------------------------------------------------------------------------------


def is_frame(source: object) -> bool:
    """Whether something has named columns."""
    return (
        isinstance(source, Mapping | pa.Table | pa.RecordBatch)
        or _fields(source) is not None
        or _narwhals_frame(source) is not None
    )


def is_sparse(source: object) -> bool:
    """Whether something is a sparse matrix of SciPy."""
    return type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocoo")


def are_arrays(source: object) -> bool:
    """Whether something is a tuple of arrays, and not of ids."""
    if not isinstance(source, tuple) or not source:
        return False
    return all(one is None or (hasattr(one, "__len__") and not isinstance(one, str | bytes)) for one in source)


def _fields(source: object) -> tuple[str, ...] | None:
    """The names in a structured array of NumPy."""
    return source.dtype.names if isinstance(source, np.ndarray) else None


# --- Columns ---------------------------------------------------------------------------------------------


def columns_of(source: object) -> dict[str, Any]:
    """The columns of something with names, by their names; nothing is copied yet."""
    if isinstance(source, Mapping):
        return {str(name): column for name, column in source.items()}
    if (fields := _fields(source)) is not None:
        return {name: source[name] for name in fields}  # type: ignore[index]
    frame = _narwhals_frame(source)
    if frame is not None:
        return _unique({str(name): name for name in frame.columns}, frame)
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.ChunkedArray):
        try:
            table = pa.table(source)
        except _NOT_ARROW:
            raise HushrecError(f"{_kind(source)} is no table; give {TAKEN}") from None
        return dict(zip(table.column_names, table.columns, strict=True))
    raise HushrecError(f"{_kind(source)} is not taken; give {TAKEN}")


def entries_of(matrix: Any) -> dict[str, NDArray[Any]]:
    """The entries of a sparse matrix: its rows and columns are users and items."""
    if matrix.ndim != 2:
        raise HushrecError(f"a sparse array of shape {matrix.shape}; give a matrix of users and items")
    entries = matrix.tocoo()
    return {"user": entries.row, "item": entries.col, "rating": entries.data}


def arrays_of(arrays: tuple[object, ...]) -> dict[str, object]:
    """The arrays of a tuple by what they are; None stands for one that is not there."""
    if not 2 <= len(arrays) <= len(ROLES):
        raise HushrecError(
            f"a tuple of {len(arrays)} is not (users, items, ratings, times); give two to four arrays"
        )
    return {role: array for role, array in zip(ROLES, arrays, strict=False) if array is not None}


def joined(columns: Mapping[str, pa.ChunkedArray], name: str) -> pa.Table:
    """Columns as one table; `name` is that of the data, for errors."""
    lengths = {role: len(column) for role, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{role} {length}" for role, length in lengths.items())
        raise HushrecError(f"{name}: the columns have different lengths ({told}); give one value per row")
    return pa.table(dict(columns))


def arrow_column(column: Any, name: str) -> pa.ChunkedArray:
    """A column of any library as Arrow's; not a number is as missing as a null."""
    if isinstance(column, str | bytes | Set):
        raise HushrecError(f"column {name!r} is a {type(column).__name__}; give a number or a text for each row")
    try:
        try:
            found = _converted(column)
        except _NOT_ARROW:
            found = pa.array(_native(column), from_pandas=True)
        return plain_column(found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found]))
    except _NOT_ARROW as error:
        reason = " ".join(str(error).split())
        raise HushrecError(
            f"column {name!r} cannot be read ({reason}); give a number or a text for each row"
        ) from None


def _converted(column: Any) -> pa.Array | pa.ChunkedArray:
    if hasattr(column, "to_arrow"):
        return column.to_arrow()
    if hasattr(column, "__arrow_c_stream__"):
        return pa.chunked_array(column)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    return pa.array(np.asarray(column) if isinstance(column, range) else column, from_pandas=True)


def _native(column: Any) -> NDArray[Any]:
    """What Arrow does not take from its library: tensors, columns kept as sparse, bytes in another order."""
    array = np.asarray(column)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _unique(names: Mapping[str, Any], frame: Any) -> dict[str, Any]:
    if len(names) < len(frame.columns):
        raise HushrecError("the frame has two columns of one name; rename one of them")
    return {text: frame.get_column(name) for text, name in names.items()}


def _narwhals_frame(source: object) -> Any:
    """The frame as Narwhals sees it, whatever library it is of; None if it is no frame."""
    import narwhals  # not before a frame comes: it looks for all libraries of frames
    from narwhals.exceptions import NarwhalsError

    try:
        frame = narwhals.from_native(_with_index(source), pass_through=True)
        frame = frame.collect() if isinstance(frame, narwhals.LazyFrame) else frame
    except (NarwhalsError, ValueError, OSError) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())  # below it polars tells of its plans
        raise HushrecError(f"the frame cannot be read ({reason}); correct it, or give {TAKEN}") from None
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _with_index(source: Any) -> Any:
    """A frame of pandas with what its index names among the columns."""
    from narwhals.dependencies import is_pandas_dataframe, is_pandas_series

    if not is_pandas_dataframe(source) and not (is_pandas_series(source) and source.index.nlevels > 1):
        return source
    others = source.columns if is_pandas_dataframe(source) else [source.name]
    named = [name for name in source.index.names if name is not None and name not in others]
    return source.reset_index(named) if named else source


def _kind(source: object) -> str:
    return source.__name__ if isinstance(source, type) else type(source).__name__


# --- Ids -------------------------------------------------------------------------------------------------


def ids_of_array(ids: object, what: str) -> NDArray[Any]:
    """Ids that somebody asks about, one or many, of any library, as an array of numbers or texts."""
    try:
        array = np.asarray(list(ids) if isinstance(ids, Set | Iterator) else ids)
    except ValueError:
        raise HushrecError(f"{what} ids are not of one shape; give one id, or an array of them") from None
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise missing_id(what)
    if array.dtype.kind != "O":
        return array
    values = array.ravel().tolist()
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        raise HushrecError(f"{what} ids are not of one shape; give one id, or an array of them")
    if any(value is None or value != value for value in values):
        raise missing_id(what)
    if all(isinstance(value, str) for value in values):
        return np.array(values, np.str_).reshape(array.shape)
    return array


def missing_id(what: str) -> HushrecError:
    """That an id is not there."""
    return HushrecError(f"{'an' if what == 'item' else 'a'} {what} id is missing; leave such rows out")
