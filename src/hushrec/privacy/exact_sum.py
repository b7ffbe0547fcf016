# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of float32 rows as 64-bit fixed point: the same bits in any order, on any number of threads.

40 fractional bits leave +-2^23 for a sum. A row is refused, with its sender named, if it is not finite or if so
many rows of its size could leave that range; nothing wraps in silence.
"""

from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FIXED_LIMIT, FRACTION_BITS, add_fixed, load, magnitude, store, width_of, zeros
from hushrec.protocol import Numbers, Ragged

STEADYING = 2.0  # chosen on validation ratings of ML-100K: see docs/user-privacy.md
SUM_RANGE = 2.0 ** (63 - FRACTION_BITS)


class Gradients(Protocol):
    """A message with one row per listed item."""

    @property
    def items(self) -> Ragged:
        """Which items have a row, a slice per party."""
        ...

    @property
    def gradients(self) -> Ragged:
        """The row of each listed item."""
        ...


def row_limit(num_summands: int) -> float:
    """How large a number may be so that so many of them stay within the range of a sum."""
    return float(np.nextafter(np.float32(min(FIXED_LIMIT, SUM_RANGE / max(num_summands, 1))), np.float32(0)))


def check_columns(message: Gradients, num_factors: int) -> None:
    """Refuse a message that does not hold one row of the right length per listed item."""
    shape = (len(message.items.values), num_factors)
    if message.gradients.values.shape != shape:
        raise HushrecError(f"gradients of shape {message.gradients.values.shape} came, not {shape}; leave it out")


def check_rows(numbers: Numbers, message: Gradients, limit: float, num_items: int) -> None:
    """Refuse a row that is out of range, and name its sender."""
    items, rows = message.items, message.gradients.values
    is_bad = ~(np.abs(rows) <= limit).all(axis=1)
    is_unknown = (items.values < 0) | (items.values >= num_items)
    if (is_bad | is_unknown).any():
        place = int(np.flatnonzero(is_bad | is_unknown)[0])
        sender = numbers[np.searchsorted(items.starts, place, side="right") - 1]
        if is_unknown[place]:
            raise HushrecError(f"client {sender} lists an item that is not in the catalogue; leave it out")
        raise DivergedError(f"the update of client {sender} is not finite or not within ±{limit:g}")


@numba.njit(nogil=True, cache=True)
def is_within(peak, limit, width):
    """Whether every number of a row of magnitudes is finite and at most the limit."""
    peaks = np.empty((1, len(width)), np.float32)
    store(peaks, 0, peak)
    return np.all(peaks <= limit)


@numba.njit(nogil=True, cache=True)
def _add_rows(width, limit, totals, counts, items, rows):
    """Add rows to the totals of their items, and tell whether all were within the limit."""
    peak = zeros(width)
    for place in range(items.size):
        row = load(rows, place, width)
        peak = magnitude(peak, row)
        item = items[place]
        if np.uint64(item) >= np.uint64(counts.size):
            return False
        counts[item] += 1
        add_fixed(totals, np.int64(item), row)
    return is_within(peak, limit, width)


@dataclass
class ExactSum:
    """Totals of rows per item, and how many rows each item got."""

    totals: NDArray[np.int64]  # (items, factors), fixed point
    counts: NDArray[np.int64]  # (items,)
    limit: float  # of one number
    deviation: float = 0.0  # of noise in the totals
    count_deviation: float = 0.0  # of noise in the counts
    fraction_bits = FRACTION_BITS

    @classmethod
    def zeros(cls, shape: tuple[int, ...], num_summands: int) -> "ExactSum":
        """An empty sum for at most `num_summands` rows per item."""
        return cls(np.zeros(shape, np.int64), np.zeros(shape[0], np.int64), row_limit(num_summands))

    def fork(self) -> "ExactSum":
        """An empty sum of the same shape."""
        return ExactSum(np.zeros_like(self.totals), np.zeros_like(self.counts), self.limit)

    def add(self, numbers: Numbers, message: Gradients) -> None:
        """Add every row of a batch. If one is out of range, the sum is spoilt and an error names the sender."""
        check_columns(message, self.totals.shape[1])
        width = width_of(self.totals.shape[1])
        items, rows = message.items.values, message.gradients.values
        if not _add_rows(width, np.float32(self.limit), self.totals, self.counts, items, rows):
            check_rows(numbers, message, self.limit, len(self.counts))

    def merge(self, other: "ExactSum") -> None:
        """Add another sum over the same items."""
        self.totals += other.totals
        self.counts += other.counts

    def subtract(self, other: "ExactSum") -> None:
        """Take another sum over the same items out again."""
        self.totals -= other.totals
        self.counts -= other.counts

    @property
    def num_counts(self) -> int:
        """How many of its numbers, the last ones, are counts."""
        return len(self.counts)

    def words(self) -> NDArray[np.int64]:
        """All its numbers in a row: totals, then counts."""
        return np.concatenate([self.totals.ravel(), self.counts])

    def add_words(self, words: NDArray[np.int64]) -> None:
        """Add numbers in such a row."""
        self.totals += words[: self.totals.size].reshape(self.totals.shape)
        self.counts += words[self.totals.size :]
        if len(self.counts) and self.counts.min() < 0:
            raise HushrecError(
                "a sum counts fewer than none: somebody sent numbers that are not its own; begin anew"
            )

    def to_float(self) -> NDArray[np.float64]:
        """The totals as floating point numbers."""
        return np.multiply(self.totals, 2.0**-FRACTION_BITS, dtype=np.float64)

    def mean(self, num_zeros: float = 0.0) -> NDArray[np.float64]:
        """Total over count per item, with so many rows of zeros in each; zero where nothing was added."""
        if not self.count_deviation:
            num_rows = np.maximum(self.counts + num_zeros, 1)
        else:
            num_rows = self.counts + self.steadied(num_zeros)
        means: NDArray[np.float64] = self.to_float() / num_rows[:, None]
        return means

    def steadied(self, num_zeros: float) -> float:
        """With how many rows of zeros a mean is taken: where there is noise, some deviations of the counts' noise.

        A mean of few rows would be noise; with these it is next to nothing, and what many rows say is hardly less.
        """
        return max(num_zeros, STEADYING * self.count_deviation)
