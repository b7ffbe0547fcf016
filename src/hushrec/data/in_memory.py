"""Interactions from what is in memory already, through the same door as files; and the ids in it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec.data.frames import (
    are_arrays,
    arrays_of,
    arrow_column,
    columns_of,
    entries_of,
    ids_of_array,
    is_frame,
    is_sparse,
    joined,
    missing_id,
)
from hushrec.data.interactions import Interactions
from hushrec.data.reading import ColumnNames, Columns, Reading, Tell, choose_columns, named_column, no_columns
from hushrec.data.tables import Rows, checked_rows, draft_of
from hushrec.data.titles import with_named_items
from hushrec.errors import HushrecError


def interactions_of(
    source: object, reading: Reading | None = None, name: str = "frame", notify: Tell | None = None
) -> Interactions:
    """What a frame, a sparse matrix or arrays say, with the checks that a file goes through.

    The rows and columns of a sparse matrix are users and items; those without an entry are known, too.
    """
    reading = reading or Reading()
    data = checked_rows(*draft_in_memory(source, reading, name, notify), reading.duplicates)
    if reading.items is None:
        return data
    return with_named_items(data, reading.items, reading.encoding, notify)


def draft_in_memory(
    source: object, reading: Reading, name: str = "frame", notify: Tell | None = None
) -> tuple[Rows, Interactions]:
    """What it says, not yet checked for duplicates and the range of ratings."""
    table = joined(_parts(source, reading, name), name)
    if not table.num_rows:
        raise HushrecError(f"{name} has no rows; expected one for each rating")
    rows = Rows(table, name, lambda row: f"{name}, row {row} (the first is 0)", name)
    used, draft = draft_of(rows, reading, notify)
    if is_sparse(source):
        draft = _with_all_numbers(draft, *source.shape)  # type: ignore[attr-defined]
    return used, draft


def has_rows(source: object) -> bool:
    """Whether something holds interactions, and not only ids."""
    return isinstance(source, Interactions) or is_sparse(source) or are_arrays(source) or is_frame(source)


def ids_in(source: object, role: str, columns: ColumnNames | None = None) -> NDArray[Any]:
    """The ids of users or of items, a row each, in whatever holds interactions; a frame needs no other column."""
    if isinstance(source, Interactions):
        return source.user_ids[source.users] if role == "user" else source.item_ids[source.items]
    if is_sparse(source):
        return entries_of(source)[role]
    if are_arrays(source):
        return ids_of_array(arrays_of(source)[role], role)  # type: ignore[arg-type]
    named = columns_of(source)
    column = named_column("frame", list(named), role, Columns.of(columns))
    if not column:
        raise no_columns("frame", list(named), {role: None})
    found = arrow_column(named[column], column)
    if found.null_count:
        raise missing_id(role)
    return ids_of_array(found.to_numpy(), role)


def _parts(source: object, reading: Reading, name: str) -> dict[str, pa.ChunkedArray]:
    """Columns by what they are: user, item and, where present, rating, timestamp, order."""
    if isinstance(source, tuple) or is_sparse(source):
        found = arrays_of(source) if isinstance(source, tuple) else entries_of(source)
        used = {role: part for role, part in found.items() if role != "rating" or not reading.implicit}
        return {role: arrow_column(part, f"{role}s") for role, part in used.items()}
    named = columns_of(source)
    columns = Columns.of(reading.columns)
    chosen = choose_columns(name, list(named), columns, reading.implicit, reading.one_user)
    return {role: arrow_column(named[column], column) for role, column in chosen.items()}


def _with_all_numbers(draft: Interactions, num_users: int, num_items: int) -> Interactions:
    """The draft with a user for every row of the matrix, and an item for every column."""
    return replace(
        draft,
        users=draft.user_ids[draft.users].astype(np.int32),
        items=draft.item_ids[draft.items].astype(np.int32),
        user_ids=np.arange(num_users, dtype=np.int64),
        item_ids=np.arange(num_items, dtype=np.int64),
    )
