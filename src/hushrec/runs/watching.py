"""Who looks on while a run goes on: bars of progress, trackers, and the file that others follow it by."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hushrec.errors import DivergedError
from hushrec.runs.record import Run
from hushrec.runtime.checkpoint import Progress

Ending = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True)
class FoldProgress:
    """What a watcher is told after every round."""

    fold: int
    num_folds: int
    round_number: int
    num_rounds: int
    metrics: dict[str, float]  # the newest; not all rounds are measured
    sent_bytes: int  # in all rounds so far
    is_measured: bool = True  # whether the metrics are of this round
    round_bytes: Mapping[str, int] = field(default_factory=dict)  # in this round, by type of message
    seconds: float = 0.0  # of the fold so far


Watch = Callable[[FoldProgress], None]


class Follower(Protocol):
    """Who is told of a whole run: what is planned, every round, and what came out; as trackers are."""

    def begin(self, planned: Run) -> None:
        """Before the first round, or the next one of a run that goes on."""
        ...

    def on_round(self, now: FoldProgress) -> None:
        """After every round."""
        ...

    def end(self, done: Run | None, ending: Ending = "done") -> None:
        """After the last round, or where it ended before; None: nothing came out."""
        ...


@contextmanager
def followed(followers: Sequence[Follower], plan: Callable[[], Run]) -> Iterator[Callable[[Run], None]]:
    """Tell those who follow that a run begins and, whatever becomes of it, that it ended.

    What is given to the block tells them what came out; so it is called at the end of it.
    """

    def tell_end(done: Run) -> None:
        for one in followers:
            one.end(done)

    begun: list[Follower] = []
    try:
        for one in followers:
            one.begin(plan())
            begun.append(one)
        yield tell_end
    except BaseException as error:  # what diverges begins anew, if at all; all else can be gone on with
        for one in begun:
            one.end(None, "failed" if isinstance(error, DivergedError) else "interrupted")
        raise


def round_bytes(progress: Progress) -> dict[str, int]:
    """What was sent in the last round, by type of message."""
    number = progress.round_number
    return {
        kind.__name__: tally.payload_bytes
        for (sent_in, kind), tally in progress.transcript.tallies.items()
        if sent_in == number
    }
