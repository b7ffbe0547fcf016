"""What every reader ends with: the checks of a dataset, its digest, and what to do about duplicates."""

import hashlib
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hushrec import choices
from hushrec.data.interactions import Interactions
from hushrec.data.row_order import repeats
from hushrec.errors import HushrecError, option

Duplicates = choices.Duplicates


class RowError(HushrecError):
    """A fault in one row. Readers turn `row` (0-based) into the line of the file."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row + 1}: {reason}")
        self.row = row
        self.reason = reason


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
        check_ratings(draft)
        rating_range = draft.rating_range
        if rating_range is None and len(draft):
            rating_range = (float(draft.ratings.min()), float(draft.ratings.max()))
    draft = replace(draft, rating_range=rating_range)
    _check_duplicates(draft)
    return replace(draft, sha256=data_digest(draft)).sorted_like(draft)


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
    for name, texts in (("titles", draft.titles), ("genres", draft.genres), *draft.item_columns.items()):
        if texts is not None and texts.size != draft.num_items:
            raise HushrecError(f"{texts.size} {name} for {draft.num_items} items; give one per item")
    for name, ids in (("user_ids", draft.user_ids), ("item_ids", draft.item_ids)):
        if not np.all(np.greater(ids[1:], ids[:-1])):
            raise HushrecError(f"{name} must be sorted and distinct")


def check_ratings(draft: Interactions) -> None:
    """Refuse ratings that are not finite, or not in the range that was given."""
    ratings, rating_range = draft.ratings, draft.rating_range
    if ratings is None or not ratings.size:
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
    grouped = data.by_user()
    count, is_repeat = repeats(grouped.starts, grouped.items)
    return (rows, is_repeat) if count else None


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
        f"accept them with {option('duplicates', 'last')} or {option('duplicates', 'mean')}",
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
