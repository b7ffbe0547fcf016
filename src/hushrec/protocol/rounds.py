"""Rounds: what the driving side asks, what becomes of it, and who answers."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.protocol.messages import NO_ONE, Message, Numbers


class Fold(Protocol):
    """What takes in messages as they arrive, in any order and on any thread, so that nothing piles up."""

    def fork(self) -> "Fold":
        """An empty one of the same kind, for another thread."""
        ...

    def add(self, numbers: Numbers, message: Any) -> None:
        """Take in one batch. `numbers`: the senders of a reply, the addressees of mail."""
        ...

    def merge(self, other: Any) -> None:
        """Take in all that a fork took in."""
        ...


@dataclass
class Collect:
    """The fold that keeps every batch, in the order of the parties.

    `check` refuses a batch that its reader could not use, so that its sender is known.
    """

    batches: list[tuple[Numbers, Any]] = field(default_factory=list)
    check: Callable[[Numbers, Any], None] | None = None  # refuses a batch, and names its sender

    def fork(self) -> "Collect":
        """An empty one."""
        return Collect(check=self.check)

    def add(self, numbers: Numbers, message: Any) -> None:
        """Keep one batch."""
        if self.check is not None:
            self.check(numbers, message)
        self.batches.append((numbers, message))

    def merge(self, other: "Collect") -> None:
        """Keep the other's batches too."""
        self.batches = sorted([*self.batches, *other.batches], key=lambda batch: int(batch[0][0]))


@dataclass(frozen=True)
class Ask:
    """A request to parties; their replies go into `replies`. Columns of the request follow `to`."""

    to: Numbers  # ascending
    request: Message
    replies: Fold


@dataclass(frozen=True)
class Answer:
    """What became of an `Ask`. A lost party is data, not an exception: nothing of it was taken in."""

    lost: Numbers = field(default_factory=lambda: NO_ONE)

    def came(self, to: Numbers) -> Numbers:
        """Those of `to` who answered."""
        return to[~np.isin(to, self.lost)] if len(self.lost) else to


Private = TypeVar("Private")
State = TypeVar("State")
Round = Generator[Ask, Answer, State]


@dataclass(frozen=True)
class Cohort(Generic[Private]):
    """1..N parties with their private state. Their numbers do not depend on who else is in the cohort."""

    numbers: Numbers  # who they are in the run
    rows: NDArray[np.int64]  # where they are in the arrays of `private`
    private: Private  # handlers change only the rows of the cohort
    round_number: int
    inboxes: Mapping[type[Message], Fold] = field(default_factory=dict)  # mail of this round, by type


def draw_participants(
    num_parties: int, share: float, round_number: int, draws: Draws, one_of: Numbers = NO_ONE
) -> Numbers:
    """Uniformly drawn participants of a round, ascending, with at least one of `one_of`, if there are any."""
    if share >= 1:
        return np.arange(num_parties, dtype=np.int32)
    generator = draws.generator("participants", round_number)
    least = 2 if len(one_of) else 1  # a denoiser alone would have nobody to hide among
    chosen = generator.choice(num_parties, min(num_parties, max(least, round(share * num_parties))), replace=False)
    if len(one_of) and not np.isin(chosen, one_of).any():
        chosen[0] = generator.choice(one_of)
    return np.sort(chosen).astype(np.int32)
