"""The best k items of each row of scores: for rankings that are measured and for recommendations."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError

NO_ITEM = -1


def top_k(
    scores: NDArray[np.floating],
    k: int,
    exclude: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.floating]]:
    """Items with the k highest scores of each row, best first, and their scores: two (rows, k) arrays.

    Of equal scores the lower item number comes first. `exclude` is (starts, items): row r leaves out
    items[starts[r]:starts[r + 1]], in any order. `candidates` tells of each item whether any row may list it
    (None: all of them). A row with fewer than k candidates ends in item -1
    with score -inf. Time is O(num_items) per row plus O(log k) per candidate that enters the best k.

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
    rows, num_items = scores.shape
    if exclude is None:
        starts, excluded = np.zeros(rows + 1, np.int64), np.empty(0, np.int32)
    else:
        starts, excluded = exclude
        _check_exclude(starts, excluded, rows, num_items)
    if candidates is not None:
        if candidates.shape != (num_items,):
            raise HushrecError(f"candidates have shape {candidates.shape}; give one of each of {num_items} items")
        return _top_k_of(np.flatnonzero(candidates), candidates, scores, k, starts, excluded)
    items = np.full((rows, k), NO_ITEM, np.int32)
    best = np.full((rows, k), -np.inf, scores.dtype)
    nan_row: int = _fill_top_k(
        np.ascontiguousarray(scores),
        np.ascontiguousarray(starts, np.int64),
        np.ascontiguousarray(excluded, np.int32),
        items,
        best,
    )
    if nan_row >= 0:
        raise DivergedError(
            f"row {nan_row} has a score that is not a number; check the model (did training diverge?)"
        )
    return items, best


def _top_k_of(
    kept: NDArray[np.int64],
    candidates: NDArray[np.bool_],
    scores: NDArray[np.floating],
    k: int,
    starts: NDArray[np.int64],
    excluded: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.floating]]:
    """As if the kept items, which ascend, were all there are: a fraction of the work where they are few."""
    is_kept = candidates[excluded]
    num_before = np.concatenate(([0], np.cumsum(is_kept, dtype=np.int64)))
    own = np.searchsorted(kept, excluded[is_kept]).astype(np.int32)
    places, best = top_k(np.take(scores, kept, axis=1), k, (num_before[starts], own))
    items = kept.astype(np.int32)[places] if len(kept) else places
    return np.where(places == NO_ITEM, np.int32(NO_ITEM), items), best


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
    starts: NDArray[np.int64],
    excluded: NDArray[np.int32],
    top_items: NDArray[np.int32],
    top_scores: NDArray[np.floating],
) -> int:
    """Fill both outputs; the number of the first row with a NaN, or -1."""
    num_rows, num_items = scores.shape
    k = min(top_items.shape[1], num_items)
    is_excluded = np.zeros(num_items, np.bool_)
    for row in range(num_rows):
        row_scores = scores[row]
        has_nan = False
        for item in range(num_items):
            has_nan |= row_scores[item] != row_scores[item]
        if has_nan:
            return row
        for position in range(starts[row], starts[row + 1]):
            is_excluded[excluded[position]] = True
        _fill_row(row_scores, is_excluded, top_items[row, :k], top_scores[row, :k])
        for position in range(starts[row], starts[row + 1]):
            is_excluded[excluded[position]] = False
    return -1


@njit(nogil=True, cache=True)
def _fill_row(
    row_scores: NDArray[np.floating],
    is_excluded: NDArray[np.bool_],
    heap_items: NDArray[np.int32],
    heap_scores: NDArray[np.floating],
) -> None:
    """The outputs serve as a heap with the worst kept item at the root, then are sorted in place."""
    num_items, k = len(row_scores), len(heap_items)
    size, item = 0, 0
    while size < k and item < num_items:
        if not is_excluded[item]:
            heap_items[size], heap_scores[size] = item, row_scores[item]
            size += 1
        item += 1
    for parent in range(size // 2 - 1, -1, -1):
        _sift_down(heap_items, heap_scores, parent, size)
    for later in range(item, num_items):
        # Items come in ascending order, so one that only equals the worst kept item loses the tie.
        if row_scores[later] > heap_scores[0] and not is_excluded[later]:
            heap_items[0], heap_scores[0] = later, row_scores[later]
            _sift_down(heap_items, heap_scores, 0, size)
    for last in range(size - 1, 0, -1):
        heap_items[0], heap_items[last] = heap_items[last], heap_items[0]
        heap_scores[0], heap_scores[last] = heap_scores[last], heap_scores[0]
        _sift_down(heap_items, heap_scores, 0, last)


@njit(nogil=True, cache=True)
def _sift_down(items: NDArray[np.int32], scores: NDArray[np.floating], start: int, size: int) -> None:
    parent = start
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and _is_worse(items, scores, child + 1, child):
            child += 1
        if not _is_worse(items, scores, child, parent):
            return
        items[parent], items[child] = items[child], items[parent]
        scores[parent], scores[child] = scores[child], scores[parent]
        parent = child


@njit(nogil=True, cache=True)
def _is_worse(items: NDArray[np.int32], scores: NDArray[np.floating], one: int, other: int) -> bool:
    if scores[one] != scores[other]:
        return bool(scores[one] < scores[other])
    return bool(items[one] > items[other])
