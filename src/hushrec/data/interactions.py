"""Interactions: who rated what, as columns of numbers that remember the original ids."""

import hashlib
import itertools
from dataclasses import dataclass, replace
from typing import Literal
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from hushrec.data.row_order import canonical_order, count_starts, is_canonical
from hushrec.data.stream import stream_order
from hushrec.errors import HushrecError

Duplicates = Literal["error", "last", "mean"]
Ids = npt.NDArray[np.int64] | npt.NDArray[np.str_]


class RowError(HushrecError):
    """A fault in one row. Readers turn `row` (0-based) into the line of the file."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row + 1}: {reason}")
        self.row = row
        self.reason = reason


@dataclass(frozen=True, eq=False)
class UserRows:
    """The items of each user, ascending: user u has `items[starts[u]:starts[u + 1]]`."""

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class Partners:
    """Whose users and items are whose: partner p has the numbers `starts[p]` to `starts[p + 1] - 1` of both.

    The id of a user or an item has its partner's name in front, as in `a:196`.
    """

    names: tuple[str, ...]
    user_starts: npt.NDArray[np.int64]
    item_starts: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartnerRows:
    """The ratings of each partner: p has the rows `starts[p]` to `starts[p + 1] - 1`, with its own numbers."""

    starts: npt.NDArray[np.int64]
    users: npt.NDArray[np.int32]  # from 0 at each partner
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32]
    user_starts: npt.NDArray[np.int64]
    item_starts: npt.NDArray[np.int64]
    user_ids: npt.NDArray[np.str_]  # as the partner itself calls them
    item_ids: npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Owners:
    """Organisations and the items that they hold; an item may have several owners, or none."""

    names: tuple[str, ...]
    starts: npt.NDArray[np.int64]  # the owners of item i are owners[starts[i]:starts[i + 1]], ascending
    owners: npt.NDArray[np.int32]
    has_users: bool = True  # whether the users' side is here, too; not on the node of an owner


@dataclass(frozen=True, eq=False)
class OwnerRows:
    """What the parties hold: owner k `held[held_starts[k]:held_starts[k + 1]]`, the users' side the stream."""

    names: tuple[str, ...]
    held_starts: npt.NDArray[np.int64]
    held: npt.NDArray[np.int32]  # ascending within an owner
    has_users: bool
    users: npt.NDArray[np.int32]  # the events in the order of time; none without the users' side
    items: npt.NDArray[np.int32]
    is_positive: npt.NDArray[np.bool_]
    num_users: int


@dataclass(frozen=True, eq=False)
class Interactions:
    """Who rated what: parallel columns, users and items numbered from 0, with their original ids kept.

    `ratings` is None for implicit feedback. `timestamps` are Unix seconds, -1 where unknown. `order` is
    the place in the user's history, where the source knows it better than the timestamps. `user_ids` and
    `item_ids` rise strictly (numbers by value, strings by code point) and may hold ids without a row.
    `titles` and `genres` (as in "Comedy|Drama") are "" where unknown. `sha256` is the `data_digest` of the
    whole data set that the rows come from, also after `select`.
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
    partners: Partners | None = None  # of organisations that hold the rows; None: every user holds its own
    owners: Owners | None = None  # of organisations that hold the items
    genres: npt.NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return int(self.users.size)

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
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            ratings=None if self.ratings is None else self.ratings[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            order=None if self.order is None else self.order[rows],
        )

    def as_implicit(self) -> "Interactions":
        """The same interactions without ratings: each is a positive."""
        return replace(self, ratings=None, rating_range=None)

    def as_signed(self) -> "Interactions":
        """The same interactions rated 1 from the middle of the range up, else 0; without ratings each is 1."""
        return replace(self, ratings=self._is_positive().astype(np.float32), rating_range=(0.0, 1.0))

    def _is_positive(self) -> npt.NDArray[np.bool_]:
        if self.ratings is None or self.rating_range is None:
            return np.ones(len(self), np.bool_)
        return self.ratings >= sum(self.rating_range) / 2

    def canonical_order(self) -> npt.NDArray[np.signedinteger] | None:
        """Row numbers sorted by user, then item; None where the rows are in that order already."""
        if is_canonical(self.users, self.items):
            return None
        return canonical_order(self.users, self.items, self.num_users, self.num_items)

    def by_user(self) -> UserRows:
        """The rows grouped by user; without a copy where they are grouped and sorted already."""
        starts = count_starts(self.users, self.num_users)
        rows = self.canonical_order()
        if rows is None:
            return UserRows(starts, self.items, self.ratings)
        return UserRows(starts, self.items[rows], None if self.ratings is None else self.ratings[rows])

    def by_partner(self) -> PartnerRows:
        """The rows of each partner, by user and item."""
        assert self.partners is not None
        assert self.ratings is not None
        partners, rows = self.partners, self.canonical_order()
        users, items, ratings = self.users, self.items, self.ratings
        if rows is not None:
            users, items, ratings = users[rows], items[rows], ratings[rows]
        of_row = np.searchsorted(partners.user_starts, users, "right") - 1
        num_partners = len(partners.names)
        return PartnerRows(
            np.searchsorted(of_row, np.arange(num_partners + 1)).astype(np.int64),
            (users - partners.user_starts[of_row]).astype(np.int32),
            (items - partners.item_starts[of_row]).astype(np.int32),
            ratings,
            partners.user_starts,
            partners.item_starts,
            _without_name(self.user_ids, partners.user_starts, "user"),
            _without_name(self.item_ids, partners.item_starts, "item"),
        )

    def by_owner(self) -> OwnerRows:
        """The items of each owner, and the events of all users in the order of time."""
        if self.owners is None:
            raise HushrecError(f"nobody owns the items of {self.name}; say who with --owners")
        if self.ratings is None and self.owners.has_users:
            raise HushrecError(f"{self.name} has no ratings to tell good from bad; take its as_signed()")
        owners = self.owners
        owned = np.repeat(np.arange(self.num_items, dtype=np.int32), np.diff(owners.starts))
        held = owned[np.argsort(owners.owners, kind="stable")]
        rows = stream_order(self) if owners.has_users else np.empty(0, np.int64)
        return OwnerRows(
            owners.names, count_starts(owners.owners, len(owners.names)), held, owners.has_users,
            self.users[rows], self.items[rows], self._is_positive()[rows], self.num_users,
        )  # fmt: skip

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
            owners=other.owners,
            genres=other.genres,
        )


def _without_name(ids: Ids, starts: npt.NDArray[np.int64], what: str) -> npt.NDArray[np.str_]:
    """Ids as the partner itself calls them, in the spelling that partners compare."""
    texts = np.char.partition(ids.astype(np.str_), ":")[:, 2]
    spelled = np.array([normalize("NFC", text.strip()) for text in texts.tolist()], np.str_)
    for first, last in itertools.pairwise(starts.tolist()):
        if len(np.unique(spelled[first:last])) < last - first:
            raise HushrecError(f"two {what} ids of a partner differ only in spaces or spelling; make them one")
    return spelled


def _numbers_of(ids: Ids, original_ids: npt.ArrayLike, what: str, name: str) -> npt.NDArray[np.int32]:
    wanted = np.atleast_1d(np.asarray(original_ids))
    if wanted.dtype.kind == ids.dtype.kind:
        places = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
        if ids.size and (ids[places] == wanted).all():
            return places.astype(np.int32)
    numbers = [_number_of(ids, original_id, what, name) for original_id in wanted.tolist()]
    return np.array(numbers, np.int32)


def _number_of(ids: Ids, original_id: str | int, what: str, name: str) -> int:
    wanted: str | int | None = str(original_id)
    if ids.dtype.kind == "i":
        try:
            wanted = int(original_id)
        except (ValueError, OverflowError):
            wanted = None
        if isinstance(original_id, float) and wanted != original_id:
            wanted = None
        if wanted is not None and not -(2**63) <= int(wanted) < 2**63:
            wanted = None
    if wanted is not None:
        place = int(np.searchsorted(ids, wanted))
        if place < ids.size and ids[place] == wanted:
            return place
    kind = "numbers" if ids.dtype.kind == "i" else "texts"
    if what == "user":  # other people's ids are private
        looks = f"its {ids.size:,} user ids are {kind}"
    else:
        looks = f"item ids look like {ids[0]} ... {ids[-1]}" if ids.size else "there are no items"
    raise HushrecError(f"no {what} {str(original_id)!r} in {name}; {looks}")


def data_digest(data: Interactions) -> str:
    """SHA-256 over what the data says, whatever file it came from and however its rows were ordered.

    In this order: the text `hushrec-data-1`; user ids, then item ids, each as `int` or `str`, their
    number, and the ids (64-bit little-endian, or UTF-8 with a NUL after each); then the rows sorted by
    user and item: slice starts (int64), item numbers (int32) and ratings (float32, or the text
    `implicit`), all little-endian. Timestamps, titles and names are left out.
    """
    rows = data.by_user()
    digest = hashlib.sha256(b"hushrec-data-1\n")
    for ids in (data.user_ids, data.item_ids):
        if ids.dtype.kind == "i":
            digest.update(f"int {ids.size}\n".encode())
            digest.update(np.ascontiguousarray(ids, "<i8").data)
        else:
            digest.update(f"str {ids.size}\n".encode())
            digest.update("".join(f"{name}\0" for name in ids.tolist()).encode())
    digest.update(np.ascontiguousarray(rows.starts, "<i8").data)
    digest.update(np.ascontiguousarray(rows.items, "<i4").data)
    if rows.ratings is None:
        digest.update(b"implicit")
    else:
        digest.update(np.ascontiguousarray(rows.ratings, "<f4").data)
    return digest.hexdigest()


def checked(draft: Interactions) -> Interactions:
    """The draft with its digest, after all checks; every reader and generator ends here.

    Explicit ratings without a given range get the range that occurs.
    """
    _check_columns(draft)
    rating_range = None
    if draft.ratings is not None:
        _check_ratings(draft.ratings, draft.rating_range)
        rating_range = draft.rating_range
        if rating_range is None and len(draft):
            rating_range = (float(draft.ratings.min()), float(draft.ratings.max()))
    _check_duplicates(draft)
    draft = replace(draft, rating_range=rating_range)
    return replace(draft, sha256=data_digest(draft))


def _check_columns(draft: Interactions) -> None:
    for name, numbers, size in (
        ("users", draft.users, draft.num_users),
        ("items", draft.items, draft.num_items),
    ):
        if numbers.dtype != np.int32:
            raise HushrecError(f"{name} must be int32, not {numbers.dtype}; convert with .astype(np.int32)")
        if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < size):
            raise HushrecError(f"{name} must lie in 0..{size - 1}, the places of their ids")
    for name, column in (
        ("ratings", draft.ratings),
        ("timestamps", draft.timestamps),
        ("order", draft.order),
    ):
        if column is not None and column.shape != draft.users.shape:
            raise HushrecError(f"{name} has {column.size} rows, users has {len(draft)}; give one per row")
    if draft.items.shape != draft.users.shape:
        raise HushrecError(f"items has {draft.items.size} rows, users has {len(draft)}; give one per row")
    for name, texts in (("titles", draft.titles), ("genres", draft.genres)):
        if texts is not None and texts.size != draft.num_items:
            raise HushrecError(f"{texts.size} {name} for {draft.num_items} items; give one per item")
    for name, ids in (("user_ids", draft.user_ids), ("item_ids", draft.item_ids)):
        if not np.all(np.greater(ids[1:], ids[:-1])):
            raise HushrecError(f"{name} must be sorted and distinct")


def _check_ratings(ratings: npt.NDArray[np.float32], rating_range: tuple[float, float] | None) -> None:
    if not ratings.size:
        return
    low, high = float(ratings.min()), float(ratings.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        row = int(np.flatnonzero(~np.isfinite(ratings))[0])
        raise RowError(row, f"rating is {ratings[row]}; expected a finite number")
    if rating_range is None:
        return
    least, most = np.float32(rating_range[0]), np.float32(rating_range[1])
    if low < least or high > most:
        row = int(np.flatnonzero((ratings < least) | (ratings > most))[0])
        raise RowError(row, f"rating is {ratings[row]:g}; expected {rating_range[0]:g} to {rating_range[1]:g}")


def _repeats(data: Interactions) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.bool_]] | None:
    """Rows in canonical order and where one has the pair of the row before; None if no pair repeats."""
    rows = data.canonical_order()
    if rows is None:
        return None
    users, items = data.users[rows], data.items[rows]
    is_repeat = np.zeros(rows.size, bool)
    is_repeat[1:] = (users[1:] == users[:-1]) & (items[1:] == items[:-1])
    return (rows, is_repeat) if is_repeat.any() else None


def _check_duplicates(draft: Interactions) -> None:
    found = _repeats(draft)
    if found is None:
        return
    rows, is_repeat = found
    row = int(rows[is_repeat].min())
    user, item = draft.user_ids[draft.users[row]], draft.item_ids[draft.items[row]]
    raise RowError(
        row,
        f"user {user} and item {item} were there before ({int(is_repeat.sum())} such rows); "
        "accept them with --duplicates last|mean",
    )


def without_duplicates(draft: Interactions, duplicates: Duplicates) -> Interactions:
    """One row for each (user, item) pair: the last one in the file, for "mean" with the mean rating."""
    found = None if duplicates == "error" else _repeats(draft)
    if found is None:
        return draft
    rows, is_repeat = found
    last_of_pair = rows[np.append(~is_repeat[1:], True)]
    ratings = draft.ratings
    if duplicates == "mean" and ratings is not None:
        firsts = np.flatnonzero(~is_repeat)
        sums = np.add.reduceat(ratings[rows].astype(np.float64), firsts)
        ratings = ratings.copy()
        ratings[last_of_pair] = sums / np.diff(np.append(firsts, rows.size))
    return replace(draft, ratings=ratings).select(np.sort(last_of_pair))
