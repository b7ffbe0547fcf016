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

from hushrec.errors import HushrecError
from hushrec.kernels.rows import FIXED_LIMIT, FRACTION_BITS, add_fixed, load, magnitude, store, width_of, zeros
from hushrec.protocol import Numbers, Ragged

SUM_RANGE = 2.0 ** (63 - FRACTION_BITS)


class DivergedError(HushrecError):
    """An update that cannot be summed exactly because it is not finite or far too large."""


class Gradients(Protocol):
    """A message with one row per listed item."""

    @property
    def items(self) -> Ragged:
        """Which items."""
        ...

    @property
    def gradients(self) -> Ragged:
        """Their rows."""
        ...


@numba.njit(nogil=True, cache=True)
def _add_rows(width, limit, totals, counts, items, rows):
    """Add rows to the totals of their items, and tell whether all were within the limit."""
    peak = zeros(width)
    for place in range(items.size):
        row = load(rows, place, width)
        peak = magnitude(peak, row)
        item = items[place]
        counts[item] += 1
        add_fixed(totals, np.int64(item), row)
    peaks = np.empty((1, len(width)), np.float32)
    store(peaks, 0, peak)
    return np.all(peaks <= limit)


@dataclass
class ExactSum:
    """Totals of rows per item, and how many rows each item got."""

    totals: NDArray[np.int64]  # (items, factors), fixed point
    counts: NDArray[np.int64]  # (items,)
    limit: float  # of one number

    @classmethod
    def zeros(cls, shape: tuple[int, ...], num_summands: int) -> "ExactSum":
        """An empty sum for at most `num_summands` rows per item."""
        limit = min(FIXED_LIMIT, SUM_RANGE / max(num_summands, 1))
        return cls(np.zeros(shape, np.int64), np.zeros(shape[0], np.int64), limit)

    def fork(self) -> "ExactSum":
        """An empty sum of the same shape."""
        return ExactSum(np.zeros_like(self.totals), np.zeros_like(self.counts), self.limit)

    def add(self, numbers: Numbers, message: Gradients) -> None:
        """Add every row of a batch. If one is out of range, the sum is spoilt and an error names the sender."""
        width = width_of(self.totals.shape[1])
        items, rows = message.items.values, message.gradients.values
        if not _add_rows(width, np.float32(self.limit), self.totals, self.counts, items, rows):
            place = int(np.flatnonzero(~(np.abs(rows) <= self.limit).all(axis=1))[0])
            sender = numbers[np.searchsorted(message.items.starts, place, side="right") - 1]
            raise DivergedError(f"the update of client {sender} is not finite or not within ±{self.limit:g}")

    def merge(self, other: "ExactSum") -> None:
        """Add another sum over the same items."""
        self.totals += other.totals
        self.counts += other.counts

    def subtract(self, other: "ExactSum") -> None:
        """Take another sum over the same items out again."""
        self.totals -= other.totals
        self.counts -= other.counts

    def to_float(self) -> NDArray[np.float64]:
        """The totals as floating point numbers."""
        totals: NDArray[np.float64] = np.ldexp(self.totals.astype(np.float64), -FRACTION_BITS)
        return totals

    def mean(self) -> NDArray[np.float64]:
        """Total over count per item; zero where nothing was added."""
        return self.to_float() / np.maximum(self.counts, 1)[:, None]
