"""What an attack is, and how it is scored: for each victim, beside blind guessing, with an interval.

An attack looks at what its seats saw in a round, together with what it remembers of the rounds before and what the
attacker itself has. It never sees the truth: scoring belongs to the audit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation import bootstrap_interval
from hushrec.protocol import AnySystem, Message, Numbers, Role, Round, Seat, View

Guess = TypeVar("Guess")
Arrays = Mapping[str, NDArray[Any]]
_NO_ARRAYS: Arrays = {}
HARDLY_HIDDEN = 0.99  # a blind guess that is so good knows what there is to know


class Own(NamedTuple):
    """What an attacker has beside the messages that it saw."""

    settings: Mapping[str, Any]  # of the run, as far as the attacker knows them
    holds: Arrays  # of its own data and vectors, those that the attack declares
    generator: np.random.Generator  # for what it draws itself
    each: Mapping[int, Arrays] = {}  # the same, of each of those that collude, by its number
    attributes: Arrays = _NO_ARRAYS  # of half of the users, by name, "" of the others; if the attack asks for it
    num_items: int = 0  # of the catalogue, which all know
    rating_range: tuple[float, float] | None = None  # the ends of the scale, which all know, if there are ratings


def _nothing(_number: int) -> Arrays:
    return {}


def _no_model(_users: Numbers) -> NDArray[np.float32]:
    raise HushrecError("the driving side has no model of its own")


class Truth(NamedTuple):
    """What guesses are scored by; no attack looks at it."""

    train: Interactions
    settings: Mapping[str, Any] = {}
    round_number: int = 1
    holds: Callable[[int], Arrays] = _nothing  # what a party has, by its number
    # The driving side's own scores of all items, a row for each of these users.
    server_scores: Callable[[Numbers], NDArray[np.float32]] = _no_model
    attributes: Arrays = _NO_ARRAYS  # of all users, by name, "" where not known


class Outcome(NamedTuple):
    """How right guesses about each victim are, and how right blind ones would be: sums over so many guesses."""

    victims: NDArray[np.int64]
    right: NDArray[np.float64]
    blind: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def of_marks(cls, victims: NDArray[np.integer], right: NDArray[Any], blind: NDArray[Any]) -> "Outcome":
        """From a mark for each guess: about whom it is, how right it is, how right a blind one would be."""
        found, place = np.unique(victims, return_inverse=True)
        size = len(found)
        return cls(
            found.astype(np.int64),
            np.bincount(place, right, size).astype(np.float64),
            np.bincount(place, blind, size).astype(np.float64),
            np.bincount(place, minlength=size),
        )

    @classmethod
    def of_victims(cls, victims: NDArray[np.int64], right: NDArray[Any], blind: NDArray[Any]) -> "Outcome":
        """From one guess about each victim."""
        return cls(victims, right, blind, np.ones(len(victims), np.int64))

    @property
    def scores(self) -> NDArray[np.float64]:
        """How right the mean guess about each victim is."""
        return self.right / self.counts

    @property
    def chances(self) -> NDArray[np.float64]:
        """How right a blind guess would be."""
        return self.blind / self.counts


class Stage(NamedTuple):
    """What an active server can make its lies of."""

    honest: Round[Any]  # the round as an honest server drives it; asks may be changed on their way
    view: View  # what it saw of the last honest round
    messages: tuple[type[Message], ...]  # that parties of the system know
    turn: int = 0  # which of the rounds that a lie claims it is, from 0


class Lie(NamedTuple):
    """What an active server asks that an honest one would not. Asks go to the parties' own handlers."""

    tell: Callable[[Stage, Own], Round[None]]
    num_rounds: int = 0  # that it claims to begin after the last one, none of which counts; 0: the last one again
    # Items behind the real ones: if any, it is told once, in round 1 of a run with all of them.
    num_invented: int = 0
    is_beyond: bool = False  # whether those rounds come after the last one of the run
    is_guarded: bool = False  # whether nodes have a guard between it and the handlers, as deployed ones have
    is_repeated: bool = False  # whether all its rounds are made as the first of them, so of the same people
    is_one_round: bool = False  # whether these are one round, which is begun again and again
    drops: tuple[str, ...] = ()  # settings that only the server keeps to; this one has their defaults


@dataclass(frozen=True)
class Attack(Generic[Guess]):
    """One attack on what somebody saw, or several who share what they saw.

    `look` gets the guess of the rounds before, what was seen since, and what the attacker itself has. Attacks with
    the same `look` share its guess. With a `lie`, what was seen are the answers to it, after every honest round.
    """

    name: str
    seats: tuple[Seat, ...]  # the first one's own data are at hand
    guesses: str  # what is guessed
    measure: str
    sentence: str  # for people, with {score} and {chance}
    reads: Callable[[type[Message]], bool]  # whether it can use messages of this type
    look: Callable[[Guess | None, View, Own], Guess]
    judge: Callable[[Guess, Truth], Outcome]
    only_last: bool = False  # whether the guess after the last round counts alone, not the mean over rounds
    settings: tuple[str, ...] = ()  # of the run, without which it cannot start
    own: tuple[str, ...] = ()  # names of what it needs of the attacker's own data
    share: float | None = None  # of all parties: so many, drawn at random, collude in its one seat
    victim: Seat | None = None  # whose secrets it is after, if they are of one party: that one does not collude
    repairs: tuple[str, ...] = ()  # switches that end it, as they are typed: `--shares 2`; some systems have them
    asks_attributes: bool = False  # whether it knows who half of the users are
    lie: Lie | None = None  # of an active server
    is_about_people: bool = True  # else it is after a party's model: no person is known better by it

    def __post_init__(self) -> None:
        if not self.seats:
            raise HushrecError(f"the attack {self.name} has no seat; give it one, as in (Seat(Role.SERVER),)")
        if self.share is not None and (len(self.seats) > 1 or self.seats[0].number is not None):
            raise HushrecError(f"the attack {self.name} draws who sits there; give it one seat without a number")
        if self.share is not None and not 0 < self.share <= 1:
            raise HushrecError(f"the attack {self.name} has a share of {self.share:g}; choose one in (0, 1]")
        if (self.lie is not None) != (self.seats[0].role == Role.ACTIVE_SERVER):
            raise HushrecError(f"the attack {self.name} needs both a lie and Seat(Role.ACTIVE_SERVER), or neither")
        if self.own and self.seats[0].number is None and self.share is None:
            raise HushrecError(f"the attack {self.name} needs data of its own; number its first seat")
        try:
            self.sentence.format(score=0.0, chance=0.0)
        except (LookupError, ValueError):
            raise HushrecError(f"the sentence of {self.name} may have {{score}} and {{chance}} only") from None

    @property
    def role(self) -> str:
        """Whose view it takes."""
        return "+".join(seat.role for seat in self.seats)

    def applies_to(self, system: AnySystem) -> bool:
        """Whether it can use what is sent in a system."""
        has_settings = {entry.name for entry in fields(system.config)}.issuperset(self.settings)
        has_own = not self.own or system.result.holds is not None
        return has_settings and has_own and any(self.reads(kind) for kind in system.messages)


def is_sent(message_type: type[Message], sender: Role, receiver: Role, *columns: str) -> bool:
    """Whether it goes from one role to the other, with these columns of rows."""
    layouts = {kind.name: kind.layout for kind in message_type.kinds()}
    has_rows = all(layouts.get(name) == "ragged" for name in columns)
    return message_type.sender == sender and message_type.receiver == receiver and has_rows


@dataclass(frozen=True)
class Finding:
    """A line of the scoreboard; the interval is of the mean over victims, None for fewer than two of them."""

    attack: Attack[Any]
    score: float
    chance: float
    interval: tuple[float, float] | None
    rounds: list[float | None]  # mean score after each round, None if it told of nobody
    num_victims: int = 0  # about how many it tells
    is_of_stand_in: bool = False  # whether it read messages that are encrypted in a real run, and were not here
    refusal: str = ""  # what parties said who refused to answer its lie, if they did

    @property
    def advantage(self) -> float:
        """How far it is from a blind guess towards knowing all: 0 to 1, below zero if a blind guess is better."""
        return (self.score - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0

    @property
    def is_above_chance(self) -> bool:
        """Whether it is better than a blind guess by more than its interval leaves open."""
        low = self.score if self.interval is None else self.interval[0]
        return self.score > self.chance and low > self.chance

    @property
    def is_hardly_hidden(self) -> bool:
        """Whether a blind guess knows nearly all: there is nothing left to attack, as nothing is hidden."""
        return min(self.score, self.chance) >= HARDLY_HIDDEN

    def said(self) -> str:
        """One sentence for people."""
        told = self.attack.sentence.format(score=self.score, chance=self.chance)
        return f"{told} It was refused: {self.refusal}." if self.refusal else told


class _Taken(NamedTuple):
    """What was taken in of some rounds."""

    rounds: list[float | None]
    totals: NDArray[np.float64]  # right, blind, number of guesses; by victim
    fault: str  # why there is no finding, if there is none


class Score:
    """What came of one attack, round after round. An interrupted round is taken in wholly or not."""

    def __init__(self, attack: Attack[Any]) -> None:
        self.attack = attack
        self.is_of_stand_in = False
        self.refusal = ""
        self._taken = _Taken([], np.zeros((3, 0)), "nobody sent anything that it could tell apart")

    @property
    def rounds(self) -> list[float | None]:
        """Mean score after each round, None if it told of nobody."""
        return self._taken.rounds

    @property
    def fault(self) -> str:
        """Why there is no finding, if there is none."""
        return self._taken.fault

    def add(self, outcome: Outcome) -> None:
        """Take in a round."""
        before = self._taken.totals
        size = max(int(outcome.victims.max(initial=-1)) + 1, before.shape[1])
        totals = np.zeros((3, size))
        if not self.attack.only_last:
            totals[:, : before.shape[1]] = before
        totals[:, outcome.victims] += np.stack([outcome.right, outcome.blind, outcome.counts])
        mean = float(outcome.scores.mean()) if len(outcome.victims) else None
        self._taken = self._taken._replace(rounds=[*self.rounds, mean], totals=totals)

    def fail(self, fault: str) -> None:
        """Note why a round told nothing; where the last round counts alone, those before are forgotten."""
        totals = np.zeros((3, 0)) if self.attack.only_last else self._taken.totals
        self._taken = _Taken([*self.rounds, None], totals, fault)

    def finding(self, draws: Draws) -> Finding | None:
        """What came out of all rounds; None if they told of nobody."""
        totals = self._taken.totals
        right, blind, counts = totals[:, totals[2] > 0]
        if not len(counts):
            return None
        scores, interval = right / counts, None
        if len(scores) > 1:
            found = bootstrap_interval(scores, draws.generator(f"audit-{self.attack.name}"))
            interval = (found.low, found.high)
        means = float(scores.mean()), float((blind / counts).mean())
        return Finding(self.attack, *means, interval, self.rounds, len(scores), self.is_of_stand_in, self.refusal)
