"""The whole vocabulary: Role, Message, Ask, System, Transcript (and Cohort, a batch of parties).

A system is a protocol between roles. Its driving side is a generator without I/O: it yields `Ask`s and gets
`Answer`s. Every other role is a handler from (cohort, request) to a reply. A runtime drives the generator,
brings requests to handlers and replies to folds, and tells one `Transcript` about every message.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from threading import Lock
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.settings import build

Numbers = NDArray[np.int32]
NO_ONE: Numbers = np.empty(0, np.int32)


class Role(StrEnum):
    """Who takes part."""

    SERVER = "server"
    CLIENT = "client"
    DENOISER = "denoiser"
    PARTNER = "partner"
    USER = "user"
    OWNER = "owner"
    ORCHESTRATOR = "orchestrator"
    OBSERVER = "observer"


# --- Messages --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ragged:
    """One slice of rows per party: party k owns `values[starts[k]:starts[k + 1]]`."""

    starts: NDArray[np.int64]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each party."""
        return self.starts[1:] - self.starts[:-1]

    @classmethod
    def one(cls, values: NDArray[Any]) -> "Ragged":
        """The rows of a single party."""
        return cls(np.array([0, len(values)]), values)

    def take(self, places: NDArray[np.int64]) -> "Ragged":
        """The slices of the parties at these places."""
        return self._cut(self.starts[places], self.lengths[places])

    def at_most(self, rows: NDArray[Any]) -> "Ragged":
        """The first rows of each party, at most so many."""
        return self._cut(self.starts[:-1], np.minimum(self.lengths, rows))

    def _cut(self, firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Ragged":
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(starts, self.values[np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], lengths)])

    def part(self, first: int, last: int) -> "Ragged":
        """The slices of parties first..last-1, without a copy of the rows."""
        starts = self.starts[first : last + 1]
        return Ragged(starts - starts[0], self.values[starts[0] : starts[-1]])

    def not_ascending(self) -> NDArray[np.bool_]:
        """Whether each row is not above the one before it in its slice: as where one repeats."""
        is_wrong = np.zeros(len(self.values), np.bool_)
        is_wrong[1:] = self.values[1:] <= self.values[:-1]
        is_wrong[self.starts[:-1][self.lengths > 0]] = False
        return is_wrong


class FieldKind(NamedTuple):
    """What a message field holds, as encoders and validators need it."""

    name: str
    layout: Literal["shared", "each", "ragged"]
    dtype: np.dtype[Any]
    num_dims: int  # of one party's value
    low: float | None
    high: float | None


def _declare(layout: str, dtype: DTypeLike, num_dims: int, low: float | None, high: float | None) -> Any:
    return field(metadata={"kind": (layout, np.dtype(dtype), num_dims, low, high)})


def shared(dtype: DTypeLike, num_dims: int = 1, low: float | None = None, high: float | None = None) -> Any:
    """A field with the same array for every party."""
    return _declare("shared", dtype, num_dims, low, high)


def each(dtype: DTypeLike, low: float | None = None, high: float | None = None) -> Any:
    """A field with one number per party."""
    return _declare("each", dtype, 0, low, high)


def ragged(dtype: DTypeLike, num_dims: int = 1, low: float | None = None, high: float | None = None) -> Any:
    """A field with a slice of rows per party."""
    return _declare("ragged", dtype, num_dims, low, high)


@dataclass(frozen=True, eq=False)
class Message:
    """A batch of messages of one type, one per party, in columns. A phone's batch has one.

    All ragged fields of a message have the same lengths: they describe the same rows.
    """

    sender: ClassVar[Role]
    receiver: ClassVar[Role]
    has_own_cipher: ClassVar[bool] = False  # whether it is encrypted by itself, whatever it travels in

    @classmethod
    def kinds(cls) -> tuple[FieldKind, ...]:
        """The fields in order."""
        return _kinds(cls)  # type: ignore[arg-type]  # mypy takes a class for its instances here

    def part(self, first: int, last: int) -> Self:
        """The batch for parties first..last-1 only."""
        return self._of_parties(lambda column: column[first:last], lambda slices: slices.part(first, last))

    def take(self, places: NDArray[np.int64]) -> Self:
        """The batch for the parties at these places only."""
        return self._of_parties(lambda column: column[places], lambda slices: slices.take(places))

    def _of_parties(
        self, from_each: Callable[[NDArray[Any]], NDArray[Any]], from_ragged: Callable[[Ragged], Ragged]
    ) -> Self:
        changes: dict[str, Any] = {}
        for kind in self.kinds():
            if kind.layout == "each":
                changes[kind.name] = from_each(getattr(self, kind.name))
            elif kind.layout == "ragged":
                changes[kind.name] = from_ragged(getattr(self, kind.name))
        return replace(self, **changes) if changes else self

    @classmethod
    def join(cls, messages: Sequence[Self]) -> Self:
        """One batch out of several, party after party; shared fields are those of the first."""
        if len(messages) == 1:
            return messages[0]
        changes: dict[str, Any] = {}
        for kind in cls.kinds():
            columns = [getattr(message, kind.name) for message in messages]
            if kind.layout == "each":
                changes[kind.name] = np.concatenate(columns)
            elif kind.layout == "ragged":
                lengths = np.concatenate([slices.lengths for slices in columns])
                values = np.concatenate([slices.values for slices in columns])
                changes[kind.name] = Ragged(np.concatenate([[0], np.cumsum(lengths)]), values)
        return replace(messages[0], **changes)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each party in the ragged fields; empty if there are none."""
        for kind in self.kinds():
            if kind.layout == "ragged":
                slices: Ragged = getattr(self, kind.name)
                return slices.lengths
        return np.empty(0, np.int64)

    def absent_bytes(self, num_parties: int) -> int:
        """Bytes that the real thing would carry beyond this stand-in, for all parties; they count as sent."""
        return 0

    @property
    def num_rows(self) -> int:
        """How many rows the ragged fields of the batch hold."""
        for kind in self.kinds():
            if kind.layout == "ragged":
                return len(getattr(self, kind.name).values)
        return 0


@cache
def _kinds(message_type: Any) -> tuple[FieldKind, ...]:
    return tuple(FieldKind(column.name, *column.metadata["kind"]) for column in fields(message_type))


@dataclass(frozen=True)
class Sealed:
    """Mail between parties: the driving side can route it, only the addressee's side opens it."""

    message: Message
    addressees: Numbers  # one per slice of the message


@dataclass(frozen=True)
class Reply:
    """What a handler answers: a message to the asker and, perhaps, mail to others. Both arrive or neither."""

    message: Message
    mail: tuple[Sealed, ...] = ()


# --- Rounds ----------------------------------------------------------------------------------------------


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
    """The fold that keeps every batch, in the order of the parties."""

    batches: list[tuple[Numbers, Any]] = field(default_factory=list)

    def fork(self) -> "Collect":
        """An empty one."""
        return Collect()

    def add(self, numbers: Numbers, message: Any) -> None:
        """Keep one batch."""
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
Server = TypeVar("Server")
Config = TypeVar("Config")
Round = Generator[Ask, Answer, Server]


@dataclass(frozen=True)
class Cohort(Generic[Private]):
    """1..N parties with their private state. Their numbers do not depend on who else is in the cohort."""

    numbers: Numbers  # who they are in the run
    rows: NDArray[np.int64]  # where they are in the arrays of `private`
    private: Private  # handlers change only the rows of the cohort
    round_number: int
    inboxes: Mapping[type[Message], Fold] = field(default_factory=dict)  # mail of this round, by type


Feedback = Literal["explicit", "implicit", "signed"]
Parties = Literal["users", "partners", "owners", "owner"]
Handler = Callable[[Cohort[Any], Any, Any, Draws], Reply]


@dataclass(frozen=True)
class Paper:
    """Where a system was published."""

    title: str
    authors: str
    venue: str
    year: int


class Scorer(Protocol):
    """A learned model, ready to predict and to rank."""

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs, within the range of ratings if there is one."""
        ...

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items, a row per user, for ranking."""
        ...

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer with these ratings; nothing leaves the machine."""
        ...


@dataclass(frozen=True)
class System(Generic[Config, Server, Private]):
    """One published system: its driving side, its handlers, its papers. See `docs/design.md` to add one."""

    name: str
    title: str
    paper: Paper
    config: type[Config]
    messages: tuple[type[Message], ...]  # in order of sending
    init: Callable[..., Server]  # (num_parties, num_items, config, draws)
    enrol: Callable[..., Private]  # (numbers, rows of users or partners, num_items, config, draws)
    round: Callable[..., Round[Server]]  # (state, round_number, config, draws)
    handlers: Mapping[type[Message], Handler]  # by type of request
    model: Callable[..., Scorer]  # (state, private, config, rating_range)
    reply_bytes: Callable[..., NDArray[np.int64]]  # (private, config): of each party, for the size of cohorts
    inboxes: Mapping[type[Message], Callable[..., Fold]] = field(default_factory=dict)  # (private, config)
    # by type of request, the mail that its handler reads; where a request is not listed: all that there is
    reads: Mapping[type[Message], tuple[type[Message], ...]] = field(default_factory=dict)
    learned: tuple[str, ...] = ()  # the fields of Private that training changes: what a checkpoint holds
    model_arrays: tuple[str, ...] = ()  # the fields of Server that are its result
    private_arrays: tuple[str, ...] = ()  # the fields of Private that are each party's own result
    # of these, what all parties hold alike: the model, where the driving side has it only encrypted
    shared_arrays: tuple[str, ...] = ()
    own_model: Callable[..., Scorer] | None = None  # (private, config, rating_range): what a party can use alone
    server_ranks: bool = False  # whether the driving side alone can rank items for users
    more_models: Callable[..., Mapping[str, Scorer]] | None = None  # (state, private, config): measured as well
    facts: Callable[..., Mapping[str, float]] | None = None  # (private, config): told with a run, beside quality
    hands_over_data: bool = False  # whether the driving side gets the parties' data itself
    measured_every: Callable[..., int] = lambda _config: 1  # (config): after how many rounds quality is measured
    loss: Callable[..., float] | None = None  # (state, rows of owners): measured on training and test rows
    # implicit: ratings are left out, what was interacted with is a positive; signed: ratings say good or bad
    feedback: Feedback = "explicit"
    # partners: organisations with users and items of their own; owners: organisations that hold items, and the
    # users' side as the last party; owner: the same with one organisation that holds all items
    parties: Parties = "users"
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # named sets of settings

    def configure(self, values: Mapping[str, object]) -> Config:
        """A config from names and values; `preset` among them picks what the others default to."""
        own = {name: value for name, value in values.items() if name != "preset"}
        if "preset" not in values:
            return build(self.config, own)
        preset = str(values["preset"])
        if preset not in self.presets:
            hint = f"choose from {', '.join(self.presets)}" if self.presets else "it has none"
            raise HushrecError(f"no preset {preset!r} of {self.name}; {hint}")
        return build(self.config, {**self.presets[preset], **own})


# --- Transcript ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tally:
    """How much of one kind of message was sent."""

    messages: int = 0
    rows: int = 0
    payload_bytes: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.messages + other.messages, self.rows + other.rows, self.payload_bytes + other.payload_bytes
        )


class Recorded(NamedTuple):
    """One batch as it was sent. `addressees` is None where the receiver is the driving side or the asked."""

    round_number: int
    numbers: Numbers  # the parties on the other side of the driving side
    message: Message
    addressees: Numbers | None = None


class Transcript:
    """Every message that was sent: always counted, kept if asked to. Safe for threads."""

    def __init__(self, keep_payloads: bool = False) -> None:
        self.tallies: dict[tuple[int, type[Message]], Tally] = {}
        self.recorded: list[Recorded] = []
        self._keep_payloads = keep_payloads
        self._lock = Lock()

    def record(self, sent: Recorded, payload_bytes: int) -> None:
        """Take note of one batch."""
        num_messages = len(sent.numbers if sent.addressees is None else sent.addressees)
        tally = Tally(num_messages, sent.message.num_rows, payload_bytes)
        self.count(sent.round_number, type(sent.message), tally)
        if self._keep_payloads:
            with self._lock:
                self.recorded.append(sent)

    def count(self, round_number: int, message_type: type[Message], tally: Tally) -> None:
        """Count what was sent without having seen inside: sealed mail."""
        key = (round_number, message_type)
        with self._lock:
            known = self.tallies.get(key)
            self.tallies[key] = tally if known is None else known + tally

    def total(self, *message_types: type[Message]) -> Tally:
        """All that was sent of these types."""
        tallies = (tally for (_, kind), tally in self.tallies.items() if kind in message_types)
        return sum(tallies, Tally())

    def sent_bytes(self) -> dict[str, int]:
        """Bytes by way, `sender->receiver`."""
        ways: dict[str, int] = {}
        for (_, kind), tally in sorted(self.tallies.items(), key=lambda entry: entry[0][1].__name__):
            way = f"{kind.sender}->{kind.receiver}"
            ways[way] = ways.get(way, 0) + tally.payload_bytes
        return ways

    def seen_by(self, role: Role) -> list[Recorded]:
        """All that a role sent or received in the clear, for attacks.

        Mail between others is sealed to it; mail to it does not tell who sent it. The observer stands where a
        message with a cipher of its own travels in nothing else: it gets that, and no other message.
        """
        seen = []
        for sent in self.recorded:
            if role == Role.OBSERVER and type(sent.message).has_own_cipher:
                seen.append(sent)
            elif role == type(sent.message).receiver and sent.addressees is not None:
                seen.append(sent._replace(numbers=NO_ONE))
            elif role in (type(sent.message).sender, type(sent.message).receiver):
                seen.append(sent)
        return seen
