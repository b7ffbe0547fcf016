"""Draws of the discrete Gaussian are exact, keyed, and sums of them as near to Gaussian noise as is said."""

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, norm

from hushrec.privacy import discrete_gaussian
from hushrec.privacy.discrete_gaussian import add_noise, gap, parts_of

SEED = bytes(range(32))


def drawn(size: int, deviation: float, seed: bytes = SEED, guard: float = 1e-14) -> NDArray[np.int64]:
    words = np.zeros(size, np.int64)
    add_noise(words, deviation, seed, guard)
    return words


def chances(deviation: float, most: int) -> NDArray[np.float64]:
    weights = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * deviation**2))
    return weights / weights.sum()


@pytest.mark.parametrize("deviation", [1, 2, 5])
def test_small_deviations_have_the_chances_of_the_formula(deviation: int) -> None:
    """Chi-square over all numbers with 20 expected draws or more. False alarm: 1e-4 each, with other seeds."""
    draws, most = drawn(200_000, deviation), 20 * deviation
    expected = len(draws) * chances(deviation, most)
    counts = np.bincount(draws + most, minlength=2 * most + 1)
    is_frequent = expected >= 20
    of_others = counts[~is_frequent].sum(), expected[~is_frequent].sum()
    found = chisquare([*counts[is_frequent], of_others[0]], [*expected[is_frequent], of_others[1]])
    assert found.pvalue > 1e-4


def test_large_deviations_are_normal_in_the_large_and_uniform_in_the_small() -> None:
    """At 2^37 + 1, which is rounded up: 64 bins of equal chance, and 64 classes of the lowest bits. False alarm:
    1e-4 each, with other seeds.
    """
    deviation = 2.0**37 + 1
    leading, shift = parts_of(deviation)
    draws = drawn(400_000, deviation)
    bins = np.floor(64 * norm.cdf(draws / (leading << shift))).astype(np.int64)
    for classes in (bins, draws & 63, draws >> 20 & 63):
        assert chisquare(np.bincount(classes, minlength=64)).pvalue > 1e-4


def test_a_close_look_changes_no_draw() -> None:
    """With a wide guard hundreds of trials are decided by 544 bits; the same trials as by 32."""
    for deviation in (1.0, 3.0, 12345.0, 2.0**37):
        np.testing.assert_array_equal(drawn(5000, deviation, guard=0.02), drawn(5000, deviation))


def test_a_close_look_at_k_decides_by_the_bits_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thresholds that match many words, k is chosen by 544 bits: the same as by 32."""
    plain = drawn(3000, 7.0)
    every = np.array([], np.uint32)  # no threshold is known, so each k is looked at closely
    monkeypatch.setattr(discrete_gaussian, "_k_thresholds", lambda: every)
    np.testing.assert_array_equal(drawn(3000, 7.0), plain)


def test_chances_to_many_bits_are_those_of_decimal_arithmetic() -> None:
    getcontext().prec = 210
    for numerator, denominator in [(0, 3), (1, 2), (27, 2), (1, 10**12), (450, 1), (123456789, 987654)]:
        ours = Decimal(discrete_gaussian._exp_bits(numerator, denominator)) / Decimal(2**640)
        assert abs(ours - (-Decimal(numerator) / Decimal(denominator)).exp()) < Decimal(2) ** -630


def test_noise_follows_from_the_seed_and_is_added_modulo_2_to_the_64() -> None:
    np.testing.assert_array_equal(drawn(500, 9.0), drawn(500, 9.0))
    assert (drawn(500, 9.0) != drawn(500, 9.0, bytes(32))).any()
    np.testing.assert_array_equal(drawn(9000, 9.0)[:500], drawn(500, 9.0))  # whatever follows
    words = np.full(1000, 2**63 - 1)
    add_noise(words, 100.0, SEED)
    assert words.min() < 0, "some went beyond, and wrapped"
    np.testing.assert_array_equal(words - (2**63 - 1), drawn(1000, 100.0))


@pytest.mark.parametrize("deviation", [1.0, 3.5, 65535.0, 65535.5, 65536.0, 65537.0, 2.0**40 + 1, 2.0**46 - 1])
def test_a_deviation_is_rounded_up_and_hardly(deviation: float) -> None:
    leading, shift = parts_of(deviation)
    assert leading < 2**16
    assert deviation <= leading << shift <= max(math.ceil(deviation), deviation * (1 + 2**-15))


@pytest.mark.parametrize("deviation", [0.0, 2.0**47, math.nan, math.inf])
def test_a_deviation_out_of_range_is_refused(deviation: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        drawn(1, deviation)


@pytest.mark.parametrize(("num_shares", "deviation"), [(2, 0.8), (5, 0.8), (3, 1.0)])
def test_the_gap_of_a_sum_of_shares_is_within_the_bound(num_shares: int, deviation: float) -> None:
    """By convolution, against rounded Gaussian noise: coarse noise, where the gap can be seen.

    The bound is for numbers of up to 40 deviations; the chances of those beyond 6 are too small to compute.
    """
    one = chances(deviation, 40)
    summed = one
    for _ in range(num_shares - 1):
        summed = np.convolve(summed, one)
    whole = np.arange(len(summed)) - len(summed) // 2
    total = deviation * math.sqrt(num_shares)
    is_near = np.abs(whole) <= 6 * total
    near = whole[is_near]
    rounded = norm.cdf(-(np.abs(near) - 0.5) / total) - norm.cdf(-(np.abs(near) + 0.5) / total)
    worst = np.abs(np.log(summed[is_near] / rounded)).max()
    assert 1e-3 < worst <= gap(num_shares, num_shares, deviation)


def test_at_fine_steps_the_gap_is_nothing() -> None:
    """1,000 clients, a multiplier of 1 and a clip of 1 in steps of 2^-40: S = 2^40, so 1601 / (8 * 2^80)."""
    share = 2.0**40 / math.sqrt(1000)
    assert gap(1000, 1000, share) == pytest.approx(1601 / 8 / 2**80, rel=1e-9)
