"""A system: what it is, what a round is, and what comes out of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import Holders
from hushrec.data.interactions import RatingRange as RatingRange
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.feedback import Feedback
from hushrec.evaluation.scoring import Scorer
from hushrec.protocol.messages import Message, Numbers, Reply, Role
from hushrec.protocol.rounds import Cohort, Fold, Round
from hushrec.settings import build

Config = TypeVar("Config")
Rows = TypeVar("Rows")  # what parties hold
Server = TypeVar("Server")  # the driving side's state
Private = TypeVar("Private")  # the other parties' state
# The same, of what only takes them in.
ConfigIn = TypeVar("ConfigIn", contravariant=True)
RowsIn = TypeVar("RowsIn", contravariant=True)
ServerIn = TypeVar("ServerIn", contravariant=True)
PrivateIn = TypeVar("PrivateIn", contravariant=True)


# --- What it is ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """Where a system was published."""

    title: str
    authors: str
    venue: str
    year: int


@dataclass(frozen=True)
class Exposure:
    """What audits read out of such settings, in words that a person can agree to.

    `when` names settings by their value, or by an interval of numbers: `{"shares": "[2, inf)"}`.
    """

    words: str
    when: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spending:
    """What noise promises of a whole run: no more than this is told of one unit of what it protects."""

    epsilon: float
    delta: float
    unit: str  # "user", "rating"
    # Of Gaussian noise, all releases taken as one: standard deviation over sensitivity; 0: other noise.
    multiplier: float = 0.0


@dataclass(frozen=True)
class About:
    """What a system is, for people and for tools."""

    name: str
    title: str
    paper: Paper
    class_name: str  # of its estimator: hushrec.FedRec
    hands_over_data: bool = False  # whether the driving side gets the parties' data itself
    is_online: bool = False  # whether it learns from a stream, so that reports show it epoch by epoch
    # Named sets of settings, the paper's first; `general` is for data of no paper, see `hushrec.runs.suiting`.
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published_on: tuple[str, ...] = ()  # names of data that papers report on with the paper's settings
    small: Mapping[str, Any] = field(default_factory=dict)  # settings that reach every branch in a few rounds
    variants: tuple[Mapping[str, Any], ...] = ()  # settings beside those, with which other messages are sent
    # Settings with which a small table is learned in 60 rounds; None: a baseline that ranks nothing.
    learns_with: Mapping[str, Any] | None = field(default_factory=dict)
    builds_on: tuple[str, ...] = ()  # other modules whose departures from a paper are its own, too
    # Settings against what audits found, each to be measured beside the published ones: a mapping a line.
    repairs: tuple[Mapping[str, Any], ...] = ()
    # Settings with which audits found a curious party at chance, and what it still sees. Nodes accept no others
    # unless their owner says so, in the words of what others expose: the first whose settings fit, so that the
    # last one fits all.
    protected: tuple[Exposure, ...] = ()
    exposes: tuple[Exposure, ...] = ()
    # Settings that give the same model and the same count of bytes with less to compute, if there are some.
    stand_in: Mapping[str, Any] = field(default_factory=dict)
    audited_rounds: int = 5  # after so many, attacks have seen most of what there is to see


# --- What a round is -------------------------------------------------------------------------------------

OpenInbox = Callable[[Private, Config], Fold]


@dataclass(frozen=True)
class Handler(Generic[ConfigIn, PrivateIn]):
    """Who answers a type of request, and the mail that it reads when it does."""

    # The request is of the type that it is listed for.
    answer: Callable[[Cohort[PrivateIn], Any, ConfigIn, Draws], Reply]
    reads: tuple[type[Message], ...] = ()
    # The type of its reply with a config; None: the reply that is sent next after the request.
    replies: Callable[[ConfigIn], type[Message]] | None = None


# --- What comes out of it --------------------------------------------------------------------------------


def _no_facts(_private: Any, _config: Any) -> Mapping[str, float]:
    return {}


def _no_warnings(_config: Any) -> tuple[str, ...]:
    return ()


def _no_noise(_private: Any, _config: Any) -> Spending | None:
    return None


def _as_they_are(config: Any) -> Any:
    return config


def _every_round(_config: Any) -> int:
    return 1


@dataclass(frozen=True)
class Result(Generic[ConfigIn, RowsIn, ServerIn, PrivateIn]):
    """The models of a run, and what else it tells of itself.

    `whole` has what all parties have: a simulation measures it. `server` and `party` are what the driving side and
    a party can use alone; None: nothing.
    """

    whole: Callable[[ServerIn, PrivateIn, ConfigIn, RatingRange], Scorer]
    server: Callable[[ServerIn, ConfigIn, RatingRange], Scorer] | None = None
    party: Callable[[PrivateIn, ConfigIn, RatingRange], Scorer] | None = None
    # Other models that are measured, by name.
    also: Mapping[str, Callable[[ServerIn, PrivateIn, ConfigIn], Scorer]] = field(default_factory=dict)
    # Told at the end of a run.
    facts: Callable[[PrivateIn, ConfigIn], Mapping[str, float]] = _no_facts
    # What noise promises, told with every run: per release, and in total. Over nodes the largest number counts.
    promises: Callable[[PrivateIn, ConfigIn], Mapping[str, float]] = _no_facts
    # What these promises come to in a run of these parties; without parties, the most that such a run may cost.
    # None: no noise bounds what is told.
    spends: Callable[[PrivateIn | None, ConfigIn], Spending | None] = _no_noise
    # What people must know before they trust a run with such settings; printed where nobody overlooks it.
    warnings: Callable[[ConfigIn], tuple[str, ...]] = _no_warnings
    # Measured with every point of a learning curve, on training and on test rows.
    losses: Mapping[str, Callable[[ServerIn, PrivateIn, RowsIn], float]] = field(default_factory=dict)
    # After how many rounds the next point of a learning curve is measured.
    measured_every: Callable[[ConfigIn], int] = _every_round
    # How many users the driving side knows; None: the parties are the users.
    num_users: Callable[[ServerIn], int] | None = None
    # What a party has, by its number: for attackers among the parties, and for scoring attacks.
    holds: Callable[[PrivateIn, ConfigIn, int], Mapping[str, NDArray[Any]]] | None = None


def of_server(model: Callable[[Server, Config, RatingRange], Scorer]) -> Result[Config, Any, Server, Any]:
    """The result of a system whose driving side has the whole model."""

    def whole(state: Server, _private: Any, config: Config, rating_range: RatingRange) -> Scorer:
        return model(state, config, rating_range)

    return Result(whole, server=model)


class ReplayMark(NamedTuple):
    """The last packet that a node served, its digest, and what else the node must not forget of its round."""

    sequence: int
    round_number: int
    digest: bytes
    memory: bytes = b""  # of a guard


NO_MARK = ReplayMark(-1, 0, b"")


class Store(Protocol[PrivateIn]):
    """Where a node keeps the private state of its parties."""

    mark: ReplayMark

    def restore(self, private: PrivateIn) -> None:
        """Put what was kept back where it was."""
        ...

    def save(self, private: PrivateIn, mark: ReplayMark) -> None:
        """Keep what a packet changed, and that it was served: both or neither."""
        ...


# In a run's folder on a node, new or not. None: the kept arrays go to one file, as with most systems.
OpenStore = Callable[[Path, Private, bool], Store[Private] | None]


@dataclass(frozen=True)
class Pledges(Generic[PrivateIn]):
    """What parties are bound to for a whole run: part of the charter that all nodes sign before it."""

    of: Callable[[PrivateIn], list[bytes]]  # of each party here, in the order of its numbers
    hold: Callable[[PrivateIn, Mapping[int, bytes]], None]  # all parties' to theirs, from now on


# --- The system ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System(Generic[Config, Rows, Server, Private]):
    """One published system. See `docs/design.md` to add one."""

    about: About
    config: type[Config]
    feedback: Feedback
    holders: Holders[Rows]
    messages: tuple[type[Message], ...]  # in order of sending
    start: Callable[[int, int, Config, Draws], Server]  # of so many parties and items
    enrol: Callable[[Numbers, Rows, int, Config, Draws], Private]
    round: Callable[[Server, int, Config, Draws], Round[Server]]
    handlers: Mapping[type[Message], Handler[Config, Private]]  # by type of request
    reply_bytes: Callable[[Private, Config], NDArray[np.int64]]  # of each party, for the size of cohorts
    result: Result[Config, Rows, Server, Private]
    inboxes: Mapping[type[Message], OpenInbox[Private, Config]] = field(default_factory=dict)  # by type of mail
    open_store: OpenStore[Private] | None = None
    # Of so many parties, those who may be asked in a role that not all have, ascending; as many whatever is drawn.
    # Nobody else is, whoever is lost. None: the system has no such role, or everybody may be asked in it.
    appoints: Callable[[int, Config, Draws], Mapping[Role, Numbers]] | None = None
    # None: nobody is bound to more than the settings say.
    pledges: Pledges[Private] | None = None
    # The settings with which nothing that is sent is a stand-in: those of audits and deployments.
    in_full: Callable[[Config], Config] = _as_they_are

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.about.name

    def reply_to(self, request: type[Message], config: Config) -> type[Message]:
        """The type that a request is answered with: no other is taken in."""
        handler = self.handlers[request]
        if handler.replies is not None:
            return handler.replies(config)
        later = self.messages[self.messages.index(request) + 1 :]
        return next(kind for kind in later if kind not in self.handlers and kind not in self.inboxes)

    def configure(self, values: Mapping[str, object]) -> Config:
        """A config from names and values; `preset` among them picks what the others default to."""
        own = {name: value for name, value in values.items() if name != "preset"}
        if "preset" not in values:
            return build(self.config, own)
        preset, presets = str(values["preset"]), self.about.presets
        if preset not in presets:
            hint = f"choose from {', '.join(presets)}" if presets else "it has none"
            raise HushrecError(f"no preset {preset!r} of {self.name}; {hint}")
        return build(self.config, {**presets[preset], **own})


AnySystem = System[Any, Any, Any, Any]
