"""Readers of rating files: RecBole .inter, MovieLens u.data and ratings.dat, CSV, TSV and Parquet."""

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from hushrec.data.arrow_columns import ids_of, order_of, ratings_of, timestamps_of
from hushrec.data.checking import Duplicates, RowError, checked, without_duplicates
from hushrec.data.interactions import Interactions
from hushrec.data.text_tables import EXPECTED, line_of_row, read_text, sniff
from hushrec.data.titles import texts_beside
from hushrec.errors import HushrecError, option


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


# Compared without case, spaces and underscores; the first that occurs is taken.
USUAL_NAMES = {
    "user": "user userid uid usr customer customerid client clientid member memberid reviewer reviewerid "
    "visitor visitorid account accountid profile profilename listener viewer",
    "item": "item itemid iid movie movieid film filmid product productid asin book bookid isbn game gameid "
    "track trackid song songid artist artistid article articleid business businessid "
    "location locationid place placeid anime animeid joke jokeid sid",
    "rating": "rating ratings score stars star overall grade preference ratingvalue userrating bookrating",
    "timestamp": "timestamp time ts unixtime unixreviewtime datetime date reviewtime ratedat createdat",
}


def read(
    path: str | Path,
    *,
    columns: Columns | None = None,
    duplicates: Duplicates = "error",
    rating_range: tuple[float, float] | None = None,
    implicit: bool = False,
    one_user: bool = False,
) -> Interactions:
    """Read a file of interactions. The first bad row is an error; no row is dropped in silence.

    A file without a rating column, or any file with `implicit`, gives implicit feedback. With `one_user` a file
    without a user column is that of one user. Numeric ids are numbered by value, others by code point. Titles come
    from a file beside it (see `texts_beside`).
    """
    draft = read_draft(
        Path(path), columns=columns, rating_range=rating_range, implicit=implicit, one_user=one_user
    )
    return checked_file(Path(path), draft, duplicates)


def checked_file(path: Path, draft: Interactions, duplicates: Duplicates = "error") -> Interactions:
    """The draft read from `path` after all checks; faults are told with their line."""
    if duplicates not in ("error", "last", "mean"):
        raise HushrecError(f"duplicates is {duplicates!r}; use error, last or mean")
    try:
        return checked(without_duplicates(draft, duplicates))
    except RowError as error:
        raise HushrecError(f"{_place(path, error.row)}: {error.reason}") from None


def read_draft(
    path: Path,
    *,
    columns: Columns | None = None,
    rating_range: tuple[float, float] | None = None,
    implicit: bool = False,
    one_user: bool = False,
) -> Interactions:
    """What the file says, not yet checked for duplicates and the range of ratings."""
    _refuse_non_files(path)
    if rating_range is not None and not rating_range[0] < rating_range[1]:
        raise HushrecError(f"rating range {rating_range[0]:g},{rating_range[1]:g} is empty; give LOW,HIGH")
    table = _read_table(path, columns or Columns(), implicit, one_user)
    if not table.num_rows:
        raise HushrecError(f"{path}: there are no rows; {EXPECTED}")
    try:
        draft = draft_of(table, path.name, rating_range)
        titles, genres = texts_beside(path, draft.item_ids)
        return replace(draft, titles=titles, genres=genres)
    except RowError as error:
        raise HushrecError(f"{_place(path, error.row)}: {error.reason}") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        types = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise HushrecError(f"{path}: the columns are {types}; expected numbers and text") from None


def draft_of(table: pa.Table, name: str, rating_range: tuple[float, float] | None = None) -> Interactions:
    """The door for all tables: columns called user, item and, where present, rating, timestamp, order."""
    present = set(table.column_names)
    if "user" in present:
        users, user_ids = ids_of(table["user"], "user")
    else:  # all rows are one user's
        users, user_ids = np.zeros(table.num_rows, np.int32), np.zeros(1, np.int64)
    items, item_ids = ids_of(table["item"], "item")
    return Interactions(
        users=users,
        items=items,
        ratings=ratings_of(table["rating"]) if "rating" in present else None,
        timestamps=timestamps_of(table["timestamp"]) if "timestamp" in present else None,
        order=order_of(table["order"]) if "order" in present else None,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=None,
        rating_range=rating_range,
        name=name,
        sha256="",
        is_synthetic=False,
    )


def _refuse_non_files(path: Path) -> None:
    if path.is_dir():
        raise HushrecError(f"{path} is a folder; give the file of ratings in it")
    if not path.exists():
        raise HushrecError(f"{path}: no such file; check the path")
    if not os.access(path, os.R_OK):
        raise HushrecError(f"{path}: may not be read; check its permissions")
    if not path.stat().st_size:
        raise HushrecError(f"{path}: the file is empty; {EXPECTED}")


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix == ".parquet" or file.read(4) == b"PAR1"


def _read_table(path: Path, columns: Columns, implicit: bool, one_user: bool) -> pa.Table:
    """A table whose columns are called user, item and, where present, rating, timestamp, order."""
    if _is_parquet(path):
        try:
            with pa_parquet.ParquetFile(path) as file:
                names = choose_columns(str(path), file.schema_arrow.names, columns, implicit, one_user)
                table = file.read(columns=list(names.values()))
        except (pa.ArrowInvalid, OSError):
            raise HushrecError(f"{path}: not a Parquet file, or a damaged one; write it again") from None
    else:
        text_format = sniff(path)
        if not text_format.has_header and columns != Columns():
            raise HushrecError(
                f"{path}: has no header line, so no column can be named; add one, or leave the names out"
            )
        names = choose_columns(str(path), text_format.names, columns, implicit, one_user)
        table = read_text(path, text_format, {name: _text_type(role) for role, name in names.items()})
    return pa.table({role: table[name] for role, name in names.items()})


def _text_type(role: str) -> pa.DataType:
    # Ids and ratings repeat: as codes into a dictionary they are parsed once per distinct text.
    return pa.string() if role in ("timestamp", "order") else pa.dictionary(pa.int32(), pa.string())


def choose_columns(
    where: str, names: Sequence[str], columns: Columns, implicit: bool = False, one_user: bool = False
) -> dict[str, str]:
    """From role (user, item, ...) to the name of its column."""
    chosen = {}
    for role, name in asdict(columns).items():
        if name is None:
            name = _guess(names, role)
        elif name and name not in names:
            raise HushrecError(f"{where}: no column {name!r}; the columns are: {', '.join(names)}")
        if name and not (role == "rating" and implicit):
            chosen[role] = name
        elif role == "item" or (role == "user" and name is None and not one_user):
            raise HushrecError(
                f"{where}: no {role} column among: {', '.join(names)}; name it with {_naming(role)}"
            )
    if len(set(chosen.values())) < len(chosen):
        raise HushrecError(f"{where}: one column has two uses; name each column once: {chosen}")
    return chosen


def _naming(role: str) -> str:
    """How a column is named for a role, on the command line and in Python."""
    typed = option("columns", f"{role}=NAME")
    return typed if typed.startswith("-") else f"{option('columns')}{{{role!r}: NAME}}"


def _guess(names: Sequence[str], role: str) -> str | None:
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in reversed(names)}
    return next((plain[usual] for usual in USUAL_NAMES.get(role, "").split() if usual in plain), None)


def _place(path: Path, row: int) -> str:
    if _is_parquet(path):
        return f"{path}, row {row + 1}"
    return f"{path}, line {line_of_row(path, sniff(path), row)}"
