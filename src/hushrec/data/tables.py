"""The door through which interactions come in: an Arrow table, of a file or a frame, becomes `Interactions`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hushrec.data.arrow_columns import blanks_of, ids_of, order_of, ratings_of, timestamps_of
from hushrec.data.checking import Duplicates, RowError, checked, without_duplicates
from hushrec.data.interactions import Interactions
from hushrec.errors import HushrecError

Tell = Callable[[str], None]
_LONGEST_NAME = 30  # of a column, in errors
Missing = str | float  # "refuse", "drop", or the rating that stands for one that is missing


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read. None: guess by the usual names. "": do not read this column.

    `order`, the place of a row in the user's history, is never guessed.
    """

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    timestamp: str | None = None
    order: str | None = None

    @classmethod
    def of(cls, names: "Columns | Mapping[str, str] | None") -> "Columns":
        """From a mapping such as {"user": "buyer", "item": "sku"}."""
        if names is None or isinstance(names, Columns):
            return names or cls()
        if not isinstance(names, Mapping) or not all(isinstance(name, str | None) for name in names.values()):
            raise HushrecError('columns takes names by their use, as in {"user": "buyer", "item": "sku"}')
        unknown = [str(role) for role in names if role not in cls.__dataclass_fields__]
        if unknown:
            raise HushrecError(f"columns has {unknown[0]!r}; choose of: {', '.join(cls.__dataclass_fields__)}")
        return cls(**names)


# Compared without case, spaces and underscores; the first that occurs is taken.
USUAL_NAMES = {
    "user": "user userid uid usr customer customerid client clientid member memberid reviewer reviewerid "
    "visitor visitorid account accountid profile profilename listener viewer",
    "item": "item itemid iid movie movieid film filmid product productid asin book bookid isbn game gameid "
    "track trackid song songid artist artistid article articleid business businessid "
    "location locationid place placeid anime animeid joke jokeid sid",
    "rating": "rating ratings score stars star overall grade preference ratingvalue userrating bookrating",
    "timestamp": "timestamp time ts unixtime unixreviewtime epoch datetime date reviewtime reviewdate ratedat "
    "ratingtime ratingtimestamp ratingdate createdat created updatedat reviewedat eventtime eventtimestamp "
    "eventdate eventat occurredat timestampms timems",
}


def choose_columns(
    name: str, names: Sequence[str], columns: Columns, implicit: bool = False, one_user: bool = False
) -> dict[str, str]:
    """From role (user, item, ...) to the name of its column; `name` is that of the file, for errors."""
    chosen: dict[str, str] = {}
    for role, wanted in asdict(columns).items():
        if wanted is None:
            wanted = _guess(names, role)
        elif wanted and wanted not in names:
            raise HushrecError(f"{name}: no column {wanted!r}; the columns are: {_listed(names)}")
        if wanted and not (role == "rating" and implicit):
            chosen[role] = wanted
        elif role == "item" or (role == "user" and wanted is None and not one_user):
            raise HushrecError(
                f"{name}: no {role} column among: {_listed(names)}; name it with --columns {role}=NAME"
            )
    if len(set(chosen.values())) < len(chosen):
        raise HushrecError(f"{name}: one column has two uses; name each column once: {chosen}")
    twice = [column for column in chosen.values() if list(names).count(column) > 1]
    if twice:
        raise HushrecError(f"{name}: two columns are named {twice[0]!r}; rename one of them")
    return chosen


def _listed(names: Sequence[str]) -> str:
    """Some names, cut short: what was taken for one may be a whole line of data."""
    told = (name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..." for name in names[:20])
    return ", ".join(told) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _guess(names: Sequence[str], role: str) -> str | None:
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in reversed(names)}
    return next((plain[usual] for usual in USUAL_NAMES.get(role, "").split() if usual in plain), None)


@dataclass(frozen=True)
class Rows:
    """A table whose columns are called user, item and, where present, rating, timestamp, order."""

    table: pa.Table
    name: str  # of the data
    place: Callable[[int], str]  # of a row, for errors
    source: str  # of all, for errors


def draft_of(
    rows: Rows,
    rating_range: tuple[float, float] | None = None,
    missing: Missing = "refuse",
    decimal: str = ".",
    tell: Tell | None = None,
) -> tuple[Rows, Interactions]:
    """What the rows say, not yet checked for duplicates and the range of ratings; and the rows that were used."""
    if rating_range is not None and not rating_range[0] < rating_range[1]:
        raise HushrecError(f"rating range {rating_range[0]:g},{rating_range[1]:g} is empty; give LOW,HIGH")
    tell = tell or (lambda line: None)
    try:
        rows, ratings = _with_policy(rows, _policy(missing), decimal, tell)
        if not rows.table.num_rows:
            raise HushrecError(f"{rows.source}: there are no rows left; give at least one")
        return rows, _columns_of(rows, ratings, rating_range, decimal, tell)
    except RowError as error:
        raise HushrecError(f"{rows.place(error.row)}: {error.reason}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        types = ", ".join(f"{entry.name} {entry.type}" for entry in rows.table.schema)
        raise HushrecError(f"{rows.source}: the columns are {types}; expected numbers and text") from None


def checked_rows(rows: Rows, draft: Interactions, duplicates: Duplicates = "error") -> Interactions:
    """The draft made of these rows after all checks; faults are told with their place."""
    if duplicates not in ("error", "last", "mean"):
        raise HushrecError(f"duplicates is {duplicates!r}; use error, last or mean")
    try:
        return checked(without_duplicates(draft, duplicates))
    except RowError as error:
        raise HushrecError(f"{rows.place(error.row)}: {error.reason}") from None


def from_arrow(
    table: pa.Table,
    *,
    columns: Columns | Mapping[str, str] | None = None,
    duplicates: Duplicates = "error",
    rating_range: tuple[float, float] | None = None,
    implicit: bool = False,
    missing: Missing = "refuse",
    name: str = "table",
    notify: Tell | None = None,
) -> Interactions:
    """Interactions of an Arrow table, with the same guesses and checks as those of a file.

    >>> from_arrow(pa.table({"uid": ["b", "a"], "asin": [7, 7], "stars": [4, 5]})).user_ids.tolist()
    ['a', 'b']
    """
    names = choose_columns(name, table.column_names, Columns.of(columns), implicit)
    chosen = pa.table({role: table[column] for role, column in names.items()})
    rows = Rows(chosen, name, lambda row: f"{name}, row {row + 1}", name)
    used, draft = draft_of(rows, rating_range, missing, tell=notify)
    return checked_rows(used, draft, duplicates)


def from_arrays(
    users: npt.ArrayLike,
    items: npt.ArrayLike,
    ratings: npt.ArrayLike | None = None,
    timestamps: npt.ArrayLike | None = None,
    *,
    duplicates: Duplicates = "error",
    rating_range: tuple[float, float] | None = None,
    missing: Missing = "refuse",
    name: str = "arrays",
    notify: Tell | None = None,
) -> Interactions:
    """Interactions of arrays of the same length: ids (numbers or texts), ratings, and times.

    >>> from_arrays([1, 1], ["x", "y"], [3.5, 4]).ratings.tolist()
    [3.5, 4.0]
    """
    given = {"user": users, "item": items, "rating": ratings, "timestamp": timestamps}
    arrays = {role: _array(role, values) for role, values in given.items() if values is not None}
    lengths = {role: len(values) for role, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} {role}s" for role, length in lengths.items())
        raise HushrecError(f"{name}: {told}; give arrays of one length")
    return from_arrow(
        pa.table(arrays), columns=Columns(rating=None if "rating" in arrays else ""), duplicates=duplicates,
        rating_range=rating_range, missing=missing, name=name, notify=notify,
    )  # fmt: skip


def _array(role: str, values: npt.ArrayLike) -> pa.Array:
    try:
        array = pa.array(np.asarray(values) if not isinstance(values, pa.Array | pa.ChunkedArray) else values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError, TypeError):
        raise HushrecError(f"{role}s are not all numbers or all texts; give one kind of value") from None
    return array


# --- From a table to columns -----------------------------------------------------------------------------


def _policy(missing: Missing) -> Missing:
    """What to do without a rating; a value may be typed."""
    if missing in ("refuse", "drop"):
        return missing
    try:
        value = float(missing)
    except (TypeError, ValueError):
        value = float("nan")
    if not np.isfinite(value):
        raise HushrecError(f"--missing {missing} is unknown; choose refuse, drop, or a rating, as in --missing 3")
    return value


def _with_policy(
    rows: Rows, missing: Missing, decimal: str, tell: Tell
) -> tuple[Rows, npt.NDArray[np.float32] | None]:
    """The rows to use and their ratings, after what is missing was refused, left out or given a value."""
    table = rows.table
    ratings = ratings_of(table["rating"], decimal) if "rating" in table.column_names else None
    if missing == "drop":
        return _without_missing(rows, ratings, tell)
    if ratings is None or not (is_missing := np.isnan(ratings)).any():
        return rows, ratings
    count = int(np.count_nonzero(is_missing))
    if isinstance(missing, float):
        tell(f"{count:,} missing ratings of {rows.name} are taken as {missing:g}")
        return rows, np.where(is_missing, np.float32(missing), ratings)
    raise RowError(
        int(np.flatnonzero(is_missing)[0]),
        f"rating is missing ({count} such rows); leave them out with --missing drop, or give them a rating, "
        "as in --missing 3",
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


def _columns_of(
    rows: Rows,
    ratings: npt.NDArray[np.float32] | None,
    rating_range: tuple[float, float] | None,
    decimal: str,
    tell: Tell,
) -> Interactions:
    table = rows.table
    present = set(table.column_names)
    if "user" in present:
        users, user_ids = ids_of(table["user"], "user")
    else:  # all rows are one user's
        users, user_ids = np.zeros(table.num_rows, np.int32), np.zeros(1, np.int64)
    items, item_ids = ids_of(table["item"], "item")
    timestamps = None
    if "timestamp" in present:
        timestamps, unit = timestamps_of(table["timestamp"], decimal)
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
        rating_range=rating_range,
        name=rows.name,
        sha256="",
        is_synthetic=False,
    )
