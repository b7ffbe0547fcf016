import math

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.evaluation import bootstrap_interval


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
