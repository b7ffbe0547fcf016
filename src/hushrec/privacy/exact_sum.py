# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of float32 rows as 64-bit fixed point: the same bits in any order, on any number of threads.

40 fractional bits leave +-2^23 for a sum. A row is refused, with its sender named, if it is not finite or if so
many rows of its size could leave that range, and a list if it has an item twice: nothing wraps in silence.
"""

from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError, OutOfRangeError
from hushrec.kernels.rows import FIXED_LIMIT, FRACTION_BITS, add_fixed, load, magnitude, store, width_of, zeros
from hushrec.protocol import Message, Numbers, Ragged

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
    """Refuse a row that is out of range, unknown or a repeat, and name its sender."""
    is_bad = ~(np.abs(message.gradients.values) <= limit).all(axis=1)
    check_lists(numbers, message.items, num_items, before=int(is_bad.argmax()) if is_bad.any() else None)
    if is_bad.any():
        sender = sender_of(numbers, message.items, is_bad)
        raise OutOfRangeError(f"the update of client {sender} is not finite or not within ±{limit:g}")


def check_lists(numbers: Numbers, items: Ragged, num_items: int, before: int | None = None) -> None:
    """Refuse a list with an item that there is not, or one twice, up to this place, and name its sender."""
    is_unknown = (items.values < 0) | (items.values >= num_items)
    is_wrong = is_unknown | items.not_ascending()
    if not is_wrong.any() or (before is not None and int(is_wrong.argmax()) > before):
        return
    sender, is_of_others = sender_of(numbers, items, is_wrong), is_unknown[is_wrong.argmax()]
    what = "an item that is not in the catalogue" if is_of_others else "items twice or not in ascending order"
    raise HushrecError(f"client {sender} lists {what}; leave it out")


def sender_of(numbers: Numbers, column: Ragged, is_wrong: NDArray[np.bool_]) -> int:
    """Whose row is the first that is wrong."""
    return int(numbers[np.searchsorted(column.starts, int(is_wrong.argmax()), side="right") - 1])


def check_own(numbers: Numbers, message: Message) -> None:
    """Say that a training diverges before rows are sent that nobody could add up, which would pass for a lie."""
    for kind in message.kinds():
        if kind.layout == "ragged" and kind.dtype == np.float32 and kind.num_dims == 2:
            column, limit = message.column(kind.name), row_limit(1)
            is_bad = ~(np.abs(column.values) <= limit).all(axis=1)
            if is_bad.any():
                sender = sender_of(numbers, column, is_bad)
                raise DivergedError(f"the update of client {sender} is not finite or not within ±{limit:g}")


@numba.njit(nogil=True, cache=True)
def is_within(peak, limit, width):
    """Whether every number of a row of magnitudes is finite and at most the limit."""
    peaks = np.empty((1, len(width)), np.float32)
    store(peaks, 0, peak)
    return np.all(peaks <= limit)


@numba.njit(nogil=True, cache=True)
def _add_rows(width, limit, totals, counts, starts, items, rows):
    """Add rows to totals of items; whether all were within the limit, and each sender's items ascending."""
    peak = zeros(width)
    for sender in range(starts.size - 1):
        before = np.int64(-1)
        for place in range(np.uint64(starts[sender]), np.uint64(starts[sender + 1])):
            row = load(rows, place, width)
            peak = magnitude(peak, row)
            item = np.int64(items[place])
            if item <= before or item >= counts.size:
                return False
            before = item
            counts[item] += 1
            add_fixed(totals, item, row)
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
        width, limit = width_of(self.totals.shape[1]), np.float32(self.limit)
        items, rows = message.items, message.gradients.values
        if not _add_rows(width, limit, self.totals, self.counts, items.starts, items.values, rows):
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
        most = self.limit * self.counts[:, None]
        is_possible = (most <= SUM_RANGE).all() and (np.abs(self.to_float()) <= most).all()
        if not (is_possible or self.deviation or self.count_deviation):
            raise HushrecError("a sum is larger than its rows can be: somebody sent what is no sum; begin anew")

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
