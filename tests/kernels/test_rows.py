"""Rows in registers against NumPy and Python's fractions, bit for bit."""

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushrec.kernels.rows import (
    FIXED_LIMIT,
    FRACTION_BITS,
    add_fixed,
    dot,
    load,
    magnitude,
    multiply,
    store,
    width_of,
    zeros,
)

WIDTHS = [1, 3, 5, 20]  # every register of 1, 2, 4 and 8 lanes, alone and together

# Kernels of tests are not cached: Numba would not notice that what they are made of has changed.


@numba.njit
def arithmetic(width, array, first, second, number, out):
    one, other = load(array, first, width), load(array, second, width)
    store(out, 0, one)
    store(out, 1, one + other)
    store(out, 2, one - other)
    store(out, 3, number * one)
    store(out, 4, multiply(one, other))
    store(out, 5, zeros(width))
    return dot(one, other)


@numba.njit
def larger(width, array, out):
    store(out, 0, magnitude(load(array, 0, width), load(array, 1, width)))


@numba.njit
def add_all(width, rows, places, totals):
    for row in range(places.size):
        add_fixed(totals, np.int64(places[row]), load(rows, row, width))


def slow_dot(left: np.ndarray, right: np.ndarray) -> np.float32:
    """The documented order: products in registers of 8, 4, 2, 1 lanes; equal ones are added up, then halves."""
    products, lanes = left * right, []
    for lane in (8, 4, 2, 1):
        while len(products) >= lane:
            lanes.append(products[:lane])
            products = products[lane:]
    total = lanes.pop(0)
    while True:
        while lanes and len(lanes[0]) == len(total):
            total = total + lanes.pop(0)
        if len(total) == 1:
            return total[0]
        half = len(total) // 2
        total = total[:half] + total[half:]


@pytest.mark.parametrize("num_factors", WIDTHS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_arithmetic_is_numpys(num_factors: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    array = (draws.standard_normal((7, num_factors)) * 10.0 ** draws.integers(-6, 6, (7, num_factors))).astype(
        np.float32
    )
    first, second = draws.integers(0, 7, 2)
    number = np.float32(draws.standard_normal())
    out = np.full((6, num_factors), np.nan, np.float32)
    product = arithmetic(width_of(num_factors), array, first, second, number, out)
    one, other = array[first], array[second]
    expected = [one, one + other, one - other, number * one, one * other, np.zeros_like(one)]
    np.testing.assert_array_equal(out, np.array(expected))
    assert np.float32(product) == slow_dot(one, other)
    exact = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(one, other, strict=True))
    scale = float(np.abs(one.astype(np.float64) * other).sum())
    assert abs(product - float(exact)) <= num_factors * 2.0**-24 * scale + 1e-40


@pytest.mark.parametrize("num_factors", WIDTHS)
def test_store_leaves_other_rows_alone(num_factors: int) -> None:
    array = np.ones((3, num_factors), np.float32)
    out = np.full((9, num_factors), 7.0, np.float32)
    arithmetic(width_of(num_factors), array, 0, 1, np.float32(2), out)
    assert (out[6:] == 7).all()


@pytest.mark.parametrize("num_factors", WIDTHS)
def test_magnitude_is_the_larger_of_both_and_nan_is_largest(num_factors: int) -> None:
    """All pairs of these numbers, at every place of a row."""
    numbers = np.array([0, -0.0, 1e-45, -2, 2, 3e38, -np.inf, np.inf, np.nan, -np.nan], np.float32)
    pairs = np.stack([axis.ravel() for axis in np.meshgrid(numbers, numbers)])
    expected = np.where(np.isnan(pairs).any(axis=0), np.nan, np.abs(pairs).max(axis=0)).astype(np.float32)
    for start in range(pairs.shape[1]):
        columns = np.arange(start, start + num_factors) % pairs.shape[1]
        out = np.empty((1, num_factors), np.float32)
        larger(width_of(num_factors), np.ascontiguousarray(pairs[:, columns]), out)
        np.testing.assert_array_equal(out[0], expected[columns])
        assert not np.signbit(out).any()


def to_fixed(number: np.float32) -> int:
    """Python's rounding of fractions is to even, as the kernel's."""
    return round(Fraction(float(number)) * 2**FRACTION_BITS)


below_limit = st.floats(-FIXED_LIMIT, FIXED_LIMIT, width=32)


@given(numbers=st.lists(below_limit, min_size=1, max_size=30))
@example(numbers=[2.0**-41, 3 * 2.0**-41, -(2.0**-41), -3 * 2.0**-41])  # ties go to even
@example(numbers=[FIXED_LIMIT, -FIXED_LIMIT, float(np.nextafter(np.float32(FIXED_LIMIT), np.float32(0)))])
@example(numbers=[1e-45, -1e-45, -0.0])
@settings(max_examples=200, deadline=None, derandomize=True)
def test_fixed_point_is_the_nearest_integer(numbers: list[float]) -> None:
    rows = np.array(numbers, np.float32)[:, None]
    totals = np.zeros((len(rows), 1), np.int64)
    add_all(width_of(1), rows, np.arange(len(rows)), totals)
    assert totals[:, 0].tolist() == [to_fixed(number) for number in rows[:, 0]]


@pytest.mark.parametrize("num_factors", WIDTHS)
def test_fixed_sums_are_python_sums_in_any_order(num_factors: int) -> None:
    draws = np.random.default_rng(num_factors)
    rows = draws.uniform(-FIXED_LIMIT, FIXED_LIMIT, (200, num_factors)).astype(np.float32)
    rows *= np.float32(10.0) ** draws.integers(-12, 1, rows.shape).astype(np.float32)
    places = draws.integers(0, 4, 200)
    expected = [[0] * num_factors for _ in range(4)]
    for place, row in zip(places, rows, strict=True):
        for factor in range(num_factors):
            expected[place][factor] += to_fixed(row[factor])
    for order in (np.arange(200), draws.permutation(200)):
        totals = np.zeros((4, num_factors), np.int64)
        add_all(width_of(num_factors), rows[order], places[order], totals)
        assert totals.tolist() == expected
