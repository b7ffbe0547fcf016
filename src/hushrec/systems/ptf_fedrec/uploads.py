"""Scored items that clients showed the server: a round's uploads, and the last one of each client."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError
from hushrec.models.server_model import Pairs
from hushrec.protocol import Numbers, Ragged


class ScoredItems(Protocol):
    """A message with scored items, a slice per client."""

    @property
    def items(self) -> Ragged:
        """Which items."""
        ...

    @property
    def scores(self) -> Ragged:
        """Their scores."""
        ...


@dataclass
class Uploads:
    """The fold that keeps what clients show in a round, after a look at the items.

    Items are sorted. An item that one client lists more often counts more, so there are limits.
    """

    num_items: int
    most_rows: int  # of one client
    has_repeats: bool  # whether a client may list an item more than once
    numbers: list[Numbers] = field(default_factory=list)
    batches: list[ScoredItems] = field(default_factory=list)

    def fork(self) -> "Uploads":
        """An empty one with the same limits."""
        return Uploads(self.num_items, self.most_rows, self.has_repeats)

    def add(self, numbers: Numbers, message: ScoredItems) -> None:
        """Keep one batch, or refuse it and name its sender."""
        is_unknown = message.items.values >= self.num_items
        if is_unknown.any():
            sender = _sender(numbers, message, is_unknown)
            raise HushrecError(f"client {sender} lists an item that is not in the catalogue; leave it out")
        is_again = message.items.not_ascending()
        if is_again.any() and not self.has_repeats:
            sender = _sender(numbers, message, is_again)
            raise HushrecError(f"client {sender} lists items twice or not in ascending order; leave it out")
        if (message.items.lengths > self.most_rows).any():
            sender = int(numbers[message.items.lengths.argmax()])
            raise HushrecError(f"client {sender} lists more than {self.most_rows:,} items; leave it out")
        is_lost = ~np.isfinite(message.scores.values)
        if is_lost.any():
            raise DivergedError(f"a score of client {_sender(numbers, message, is_lost)} is not finite")
        self.numbers.append(numbers)
        self.batches.append(message)

    def merge(self, other: "Uploads") -> None:
        """Keep the other's batches too."""
        self.numbers += other.numbers
        self.batches += other.batches

    def pairs(self) -> Pairs:
        """All that was shown, in the order of the clients."""
        users = [np.repeat(who, one.items.lengths) for who, one in zip(self.numbers, self.batches, strict=True)]
        items = [one.items.values for one in self.batches]
        scores = [one.scores.values for one in self.batches]
        return _by_user(Pairs(np.concatenate(users), np.concatenate(items), np.concatenate(scores)))


def _sender(numbers: Numbers, message: ScoredItems, is_wrong: NDArray[np.bool_]) -> int:
    """Whose row is the first that is wrong."""
    place = int(is_wrong.argmax())
    return int(numbers[np.searchsorted(message.items.starts, place, side="right") - 1])


def _by_user(pairs: Pairs) -> Pairs:
    order = np.argsort(pairs.users, kind="stable")
    return Pairs(pairs.users[order], pairs.items[order], pairs.labels[order])


@dataclass(frozen=True)
class Shown:
    """The last upload of each client: items and scores, one slice each."""

    items: Ragged
    scores: Ragged

    @classmethod
    def nothing(cls, num_clients: int) -> "Shown":
        """The uploads before the first round: none of any client."""
        starts = np.zeros(num_clients + 1, np.int64)
        return cls(Ragged(starts, np.empty(0, np.int32)), Ragged(starts, np.empty(0, np.float32)))

    def pairs(self) -> Pairs:
        """The uploads as weighted edges of a graph."""
        users = np.repeat(np.arange(len(self.items), dtype=np.int32), self.items.lengths)
        return Pairs(users, self.items.values, self.scores.values)

    def updated(self, shown: Pairs, came: Numbers) -> "Shown":
        """The uploads after these clients showed these pairs in place of their last ones."""
        kept = self.pairs()
        is_kept = ~np.isin(kept.users, came)
        pairs = _by_user(
            Pairs(
                np.concatenate([kept.users[is_kept], shown.users]),
                np.concatenate([kept.items[is_kept], shown.items]),
                np.concatenate([kept.labels[is_kept], shown.labels]),
            )
        )
        starts = np.concatenate([[0], np.cumsum(np.bincount(pairs.users, minlength=len(self.items)))])
        return Shown(Ragged(starts, pairs.items), Ragged(starts, pairs.labels))
