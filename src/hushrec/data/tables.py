"""The door for all interactions: rows of an Arrow table, of whatever file or frame, become `Interactions`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hushrec.data.arrow_columns import blanks_of, ids_of, order_of, plain_column, ratings_of
from hushrec.data.arrow_times import timestamps_of
from hushrec.data.checking import Duplicates, RowError, check_ratings, checked, without_duplicates
from hushrec.data.interactions import Interactions
from hushrec.data.reading import Reading, Tell
from hushrec.errors import HushrecError, option


@dataclass(frozen=True)
class Rows:
    """A table whose columns are called user, item and, where present, rating, timestamp, order."""

    table: pa.Table
    name: str  # of the data
    place: Callable[[int], str]  # of a row, for errors
    source: str  # of all, for errors


def draft_of(rows: Rows, reading: Reading, tell: Tell | None = None) -> tuple[Rows, Interactions]:
    """What the rows say, not yet checked for duplicates and the range of ratings; and the rows that were used."""
    tell = tell or (lambda line: None)
    try:
        columns = {name: plain_column(rows.table[name]) for name in rows.table.column_names}
        rows, ratings = _with_policy(replace(rows, table=pa.table(columns)), reading, tell)
        if not rows.table.num_rows:
            raise HushrecError(f"{rows.source}: there are no rows left; give at least one")
        return rows, _columns_of(rows, ratings, reading, tell)
    except RowError as error:
        raise HushrecError(f"{rows.place(error.row)}: {error.reason}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        types = ", ".join(f"{entry.name} {entry.type}" for entry in rows.table.schema)
        raise HushrecError(f"{rows.source}: the columns are {types}; expected numbers and text") from None


def checked_rows(rows: Rows, draft: Interactions, duplicates: Duplicates = "error") -> Interactions:
    """The draft made of these rows after all checks; faults are told with their place."""
    try:
        check_ratings(draft)  # while every row has its place
        return checked(without_duplicates(draft, duplicates))
    except RowError as error:
        raise HushrecError(f"{rows.place(error.row)}: {error.reason}") from None


# --- From a table to columns -----------------------------------------------------------------------------


def _with_policy(rows: Rows, reading: Reading, tell: Tell) -> tuple[Rows, npt.NDArray[np.float32] | None]:
    """The rows to use and their ratings, after what is missing was refused, left out or given a value."""
    table = rows.table
    ratings = ratings_of(table["rating"], reading.decimal) if "rating" in table.column_names else None
    if reading.missing == "drop":
        return _without_missing(rows, ratings, tell)
    if ratings is None or not (is_missing := np.isnan(ratings)).any():
        return rows, ratings
    count = int(np.count_nonzero(is_missing))
    instead = reading.rating_if_missing
    if instead is not None:
        tell(f"{count:,} of {len(ratings):,} ratings of {rows.name} are missing and taken as {instead:g}")
        return rows, np.where(is_missing, np.float32(instead), ratings)
    raise RowError(
        int(np.flatnonzero(is_missing)[0]),
        f"rating is missing ({count} such rows); leave them out with {option('missing', 'drop')}, or give them a "
        f"rating, as in {option('missing', 3)}",
    )


def _without_missing(
    rows: Rows, ratings: npt.NDArray[np.float32] | None, tell: Tell
) -> tuple[Rows, npt.NDArray[np.float32] | None]:
    table = rows.table
    is_used = np.ones(table.num_rows, np.bool_) if ratings is None else ~np.isnan(ratings)
    for role in ("user", "item"):
        if role in table.column_names:
            is_used &= ~blanks_of(table[role])
    if is_used.all():
        return rows, ratings
    kept = np.flatnonzero(is_used)
    left_out = table.num_rows - len(kept)
    tell(f"{left_out:,} of {table.num_rows:,} rows of {rows.name} have no user, item or rating and are left out")
    used = replace(rows, table=table.filter(pa.array(is_used)), place=lambda row: rows.place(int(kept[row])))
    return used, None if ratings is None else ratings[is_used]


def _columns_of(rows: Rows, ratings: npt.NDArray[np.float32] | None, reading: Reading, tell: Tell) -> Interactions:
    table = rows.table
    present = set(table.column_names)
    if "user" in present:
        users, user_ids = ids_of(table["user"], "user")
    else:  # all rows are one user's
        users, user_ids = np.zeros(table.num_rows, np.int32), np.zeros(1, np.int64)
    items, item_ids = ids_of(table["item"], "item")
    timestamps = None
    if "timestamp" in present:
        timestamps, unit = timestamps_of(table["timestamp"], reading.decimal)
        if unit:
            tell(f"times of {rows.name} are read as {unit}")
    return Interactions(
        users=users,
        items=items,
        ratings=ratings,
        timestamps=timestamps,
        order=order_of(table["order"]) if "order" in present else None,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=None,
        rating_range=reading.rating_range,
        name=rows.name,
        sha256="",
        is_synthetic=False,
    )
