# mypy: allow-untyped-defs, allow-untyped-calls
"""Denoisers: clients that collect the noise of others and send the server only its sum.

Guarantee: none in the sense of differential privacy. The server sees sums of noise less the denoiser's own
gradients; a denoiser sees noise without its sender's name. Not protected: a count below zero names an item that
the denoiser rated; with few clients per denoiser their noise can be told apart; server and denoiser together can
match noise with uploads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, OutOfRangeError, option
from hushrec.kernels.rows import FRACTION_BITS, add_fixed, load, magnitude, store, width_of, zeros
from hushrec.privacy.exact_sum import (
    SUM_RANGE,
    ExactSum,
    Gradients,
    check_columns,
    check_rows,
    row_limit,
    sender_of,
)
from hushrec.protocol import NO_ONE, Numbers, Ragged

Assigning = Literal["dealt", "random"]

# Up to this size each thread keeps sums of its own; above it, one table is shared under a lock.
_OWN_TABLE_BYTES = 64 << 20


def check_denoisers(num_denoisers: int, num_clients: int) -> None:
    """Refuse more denoisers than can hide: each needs a client whose noise its own gradients mix with."""
    most = num_clients // 2
    if num_denoisers > most:
        raise HushrecError(
            f"{num_denoisers} denoisers for {num_clients} clients leave some denoiser alone, so that its own "
            f"gradients would show; use {option('denoisers', most)}{' or less' if most else ''}"
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
def _add_noise(width, limit, sign, slots, starts, items, rows, totals, counts, peaks):
    """Add rows to the tables of their slots; whether all were within the limit, and each sender's items ascending.

    `peaks` gets the largest number of each sender.
    """
    num_items, largest = counts.shape[1], np.empty((1, len(width)), np.float32)
    for sender in range(slots.size):
        slot, before, peak = slots[sender], np.int64(-1), zeros(width)
        for place in range(np.uint64(starts[sender]), np.uint64(starts[sender + 1])):
            item = np.int64(items[place])
            if item <= before or item >= num_items:
                return False
            before = item
            row = load(rows, place, width)
            peak = magnitude(peak, row)
            counts[slot, item] += sign
            add_fixed(totals, slot * num_items + item, np.float32(sign) * row)
        store(largest, 0, peak)
        if not np.all(largest <= limit):
            return False
        peaks[sender] = largest.max()
    return True


class NoiseSums:
    """The denoisers' inboxes: noise is added up as it arrives, so nothing piles up.

    A denoiser does not know how many will write. It adds up how large each sender's numbers are at the most, and
    takes no more when their sum could leave the range.
    """

    def __init__(self, num_items: int, num_factors: int, num_denoisers: int) -> None:
        self.totals = np.zeros((0, num_factors), np.int64)  # (denoisers * items, factors), fixed point
        self.counts = np.zeros((0, num_items), np.int32)  # (denoisers, items)
        self.denoisers = NO_ONE  # in order of arrival: the slots
        self._slot_of = np.empty(0, np.int64)  # by number of client, or -1
        self._num_denoisers = num_denoisers
        self._limit = row_limit(1)
        self._reach = np.zeros(0)  # of each slot: no sum in it is larger
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
        self._reach[slots] += other._reach[: len(slots)]
        self._check_reach()
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
        limit, peaks, tables = np.float32(self._limit), np.zeros(len(slots)), (self.totals, self.counts)
        if not _add_noise(width, limit, sign, slots, items.starts, items.values, rows, *tables, peaks):
            raise OutOfRangeError(
                f"noise is not finite, not within ±{self._limit:g}, not of the catalogue or has an item twice"
            )
        np.add.at(self._reach, slots, sign * peaks)
        self._check_reach()

    def _check_reach(self) -> None:
        """Refuse what could leave the range together with the denoiser's own rows."""
        if self._reach.max(initial=0) > SUM_RANGE - 2 * self._limit:
            raise OutOfRangeError("the noise that came is too large to be added up; leave out who sent the most")

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
        self._reach = np.concatenate([self._reach, np.zeros(size - len(self._reach))])


# --- The server ------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _count_listed(slots, starts, items, listed):
    for sender in range(slots.size):
        for place in range(starts[sender], starts[sender + 1]):
            listed[slots[sender], items[place]] += 1


NoiseWithin = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]


class AssignedSum:
    """What the server adds up from ordinary clients, with what it must know of them to check their denoisers.

    Per denoiser and item, how many of its clients list it: 4 bytes each, up to 64 MB; beyond that, all clients who
    list an item are looked at as if they were the denoiser's.
    """

    def __init__(self, total: ExactSum, assignment: Assignment, noise_within: NoiseWithin | None = None) -> None:
        self.total, self.assignment = total, assignment
        self._noise_within = noise_within  # of lists of so many items: the least and most that are virtual
        self.denoisers = assignment.denoisers
        num_tables = len(self.denoisers)
        is_told_apart = 1 < num_tables <= _OWN_TABLE_BYTES // (4 * max(len(total.counts), 1))
        self._listed = np.zeros((num_tables if is_told_apart else 0, len(total.counts)), np.int32)
        self._num_clients = np.zeros(num_tables, np.int64)
        self._least, self._most = np.zeros(num_tables, np.int64), np.zeros(num_tables, np.int64)  # of all noise

    def fork(self) -> "AssignedSum":
        """An empty one of the same shape."""
        return AssignedSum(self.total.fork(), self.assignment, self._noise_within)

    def add(self, numbers: Numbers, message: Gradients) -> None:
        """Add every row of a batch, or refuse it and name the sender."""
        self.total.add(numbers, message)
        if not len(self.denoisers):
            return
        places = np.searchsorted(self.assignment.ordinary, numbers)
        slots = np.searchsorted(self.denoisers, self.assignment.denoiser_of[places])
        if len(self._listed):
            _count_listed(slots, message.items.starts, message.items.values, self._listed)
        np.add.at(self._num_clients, slots, 1)
        if self._noise_within is not None:
            least, most = self._noise_within(message.items.lengths)
            np.add.at(self._least, slots, least)
            np.add.at(self._most, slots, most)

    def merge(self, other: "AssignedSum") -> None:
        """Add what a fork took in."""
        self.total.merge(other.total)
        self._listed += other._listed
        self._num_clients += other._num_clients
        self._least += other._least
        self._most += other._most

    def listed(self, denoiser: int) -> NDArray[np.int64]:
        """How many of a denoiser's clients list each item, at the most."""
        slot = int(np.searchsorted(self.denoisers, denoiser))
        if len(self._listed):
            own: NDArray[np.int64] = self._listed[slot].astype(np.int64)
        else:
            own = np.minimum(self.total.counts, self._num_clients[slot])
        return own

    def check_amount(self, denoiser: int, amount: int) -> None:
        """Refuse counts whose sum is not that of virtual items less the denoiser's own, at most all there are."""
        slot = int(np.searchsorted(self.denoisers, denoiser))
        least, most = self._least[slot] - len(self.total.counts), self._most[slot]
        if self._noise_within is not None and not least <= amount <= most:
            raise HushrecError(
                f"denoiser {denoiser} counts {amount} virtual items, and its clients list {least} to {most}; "
                "leave it out"
            )


@numba.njit(nogil=True, cache=True)
def _is_possible(items, sums, counts, listed, limit):
    """Whether a denoiser's rows can be those of its clients' noise less its own row."""
    for place in range(items.size):
        most = listed[items[place]]
        if counts[place] < -1 or counts[place] > most:
            return False
        reach = (most + 1) * limit
        for factor in range(sums.shape[1]):
            if sums[place, factor] > reach or sums[place, factor] < -reach:
                return False
    return True


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
    """What the server adds up from the denoisers, after a look at what their clients can have sent them.

    Not seen: a denoiser that changes sums and counts within these bounds.
    """

    total: ExactSum
    uploads: AssignedSum  # of its clients, all of which have come by now

    @classmethod
    def of(cls, uploads: AssignedSum) -> "DenoiserTotal":
        """An empty one."""
        return cls(uploads.total.fork(), uploads)

    def fork(self) -> "DenoiserTotal":
        """An empty one of the same shape."""
        return DenoiserTotal(self.total.fork(), self.uploads)

    def add(self, numbers: Numbers, message: Sums) -> None:
        """Add the sums of a batch of denoisers, all of them or none."""
        items, sums, counts = message.items, message.sums, message.counts
        num_items, num_factors = self.total.totals.shape
        shape = (len(items.values), num_factors)
        is_wrong = (items.values < 0) | (items.values >= num_items) | items.not_ascending()
        if sums.values.shape != shape or counts.values.shape != items.values.shape or is_wrong.any():
            sender = sender_of(numbers, items, is_wrong) if is_wrong.any() else numbers[0]
            raise HushrecError(f"the sums of denoiser {sender} do not fit the catalogue; leave it out")
        limit = np.int64(self.total.limit * 2.0**FRACTION_BITS)
        for place, denoiser in enumerate(numbers.tolist()):
            rows = slice(items.starts[place], items.starts[place + 1])
            own = items.values[rows], sums.values[rows], counts.values[rows]
            if not _is_possible(*own, self.uploads.listed(denoiser), limit):
                raise HushrecError(
                    f"denoiser {denoiser} takes out more than came in, or counts what cannot be; leave it out"
                )
            self.uploads.check_amount(denoiser, int(own[2].sum()))
        _add_sums(items.values, sums.values, counts.values, self.total.totals, self.total.counts)

    def merge(self, other: "DenoiserTotal") -> None:
        """Add what a fork took in."""
        self.total.merge(other.total)
