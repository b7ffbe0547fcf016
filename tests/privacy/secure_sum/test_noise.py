"""Clipping and noise of one sum, by hand; and how much a run's noise promises, by another way."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.discrete_gaussian import parts_of
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.secure_sum.noise import Noise, Size, clipped, noise_for, read_noisy, with_noise
from hushrec.privacy.user_privacy import multiplier_of, promises_of
from hushrec.registry import system_named

ONE = 1 << 40
KEY = Draws(0).key("user-noise")


def config_of(**values: Any) -> Any:
    return system_named("fedrec").configure({"secure_sums": True, "rho": 0, "num_rounds": 5, **values})


def noise_of(clip: float = 1.0, weight: float = 0.5, parties: int = 4, honest: int = 4) -> Noise:
    return Noise(Size(clip, weight), 2.0, parties, honest)


def test_hand_worked_clipping_and_reading_back() -> None:
    """One item with a gradient of (3, 1.5) and, with a weight of 1/2, a count of 4: (3, 1.5, 2), norm sqrt(15.25).

    Clipped to half of that, it is (1.5, .75, 1): the server reads the gradient, and a count of 2. The mean is the
    same as before, (3, 1.5) / 4.
    """
    fold = ExactSum(np.array([[3 * ONE, 3 * ONE // 2]]), np.array([4]), 100.0)
    noise = noise_of(clip=math.sqrt(15.25) / 2)
    words = clipped(fold.words(), fold, noise)
    np.testing.assert_allclose(words / ONE, [1.5, 0.75, 1.0], rtol=1e-8)
    total = ExactSum.zeros((1, 2), 1)
    total.add_words(read_noisy(words, total, noise, num_survivors=4))
    assert total.counts.tolist() == [2]
    assert total.count_deviation == 2 * total.deviation == 2 * 2.0 * noise.size.clip
    np.testing.assert_allclose(total.to_float(), [[1.5, 0.75]], rtol=1e-8)


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=40), st.floats(1e-6, 100.0))
@settings(deadline=None)
def test_no_norm_is_above_the_clip(numbers: list[int], clip: float) -> None:
    """In whole numbers, so that nothing is rounded; and what is within stays as it is."""
    fold = ExactSum.zeros((len(numbers), 1), 1)
    words = np.concatenate([np.array(numbers), np.zeros(len(numbers), np.int64)])
    scaled = clipped(words, fold, noise_of(clip))
    bound = int(clip * 2.0**40)
    assert sum(number**2 for number in scaled.tolist()) <= (bound + 1) ** 2
    assert math.sqrt(sum(number**2 for number in scaled.tolist())) <= clip * 2.0**40
    if sum(number**2 for number in numbers) < (1 - 1e-8) * (clip * 2.0**40) ** 2:
        np.testing.assert_array_equal(scaled, words)


def test_counts_below_zero_are_none_and_unneeded_ones_are_not_sent() -> None:
    fold = ExactSum.zeros((3, 1), 1)
    sums = read_noisy(np.array([0, ONE, -ONE, -ONE, ONE // 5, 3 * ONE]), fold, noise_of(), 4)
    assert sums.tolist() == [0, ONE, -ONE, 0, 0, 6]
    unweighted = noise_of(weight=0.0)
    assert clipped(np.array([0, 0, 0, 5, 5, 5]), fold, unweighted).tolist() == [0] * 6
    assert read_noisy(np.full(6, ONE), fold, unweighted, 4).tolist() == [ONE] * 3 + [0] * 3
    assert fold.count_deviation == 0


# --- Shares of noise ---------------------------------------------------------------------------------------------


def test_the_honest_survivors_alone_have_the_noise_that_is_wanted() -> None:
    """Of 100 participants 10 may be lost and 5 corrupted: 85 shares of variance (z clip)^2 / 85."""
    config = config_of(noise_multiplier=2.0, clip=0.5)
    noise = noise_for(100, 30, Size(1.0, 0.5), 1, config)
    assert noise.least_honest == 85
    assert noise.size == Size(0.5, 0.5)
    assert noise.share_deviation**2 * 85 == pytest.approx((2.0 * 0.5 * 2**40) ** 2)
    assert noise.deviation(85) == 1.0
    assert noise.deviation(100) == pytest.approx(math.sqrt(100 / 85))


def test_the_noise_of_a_sum_has_the_deviation_that_is_told() -> None:
    """50 shares of 4,000 numbers each. The variance's own deviation is sqrt(2 / 4000) = 2.2%; so it is within five
    of these but for a chance of 6e-7, with other seeds.
    """
    noise, fold = noise_of(parties=50, honest=40), ExactSum.zeros((4000, 1), 1)
    nothing = np.zeros(8000, np.int64)
    total = sum(with_noise(nothing, fold, noise, KEY, number, 0) for number in range(50))
    assert isinstance(total, np.ndarray)
    found = np.var(total[:4000] / 2.0**40)
    assert found == pytest.approx(noise.deviation(50) ** 2, rel=0.11)
    leading, shift = parts_of(noise.share_deviation)
    assert leading << shift >= noise.share_deviation


def test_each_attempt_of_each_party_has_noise_of_its_own() -> None:
    noise, fold = noise_of(), ExactSum.zeros((5, 1), 1)

    def of(number: int, attempt: int) -> NDArray[np.int64]:
        return with_noise(np.zeros(10, np.int64), fold, noise, KEY, number, attempt)

    np.testing.assert_array_equal(of(3, 1), of(3, 1))
    others = [of(3, 0), of(3, 2), of(1, 3), of(4, 1)]
    assert all((of(3, 1) != other).all() for other in others)
    one = np.array([ONE // 2, *[0] * 9])
    moved = with_noise(one, fold, noise, KEY, 3, 1) - clipped(one, fold, noise)
    assert (moved != of(3, 1)).all(), "other numbers have other noise"


def test_noise_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(HushrecError, match=r"clip=1000000.0 is too large for 100 clients"):
        noise_for(100, 30, Size(1.0), 1, config_of(noise_multiplier=2.0, clip=1e6))
    with pytest.raises(HushrecError, match=r"is too coarse; use a larger clip"):
        noise_for(100, 30, Size(1.0), 1, config_of(noise_multiplier=2.0, clip=1e-9))


# --- What a run promises -----------------------------------------------------------------------------------------


def renyi_epsilon(multiplier: float, count: int, delta: float) -> float:
    """By hand, without the ledger: Renyi divergence a / (2 z^2) for each of the sums, which add up, converted by
    Canonne, Kamath and Steinke (2020), Prop. 12. For discrete Gaussians the divergence is no larger.
    """
    orders = np.linspace(1.01, 200, 200_000)
    bound = orders * count / (2 * multiplier**2)
    bound += np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return float(bound.min())


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(8.0, 1e-5, 6), (1.0, 1e-6, 20)])
def test_epsilon_again_by_renyi_divergence(epsilon: float, delta: float, rounds: int) -> None:
    """An upper bound, and near. Half the noise, or twice as many sums, would be above the budget by far."""
    pytest.importorskip("dp_accounting")
    config = config_of(epsilon_total=epsilon, delta=delta, num_rounds=rounds)
    multiplier = multiplier_of(config, per_round=1)
    bound = renyi_epsilon(multiplier, rounds, delta)
    assert epsilon < bound < 1.12 * epsilon
    assert renyi_epsilon(multiplier, 2 * rounds, delta) > 1.3 * epsilon
    promises = promises_of(rounds, config, 1)
    assert promises[f"epsilon of these together, delta {delta:g}"] == pytest.approx(epsilon, abs=0.01)
    assert promises["releases that one user is in"] == rounds
    assert promises["epsilon of one release"] < epsilon / math.sqrt(rounds) * 1.2


def test_two_sums_in_a_round_are_two_releases() -> None:
    pytest.importorskip("dp_accounting")
    config = config_of(epsilon_total=2.0)
    assert multiplier_of(config, 2) == pytest.approx(math.sqrt(2) * multiplier_of(config, 1), rel=1e-3)
    assert multiplier_of(config_of(epsilon_total=2.0, most_sums=10), 1) == multiplier_of(config, 2)
