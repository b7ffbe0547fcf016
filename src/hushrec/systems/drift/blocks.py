# mypy: allow-untyped-defs, allow-untyped-calls
"""Blocks of interactions: what a data owner keeps until it has learned from it.

Burashnikova et al. (JAIR 2021); Algorithm 2 of DRIFT. A block is a run of negative interactions of a user and the
positive ones after them; the next negative one completes it and begins another. What is open may be dropped when
an epoch begins the stream anew, since its first events do not follow on its last ones.

DEVIATION: a positive interaction without a negative before it is in no pair and is dropped at once. Algorithm 2
keeps it, and the next negative one completes a block without a pair, which counts towards Theta, is asked for, and
moves nothing; it would only tell who likes what. The reading `literal` keeps it, as printed.

All that an owner holds are interactions: those not learned from yet, and, so that a round can begin again, those
of the round that runs. Blocks follow from them: to read the interactions again, in order, rebuilds every block.
Only those that were complete when the stream began anew are written down, since what completed them is dropped.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.limits import MOST_ROUNDS, MOST_WINDOWS
from hushrec.protocol import Numbers

Threshold = Literal["blocks", "users"]
Reading = Literal["pairs", "literal"]

WAITING = 0  # the stamp of an interaction that was not learned from yet
_FORGOTTEN = 1  # of one that is in no block; below the stamps of all rounds
_NO_BLOCK = -1
_NOTHING, _NEGATIVE, _POSITIVE = 0, 1, 2  # in the open block of a user: nothing, no positive yet, a positive
_LEAST_ROOM = 1024


class Entries(NamedTuple):
    """Interactions as an owner keeps them, in the order in which they came."""

    sequences: NDArray[np.int64]  # of the message that brought them
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    is_positive: NDArray[np.bool_]
    added: NDArray[np.int64]  # in which round; below 0: the saved block it is in, see `end_open`
    stamps: NDArray[np.int64]  # WAITING, or the `stamp_of` when it was learned from
    blocks: NDArray[np.int32]  # its block among those that were learned from at once; -1: none

    @classmethod
    def room_for(cls, size: int) -> "Entries":
        """Columns with room for so many interactions, all empty."""
        return cls(
            np.zeros(size, np.int64), np.zeros(size, np.int32), np.zeros(size, np.int32),
            np.zeros(size, np.bool_), np.zeros(size, np.int64), np.zeros(size, np.int64),
            np.full(size, _NO_BLOCK, np.int32),
        )  # fmt: skip

    def take(self, places: NDArray[np.integer] | NDArray[np.bool_] | slice) -> "Entries":
        """The interactions at these places, as a copy."""
        columns: tuple[NDArray[Any], ...] = self
        return Entries(*(column[places].copy() for column in columns))


def stamp_of(round_number: int, window: int) -> int:
    """A moment of a run as one number."""
    if not (0 <= round_number < MOST_ROUNDS and -1 <= window <= MOST_WINDOWS):
        raise PublicError(f"round {round_number} or window {window} is beyond what can be; ask in order")
    return (round_number << 32) | window


class Groups(NamedTuple):
    """Completed blocks that are learned from at once, and the vectors that this needs: a row each.

    The rows of a group are its users, then its items, ascending. Groups have `theta` blocks each.
    """

    group_of_row: NDArray[np.int32]
    is_item: NDArray[np.uint8]
    numbers: NDArray[np.int32]
    vector_of_row: NDArray[np.int64]  # rows of one user or item in several groups are one vector
    block_starts: NDArray[np.int64]  # in the two below
    row_of_entry: NDArray[np.int64]  # of its item
    is_positive: NDArray[np.bool_]
    user_rows: NDArray[np.int64]  # of each block
    theta: int

    @property
    def num_blocks(self) -> int:
        """Blocks in all groups together."""
        return len(self.user_rows)


@numba.njit(nogil=True, cache=True)
def _keep(
    first, last, users, is_positive, added, stamps, previous, heads, content, saved, num_saved, stamp, is_literal
):  # fmt: skip
    """Put interactions into blocks (Algorithm 2); saved blocks are known by their last interaction."""
    for entry in range(first, last):
        if stamps[entry] != WAITING or added[entry] < 0:  # learned from before, or saved before
            continue
        user = users[entry]
        if is_positive[entry]:
            if content[user] == _NOTHING and not is_literal:  # without a negative before it there is no pair
                stamps[entry] = stamp
                continue
            content[user] = _POSITIVE
        else:
            if content[user] == _POSITIVE:
                saved[num_saved] = heads[user]
                num_saved += 1
                heads[user] = -1
            content[user] = _NEGATIVE
        previous[entry] = heads[user]
        heads[user] = entry
    return num_saved


@numba.njit(nogil=True, cache=True)
def _add(
    first, new_sequences, new_users, new_items, new_is_positive, round_number, stamp, sequences, users, items,
    is_positive, added, stamps, blocks, previous, heads, content, saved, num_saved, is_literal,
):  # fmt: skip
    """Write interactions down, and put them into blocks."""
    for place in range(new_users.size):
        entry = first + place
        sequences[entry], users[entry] = new_sequences[place], new_users[place]
        items[entry], is_positive[entry] = new_items[place], new_is_positive[place]
        added[entry], stamps[entry], blocks[entry] = round_number, WAITING, _NO_BLOCK
    last = first + new_users.size
    return _keep(
        first, last, users, is_positive, added, stamps, previous, heads, content, saved, num_saved, stamp,
        is_literal,
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def _end_open(size, added, stamps, previous, saved, num_saved, stamp):
    """Write down which blocks are saved, -1, -2 and on; drop what waits in none."""
    for block in range(num_saved):
        place = saved[block]
        while place >= 0:
            added[place] = -1 - block
            place = previous[place]
    for entry in range(size):
        if stamps[entry] == WAITING and added[entry] >= 0:
            stamps[entry] = stamp


@numba.njit(nogil=True, cache=True)
def _choose(saved, num_saved, users, theta, by_users, chosen):
    """Choose saved blocks for whole groups of theta, oldest first; the others move up. Returns both numbers."""
    if not by_users:
        num_chosen = num_saved // theta * theta
        chosen[:num_chosen] = saved[:num_chosen]
        for place in range(num_chosen, num_saved):
            saved[place - num_chosen] = saved[place]
        return num_chosen, num_saved - num_chosen
    num_chosen = 0
    while True:
        num_found = 0
        for place in range(num_saved):
            is_new = True
            for other in range(num_found):
                if users[chosen[num_chosen + other]] == users[saved[place]]:
                    is_new = False
            if is_new and num_found < theta:
                chosen[num_chosen + num_found] = saved[place]
                num_found += 1
        if num_found < theta:
            return num_chosen, num_saved
        num_left = 0
        for place in range(num_saved):
            is_taken = False
            for other in range(num_found):
                if chosen[num_chosen + other] == saved[place]:
                    is_taken = True
            if not is_taken:
                saved[num_left] = saved[place]
                num_left += 1
        num_saved = num_left
        num_chosen += num_found


@numba.njit(nogil=True, cache=True)
def _stamp(chosen, num_chosen, previous, stamps, blocks, stamp):
    """Mark the interactions of the chosen blocks; returns where they are, block after block, in order."""
    size = 0
    for block in range(num_chosen):
        place = chosen[block]
        while place >= 0:
            stamps[place] = stamp
            blocks[place] = block
            size += 1
            place = previous[place]
    places = np.empty(size, np.int64)
    first = 0
    for block in range(num_chosen):
        length = 0
        place = chosen[block]
        while place >= 0:
            length += 1
            place = previous[place]
        place = chosen[block]
        for step in range(length):
            places[first + length - 1 - step] = place
            place = previous[place]
        first += length
    return places


@numba.njit(nogil=True, cache=True)
def _grouped(places, blocks, users, items, theta):
    """The rows of groups, and where each block and each interaction finds its own among them."""
    size, num_blocks = places.size, blocks[places[-1]] + 1
    block_starts = np.zeros(num_blocks + 1, np.int64)
    user_keys = np.empty(num_blocks, np.int64)
    item_keys = np.empty(size, np.int64)
    for entry in range(size):
        block = np.int64(blocks[places[entry]])
        block_starts[block + 1] = entry + 1
        group = block // theta
        user_keys[block] = (group << 33) | np.int64(users[places[entry]])
        item_keys[entry] = (group << 33) | (np.int64(1) << 32) | np.int64(items[places[entry]])
    keys = np.unique(np.concatenate((user_keys, item_keys)))
    mask = (np.int64(1) << 33) - 1
    vectors = np.unique(keys & mask)
    return (
        (keys >> 33).astype(np.int32),
        ((keys >> 32) & 1).astype(np.uint8),
        (keys & ((np.int64(1) << 32) - 1)).astype(np.int32),
        np.searchsorted(vectors, keys & mask),
        block_starts,
        np.searchsorted(keys, item_keys),
        np.searchsorted(keys, user_keys),
    )


@numba.njit(nogil=True, cache=True)
def _count_blocks(users, is_positive, counts):
    content = np.zeros(counts.size, np.uint8)
    for event in range(users.size):
        user = users[event]
        if not is_positive[event]:
            counts[user] += content[user] == _POSITIVE
            content[user] = _NEGATIVE
        elif content[user] == _NEGATIVE:
            content[user] = _POSITIVE


def blocks_per_user(users: Numbers, is_positive: NDArray[np.bool_], num_users: int) -> NDArray[np.int64]:
    """How many blocks with pairs each user completes in a stream."""
    counts = np.zeros(num_users, np.int64)
    _count_blocks(users, is_positive, counts)
    return counts


@cache
def _no_groups(theta: int) -> Groups:
    rows, numbers = np.empty(0, np.int64), np.empty(0, np.int32)
    kinds, signs = np.empty(0, np.uint8), np.empty(0, np.bool_)
    return Groups(numbers, kinds, numbers, rows, np.zeros(1, np.int64), rows, signs, rows, theta)


@dataclass
class Blocks:
    """The interactions of one owner, and the blocks that they are in."""

    entries: Entries = field(default_factory=lambda: Entries.room_for(_LEAST_ROOM))
    size: int = 0
    previous: NDArray[np.int64] = field(default_factory=lambda: np.empty(_LEAST_ROOM, np.int64))
    heads: NDArray[np.int64] = field(default_factory=lambda: np.full(0, -1, np.int64))  # last one of each user
    content: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))  # of the open block
    saved: NDArray[np.int64] = field(default_factory=lambda: np.empty(_LEAST_ROOM, np.int64))
    num_saved: int = 0
    reading: Reading = "pairs"

    @classmethod
    def restored(cls, entries: Entries, num_users: int, reading: Reading = "pairs") -> "Blocks":
        """From what `kept` gave: interactions that still wait are put into blocks again."""
        blocks = cls(reading=reading)
        blocks.make_room(len(entries.users), num_users)
        blocks.size = len(entries.users)
        columns: tuple[NDArray[Any], ...] = blocks.entries
        for column, values in zip(columns, entries, strict=True):
            column[: blocks.size] = values
        blocks._find_saved()
        blocks._put(0, _FORGOTTEN)
        return blocks

    def _find_saved(self) -> None:
        """Blocks that were saved before the stream began anew."""
        added, stamps = self.entries.added[: self.size], self.entries.stamps[: self.size]
        places = np.flatnonzero((added < 0) & (stamps == WAITING))
        places = places[np.argsort(-added[places], kind="stable")]
        is_last = np.diff(added[places], append=0) != 0
        self.previous[places[1:]] = np.where(is_last[:-1], -1, places[:-1])
        self.previous[places[:1]] = -1
        self.num_saved = int(np.count_nonzero(is_last))
        self.saved[: self.num_saved] = places[is_last]

    def kept(self) -> Entries:
        """All interactions, as a copy."""
        return self.entries.take(slice(0, self.size))

    def make_room(self, num_more: int, num_users: int) -> None:
        """Have room for more interactions, and for all users."""
        if len(self.heads) < num_users:
            num_new = max(num_users - len(self.heads), len(self.heads) // 2)
            self.heads = np.concatenate([self.heads, np.full(num_new, -1, np.int64)])
            self.content = np.concatenate([self.content, np.zeros(num_new, np.uint8)])
        if self.size + num_more > len(self.previous):
            room = 2 * (self.size + num_more)
            larger = Entries.room_for(room)
            columns: tuple[NDArray[Any], ...] = larger
            before: tuple[NDArray[Any], ...] = self.entries
            for column, values in zip(columns, before, strict=True):
                column[: self.size] = values[: self.size]
            self.entries = larger
            for name in ("previous", "saved"):
                column = np.empty(room, np.int64)
                column[: self.size] = getattr(self, name)[: self.size]
                setattr(self, name, column)

    def undo(self, round_number: int) -> None:
        """A round did not count: what came in it did not come, what was learned in it waits again."""
        entries = self.kept()
        entries = entries.take(entries.added < round_number)
        is_undone = entries.stamps >= stamp_of(round_number, 0)
        entries.stamps[is_undone], entries.blocks[is_undone] = WAITING, _NO_BLOCK
        self._become(entries)

    def forget_learned(self) -> None:
        """Keep only what waits; there is no way back behind this."""
        if self.entries.stamps[: self.size].any():
            self._become(self.kept())

    def _become(self, entries: Entries) -> None:
        fresh = Blocks.restored(entries.take(entries.stamps == WAITING), len(self.heads), self.reading)
        self.__dict__.update(fresh.__dict__)

    def end_open(self, stamp: int) -> None:
        """The stream begins anew: no open block goes on. Completed ones that wait do so on."""
        _end_open(
            self.size, self.entries.added, self.entries.stamps, self.previous, self.saved, self.num_saved, stamp
        )
        self.heads[:] = -1
        self.content[:] = _NOTHING

    def add(
        self,
        sequences: NDArray[np.int64],
        users: Numbers,
        items: Numbers,
        is_positive: NDArray[np.bool_],
        stamp: int,
        round_number: int,
    ) -> None:
        """Take in interactions, in order; all users are known."""
        self.make_room(len(users), 0)
        first, self.size = self.size, self.size + len(users)
        entries = self.entries
        self.num_saved = _add(
            first, sequences, users, items, is_positive, round_number, stamp, *entries, self.previous, self.heads,
            self.content, self.saved, self.num_saved, self.reading == "literal",
        )  # fmt: skip

    def _put(self, first: int, stamp: int) -> None:
        self.num_saved = _keep(
            first, self.size, self.entries.users, self.entries.is_positive, self.entries.added,
            self.entries.stamps, self.previous, self.heads, self.content, self.saved, self.num_saved, stamp,
            self.reading == "literal",
        )  # fmt: skip

    def learn(self, theta: int, threshold: Threshold, stamp: int) -> Groups:
        """Take completed blocks out, in groups of theta, to learn from them now."""
        if self.num_saved < theta:
            return self._groups(np.empty(0, np.int64), theta)
        chosen = np.empty(self.num_saved + theta, np.int64)
        num_chosen, self.num_saved = _choose(
            self.saved, self.num_saved, self.entries.users, theta, threshold == "users", chosen
        )
        places = _stamp(chosen, num_chosen, self.previous, self.entries.stamps, self.entries.blocks, stamp)
        return self._groups(places, theta)

    def learned_at(self, stamp: int, theta: int) -> Groups:
        """The groups that `learn` gave at that moment."""
        is_of_it = (self.entries.stamps[: self.size] == stamp) & (self.entries.blocks[: self.size] >= 0)
        places = np.flatnonzero(is_of_it)
        return self._groups(places[np.argsort(self.entries.blocks[places], kind="stable")], theta)

    def _groups(self, places: NDArray[np.int64], theta: int) -> Groups:
        if not len(places):
            return _no_groups(theta)
        entries = self.entries
        of_group, is_item, numbers, vectors, starts, of_entry, of_user = _grouped(
            places, entries.blocks, entries.users, entries.items, theta
        )
        is_positive = entries.is_positive[places]
        return Groups(of_group, is_item, numbers, vectors, starts, of_entry, is_positive, of_user, theta)
