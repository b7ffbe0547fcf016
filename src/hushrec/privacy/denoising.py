# mypy: allow-untyped-defs, allow-untyped-calls
"""Denoisers: clients that collect the noise of others and send the server only its sum.

Guarantee: none in the sense of differential privacy. The server sees sums of noise less the denoiser's own
gradients; a denoiser sees noise without its sender's name. Not protected: a count below zero names an item that
the denoiser rated; with few clients per denoiser their noise can be told apart; server and denoiser together can
match noise with uploads.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Literal, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError, option
from hushrec.kernels.rows import add_fixed, load, magnitude, width_of, zeros
from hushrec.privacy.exact_sum import (
    ExactSum,
    Gradients,
    check_columns,
    check_rows,
    is_within,
    row_limit,
)
from hushrec.protocol import NO_ONE, Numbers, Ragged

Assigning = Literal["dealt", "random"]

# Up to this size each thread keeps sums of its own; above it, one table is shared under a lock.
_OWN_TABLE_BYTES = 64 << 20


def check_denoisers(num_denoisers: int, num_clients: int) -> None:
    """Refuse more denoisers than can hide: each needs a client whose noise its own gradients mix with."""
    if num_denoisers > num_clients // 2:
        raise HushrecError(
            f"{num_denoisers} denoisers for {num_clients} clients leave some denoiser alone, so that its own "
            f"gradients would show; use {option('denoisers', num_clients // 2)} or less"
        )


def draw_denoisers(num_denoisers: int, num_clients: int, draws: Draws) -> Numbers:
    """Uniformly drawn clients, ascending."""
    chosen = draws.generator("denoisers").choice(num_clients, num_denoisers, replace=False)
    return np.sort(chosen).astype(np.int32)


@dataclass(frozen=True)
class Assignment:
    """Which denoiser each ordinary client of a round sends its noise to."""

    ordinary: Numbers
    denoiser_of: Numbers  # parallel to `ordinary`; -1: none, the noise stays in

    @property
    def denoisers(self) -> Numbers:
        """Denoisers with at least one client, ascending."""
        return np.unique(self.denoiser_of[self.denoiser_of >= 0])

    def without(self, lost: Numbers) -> "Assignment":
        """What is left when clients are lost, and denoisers with all who are assigned to them."""
        if not len(lost):
            return self
        kept = ~(np.isin(self.ordinary, lost) | np.isin(self.denoiser_of, lost))
        return Assignment(self.ordinary[kept], self.denoiser_of[kept])


def assign(
    participants: Numbers, denoisers: Numbers, round_number: int, draws: Draws, how: Assigning = "dealt"
) -> Assignment:
    """Assign the ordinary clients to the denoisers at random, anew in each round.

    Dealt evenly, no denoiser is left without one; where each client draws its own, some may be. Denoisers whom
    nobody drew, and those beyond half of the participants, serve as ordinary clients in this round.

    DEVIATION: the paper assigns at random and does not say what a denoiser does to whom nobody sends noise, so
    that its own gradients would show; the default deals evenly.
    """
    if len(denoisers) == 0:
        return Assignment(participants, np.full(len(participants), -1, np.int32))
    generator = draws.generator("assignment", round_number)
    present = generator.permutation(denoisers[np.isin(denoisers, participants)])
    active = present[: len(participants) // 2]
    if len(active) == 0:
        return Assignment(NO_ONE, NO_ONE)
    ordinary = participants[~np.isin(participants, active)]
    if how == "random":
        drawn = generator.choice(active, len(ordinary))
        idle = np.setdiff1d(active, drawn)
        of_idle = generator.choice(np.unique(drawn), len(idle))
        numbers, denoiser_of = np.concatenate([ordinary, idle]), np.concatenate([drawn, of_idle])
        order = np.argsort(numbers)
        return Assignment(numbers[order], denoiser_of[order])
    places = generator.permutation(len(ordinary))
    return Assignment(ordinary, active[places % len(active)])


@numba.njit(nogil=True, cache=True)
def _add_noise(width, limit, sign, slots, starts, items, rows, totals, counts):
    """Add rows to the tables of their slots, and tell whether all were within the limit."""
    num_items = counts.shape[1]
    peak = zeros(width)
    for sender in range(slots.size):
        slot = slots[sender]
        for place in range(np.uint64(starts[sender]), np.uint64(starts[sender + 1])):
            item = items[place]
            if np.uint64(item) >= np.uint64(num_items):
                return False
            row = load(rows, place, width)
            peak = magnitude(peak, row)
            counts[slot, item] += sign
            add_fixed(totals, slot * num_items + np.int64(item), np.float32(sign) * row)
    return is_within(peak, limit, width)


class NoiseSums:
    """The denoisers' inboxes: noise is added up as it arrives, so nothing piles up."""

    def __init__(self, num_items: int, num_factors: int, num_denoisers: int) -> None:
        self.totals = np.zeros((0, num_factors), np.int64)  # (denoisers * items, factors), fixed point
        self.counts = np.zeros((0, num_items), np.int32)  # (denoisers, items)
        self.denoisers = NO_ONE  # in order of arrival: the slots
        self._slot_of = np.empty(0, np.int64)  # by number of client, or -1
        self._num_denoisers = num_denoisers
        self._limit = row_limit(1)
        self._lock = Lock()

    def fork(self) -> "NoiseSums":
        """An empty one, or this one itself where copies would be large."""
        _, num_factors = self.totals.shape
        num_items = self.counts.shape[1]
        if 8 * self._num_denoisers * num_items * num_factors > _OWN_TABLE_BYTES:
            return self
        return NoiseSums(num_items, num_factors, self._num_denoisers)

    def add(self, addressees: Numbers, message: Gradients) -> None:
        """Add the noise of a batch of clients to the sums of their denoisers."""
        with self._lock:
            self._add(1, self._slots(addressees), message)

    def merge(self, other: "NoiseSums") -> None:
        """Add what a fork collected."""
        if other is self or not len(other.denoisers):
            return
        slots, num_items = self._slots(other.denoisers), self.counts.shape[1]
        self.counts[slots] += other.counts[: len(slots)]
        self.totals.reshape(-1, num_items * self.totals.shape[1])[slots] += other.totals.reshape(
            -1, num_items * self.totals.shape[1]
        )[: len(slots)]

    def has_mail(self, denoisers: Numbers) -> NDArray[np.bool_]:
        """Whether some noise came for each."""
        return np.isin(denoisers, self.denoisers)

    def release(self, denoisers: Numbers, own: Gradients) -> tuple[Ragged, Ragged, Ragged]:
        """Eq. 9: items, sums of noise less the denoiser's own gradients, and counts less its own ratings."""
        check_columns(own, self.totals.shape[1])
        check_rows(denoisers, own, self._limit, self.counts.shape[1])
        slots = self._slots(denoisers)
        is_listed = self.counts[slots] > 0
        is_listed[np.repeat(np.arange(len(denoisers)), own.items.lengths), own.items.values] = True
        rows, items = np.nonzero(is_listed)
        starts = np.searchsorted(rows, np.arange(len(denoisers) + 1))
        self._add(-1, slots, own)
        sums = self.totals[slots[rows] * self.counts.shape[1] + items]
        counts = self.counts[slots[rows], items]
        self._add(1, slots, own)  # so that it can be asked for again
        return Ragged(starts, items.astype(np.int32)), Ragged(starts, sums), Ragged(starts, counts)

    def _add(self, sign: int, slots: NDArray[np.int64], message: Gradients) -> None:
        check_columns(message, self.totals.shape[1])
        width = width_of(self.totals.shape[1])
        items, rows = message.items, message.gradients.values
        limit = np.float32(self._limit)
        if not _add_noise(width, limit, sign, slots, items.starts, items.values, rows, self.totals, self.counts):
            raise DivergedError(f"noise is not finite, not within ±{self._limit:g} or not of the catalogue")

    def _slots(self, denoisers: Numbers) -> NDArray[np.int64]:
        """Places of the denoisers' tables; a newcomer gets one."""
        highest = int(denoisers.max(initial=-1))
        if highest >= len(self._slot_of):
            longer = np.full(2 * highest + 1, -1, np.int64)
            longer[: len(self._slot_of)] = self._slot_of
            self._slot_of = longer
        slots = self._slot_of[denoisers]
        if slots.min(initial=0) >= 0:
            return slots
        new = np.unique(denoisers[slots < 0])
        self._slot_of[new] = np.arange(len(self.denoisers), len(self.denoisers) + len(new))
        self.denoisers = np.concatenate([self.denoisers, new])
        self._reserve(len(self.denoisers))
        return self._slot_of[denoisers]

    def _reserve(self, num_denoisers: int) -> None:
        old, num_items = self.counts.shape
        if num_denoisers <= old:
            return
        size = max(num_denoisers, self._num_denoisers)
        counts = np.zeros((size, num_items), np.int32)
        counts[:old] = self.counts
        totals = np.zeros((size * num_items, self.totals.shape[1]), np.int64)
        totals[: len(self.totals)] = self.totals
        self.counts, self.totals = counts, totals


@numba.njit(nogil=True, cache=True)
def _add_sums(items, sums, counts, totals, total_counts):
    for place in range(items.size):
        item = items[place]
        total_counts[item] += counts[place]
        for factor in range(sums.shape[1]):
            totals[item, factor] += sums[place, factor]


class Sums(Protocol):
    """A message with sums in fixed point, and counts, per listed item."""

    @property
    def items(self) -> Ragged:
        """Which items were summed up, a slice per denoiser."""
        ...

    @property
    def sums(self) -> Ragged:
        """The sum of each listed item, in fixed point."""
        ...

    @property
    def counts(self) -> Ragged:
        """How many rows each sum stands for; less than zero where the denoiser's own outweigh."""
        ...


@dataclass
class DenoiserTotal:
    """What the server adds up from the denoisers."""

    total: ExactSum

    def fork(self) -> "DenoiserTotal":
        """An empty one of the same shape."""
        return DenoiserTotal(self.total.fork())

    def add(self, _numbers: Numbers, message: Sums) -> None:
        """Add the sums of a batch of denoisers."""
        sums, counts = message.sums.values, message.counts.values
        items, shape = message.items.values, self.total.totals.shape
        is_known = len(items) == 0 or (items.min() >= 0 and items.max() < shape[0])
        if sums.shape != (len(items), shape[1]) or counts.shape != items.shape or not is_known:
            raise HushrecError("a denoiser's sums do not fit the catalogue; leave it out")
        _add_sums(message.items.values, sums, counts, self.total.totals, self.total.counts)

    def merge(self, other: "DenoiserTotal") -> None:
        """Add what a fork took in."""
        self.total.merge(other.total)
