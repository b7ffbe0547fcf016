"""The users' side of the stream: one party that stands for all users' devices, and counts what it sends to whom.

What a request changed is done once: the same window again gives the same letters, and a round can begin again.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, PublicError
from hushrec.limits import MOST_ITEMS
from hushrec.protocol import Numbers, Ragged
from hushrec.systems.drift.cipher import Form, Letters, seal_interactions
from hushrec.systems.drift.deeds import Book
from hushrec.systems.drift.stopwatch import Stopwatch, untimed


@dataclass
class Gateway:
    """The users' side: the events of all users, and what each user knows already.

    DEVIATION: one party stands for the devices of all users, since the order of the stream is theirs together;
    in the report each user sends for itself. Both use the key of the owner, which all users share.
    """

    number: int
    users: Numbers  # of the events, in the order of time
    items: Numbers
    is_positive: NDArray[np.bool_]
    num_users: int
    table_starts: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(1, np.int64)
    )  # of items, see `Owners`
    table_owners: Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # newest number, by owner
    firsts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # `sent` as the window began
    clock: NDArray[np.int64] = field(default_factory=lambda: np.array([0, -1]))  # round, window
    seen: dict[int, set[int]] = field(default_factory=dict)  # items of each user so far, if they are recommended
    shown: dict[int, Numbers] = field(default_factory=dict)  # what was recommended last, by user
    book: Book = field(default_factory=Book)  # who signed for what

    def check_table(self, starts: NDArray[np.int64], owners: Numbers) -> None:
        """Refuse a table that is none, or that has an owner twice for an item, or one that there is not."""
        is_whole = (
            len(starts) > 0 and starts[0] == 0 and starts[-1] == len(owners) and (np.diff(starts) >= 0).all()
        )
        if not is_whole:
            raise PublicError("the table of who holds what is not whole; ask with all of it")
        if len(starts) - 1 > MOST_ITEMS:
            raise PublicError(f"a table of {len(starts) - 1:,} items; {MOST_ITEMS:,} are the most")
        if Ragged(starts, owners).not_ascending().any() or owners.max(initial=-1) >= self.number:
            raise PublicError(
                "the table has an owner twice for an item, or one that there is not; ask with another"
            )

    def begin(self, round_number: int, starts: NDArray[np.int64], owners: Numbers) -> None:
        """Begin a round, or begin it again, with this table of who holds what; numbers of messages go on."""
        num_owners = 1 + int(owners.max(initial=-1))
        if len(self.sent) < num_owners:
            self.sent = np.concatenate([self.sent, np.zeros(num_owners - len(self.sent), np.int64)])
        self.table_starts, self.table_owners = starts.astype(np.int64), owners.astype(np.int32)
        self.firsts = self.sent.copy()
        self.clock[:] = round_number, -1

    def check_round(self, round_number: int) -> None:
        """Refuse what is asked in another round than the one that was begun."""
        if self.clock[0] != round_number:
            raise PublicError(f"round {round_number} was not begun with the users' side; begin it")

    def window(
        self,
        window: int,
        first: int,
        last: int,
        keys: dict[int, bytes],
        form: Form,
        stopwatch: Stopwatch = untimed,
    ) -> dict[int, Letters]:
        """The letters about events first..last-1, by owner; asked again, the same letters again."""
        if window == self.clock[1]:
            self.sent[:] = self.firsts
        elif window < self.clock[1]:
            raise HushrecError(f"window {window} is over; ask for the next one")
        self.clock[1] = window
        self.firsts = self.sent.copy()
        users, items, is_positive = self.users[first:last], self.items[first:last], self.is_positive[first:last]
        is_known = items < len(self.table_starts) - 1
        items = np.where(is_known, items, 0)
        lengths = np.where(is_known, self.table_starts[items + 1] - self.table_starts[items], 0)
        event = np.repeat(np.arange(len(users)), lengths)
        place = np.arange(len(event)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        owner_of = self.table_owners[self.table_starts[items[event]] + place]
        letters = {}
        order = np.argsort(owner_of, kind="stable")
        owners, starts = np.unique(owner_of[order], return_index=True)
        if form.is_encrypted and not keys.keys() >= set(owners.tolist()):
            raise HushrecError("an owner's key has not come; begin the round again")
        for owner, events in zip(owners.tolist(), np.split(event[order], starts)[1:], strict=True):
            with stopwatch("encryption", owner):
                letters[owner] = seal_interactions(
                    keys.get(owner, b""), owner, form, int(self.sent[owner]) + 1,
                    users[events], items[events], is_positive[events],
                )  # fmt: skip
            self.sent[owner] += len(letters[owner].sequences)
        return letters

    def note_seen(self, first: int, last: int) -> None:
        """Remember the items of some events."""
        for user, item in zip(self.users[first:last].tolist(), self.items[first:last].tolist(), strict=True):
            self.seen.setdefault(user, set()).add(item)

    def show(self, users: Numbers, items: NDArray[np.int32], most: int) -> None:
        """Show users the first of these items that they do not know."""
        for user, row in zip(users.tolist(), items, strict=True):
            known = self.seen.get(user, set())
            self.shown[user] = np.array([item for item in row.tolist() if item not in known][:most], np.int32)
