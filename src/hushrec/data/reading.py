"""How a table of interactions is to be read: which columns are what, and what to do about faults."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from hushrec.data.checking import Duplicates
from hushrec.data.sources import check_encoding
from hushrec.errors import HushrecError, is_typed, option

Tell = Callable[[str], None]
Missing = str | float  # "refuse", "drop", or the rating that stands for one that is missing
_LONGEST_NAME = 30  # of a column, in errors


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
    def of(cls, names: "ColumnNames | None") -> "Columns":
        """From a mapping such as {"user": "buyer", "item": "sku"}; names that are numbers are meant as text."""
        if names is None or isinstance(names, Columns):
            return names or cls()
        if not isinstance(names, Mapping):
            raise HushrecError(
                f"{option('columns')} takes names by their use, as in {{'user': 'buyer', 'item': 'sku'}}"
            )
        unknown = [str(role) for role in names if role not in cls.__dataclass_fields__]
        if unknown:
            raise HushrecError(
                f"{option('columns')} has {unknown[0]!r}; choose of: {', '.join(cls.__dataclass_fields__)}"
            )
        return cls(**{role: None if name is None else str(name) for role, name in names.items()})


ColumnNames = Columns | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file or a frame of interactions is to be read.

    `missing` is for ratings that are not there: "refuse" them, "drop" their rows, or a rating to take instead.
    `encoding` is that of text, None: UTF-8 or what a mark at the start says. `decimal` is the sign before
    decimals. `items` is a file, or a frame, with titles, genres and whatever else is known of items; None: a file
    beside that of the ratings, if there is one.
    """

    columns: ColumnNames | None = None
    duplicates: Duplicates = "error"
    rating_range: tuple[float, float] | None = None
    implicit: bool = False
    one_user: bool = False
    missing: Missing = "refuse"
    encoding: str | None = None
    decimal: str = "."
    items: str | Path | Any = None

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise HushrecError(f"{option('decimal', self.decimal)} is unknown; choose . or ,")
        if self.duplicates not in get_args(Duplicates):
            raise HushrecError(f"{option('duplicates', self.duplicates)} is unknown; use error, last or mean")
        if self.rating_range is not None:
            _check_range(self.rating_range)
        if self.encoding is not None:
            check_encoding(self.encoding)
        _ = self.rating_if_missing

    @property
    def rating_if_missing(self) -> float | None:
        """The rating that stands for one that is missing, if there is to be one; it may be typed."""
        if self.missing in ("refuse", "drop"):
            return None
        try:
            value = math.nan if isinstance(self.missing, bool) else float(self.missing)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise HushrecError(
                f"{option('missing', self.missing)} is unknown; choose refuse, drop, or a rating, as in "
                f"{option('missing', 3)}"
            )
        return value


def _check_range(rating_range: Any) -> None:
    wanted = "LOW,HIGH" if is_typed() else "(LOW, HIGH)"
    try:
        low, high = (float(bound) for bound in rating_range)
    except (TypeError, ValueError):
        raise HushrecError(f"{option('rating_range', rating_range)} is no range; give {wanted}") from None
    if not low < high:
        raise HushrecError(f"rating range {low:g},{high:g} is empty; give {wanted}")


# --- Columns ---------------------------------------------------------------------------------------------

# Compared without case, spaces and underscores; the first that occurs is taken.
USUAL_NAMES = {
    "user": "user userid uid usr customer customerid client clientid member memberid reviewer reviewerid "
    "visitor visitorid account accountid profile profilename listener viewer",
    "item": "item itemid iid movie movieid film filmid product productid asin parentasin sku book bookid isbn "
    "game gameid track trackid song songid artist artistid article articleid business businessid recipe recipeid "
    "location locationid place placeid anime animeid joke jokeid sid",
    "rating": "rating ratings score stars star starrating overall grade preference ratingvalue userrating "
    "bookrating reviewrating",
    "timestamp": "timestamp time ts unixtime unixreviewtime epoch datetime date reviewtime reviewdate ratedat "
    "ratingtime ratingtimestamp ratingdate createdat created updatedat reviewedat eventtime eventtimestamp "
    "eventdate eventat occurredat timestampms timems",
}


def choose_columns(
    name: str, names: Sequence[str], columns: Columns, implicit: bool = False, one_user: bool = False
) -> dict[str, str]:
    """From role (user, item, ...) to the name of its column; `name` is that of the file, for errors."""
    if not names:
        raise HushrecError(f"{name}: there are no columns; expected one of users and one of items at least")
    chosen: dict[str, str] = {}
    missing: dict[str, str | None] = {}  # from role to the name that was given
    for role, named in asdict(columns).items():
        wanted = guessed_column(names, role) if named is None else named
        if wanted and not (role == "rating" and implicit):
            chosen[role] = wanted
            if wanted not in names:
                missing[role] = wanted
        elif role == "item" or (role == "user" and wanted is None and not one_user):
            missing[role] = None
    if missing:
        raise no_columns(name, names, missing)
    if len(set(chosen.values())) < len(chosen):
        raise HushrecError(f"{name}: one column has two uses; name each column once: {chosen}")
    twice = [column for column in chosen.values() if list(names).count(column) > 1]
    if twice:
        raise HushrecError(f"{name}: two columns are named {twice[0]!r}; rename one of them")
    return chosen


def named_column(name: str, names: Sequence[str], role: str, columns: Columns) -> str | None:
    """The column of a role, named or guessed; "": it is not to be read, None: there is none."""
    wanted: str | None = getattr(columns, role)
    if wanted and wanted not in names:
        raise no_columns(name, names, {role: wanted})
    return guessed_column(names, role) if wanted is None else wanted


def guessed_column(names: Sequence[str], role: str) -> str | None:
    """The first column with a usual name for a role."""
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in reversed(names)}
    return next((plain[usual] for usual in USUAL_NAMES.get(role, "").split() if usual in plain), None)


def no_columns(name: str, names: Sequence[str], missing: Mapping[str, str | None]) -> HushrecError:
    """That columns are not there: by role the name that was given, None: no name is a usual one.

    All that are missing are told at once, with those that there are and how they are named.
    """
    told = " and ".join(
        f"no column {wanted!r}" if wanted else f"no {role} column" for role, wanted in missing.items()
    )
    what = "it" if len(missing) == 1 else "them"
    return HushrecError(f"{name}: {told} among: {_listed(names)}; name {what} with {naming_of(missing)}")


def naming_of(roles: Iterable[str]) -> str:
    """How columns are named, on the command line and in Python."""
    if is_typed():
        return option("columns", ",".join(f"{role}=NAME" for role in roles))
    return f"{option('columns')}{{{', '.join(f'{role!r}: NAME' for role in roles)}}}"


def _listed(names: Sequence[str]) -> str:
    """Some names, cut short: what was taken for one may be a whole line of data."""
    told = (name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..." for name in names[:20])
    return ", ".join(told) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
