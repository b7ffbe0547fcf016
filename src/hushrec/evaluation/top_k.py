"""The best k items of each row of scores: for rankings that are measured and for recommendations."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError

NO_ITEM = -1
_LOOK = 128  # scores that are looked at together


def top_k(
    scores: NDArray[np.floating],
    k: int,
    exclude: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.floating]]:
    """Items with the k highest scores of each row, best first, and their scores: two (rows, k) arrays.

    Of equal scores the lower item number comes first. `exclude` is (starts, items): row r leaves out
    items[starts[r]:starts[r + 1]], in any order. `candidates` tells of each item whether any row may list it
    (None: all of them); with it, scores may have columns of candidates alone. A row with fewer than k candidates
    ends in item -1 with score -inf. Time is O(num_items) per row plus O(log k) per candidate that enters the best
    k.

    >>> items, _ = top_k(np.array([[0.1, 0.9, 0.9, 0.5]]), 3, (np.array([0, 1]), np.array([1])))
    >>> items.tolist()
    [[2, 3, 0]]
    """
    if k < 1:
        raise HushrecError(f"k is {k}; ask for at least 1 item")
    if scores.ndim != 2:
        raise HushrecError(f"scores have {scores.ndim} dimensions; give an array (rows, num_items)")
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float64)
    rows, num_columns = scores.shape
    starts, excluded = exclude or (np.zeros(rows + 1, np.int64), np.empty(0, np.int32))
    _check_exclude(starts, excluded, rows, num_columns if candidates is None else len(candidates))
    if candidates is None:
        return _best(scores, np.empty(0, np.int64), k, starts, excluded)
    kept = np.flatnonzero(candidates)
    if num_columns not in (len(candidates), len(kept)):
        raise HushrecError(f"candidates have shape {candidates.shape}; give one of each of {num_columns} items")
    # As if the kept items, which ascend, were all there are: a fraction of the work where they are few.
    is_kept = candidates[excluded]
    num_before = np.concatenate(([0], np.cumsum(is_kept, dtype=np.int64)))
    own = np.searchsorted(kept, excluded[is_kept]).astype(np.int32)
    if len(kept) == 0:
        scores = scores[:, :0]
    columns = kept if num_columns > len(kept) else np.empty(0, np.int64)
    places, best = _best(scores, columns, k, num_before[starts], own)
    items = kept.astype(np.int32)[places] if len(kept) else places
    return np.where(places == NO_ITEM, np.int32(NO_ITEM), items), best


def _best(
    scores: NDArray[np.floating],
    columns: NDArray[np.int64],
    k: int,
    starts: NDArray[np.int64],
    excluded: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.floating]]:
    """The best places among these columns; none of them: among all."""
    places = np.full((len(scores), k), NO_ITEM, np.int32)
    best = np.full((len(scores), k), -np.inf, scores.dtype)
    nan_row: int = _fill_top_k(
        np.ascontiguousarray(scores),
        columns,
        np.ascontiguousarray(starts, np.int64),
        np.ascontiguousarray(excluded, np.int32),
        places,
        best,
    )
    if nan_row >= 0:
        raise DivergedError(
            f"row {nan_row} has a score that is not a number; check the model (did training diverge?)"
        )
    return places, best


def _check_exclude(starts: NDArray[np.integer], excluded: NDArray[np.integer], rows: int, num_items: int) -> None:
    """The kernel does not check bounds, so nothing outside them may reach it."""
    if starts.shape != (rows + 1,):
        raise HushrecError(f"exclude has starts of shape {starts.shape} for {rows} rows; give {rows + 1} starts")
    if starts[0] != 0 or starts[-1] != len(excluded) or np.any(np.diff(starts) < 0):
        raise HushrecError(
            f"the starts of exclude must rise from 0 to its {len(excluded)} items; "
            "build them with a cumulative sum"
        )
    if len(excluded) and not (excluded.min() >= 0 and excluded.max() < num_items):
        raise HushrecError(
            f"exclude names items {excluded.min()} to {excluded.max()}, "
            f"scores cover items 0 to {num_items - 1}; score all items"
        )


@njit(nogil=True, cache=True)
def _fill_top_k(
    scores: NDArray[np.floating],
    columns: NDArray[np.int64],
    starts: NDArray[np.int64],
    excluded: NDArray[np.int32],
    top_places: NDArray[np.int32],
    top_scores: NDArray[np.floating],
) -> int:
    """Fill both outputs; the number of the first row with a NaN, or -1."""
    num_places = len(columns) if len(columns) else scores.shape[1]
    k = min(top_places.shape[1], num_places)
    is_excluded = np.zeros(num_places, np.bool_)
    gathered = np.empty(len(columns), scores.dtype)
    for row in range(len(scores)):
        row_scores = scores[row]
        if len(columns):
            for place in range(num_places):
                gathered[place] = row_scores[columns[place]]
            row_scores = gathered
        for position in range(starts[row], starts[row + 1]):
            is_excluded[excluded[position]] = True
        if _fill_row(row_scores, is_excluded, top_places[row, :k], top_scores[row, :k]):
            return row
        for position in range(starts[row], starts[row + 1]):
            is_excluded[excluded[position]] = False
    return -1


@njit(nogil=True, cache=True)
def _fill_row(
    row_scores: NDArray[np.floating],
    is_excluded: NDArray[np.bool_],
    heap_places: NDArray[np.int32],
    heap_scores: NDArray[np.floating],
) -> bool:
    """The outputs serve as a heap with the worst kept place at the root, then are sorted in place.

    Returns whether a score is not a number.
    """
    num_places, k = len(row_scores), len(heap_places)
    size, place, has_nan = 0, 0, False
    while size < k and place < num_places:
        has_nan |= row_scores[place] != row_scores[place]
        if not is_excluded[place]:
            heap_places[size], heap_scores[size] = place, row_scores[place]
            size += 1
        place += 1
    for parent in range(size // 2 - 1, -1, -1):
        _sift_down(heap_places, heap_scores, parent, size)
    while place < num_places:
        stop = min(place + _LOOK, num_places)
        if stop - place < _LOOK or _is_any_above(row_scores[place:stop], heap_scores[0]):
            for later in range(place, stop):
                has_nan |= row_scores[later] != row_scores[later]
                # Places come in ascending order, so one that only equals the worst kept place loses the tie.
                if row_scores[later] > heap_scores[0] and not is_excluded[later]:
                    heap_places[0], heap_scores[0] = later, row_scores[later]
                    _sift_down(heap_places, heap_scores, 0, size)
        place = stop
    for last in range(size - 1, 0, -1):
        heap_places[0], heap_places[last] = heap_places[last], heap_places[0]
        heap_scores[0], heap_scores[last] = heap_scores[last], heap_scores[0]
        _sift_down(heap_places, heap_scores, 0, last)
    return has_nan


@njit(nogil=True, cache=True)
def _is_any_above(part: NDArray[np.floating], limit: float) -> bool:
    """Whether some of so many scores is above the limit, or not a number: without a branch, in SIMD registers."""
    num_above = np.int32(0)
    for place in range(_LOOK):
        num_above += np.int32(not (part[place] <= limit))
    return bool(num_above > 0)


@njit(nogil=True, cache=True)
def _sift_down(places: NDArray[np.int32], scores: NDArray[np.floating], start: int, size: int) -> None:
    parent = start
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and _is_worse(places, scores, child + 1, child):
            child += 1
        if not _is_worse(places, scores, child, parent):
            return
        places[parent], places[child] = places[child], places[parent]
        scores[parent], scores[child] = scores[child], scores[parent]
        parent = child


@njit(nogil=True, cache=True)
def _is_worse(places: NDArray[np.int32], scores: NDArray[np.floating], one: int, other: int) -> bool:
    if scores[one] != scores[other]:
        return bool(scores[one] < scores[other])
    return bool(places[one] > places[other])
