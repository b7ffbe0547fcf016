# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of fixed-point rows in the clear: what encrypted sums are a cover of, for simulations without encryption.

Guarantee: none; whoever adds sees all rows. Integers add up to the same bits in any order.
"""

from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.privacy.filling import Listing
from hushrec.protocol import Numbers, Ragged
from hushrec.systems.fedmf.clients import FRACTION_BITS


class FixedRows(Protocol):
    """A message with rows of int32, as bytes, per listed place."""

    @property
    def places(self) -> Ragged:
        """Which row of the table each is added to."""
        ...

    @property
    def blocks(self) -> Ragged:
        """The rows themselves, as bytes."""
        ...


@numba.njit(nogil=True, cache=True)
def _add_rows(totals, places, rows):
    for place in range(places.size):
        for column in range(totals.shape[1]):
            totals[places[place], column] += rows[place, column]


@dataclass
class FixedSum:
    """The fold that adds up rows in the clear: the stand-in for adding ciphertexts."""

    totals: NDArray[np.int64]
    deviation: float = 0.0  # of noise in the totals
    count_deviation: float = 0.0
    fraction_bits = FRACTION_BITS
    num_counts = 0

    def fork(self) -> "FixedSum":
        """An empty sum of the same shape."""
        return FixedSum(np.zeros_like(self.totals))

    def add(self, numbers: Numbers, message: FixedRows) -> None:
        """Add every row of a batch."""
        places, blocks = message.places.values, message.blocks.values
        num_rows, num_columns = self.totals.shape
        if blocks.shape != (len(places), 4 * num_columns):
            raise HushrecError(f"rows do not have {4 * num_columns} bytes each; leave them out")
        if ((places < 0) | (places >= num_rows)).any():
            raise HushrecError("an upload has a row that is not of the catalogue; leave it out")
        _add_rows(self.totals, places, np.ascontiguousarray(blocks).view("<i4"))

    def merge(self, other: "FixedSum") -> None:
        """Add another sum over the same rows."""
        self.totals += other.totals

    def words(self) -> NDArray[np.int64]:
        """All its numbers in a row."""
        return self.totals.ravel()

    def add_words(self, words: NDArray[np.int64]) -> None:
        """Add numbers in such a row."""
        self.totals += words.reshape(self.totals.shape)


def num_touched(listing: Listing, num_factors: int, slots: int) -> NDArray[np.int64]:
    """In how many blocks of so many numbers each client's listed items lie."""
    first = listing.items.astype(np.int64) * num_factors // slots
    last = (listing.items.astype(np.int64) * num_factors + num_factors - 1) // slots
    # Items ascend: each opens the blocks behind the one before it.
    before = np.concatenate([[-1], last[:-1]])
    is_first = np.zeros(len(first), bool)
    is_first[listing.starts[:-1][np.diff(listing.starts) > 0]] = True
    opened = last - np.maximum(np.where(is_first, -1, before), first - 1)
    return np.diff(np.concatenate([[0], np.cumsum(opened)])[listing.starts])
