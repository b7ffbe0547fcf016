"""How sure a measured mean is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

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


def bootstrap_interval(
    values: ArrayLike, draws: np.random.Generator, level: float = 0.95, num_resamples: int = 5000
) -> Interval:
    """Percentile bootstrap interval for the mean of independent values, such as one per user.

    With fewer than about 30 values it is too narrow: 5 folds are better shown one by one.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise HushrecError("values must be a list of finite numbers that is not empty")
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
