# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Shares of masks: what a client uploads tells nothing, nor does what any of its collectors holds.

A client lists items, real and virtual ones. Of each it uploads the gradient in 64-bit fixed point and a count of
one, plus a mask for each number; its k collectors hold shares that add up to the masks and, where the item is
virtual, to its gradient and its count, too. All sums are modulo 2^64, so uploads less shares leave the real
gradients and their counts, exactly. Which of these numbers are drawn and which are computed from the others makes
no difference. Here all k shares are drawn: a share is a seed of 32 bytes, which ChaCha8 makes as many masks of as
are needed, and an upload is the real row, or zeros for a virtual item, plus the k shares.

Guarantee: an upload and any k - 1 of its shares are uniform and independent of what is hidden, so they tell the
list and nothing else to whoever cannot break ChaCha8 or BLAKE2b and has not the client's secret; all k together
tell everything. Seeds depend on what they hide and on who collects: asked again with other numbers or for other
collectors, a client draws others, and asked the same again, it sends the same bytes.
Not protected: the list; and sums. A collector's sum holds the shares of all its clients. Sums tell whoever has
them the sum of the real rows of an item over those clients that share collectors, directly or by others that list
the item. With k collectors in all that is the sum over all clients; with more of them it can be one over fewer.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.exact_sum import ExactSum, row_limit
from hushrec.protocol import Numbers, Ragged

Words = NDArray[np.int64]
Seeds = NDArray[np.uint32]  # (letters, 8)

SEED_WORDS = 8
# So many at most are summed up: a client refuses to call a number too large that could be one of as many.
MOST_SUMMANDS = 1 << 20
# A sum over fewer hides nobody.
LEAST_LETTERS = 3

_ONE = 2.0**FRACTION_BITS
# Up to this size each thread keeps sums of its own; above it, one table is shared under a lock.
_OWN_TABLE_BYTES = 64 << 20


class Hidden(NamedTuple):
    """What the clients of a cohort list, and the gradients of what is real, in the order of the list."""

    starts: NDArray[np.int64]  # of the lists
    items: NDArray[np.int32]
    is_real: NDArray[np.bool_]  # parallel to `items`
    real_starts: NDArray[np.int64]  # of the gradients
    gradients: NDArray[np.float32]  # (real items, factors)

    @classmethod
    def of(
        cls,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        is_real: NDArray[np.bool_],
        gradients: NDArray[np.float32],
    ) -> "Hidden":
        """With the starts of the real items counted."""
        return cls(starts, items, is_real, np.concatenate([[0], np.cumsum(is_real)])[starts], gradients)


# --- Clients -----------------------------------------------------------------------------------------------


def check_range(numbers: Numbers, hidden: Hidden, num_summands: int) -> None:
    """Behind masks nobody sees a number that is not finite or too large for a sum, so its owner looks."""
    limit = row_limit(min(num_summands, MOST_SUMMANDS))
    is_bad = ~(np.abs(hidden.gradients) <= limit).all(axis=1)
    if is_bad.any():
        sender = numbers[np.searchsorted(hidden.real_starts, int(np.argmax(is_bad)), side="right") - 1]
        raise DivergedError(f"the update of client {sender} is not finite or not within ±{limit:g}")


def draw_seeds(key: Key, numbers: Numbers, round_number: int, hidden: Hidden, collectors: Numbers) -> Seeds:
    """A seed for each collector of each client (clients, k, 8), from all that is hidden and who collects."""
    num_shares, digests = collectors.shape[1], []
    starts, real_starts = hidden.starts.tolist(), hidden.real_starts.tolist()
    for place, number in enumerate(numbers.tolist()):
        listed, real = slice(*starts[place : place + 2]), slice(*real_starts[place : place + 2])
        sizes = (number, round_number, num_shares, listed.stop - listed.start, real.stop - real.start)
        content = blake2b(struct.pack("<5q", *sizes), key=key.tobytes(), digest_size=32, person=b"hushrec shares")
        for column in (collectors[place], hidden.items[listed], hidden.is_real[listed], hidden.gradients[real]):
            content.update(np.ascontiguousarray(column).data)
        secret = content.digest()
        digests += [blake2b(bytes([share]), key=secret, digest_size=32).digest() for share in range(num_shares)]
    words = np.frombuffer(b"".join(digests), "<u4").astype(np.uint32)
    return words.reshape(len(numbers), num_shares, SEED_WORDS)


@numba.njit(nogil=True, cache=True)
def _draw_masks(seed, masks, size):
    """The first masks of a seed, two words of its stream each."""
    words = np.empty(BLOCK_WORDS, np.uint32)
    per_block = BLOCK_WORDS // 2
    for block in range((size + per_block - 1) // per_block):
        chacha_block(seed, np.int32(0), np.int64(0), np.int64(block), words)
        for place in range(per_block):  # the last block may be longer than what is needed: so is the room
            mask = np.uint64(words[2 * place + 1]) << np.uint64(32) | np.uint64(words[2 * place])
            masks[np.uint64(per_block * block + place)] = np.int64(mask)


@numba.njit(nogil=True, cache=True)
def _room(starts, num_columns):
    """Masks for the longest list."""
    longest = 0
    for party in range(starts.size - 1):
        longest = max(longest, starts[party + 1] - starts[party])
    return np.empty(longest * num_columns + BLOCK_WORDS, np.int64)


@numba.njit(nogil=True, cache=True)
def _mask(starts, is_real, gradients, seeds, out):
    """Real rows in fixed point and zeros, with a count, plus all shares; `out` is flat, row after row."""
    num_factors, row = gradients.shape[1], 0
    masks = _room(starts, num_factors + 1)
    for client in range(starts.size - 1):
        first = starts[client] * (num_factors + 1)
        size = starts[client + 1] * (num_factors + 1) - first
        out[first : first + size] = 0
        for place in range(starts[client], starts[client + 1]):
            if is_real[place]:
                for factor in range(num_factors):
                    fixed = np.rint(np.float64(gradients[row, factor]) * _ONE)
                    out[place * (num_factors + 1) + factor] = np.int64(fixed)
                out[place * (num_factors + 1) + num_factors] = 1
                row += 1
        for share in range(seeds.shape[1]):
            _draw_masks(seeds[client, share], masks, size)
            for place in range(size):
                out[np.uint64(first + place)] += masks[np.uint64(place)]


def masked(hidden: Hidden, seeds: Seeds) -> Words:
    """What clients upload (listed items, factors + 1): gradient and count in fixed point, plus all shares."""
    out = np.empty((len(hidden.items), hidden.gradients.shape[1] + 1), np.int64)
    _mask(hidden.starts, hidden.is_real, hidden.gradients, seeds, out.reshape(-1))
    return out


# --- Collectors --------------------------------------------------------------------------------------------


class Letters(Protocol):
    """A batch of shares: a list of items each, and the seed."""

    @property
    def items(self) -> Ragged:
        """Which items are masked, a slice per letter."""
        ...

    @property
    def seeds(self) -> Seeds:
        """The seed of each letter."""
        ...


@numba.njit(nogil=True, cache=True)
def _add_shares(letters, starts, items, seeds, totals, is_listed):
    """Add the masks of some letters to the totals of their items, and tell whether all are of the catalogue."""
    num_columns = totals.shape[1]
    masks = _room(starts, num_columns)
    for number in range(letters.size):
        letter = letters[number]
        first, last = starts[letter], starts[letter + 1]
        _draw_masks(seeds[letter], masks, (last - first) * num_columns)
        for place in range(first, last):
            item = items[place]
            if np.uint64(item) >= np.uint64(is_listed.size):
                return False
            is_listed[item] = True
            for column in range(num_columns):
                totals[np.uint64(item), np.uint64(column)] += masks[
                    np.uint64((place - first) * num_columns + column)
                ]
    return True


@numba.njit(nogil=True, cache=True)
def _expand(starts, seeds, out):
    """The masks of each letter; `out` is flat, row after row."""
    num_columns = out.size // max(starts[-1], 1)
    masks = _room(starts, num_columns)
    for letter in range(starts.size - 1):
        first, last = starts[letter] * num_columns, starts[letter + 1] * num_columns
        _draw_masks(seeds[letter], masks, last - first)
        out[first:last] = masks[: last - first]


def expanded(letters: Letters, num_columns: int) -> Words:
    """The masks that are in some letters (listed items, columns), letter after letter."""
    out = np.empty((len(letters.items.values), num_columns), np.int64)
    _expand(letters.items.starts, letters.seeds, out.reshape(-1))
    return out


@dataclass
class _Collected:
    """What came for one collector."""

    totals: Words  # (items, factors + 1)
    is_listed: NDArray[np.bool_]
    num_letters: int = 0


class ShareSums:
    """Inboxes of collectors: shares are added up as they arrive, so nothing piles up."""

    def __init__(self, num_items: int, num_columns: int, num_collectors: int) -> None:
        self._shape, self._num_collectors, self._lock = (num_items, num_columns), num_collectors, Lock()
        self._collected: dict[int, _Collected] = {}

    def fork(self) -> "ShareSums":
        """Empty inboxes, or these themselves where copies would be large."""
        num_items, num_columns = self._shape
        if 8 * self._num_collectors * num_items * num_columns > _OWN_TABLE_BYTES:
            return self
        return ShareSums(num_items, num_columns, self._num_collectors)

    def add(self, addressees: Numbers, message: Letters) -> None:
        """Add the shares of a batch of clients to the sums of their collectors."""
        items, seeds = message.items, message.seeds
        with self._lock:
            for addressee in np.unique(addressees).tolist():
                letters, own = np.flatnonzero(addressees == addressee), self._of(addressee)
                if not _add_shares(letters, items.starts, items.values, seeds, own.totals, own.is_listed):
                    raise HushrecError("a share is for an item that is not in the catalogue; leave it out")
                own.num_letters += len(letters)

    def merge(self, other: "ShareSums") -> None:
        """Add what a fork collected."""
        if other is self:
            return
        for addressee, theirs in other._collected.items():
            own = self._of(addressee)
            own.totals += theirs.totals
            own.is_listed |= theirs.is_listed
            own.num_letters += theirs.num_letters

    def has_enough(self, collectors: Numbers) -> bool:
        """Whether each got so many letters that their sum may be told."""
        known = (self._collected.get(collector) for collector in collectors.tolist())
        return all(own is not None and own.num_letters >= LEAST_LETTERS for own in known)

    def release(self, collectors: Numbers) -> tuple[Ragged, Ragged]:
        """The items that are in each one's sums, and the sums."""
        listed = [np.flatnonzero(self._of(collector).is_listed) for collector in collectors.tolist()]
        sums = [self._of(number).totals[items] for number, items in zip(collectors.tolist(), listed, strict=True)]
        starts = np.concatenate([[0], np.cumsum([len(items) for items in listed])]).astype(np.int64)
        return Ragged(starts, np.concatenate(listed).astype(np.int32)), Ragged(starts, np.concatenate(sums))

    def _of(self, collector: int) -> _Collected:
        if collector not in self._collected:
            self._collected[collector] = _Collected(
                np.zeros(self._shape, np.int64), np.zeros(self._shape[0], bool)
            )
        return self._collected[collector]


# --- The server --------------------------------------------------------------------------------------------


class ListedWords(Protocol):
    """A message with a row of 64-bit numbers per listed item."""

    @property
    def items(self) -> Ragged:
        """Which items have a row, a slice per party."""
        ...

    @property
    def words(self) -> Ragged:
        """The row of each listed item."""
        ...


@numba.njit(nogil=True, cache=True)
def _add_words(items, rows, totals):
    for place in range(items.size):
        item = items[place]
        if np.uint64(item) >= np.uint64(totals.shape[0]):
            return False
        for column in range(totals.shape[1]):
            totals[item, column] += rows[place, column]
    return True


@dataclass
class WordSum:
    """Totals of rows per item, modulo 2^64."""

    totals: Words  # (items, factors + 1)

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "WordSum":
        """An empty sum of gradients of this shape, and of their counts."""
        return cls(np.zeros((shape[0], shape[1] + 1), np.int64))

    def fork(self) -> "WordSum":
        """An empty sum of the same shape."""
        return WordSum(np.zeros_like(self.totals))

    def add(self, _numbers: Numbers, message: ListedWords) -> None:
        """Add every row of a batch."""
        items, rows = message.items.values, message.words.values
        if rows.shape != (len(items), self.totals.shape[1]) or not _add_words(items, rows, self.totals):
            raise HushrecError("masked numbers do not fit the catalogue; leave out who sent them")

    def merge(self, other: "WordSum") -> None:
        """Add another sum over the same items."""
        self.totals += other.totals

    def without(self, shares: "WordSum", num_summands: int) -> ExactSum:
        """What is left when the shares are taken out: sums of real gradients, and how many each has.

        Who lies is not seen, but its masks do not cancel: what is left is uniform, and hardly ever passes for
        counts of so many clients and for sums of so many numbers within their limit.
        """
        left = self.totals - shares.totals
        limit = row_limit(min(num_summands, MOST_SUMMANDS))
        total = ExactSum(np.ascontiguousarray(left[:, :-1]), left[:, -1].copy(), limit)
        is_counted = (total.counts >= 0) & (total.counts <= num_summands)
        most = np.where(is_counted, total.counts, 0) * limit
        if not is_counted.all() or (np.abs(total.to_float()) > most[:, None]).any():
            raise HushrecError(
                "what is left without the shares is no sum; leave out who sent masks that do not fit"
            )
        return total
