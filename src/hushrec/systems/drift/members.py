# mypy: allow-untyped-defs, allow-untyped-calls
"""Data owners, and all parties whose state is in one place, the users' side (`gateway.py`) perhaps among them.

An owner has the items that it holds, a key, and the interactions that it has not learned from yet. What a request
changed is done once: the same request again gives the same answer, and a round can begin again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.data import OwnerRows
from hushrec.draws import BLOCK_WORDS, Draws, chacha_block
from hushrec.errors import HushrecError, PublicError
from hushrec.limits import MOST_USERS
from hushrec.protocol import Numbers, packed
from hushrec.systems.drift.blocks import WAITING, Blocks, Entries, Groups, Reading, Threshold, stamp_of
from hushrec.systems.drift.cipher import KEY_BYTES, Form, Letters, Opened, open_interactions
from hushrec.systems.drift.deeds import SIGNING_KEY_BYTES, Book, Deed, pledge_of, public_key_of, sign
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.stopwatch import Stopwatch, untimed


class Counts(NamedTuple):
    """What became of the messages to an owner; places in `Owner.counts`."""

    accepted: int = 0
    replayed: int = 1  # not newer than one that was read before
    altered: int = 2  # changed on the way, under another key, or for another owner
    foreign: int = 3  # about an item that the owner does not hold
    missing: int = 4  # numbers that were left out


COUNTS = Counts()


@dataclass
class Owner:
    """One data owner: its items, its key, and the interactions that it was sent."""

    number: int
    held: Numbers
    key: bytes
    parts: int = 0  # rounds of an epoch, with which open blocks end; 0: they go on
    blocks: Blocks = field(default_factory=Blocks)
    clock: NDArray[np.int64] = field(default_factory=lambda: np.array([0, -1]))  # round, window
    last: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # number of the newest message
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(COUNTS), np.int64))
    counts_before: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(COUNTS), np.int64))
    groups: Groups | None = None  # that are learned from in this window
    signing_seed: bytes = b""  # of the key that deeds are signed with, secret
    users_side: int = -1  # its number; -1: not told yet
    _holds: NDArray[np.bool_] = field(init=False)  # of each item
    _last_before: int = 0  # `last` as the round began
    _deed: tuple[tuple[int, bool, bytes], Deed] | None = None  # the last one, and what it was made of

    def __post_init__(self) -> None:
        self._note_held()

    def _note_held(self) -> None:
        self._holds = np.zeros(1 + int(self.held.max(initial=-1)), np.bool_)
        self._holds[self.held] = True

    def deed_to(self, users_side: int, is_encrypted: bool) -> Deed:
        """The signed deed, which has the key; it goes to one users' side only."""
        self.check_users_side(users_side)
        if self._deed is None or self._deed[0] != (users_side, is_encrypted, self.held.tobytes()):
            key = self.key if is_encrypted else b""
            deed = sign(self.signing_seed, self.number, users_side, key, np.sort(self.held))
            self._deed = (users_side, is_encrypted, self.held.tobytes()), deed
        return self._deed[1]

    def check_users_side(self, users_side: int) -> None:
        """Refuse to write to anybody but the users' side, the last party, who stays the same."""
        if users_side <= self.number or self.users_side not in (-1, users_side):
            raise PublicError(f"party {users_side} is not the users' side of this run; ask with its number")
        self.users_side = users_side

    def begin(self, round_number: int, counted_round: int) -> None:
        """Begin a round, or begin it again; what was done behind the last round that counted is undone."""
        if counted_round >= round_number:
            raise PublicError(f"round {counted_round} cannot count before round {round_number}; ask in order")
        if self.clock[0] > counted_round:
            self.blocks.undo(int(self.clock[0]))
            self.counts[:] = self.counts_before
        else:
            self.blocks.forget_learned()
        if self.parts and (counted_round - 1) // self.parts < (round_number - 1) // self.parts:
            self.blocks.end_open(stamp_of(round_number, 0))
        self.counts_before[:] = self.counts
        self.clock[:] = round_number, -1
        self._last_before = int(self.last[0])
        self.groups = None
        self._note_held()

    def take_in(
        self,
        window: int,
        letters: Sequence[Letters],
        form: Form,
        theta: int,
        threshold: Threshold,
        stopwatch: Stopwatch = untimed,
    ) -> Groups:
        """Read the mail of a window, once, and choose what to learn from (Algorithm 2)."""
        if window == self.clock[1]:
            return self.wanted(theta)
        if window < self.clock[1]:
            raise HushrecError(f"window {window} is over; ask for the next one")
        stamp = stamp_of(int(self.clock[0]), window)
        for mail in letters:
            with stopwatch("decryption", self.number):
                opened = open_interactions(self.key, self.number, form, mail)
            self._read(mail, opened, stamp)
        self.clock[1] = window
        self.groups = self.blocks.learn(theta, threshold, stamp)
        return self.groups

    def wanted(self, theta: int) -> Groups:
        """What is learned from in the window that runs."""
        if self.groups is None:
            self.groups = self.blocks.learned_at(stamp_of(*self.clock.tolist()), theta)
        return self.groups

    @property
    def num_waiting(self) -> int:
        """Interactions that were not learned from yet."""
        return int(np.count_nonzero(self.blocks.kept().stamps == WAITING))

    def _read(self, mail: Letters, opened: Opened, stamp: int) -> None:
        may_skip = self.last[0] == self._last_before  # numbers may be left out between rounds, not within one
        is_read = _count(mail.sequences, opened.is_sound, self.last, self.counts, may_skip)
        users, items, is_positive, message_of = opened.users, opened.items, opened.is_positive, opened.message_of
        is_own, num_users = _is_own(users, items, message_of, is_read, self._holds, self.counts)
        if not is_own.all():
            users, items, is_positive, message_of = (
                users[is_own], items[is_own], is_positive[is_own], message_of[is_own],
            )  # fmt: skip
        self.blocks.make_room(0, num_users)
        self.blocks.add(mail.sequences[message_of], users, items, is_positive, stamp, int(self.clock[0]))


@numba.njit(nogil=True, cache=True)
def _count(sequences, is_sound, last, counts, may_skip):
    """Of each message, whether it is to be read: sound, and with a number above all that were read."""
    is_read, num_altered = np.zeros(sequences.size, np.bool_), 0
    for place in range(sequences.size):
        if not is_sound[place]:
            counts[COUNTS.altered] += 1
            num_altered += 1
        elif sequences[place] <= last[0]:
            counts[COUNTS.replayed] += 1
        else:
            if not may_skip:
                counts[COUNTS.missing] += max(sequences[place] - last[0] - 1 - num_altered, 0)
            is_read[place] = True
            may_skip, num_altered, last[0] = False, 0, sequences[place]
    return is_read


@numba.njit(nogil=True, cache=True)
def _is_own(users, items, message_of, is_read, holds, counts):
    """Of each interaction, whether it is about an item that is held; and how many users there can be."""
    is_own, num_users = np.zeros(items.size, np.bool_), 0
    for place in range(items.size):
        if not is_read[message_of[place]]:
            continue
        is_own[place] = 0 <= users[place] < MOST_USERS and 0 <= items[place] < holds.size and holds[items[place]]
        counts[COUNTS.accepted if is_own[place] else COUNTS.foreign] += 1
        if is_own[place]:
            num_users = max(num_users, users[place] + 1)
    return is_own, num_users


def owner_key(draws: Draws, number: int) -> bytes:
    """The key that an owner draws."""
    return _drawn_bytes(draws, "owner-key", number)[:KEY_BYTES]


def owner_signing_seed(draws: Draws, number: int) -> bytes:
    """What an owner's signing key is made of."""
    return _drawn_bytes(draws, "owner-signing-key", number)[:SIGNING_KEY_BYTES]


def _drawn_bytes(draws: Draws, purpose: str, number: int) -> bytes:
    words = np.empty(BLOCK_WORDS, np.uint32)
    chacha_block(draws.key(purpose), number, 0, 0, words)
    return words.astype("<u4").tobytes()


_ENTRIES = Entries._fields


class Members:
    """Those parties whose state is here. What changes is packed into arrays, for checkpoints."""

    def __init__(self, numbers: Numbers, owners: list[Owner], gateway: Gateway | None) -> None:
        self.numbers, self.owners, self.gateway = numbers, owners, gateway

    @classmethod
    def enrol(
        cls, numbers: Numbers, rows: OwnerRows, parts: int, draws: Draws, reading: Reading = "pairs"
    ) -> "Members":
        """Owners with their items, and the users' side with its events."""
        held = np.split(rows.held, rows.held_starts[1:-1]) if rows.names else []
        owners = [
            Owner(
                int(number),
                items,
                owner_key(draws, int(number)),
                parts,
                Blocks(reading=reading),
                signing_seed=owner_signing_seed(draws, int(number)),
            )
            for number, items in zip(numbers[: len(held)].tolist(), held, strict=True)
        ]
        gateway = None
        if rows.has_users:
            gateway = Gateway(int(numbers[-1]), rows.users, rows.items, rows.is_positive, rows.num_users)
        return cls(numbers, owners, gateway)

    def only_gateway(self) -> Gateway:
        """The users' side, which must be here."""
        assert self.gateway is not None
        return self.gateway

    def pledges(self) -> list[bytes]:
        """What owners are bound to; the users' side, to nothing."""
        own = [pledge_of(public_key_of(owner.signing_seed), np.sort(owner.held)) for owner in self.owners]
        return own if self.gateway is None else [*own, b""]

    def hold(self, pledges: Mapping[int, bytes]) -> None:
        """Believe no other deed, and write to nobody but the one party that has pledged nothing."""
        free = [number for number, pledge in pledges.items() if not pledge]
        if len(free) != 1:
            raise PublicError(f"{len(free)} parties say that they are the users' side; let one be it")
        for owner in self.owners:
            owner.users_side = free[0]
        if self.gateway is not None:
            self.gateway.book.pledged = {number: pledge for number, pledge in pledges.items() if pledge}

    def _pack_entries(self) -> NDArray[np.void]:
        """The interactions of all owners, as records."""
        parts = [owner.blocks.kept() for owner in self.owners]
        record: list[tuple[str, Any]] = [("owner", np.int32)]
        empty: tuple[NDArray[Any], ...] = Entries.room_for(0)
        record += [(name, column.dtype) for name, column in zip(_ENTRIES, empty, strict=True)]
        records = np.empty(sum(len(part.users) for part in parts), record)
        records["owner"] = np.repeat(np.arange(len(parts)), [len(part.users) for part in parts])
        for place, name in enumerate(_ENTRIES):
            records[name] = np.concatenate([empty[place], *(part[place] for part in parts)])
        return records

    def _unpack_entries(self, records: NDArray[np.void]) -> None:
        for place, owner in enumerate(self.owners):
            of_owner = records[records["owner"] == place]
            users = of_owner["users"]
            own = Entries(*(of_owner[name] for name in _ENTRIES))
            owner.blocks = Blocks.restored(own, 1 + int(users.max(initial=-1)), owner.blocks.reading)
            owner.groups = None

    def _pack_owner_states(self) -> NDArray[np.int64]:
        """Clock, newest number and counts of each owner."""
        rows = [np.concatenate(_state_of(owner)) for owner in self.owners]
        return np.array(rows, np.int64).reshape(len(rows), 3 + 2 * len(COUNTS))

    def _unpack_owner_states(self, states: NDArray[np.int64]) -> None:
        for owner, row in zip(self.owners, states, strict=True):
            parts = _state_of(owner)
            for part, values in zip(
                parts, np.split(row, np.cumsum([len(part) for part in parts])[:-1]), strict=True
            ):
                part[:] = values

    def _pack_gateway(self) -> NDArray[np.int64]:
        """Clock of the users' side, and what it sent to each owner: now, and as the window began."""
        if self.gateway is None:
            return np.empty(0, np.int64)
        return np.concatenate([self.gateway.clock, self.gateway.sent, self.gateway.firsts])

    def _unpack_gateway(self, state: NDArray[np.int64]) -> None:
        if self.gateway is not None:
            self.gateway.clock, (self.gateway.sent, self.gateway.firsts) = state[:2], np.split(state[2:], 2)

    def _pack_table(self) -> NDArray[np.int64]:
        """The table that the users' side works with (number of items, starts, owners), and its book of deeds."""
        if self.gateway is None:
            return np.empty(0, np.int64)
        starts = self.gateway.table_starts
        return np.concatenate([[len(starts)], starts, self.gateway.table_owners, self.gateway.book.packed()])

    def _unpack_table(self, table: NDArray[np.int64]) -> None:
        if self.gateway is not None:
            last = 1 + int(table[0])
            end = last + int(table[last - 1])
            self.gateway.table_starts, self.gateway.table_owners = table[1:last], table[last:end].astype(np.int32)
            book = self.gateway.book
            self.gateway.book = replace(Book.unpacked(table[end:]), agreed=book.agreed, pledged=book.pledged)

    entries = packed(_pack_entries, _unpack_entries)
    owner_states = packed(_pack_owner_states, _unpack_owner_states)
    gateway_state = packed(_pack_gateway, _unpack_gateway)
    table = packed(_pack_table, _unpack_table)


def _state_of(owner: Owner) -> list[NDArray[np.int64]]:
    return [owner.clock, owner.last, owner.counts, owner.counts_before]
