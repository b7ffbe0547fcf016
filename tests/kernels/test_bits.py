import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.kernels.bits import bit_of, lowest_bit


@numba.njit
def lowest(word):
    return lowest_bit(word)


@given(word=st.integers(1, 2**64 - 1), shift=st.integers(0, 63))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_lowest_bit(word: int, shift: int) -> None:
    word = (word << shift) % 2**64 or 1
    expected = f"{word:b}"[::-1].index("1")
    assert lowest(np.uint64(word)) == expected


@pytest.mark.parametrize("item", [0, 1, 62, 63, 64, 127, 128, 2**31 - 1])
def test_bit_of_an_item(item: int) -> None:
    assert int(bit_of(item)) == 1 << (item % 64)
