# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Masks: what is added to an upload so that it tells nothing, and taken out of the sum again.

Guarantee: a number in 64-bit fixed point plus a mask that is uniform modulo 2^64 is uniform itself. So an upload
tells nothing to whoever has not its mask, and a mask tells nothing to whoever has not the upload; who has both has
all. Masks are drawn by ChaCha8 from a secret seed, so this holds against whoever cannot compute beyond that. A
mask depends on the numbers that it hides: other numbers have another one, however often and with whatever a party
is asked. The sum is exact, the same bits as `DenseSum`. Not protected: the sum over those whose masks are summed
up together; two such sums, which differ by the mask of who is in one of them only; and the sum from a party that
lies, since nobody sees how large its numbers are.
"""

from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.exact_sum import row_limit
from hushrec.protocol import Numbers, Ragged

Words = NDArray[np.int64]

# Behind its mask nobody sees that a number is too large, so its owner looks: as many of them stay within a sum.
_MOST_PARTIES = 1 << 20


class Masked(Protocol):
    """A message with as many 64-bit numbers of each party."""

    @property
    def words(self) -> Ragged:
        """The numbers, party after party."""
        ...


@numba.njit(nogil=True, cache=True)
def _draw_masks(keys, parties, round_number, out):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for party in range(parties.size):
        for column in range(out.shape[1]):
            place = 2 * column % BLOCK_WORDS
            if place == 0:
                chacha_block(keys[party], parties[party], round_number, 2 * column // BLOCK_WORDS, words)
            low, high = np.uint64(words[place]), np.uint64(words[place + 1])
            out[party, column] = np.int64(high << np.uint64(32) | low)


def draw_masks(key: Key, parties: Numbers, round_number: int, words: Words) -> Words:
    """A row of masks per party, uniform 64-bit numbers, for the row of numbers that it hides."""
    secret = key.tobytes()
    digests = [
        blake2b(row.tobytes(), key=secret, digest_size=32, person=b"hushrec masks").digest() for row in words
    ]
    keys = np.frombuffer(b"".join(digests), "<u4").astype(np.uint32).reshape(len(words), -1)
    masks = np.empty_like(words)
    _draw_masks(keys, parties, round_number, masks)
    return masks


def fixed_point(parties: Numbers, table: NDArray[np.float32]) -> Words:
    """A row per party in fixed point. Who has a number that is not finite or too large for a sum is named."""
    limit = row_limit(_MOST_PARTIES)
    is_bad = ~(np.abs(table) <= limit).all(axis=1)
    if is_bad.any():
        sender = parties[int(np.argmax(is_bad))]
        raise DivergedError(f"the update of client {sender} is not finite or not within ±{limit:g}")
    fixed: Words = np.rint(table.astype(np.float64) * 2.0**FRACTION_BITS).astype(np.int64)
    return fixed


def as_ragged(words: Words) -> Ragged:
    """A row per party, as messages have it."""
    return Ragged(np.arange(len(words) + 1, dtype=np.int64) * words.shape[1], words.ravel())


def _rows(message: Masked, num_columns: int) -> Words:
    if (message.words.lengths != num_columns).any():
        raise HushrecError(f"an upload has not {num_columns} numbers; leave it out")
    return message.words.values.reshape(-1, num_columns)


@dataclass
class MaskedSum:
    """Totals of all parties' numbers, modulo 2^64."""

    totals: Words
    deviation: float = 0.0  # of noise in the totals
    count_deviation: float = 0.0
    fraction_bits = 0
    num_counts = 0

    @classmethod
    def zeros(cls, num_columns: int) -> "MaskedSum":
        """An empty sum."""
        return cls(np.zeros(num_columns, np.int64))

    def fork(self) -> "MaskedSum":
        """An empty sum of the same size."""
        return MaskedSum(np.zeros_like(self.totals))

    def add(self, _numbers: Numbers, message: Masked) -> None:
        """Add the numbers of a batch."""
        self.totals += _rows(message, len(self.totals)).sum(axis=0)

    def merge(self, other: "MaskedSum") -> None:
        """Add another sum."""
        self.totals += other.totals

    def words(self) -> Words:
        """All its numbers in a row."""
        return self.totals

    def add_words(self, words: Words) -> None:
        """Add numbers in such a row."""
        self.totals += words

    def without(self, masks: "MaskedSum") -> NDArray[np.float64]:
        """What is left when the masks are taken out, as floating point numbers."""
        left: NDArray[np.float64] = (self.totals - masks.totals) * 2.0**-FRACTION_BITS
        return left


class MaskSums:
    """Inboxes of those who collect masks: what comes for each is added up."""

    def __init__(self, num_columns: int) -> None:
        self._num_columns, self._lock = num_columns, Lock()
        self._totals: dict[int, Words] = {}

    def fork(self) -> "MaskSums":
        """Empty inboxes."""
        return MaskSums(self._num_columns)

    def add(self, addressees: Numbers, message: Masked) -> None:
        """Add the masks of a batch to the sums of their addressees."""
        rows = _rows(message, self._num_columns)
        with self._lock:
            for addressee in np.unique(addressees).tolist():
                self._add(addressee, rows[addressees == addressee].sum(axis=0))

    def merge(self, other: "MaskSums") -> None:
        """Add what a fork collected."""
        for addressee, totals in other._totals.items():
            self._add(addressee, totals)

    def has_mail(self, addressees: Numbers) -> bool:
        """Whether something came for each."""
        return all(addressee in self._totals for addressee in addressees.tolist())

    def release(self, addressees: Numbers, own: Words) -> Words:
        """Sums of masks less the collectors' own numbers, a row for each."""
        sums: Words = np.stack([self._totals[addressee] for addressee in addressees.tolist()]) - own
        return sums

    def _add(self, addressee: int, totals: Words) -> None:
        before = self._totals.get(addressee)
        self._totals[addressee] = totals if before is None else before + totals
