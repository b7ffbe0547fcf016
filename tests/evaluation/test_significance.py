import itertools
import math

import numpy as np
import pytest
from scipy import stats

from hushrec.errors import HushrecError
from hushrec.evaluation import bootstrap_interval, paired_test


def test_interval_of_many_values_is_the_normal_one() -> None:
    """Mean of 2,000 values: bootstrap and mean +- 1.96 s / sqrt(n) agree to a few per cent of the width."""
    values = np.random.default_rng(1).exponential(size=2000)
    interval = bootstrap_interval(values, np.random.default_rng(2))
    half_width = 1.96 * values.std() / math.sqrt(2000)
    assert interval.mean == values.mean()
    assert interval.level == 0.95
    assert interval.low == pytest.approx(values.mean() - half_width, abs=0.1 * half_width)
    assert interval.high == pytest.approx(values.mean() + half_width, abs=0.1 * half_width)


def test_interval_of_two_values() -> None:
    """Resampled means of (0, 1) are 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the central 40% is 1/2 alone, the
    central 80% goes from 0 to 1.
    """
    narrow = bootstrap_interval([0, 1], np.random.default_rng(0), level=0.4)
    wide = bootstrap_interval([0, 1], np.random.default_rng(0), level=0.8)
    assert (narrow.low, narrow.mean, narrow.high) == (0.5, 0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_interval_covers_at_the_stated_rate() -> None:
    """400 samples of 80: the 90% interval misses with chance about 0.105. Misses outside 22..68 have a
    chance below 1e-3 (binomial, 400 at 0.105); the seed is fixed.
    """
    draws = np.random.default_rng(5)
    misses = 0
    for _ in range(400):
        interval = bootstrap_interval(draws.normal(size=80), draws, level=0.9, num_resamples=400)
        misses += not interval.low <= 0 <= interval.high
    assert 22 <= misses <= 68


def test_interval_depends_on_the_draws_only() -> None:
    values = np.random.default_rng(0).random(300)
    same = [bootstrap_interval(values, np.random.default_rng(7)) for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != bootstrap_interval(values, np.random.default_rng(8))


def test_paired_test_equals_all_sign_flips() -> None:
    """Exact p-value for 8 pairs: share of the 2 ** 8 signings whose positive rank sum is as far from its
    mean, 8 * 9 / 4 = 18, as the one seen.
    """
    differences = np.array([0.3, -0.1, 0.7, 0.2, -0.4, 0.9, 1.1, 0.5])
    ranks = stats.rankdata(np.abs(differences))
    seen = abs(ranks[differences > 0].sum() - 18)
    flips = itertools.product([0, 1], repeat=8)
    p_value = np.mean([abs(np.dot(signs, ranks) - 18) >= seen for signs in flips])
    result = paired_test(differences + 2, np.full(8, 2.0))
    assert result.p_value == pytest.approx(p_value, abs=1e-12)
    assert result.mean_difference == pytest.approx(differences.mean())
    assert (result.num_pairs, result.num_different) == (8, 8)


def test_five_folds_cannot_reach_five_per_cent() -> None:
    """All 5 signs equal: p = 2 / 2 ** 5 = 1/16."""
    assert paired_test([1, 2, 3, 4, 5], [0, 0, 0, 0, 0]).p_value == 1 / 16


def test_equal_pairs_are_dropped() -> None:
    draws = np.random.default_rng(3)
    a, b = draws.random(40), draws.random(40)
    padded = paired_test(np.concatenate([a, np.ones(500)]), np.concatenate([b, np.ones(500)]))
    assert padded.p_value == paired_test(a, b).p_value
    assert (padded.num_pairs, padded.num_different) == (540, 40)


def test_no_difference_at_all() -> None:
    result = paired_test([0.5, 0.25], [0.5, 0.25])
    assert (result.mean_difference, result.p_value, result.num_different) == (0.0, 1.0, 0)


def test_paired_test_is_symmetric() -> None:
    draws = np.random.default_rng(4)
    a, b = draws.random(60), draws.random(60)
    forward, backward = paired_test(a, b), paired_test(b, a)
    assert forward.p_value == pytest.approx(backward.p_value)
    assert forward.mean_difference == -backward.mean_difference


def test_null_is_rejected_at_the_stated_rate() -> None:
    """1,000 times two equally good systems on 200 users, with ties and equal pairs as hit rates have them.
    At 5%, fewer than 28 or more than 75 rejections have a chance below 1e-3 (binomial, 1,000 at 0.05); the
    seed is fixed.
    """
    draws = np.random.default_rng(6)
    rejections = 0
    for _ in range(1000):
        a, b = draws.binomial(10, 0.3, (2, 200)) / 10
        rejections += paired_test(a, b).p_value < 0.05
    assert 28 <= rejections <= 75


def test_a_real_difference_is_found() -> None:
    """Shift of 0.5 standard deviations, 200 users: z is about 7 +- 1, so p >= 1e-3 (z < 3.3) is < 1e-3."""
    b = np.random.default_rng(7).normal(size=200)
    a = b + np.random.default_rng(8).normal(0.5, 1.0, size=200)
    result = paired_test(a, b)
    assert result.p_value < 1e-3
    assert result.mean_difference > 0


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([1.0], {}, "at least 2 values"),
        ([], {}, "finite numbers"),
        ([1.0, math.nan], {}, "finite numbers"),
        ([[1.0, 2.0]], {}, "finite numbers"),
        ([1.0, 2.0], {"level": 1.0}, "between 0 and 1"),
        ([1.0, 2.0], {"num_resamples": 5}, "at least 100"),
    ],
)
def test_interval_refuses(values: list[float], options: dict, message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        bootstrap_interval(values, np.random.default_rng(0), **options)


def test_paired_test_refuses() -> None:
    with pytest.raises(HushrecError, match="same users"):
        paired_test([1.0, 2.0], [1.0])
    with pytest.raises(HushrecError, match="b must be"):
        paired_test([1.0], [math.inf])
