"""Messages: frozen batches in columns, one slice per party, with what each column holds marked on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hushrec.data.interactions import Numbers as Numbers
from hushrec.errors import HushrecError

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
    ACTIVE_SERVER = "active-server"  # that does not keep to the protocol: in audits alone


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
        """Whether each row is at or below the one before it in its slice, as a repeat is."""
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
    counts_bytes: bool = False  # whether its numbers are bytes that a stand-in lacks, and that count as sent
    names_writer: bool = False  # whether it says which party wrote a slice of mail


def _declare(layout: str, dtype: DTypeLike, num_dims: int, *rest: float | bool | None) -> Any:
    return field(metadata={"kind": (layout, np.dtype(dtype), num_dims, *rest)})


def shared(dtype: DTypeLike, num_dims: int = 1, low: float | None = None, high: float | None = None) -> Any:
    """A field with the same array for every party."""
    return _declare("shared", dtype, num_dims, low, high)


def each(dtype: DTypeLike, low: float | None = None, high: float | None = None) -> Any:
    """A field with one number per party."""
    return _declare("each", dtype, 0, low, high)


def writer_number() -> Any:
    """A field of mail: the number of the party that writes. A node writes in the name of its own parties only."""
    return _declare("each", np.int32, 0, 0, None, False, True)


def missing_bytes(layout: Literal["shared", "each"]) -> Any:
    """A field of a stand-in: how many bytes the real message would have more, for each party."""
    return _declare(layout, np.int64, 0, None, None, True)


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
    is_stand_in: ClassVar[bool] = False  # whether it stands for a message that hides what this one shows
    # Whether a client may be sent it twice in a round with other contents: never, only as often as a round can
    # begin again after a loss, or as often as its handler answers.
    varies: ClassVar[Literal["never", "seldom", "freely"]] = "never"

    @classmethod
    def kinds(cls) -> tuple[FieldKind, ...]:
        """The fields in order."""
        return _kinds(cls)  # type: ignore[arg-type]  # mypy takes a class for its instances here

    def column(self, name: str) -> Ragged:
        """A ragged field by its name, for those who know a message by its columns alone."""
        column = getattr(self, name, None)
        if not isinstance(column, Ragged):
            raise HushrecError(f"{type(self).__name__} has no ragged field {name}; see its kinds()")
        return column

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
                changes[kind.name] = from_ragged(self.column(kind.name))
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
                return self.column(kind.name).lengths
        return np.empty(0, np.int64)

    def missing_bytes(self, num_parties: int) -> int:
        """Bytes that the real message would have beyond this stand-in, for all parties."""
        return int(self.missing_sizes(num_parties).sum())

    def missing_sizes(self, num_parties: int) -> NDArray[np.int64]:
        """The same, of each party."""
        sizes = np.zeros(num_parties, np.int64)
        for kind in self.kinds():
            if kind.counts_bytes:
                sizes += getattr(self, kind.name)
        return sizes

    @property
    def num_rows(self) -> int:
        """How many rows the ragged fields of the batch hold."""
        for kind in self.kinds():
            if kind.layout == "ragged":
                return len(self.column(kind.name).values)
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
