"""Whether a measured mean, or a difference between two systems, is more than chance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.errors import HushrecError

# Resamples are drawn in chunks of about this many values, which bounds memory at some 16 MB.
_CHUNK_VALUES = 1 << 20


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class PairedTest:
    """Result of a two-sided paired test; `mean_difference` is mean(a - b)."""

    mean_difference: float
    p_value: float
    num_pairs: int
    num_different: int


def bootstrap_interval(
    values: ArrayLike, draws: np.random.Generator, level: float = 0.95, num_resamples: int = 5000
) -> Interval:
    """Percentile bootstrap interval for the mean of independent values, such as one per user.

    With fewer than about 30 values it is too narrow: 5 folds are better shown one by one.
    """
    sample = _sample(values, "values")
    if len(sample) < 2:
        raise HushrecError("an interval needs at least 2 values; give one per user or per fold")
    if not 0 < level < 1:
        raise HushrecError(f"level is {level}; give a number between 0 and 1, such as 0.95")
    if num_resamples < 100:
        raise HushrecError(f"num_resamples is {num_resamples}; draw at least 100")
    means = np.empty(num_resamples)
    chunk = max(1, _CHUNK_VALUES // len(sample))
    for first in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - first)
        chosen = draws.integers(len(sample), size=(size, len(sample)))
        means[first : first + size] = sample[chosen].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(sample.mean()), float(low), float(high), level)


def paired_test(a: ArrayLike, b: ArrayLike) -> PairedTest:
    """Wilcoxon's signed-rank test that a - b is symmetric about 0; a[i] and b[i] measure the same user.

    Pairs without a difference are dropped, as Wilcoxon did. Without any difference the p-value is 1.
    With n different pairs it is never below 2 ** (1 - n): 5 folds cannot reach 0.05.
    """
    first, second = _sample(a, "a"), _sample(b, "b")
    if len(first) != len(second):
        raise HushrecError(f"a has {len(first)} values and b {len(second)}; give both for the same users")
    differences = first - second
    different = differences[differences != 0]
    from scipy import stats  # here, because it takes longer to import than everything else together

    p_value = float(stats.wilcoxon(different).pvalue) if len(different) else 1.0
    return PairedTest(float(differences.mean()), p_value, len(differences), len(different))


def _sample(values: ArrayLike, name: str) -> NDArray[np.float64]:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise HushrecError(f"{name} must be a list of finite numbers that is not empty")
    return sample
