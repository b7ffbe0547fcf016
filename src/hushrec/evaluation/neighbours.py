"""Which items lie near each other, by their vectors: for similar items, and for why an item is in a list.

Vectors of items share a large part, as what makes all ratings high. So nearness is the cosine of two items after
the mean of all trained items is taken away from both.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hushrec.data.interactions import Numbers
from hushrec.evaluation.top_k import NO_ITEM

Floats = NDArray[np.float32]


def directions(vectors: Floats, is_trained: NDArray[np.bool_]) -> Floats:
    """Every item's vector from the mean of the trained ones, with length 1; zero where there is no direction."""
    usual = vectors[is_trained] if is_trained.any() else vectors
    centred = vectors - usual.mean(axis=0, dtype=np.float64).astype(np.float32)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.ascontiguousarray(np.divide(centred, lengths, out=np.zeros_like(centred), where=lengths > 0))


def liking(ratings: Floats | None, rating_range: tuple[float, float] | None, num_rows: int) -> Floats:
    """How much each rating says that an item is liked: 0 at the low end of the range, 1 at its high end.

    >>> liking(np.array([1, 4, 5], np.float32), (1.0, 5.0), 3).tolist()
    [0.0, 0.75, 1.0]
    """
    if ratings is None or rating_range is None or rating_range[0] == rating_range[1]:
        return np.ones(num_rows, np.float32)
    low, high = rating_range
    found: Floats = np.clip((ratings - low) / (high - low), 0, 1).astype(np.float32)
    return found


def reasons(
    of_items: Floats, listed: Numbers, starts: NDArray[np.int64], own: Numbers, liked: Floats
) -> tuple[Numbers, Floats]:
    """Of each listed item (rows, k): the row's own item with the highest cosine times liking, and the cosine.

    Row r owns own[starts[r]:starts[r + 1]]. Where nothing that is liked points the same way, the item is -1.
    """
    found = np.full(listed.shape, NO_ITEM, np.int32)
    cosines = np.zeros(listed.shape, np.float32)
    _fill_reasons(of_items, listed, starts, own, liked, found, cosines)
    return found, cosines


@njit(nogil=True, cache=True)
def _fill_reasons(
    of_items: Floats,
    listed: Numbers,
    starts: NDArray[np.int64],
    own: Numbers,
    liked: Floats,
    found: Numbers,
    cosines: Floats,
) -> None:
    num_rows, length = listed.shape
    for row in range(num_rows):
        for place in range(length):
            item, best = listed[row, place], np.float32(0)
            for position in range(starts[row], starts[row + 1] if item >= 0 else starts[row]):
                cosine = np.float32(0)
                for factor in range(of_items.shape[1]):
                    cosine += of_items[item, factor] * of_items[own[position], factor]
                if cosine * liked[position] > best and own[position] != item:
                    best = cosine * liked[position]
                    found[row, place], cosines[row, place] = own[position], cosine
