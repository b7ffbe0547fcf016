# mypy: allow-untyped-defs, allow-untyped-calls
"""Exact sums of uploads that hold a row for every item: `ExactSum` without lists of items.

Guarantee: none; whoever holds the uploads sees them. The sum is exact: 64-bit fixed point, the same bits in any
order. A row that is not finite or too large for the number of summands is refused, with its sender named.
"""

from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, OutOfRangeError
from hushrec.kernels.rows import FRACTION_BITS, add_fixed, load, magnitude, width_of, zeros
from hushrec.privacy.exact_sum import is_within, row_limit, sender_of
from hushrec.protocol import Numbers, Ragged


class DenseGradients(Protocol):
    """A message with one row per item of the catalogue, in the order of the items."""

    @property
    def gradients(self) -> Ragged:
        """A row per item of the catalogue, party after party."""
        ...


@numba.njit(nogil=True, cache=True)
def _add_all(width, limit, totals, rows, num_parties):
    """Add a table of rows per party, and tell whether all numbers were within the limit."""
    peak = zeros(width)
    num_items = len(totals)
    for party in range(num_parties):
        for item in range(num_items):
            row = load(rows, party * num_items + item, width)
            peak = magnitude(peak, row)
            add_fixed(totals, item, row)
    return is_within(peak, limit, width)


@dataclass
class DenseSum:
    """Totals of all parties' rows per item."""

    totals: NDArray[np.int64]  # (items, factors), fixed point
    limit: float  # of one number
    deviation: float = 0.0  # of noise in the totals
    count_deviation: float = 0.0
    fraction_bits = FRACTION_BITS
    num_counts = 0

    @classmethod
    def zeros(cls, shape: tuple[int, ...], num_summands: int) -> "DenseSum":
        """An empty sum for at most `num_summands` parties."""
        return cls(np.zeros(shape, np.int64), row_limit(num_summands))

    def fork(self) -> "DenseSum":
        """An empty sum of the same shape."""
        return DenseSum(np.zeros_like(self.totals), self.limit)

    def add(self, numbers: Numbers, message: DenseGradients) -> None:
        """Add every row of a batch. If one is out of range, the sum is spoilt and an error names the sender."""
        self.check_whole(numbers, message)
        rows, width = message.gradients.values, width_of(self.totals.shape[1])
        if not _add_all(width, np.float32(self.limit), self.totals, rows, len(numbers)):
            sender = sender_of(numbers, message.gradients, ~(np.abs(rows) <= self.limit).all(axis=1))
            raise OutOfRangeError(f"the update of client {sender} is not finite or not within ±{self.limit:g}")

    def check_whole(self, numbers: Numbers, message: DenseGradients) -> None:
        """Refuse a batch without a whole table of each sender."""
        num_items, num_factors = self.totals.shape
        is_whole = (message.gradients.lengths == num_items).all()
        if (
            not is_whole
            or message.gradients.values.shape[1:] != (num_factors,)
            or len(message.gradients) != len(numbers)
        ):
            raise HushrecError(f"an upload is not a table of {num_items} x {num_factors} numbers; leave it out")

    def merge(self, other: "DenseSum") -> None:
        """Add another sum over the same items."""
        self.totals += other.totals

    def words(self) -> NDArray[np.int64]:
        """All its numbers in a row."""
        return self.totals.ravel()

    def add_words(self, words: NDArray[np.int64]) -> None:
        """Add numbers in such a row."""
        self.totals += words.reshape(self.totals.shape)

    def to_float(self) -> NDArray[np.float64]:
        """The totals as floating point numbers."""
        return np.multiply(self.totals, 2.0**-FRACTION_BITS, dtype=np.float64)
