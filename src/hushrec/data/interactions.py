"""Interactions: who rated what, as columns of numbers that remember the original ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hushrec.data.row_order import Order, canonical_order, count_starts, is_canonical, order_of_chosen, taken
from hushrec.errors import HushrecError
from hushrec.tables import Tabular, html_facts

Ids = npt.NDArray[np.int64] | npt.NDArray[np.str_]
Numbers = npt.NDArray[np.int32]  # of users, items or parties
Arrays = dict[str, npt.NDArray[Any]]  # by name, as in a file
RatingRange = tuple[float, float] | None  # the lowest and the highest; None: there are no ratings

_SORTED = "_sorted"  # the name of a cached property, which derived sets can be given


@dataclass(frozen=True, eq=False)
class UserRows:
    """The items of each user, ascending: user u has `items[starts[u]:starts[u + 1]]`.

    `rating_range` is the scale that all users rate on, which everybody knows; None: nobody said it.
    """

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32] | None
    rating_range: RatingRange = None


@dataclass(frozen=True, eq=False)
class Holding:
    """Who holds which rows. This one: every user its own; others are in `hushrec.data.holdings`, a file each."""


@dataclass(frozen=True, eq=False)
class Interactions(Tabular):
    """Who rated what: parallel columns, users and items numbered from 0, with their original ids kept.

    `ratings` is None for implicit feedback. `timestamps` are Unix seconds, -1 where unknown. `order` is
    the place in the user's history, where the source knows it better than the timestamps. `user_ids` and
    `item_ids` rise strictly (numbers by value, strings by code point) and may hold ids without a row.
    `titles`, `genres` (as in "Comedy|Drama") and `item_columns`, whatever else a file about items says, are ""
    where unknown. `sha256` is the `data_digest` of the whole data set that the rows come from, also after
    `select`.
    """

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32] | None
    timestamps: npt.NDArray[np.int64] | None
    order: npt.NDArray[np.int32] | None
    user_ids: Ids
    item_ids: Ids
    titles: npt.NDArray[np.str_] | None
    rating_range: tuple[float, float] | None
    name: str
    sha256: str
    is_synthetic: bool
    genres: npt.NDArray[np.str_] | None = None
    item_columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)
    holding: Holding = field(default_factory=Holding)
    # Where rows are good or bad: the range that they were rated in, and from which rating on they are good.
    signed_from: tuple[float, float, float] | None = None

    def __len__(self) -> int:
        return int(self.users.size)

    def to_arrow(self) -> pa.Table:
        """A row per interaction, by the ids of the source."""
        columns = {"user": self.user_ids[self.users], "item": self.item_ids[self.items], "rating": self.ratings}
        columns |= {"timestamp": self.timestamps}
        return pa.table({name: pa.array(column) for name, column in columns.items() if column is not None})

    def _repr_html_(self) -> str:
        low_high = "none: implicit" if self.rating_range is None else "{:g} to {:g}".format(*self.rating_range)
        facts = {
            "interactions": len(self),
            "users": self.num_users,
            "items": self.num_items,
            "ratings": low_high,
            "times": "yes" if self.timestamps is not None else "no",
            "titles": "yes" if self.titles is not None else "no",
        }
        return html_facts(f"{self.name}{' (synthetic)' if self.is_synthetic else ''}", facts)

    @property
    def num_users(self) -> int:
        """Users of the vocabulary, also those without a row."""
        return int(self.user_ids.size)

    @property
    def num_items(self) -> int:
        """Items of the whole catalogue, also those that nobody rated."""
        return int(self.item_ids.size)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> "Interactions":
        """The given rows (numbers or a mask), with the same vocabularies and the same digest."""
        chosen = replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            ratings=None if self.ratings is None else self.ratings[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            order=None if self.order is None else self.order[rows],
        )
        known = vars(self).get(_SORTED)
        if known is not None and rows.dtype == np.bool_:
            vars(chosen)[_SORTED] = order_of_chosen(known, rows.astype(np.bool_, copy=False))
        return chosen

    def sorted_like(self, other: "Interactions") -> "Interactions":
        """The same, told how another with the same users and items was sorted, if it was."""
        if _SORTED in vars(other):
            vars(self)[_SORTED] = vars(other)[_SORTED]
        return self

    def as_implicit(self) -> "Interactions":
        """The same interactions without ratings: each is a positive."""
        return replace(self, ratings=None, rating_range=None).sorted_like(self)

    def as_signed(self, positive_from: float = 0.0) -> "Interactions":
        """The same interactions rated 1 if they are positive, else 0; see `is_positive`."""
        signed_from = self.signed_from
        if self.ratings is not None and self.rating_range not in (None, (0.0, 1.0)):
            signed_from = *self.rating_range, self._positive_limit(positive_from)
        ratings = self.is_positive(positive_from).astype(np.float32)
        signed = replace(self, ratings=ratings, rating_range=(0.0, 1.0), signed_from=signed_from)
        return signed.sorted_like(self)

    def is_positive(self, positive_from: float = 0.0) -> npt.NDArray[np.bool_]:
        """Of each row, whether it is rated so or higher, or, with 0, from the middle of the range up.

        Without ratings all are; ratings from 0 to 1 say so already.
        """
        if self.ratings is None or self.rating_range is None:
            return np.ones(len(self), np.bool_)
        return self.ratings >= self._positive_limit(positive_from)

    def _positive_limit(self, positive_from: float) -> float:
        assert self.rating_range is not None
        is_told = positive_from > 0 and self.rating_range != (0.0, 1.0)
        return positive_from if is_told else sum(self.rating_range) / 2

    def canonical_order(self) -> npt.NDArray[np.signedinteger] | None:
        """Row numbers sorted by user, then item; None where the rows are in that order already."""
        return None if self._sorted is None else self._sorted.rows

    @cached_property
    def _sorted(self) -> Order | None:
        if is_canonical(self.users, self.items):
            return None
        return canonical_order(self.users, self.items, self.num_users, self.num_items)

    def by_user(self) -> UserRows:
        """The rows grouped by user; without a copy where they are grouped and sorted already."""
        return self._by_user

    @cached_property
    def _by_user(self) -> UserRows:
        starts = count_starts(self.users, self.num_users)
        order = self._sorted
        if order is None:
            return UserRows(starts, self.items, self.ratings, self.rating_range)
        ratings = None if self.ratings is None else taken(self.ratings, order.rows)
        return UserRows(starts, order.items, ratings, self.rating_range)

    def user_number(self, original_id: str | int) -> int:
        """The number of the user with this id of the source."""
        return _number_of(self.user_ids, original_id, "user", self.name)

    def item_number(self, original_id: str | int) -> int:
        """The number of the item with this id of the source."""
        return _number_of(self.item_ids, original_id, "item", self.name)

    def user_numbers(self, original_ids: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """The numbers of many users."""
        return _numbers_of(self.user_ids, original_ids, "user", self.name)

    def item_numbers(self, original_ids: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """The numbers of many items."""
        return _numbers_of(self.item_ids, original_ids, "item", self.name)

    def renumbered_as(self, other: "Interactions") -> "Interactions":
        """The same rows with the numbers that another set gives to the same ids; what it says of items holds."""
        if np.array_equal(self.user_ids, other.user_ids) and np.array_equal(self.item_ids, other.item_ids):
            return self
        return replace(
            self,
            users=other.user_numbers(self.user_ids[self.users]),
            items=other.item_numbers(self.item_ids[self.items]),
            user_ids=other.user_ids,
            item_ids=other.item_ids,
            titles=other.titles,
            holding=other.holding,
            genres=other.genres,
            item_columns=other.item_columns,
        )


def _numbers_of(ids: Ids, original_ids: npt.ArrayLike, what: str, name: str) -> npt.NDArray[np.int32]:
    wanted = np.atleast_1d(np.asarray(original_ids))
    if wanted.dtype.kind == ids.dtype.kind:
        places = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
        if ids.size and (ids[places] == wanted).all():
            return places.astype(np.int32)
    numbers = [_number_of(ids, original_id, what, name) for original_id in wanted.tolist()]
    return np.array(numbers, np.int32)


def place_of(ids: Ids, original_id: str | int) -> int:
    """Where an id of the source is among ids; -1 if it is not there."""
    wanted: str | int | None = str(original_id)
    if ids.dtype.kind == "i":
        try:
            wanted = int(original_id)
        except (ValueError, OverflowError, TypeError):
            wanted = None
        if isinstance(original_id, float) and wanted != original_id:
            wanted = None
        if wanted is not None and not -(2**63) <= int(wanted) < 2**63:
            wanted = None
    if wanted is not None:
        place = int(np.searchsorted(ids, wanted))
        if place < ids.size and ids[place] == wanted:
            return place
    return -1


def _number_of(ids: Ids, original_id: str | int, what: str, name: str) -> int:
    place = place_of(ids, original_id)
    if place >= 0:
        return place
    kind = "numbers" if ids.dtype.kind == "i" else "texts"
    if what == "user":  # other people's ids are private
        looks = f"its {ids.size:,} user ids are {kind}"
    else:
        looks = f"item ids look like {ids[0]} ... {ids[-1]}" if ids.size else "there are no items"
        if ids.size and ":" in str(ids[0]) and ":" in str(ids[-1]) and ":" not in str(original_id):
            looks += ", a partner's name and then the id of the file"
    raise HushrecError(f"no {what} {str(original_id)!r} in {name}; {looks}")
