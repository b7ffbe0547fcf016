"""What an attack is, and how it is scored: per client, beside blind guessing, with an interval.

An attack looks at what a role saw in a round, together with what it remembers of the rounds before; it never sees
the truth. Scoring compares with the items that clients trained on, and belongs to the audit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.evaluation import bootstrap_interval
from hushrec.protocol import AnySystem, Message, Recorded, Role

Guess = TypeVar("Guess")


class Outcome(NamedTuple):
    """How well a guess about each client is, and how well blind guessing would be."""

    clients: NDArray[np.int64]
    scores: NDArray[np.float64]
    chances: NDArray[np.float64]


@dataclass(frozen=True)
class Headline:
    """What an attack is about."""

    name: str
    role: Role
    guesses: str  # what is guessed
    measure: str
    sentence: str  # for people, with {score} and {chance}


@dataclass(frozen=True)
class Attack(Headline, Generic[Guess]):
    """One attack on what a role saw."""

    reads: Callable[[type[Message]], bool]  # whether it can use messages of this type
    look: Callable[
        [Guess | None, Sequence[Recorded]], Guess
    ]  # the guess of the rounds before, what was seen since
    judge: Callable[[Guess, Interactions], Outcome]
    sums_up: bool  # whether a guess is about all rounds so far, not about the last one

    def applies_to(self, system: AnySystem) -> bool:
        """Whether it can use what clients send in a system."""
        return any(self.reads(kind) for kind in system.messages)


@dataclass(frozen=True)
class Finding:
    """A line of the scoreboard; the interval is of the mean over clients, None for fewer than two of them."""

    attack: Headline
    score: float
    chance: float
    interval: tuple[float, float] | None
    rounds: list[float | None]  # mean score after each round, None if it told of no client

    def said(self) -> str:
        """One sentence for people."""
        return self.attack.sentence.format(score=self.score, chance=self.chance)


class Watcher:
    """Has an attack look at round after round, so that no round needs to be kept.

    A client's score is that of the last guess, if guesses sum up, else the mean over the rounds that tell of it.
    """

    def __init__(self, attack: Attack[Any], num_clients: int) -> None:
        self.attack, self.rounds = attack, list[float | None]()
        self._guess: Any = None
        self._totals = np.zeros((3, num_clients))  # of scores, of chances, number of them

    def look(self, seen: Sequence[Recorded], train: Interactions) -> float | None:
        """Let it look at a round; the mean score over the clients that it tells of, if there are any."""
        self._guess = self.attack.look(self._guess, seen)
        clients, scores, chances = self.attack.judge(self._guess, train)
        if self.attack.sums_up:
            self._totals[:] = 0
        self._totals[:, clients] += np.stack([scores, chances, np.ones(len(clients))])
        self.rounds.append(float(scores.mean()) if len(scores) else None)
        return self.rounds[-1]

    def finding(self, draws: Draws) -> Finding | None:
        """What came out of all rounds; None if they told of no client."""
        scores, chances, times = self._totals[:, self._totals[2] > 0]
        if not len(times):
            return None
        return finding_of(self.attack, scores / times, chances / times, self.rounds, draws)


def finding_of(
    attack: Headline,
    scores: NDArray[np.float64],
    chances: NDArray[np.float64],
    rounds: list[float | None],
    draws: Draws,
) -> Finding:
    """A line of the scoreboard from one score per victim."""
    interval = None
    if len(scores) > 1:
        found = bootstrap_interval(scores, draws.generator(f"audit-{attack.name}"))
        interval = (found.low, found.high)
    return Finding(attack, float(scores.mean()), float(chances.mean()), interval, rounds)
