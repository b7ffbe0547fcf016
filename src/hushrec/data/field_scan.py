"""Compiled loops over the bytes of a text table and over columns of whole numbers."""

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

_ZERO, _NINE, _POINT, _MINUS, _QUOTE, _SPACE, _TAB, _NEWLINE, _RETURN = b'09.-" \t\n\r'


@njit(cache=True, nogil=True)
def has_leading_zeros(content: Bytes, delimiter: int) -> bool:
    """Whether some field begins with a 0 and another digit, as the id 007 does: a number would lose that."""
    if not _may_have_leading_zeros(content):
        return False
    is_at_start = True
    for place in range(content.size - 1):
        here = content[place]
        if is_at_start and here == _ZERO and _ZERO <= content[place + 1] <= _NINE:
            return True
        is_blank = here in (_SPACE, _TAB, _MINUS)
        is_end = here in (delimiter, _NEWLINE, _RETURN, _QUOTE)
        is_at_start = is_end or (is_at_start and is_blank)
    return False


@njit(cache=True, nogil=True)
def _may_have_leading_zeros(content: Bytes) -> bool:
    """A quick look, without branches, for a 0 that stands before a digit and behind no digit or point."""
    hits = content.size > 1 and content[0] == _ZERO
    for place in range(1, content.size - 1):
        before, after = content[place - 1], content[place + 1]
        is_inside = ((before >= _ZERO) & (before <= _NINE)) | (before == _POINT)
        hits |= (content[place] == _ZERO) & (after >= _ZERO) & (after <= _NINE) & ~is_inside
    return hits


@njit(cache=True, nogil=True)
def span_of(values: Int64s) -> tuple[int, int]:
    """The least and the largest."""
    low, high = values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    return low, high


@njit(cache=True, nogil=True)
def numbered(values: Int64s, low: int, size: int) -> tuple[npt.NDArray[np.int32], Int64s]:
    """For each value its place among those that occur, by a table over their span; and these, rising."""
    place_of = np.zeros(size, np.int32)
    for value in values:
        place_of[value - low] = 1
    num_ids = 0
    for offset in range(size):
        if place_of[offset]:
            place_of[offset] = num_ids
            num_ids += 1
        else:
            place_of[offset] = -1
    numbers = np.empty(values.size, np.int32)
    for row in range(values.size):
        numbers[row] = place_of[values[row] - low]
    ids = np.empty(num_ids, np.int64)
    for offset in range(size):
        if place_of[offset] >= 0:
            ids[place_of[offset]] = offset + low
    return numbers, ids


@njit(cache=True, nogil=True)
def has_byte(content: Bytes, byte: int) -> bool:
    """Whether a byte occurs."""
    found = False
    for here in content:
        found |= here == byte
    return found
