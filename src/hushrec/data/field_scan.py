"""Compiled loops over the bytes of a text table and over columns of whole numbers."""

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
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
def mark(values: Int64s, low: int, does_occur: Bools) -> None:
    """Note in a table over the span of all values which of them occur."""
    for value in values:
        does_occur[value - low] = True


@njit(cache=True, nogil=True)
def look_up(values: Int64s, low: int, place_of: Int32s, found: Int32s) -> None:
    """For each value what the table says of it."""
    for row in range(values.size):
        found[row] = place_of[values[row] - low]


@njit(cache=True, nogil=True)
def has_byte(content: Bytes, byte: int) -> bool:
    """Whether a byte occurs."""
    found = False
    for here in content:
        found |= here == byte
    return found
