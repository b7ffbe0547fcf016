"""The transcript: every message that was sent. Byte counts, attack views and golden tests come from it alone."""

from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol.messages import Message, Numbers, Role, each, shared


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
    """One batch as it was sent. `addressees` is None where the receiver is the driving side or the asked.

    In a view of mail the number of who wrote a slice is `UNNAMED` where it cannot be known.
    """

    round_number: int
    numbers: Numbers  # the parties on the other side of the driving side
    message: Message
    addressees: Numbers | None = None

    def writers(self) -> Numbers:
        """Who wrote each slice of mail: as many slices of each, one party after the other."""
        num_slices = 0 if self.addressees is None else len(self.addressees)
        return np.repeat(self.numbers, num_slices // max(len(self.numbers), 1))


@dataclass(frozen=True)
class Lengths(Message):
    """Reveals: how long the packets of an ask are. Nobody sends it: it is what an observer sees of all others."""

    sender, receiver = Role.OBSERVER, Role.OBSERVER
    ask: np.int32 = shared(np.int32, 0)  # of the round, from 1 on
    asked: NDArray[np.int64] = each(np.int64)  # bytes to each party; mail that comes with it is left out
    answered: NDArray[np.int64] = each(np.int64)  # bytes from each party, with the letters that it wrote


DRIVING = (Role.SERVER, Role.ORCHESTRATOR, Role.ACTIVE_SERVER)  # roles that carry the others' mail
UNNAMED = -1  # who wrote a slice of mail, to whom it does not say so


class Seat(NamedTuple):
    """Where somebody sits who watches a run: a role, and which party of it; None: all of them."""

    role: Role
    number: int | None = None


class Transcript:
    """Every message that was sent: always counted, kept if asked to. Safe for threads."""

    def __init__(self, keep_payloads: bool = False) -> None:
        self.tallies: dict[tuple[int, type[Message]], Tally] = {}
        self.recorded: list[Recorded] = []
        self.watched: list[Recorded] = []  # lengths, in the order of sending
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

    def watch(self, round_number: int, numbers: Numbers, lengths: Lengths) -> None:
        """Take note of how long the packets of some parties were."""
        if self._keep_payloads:
            with self._lock:
                self.watched.append(Recorded(round_number, numbers, lengths))

    def forget(self) -> None:
        """Keep no message any longer; what was counted stays."""
        with self._lock:
            self.recorded.clear()
            self.watched.clear()

    def count(self, round_number: int, message_type: type[Message], tally: Tally) -> None:
        """Count what was sent without having seen inside: sealed mail."""
        key = (round_number, message_type)
        with self._lock:
            known = self.tallies.get(key)
            self.tallies[key] = tally if known is None else known + tally

    def total(self, *message_types: type[Message]) -> Tally:
        """Totals over these types."""
        tallies = (tally for (_, kind), tally in self.tallies.items() if kind in message_types)
        return sum(tallies, Tally())

    def sent_bytes(self) -> dict[str, int]:
        """Bytes by way, `sender->receiver`."""
        ways: dict[str, int] = {}
        for (_, kind), tally in sorted(self.tallies.items(), key=lambda entry: entry[0][1].__name__):
            way = f"{kind.sender}->{kind.receiver}"
            ways[way] = ways.get(way, 0) + tally.payload_bytes
        return ways

    def seen_by(self, *seats: Seat | Role) -> "View":
        """All that these parties together sent or received in the clear, in the order of sending; for attacks.

        Mail between others is sealed to them. Mail to them does not tell who wrote it, unless they did so
        themselves, or the driving side, which carries it, is among them. An observer stands where a message with a
        cipher of its own travels in nothing else: it gets that, and of all others their lengths. A run with
        messages that stand for others, whose content would have been hidden, has no view. An active server sees
        what a server or an orchestrator does.
        """
        taken = [Seat(seat) if isinstance(seat, Role) else seat for seat in seats]
        if any(seat.role == Role.ACTIVE_SERVER for seat in taken):
            taken += [Seat(Role.SERVER), Seat(Role.ORCHESTRATOR)]
        seen = [part for sent in self.recorded if (part := _seen(sent, taken)) is not None]
        return [*seen, *self.watched] if any(seat.role == Role.OBSERVER for seat in taken) else seen


def _seen(sent: Recorded, seats: list[Seat]) -> Recorded | None:
    """What of a batch these parties see; None: nothing."""
    kind = type(sent.message)
    if kind.is_stand_in:
        raise HushrecError(
            f"{kind.__name__} stands for a message that was not made; run with its settings in full"
        )
    if kind.has_own_cipher and any(seat.role == Role.OBSERVER for seat in seats):
        return sent
    if sent.addressees is None:
        return _exchanged(sent, seats)
    return _mailed(sent, sent.addressees, seats)


def _exchanged(sent: Recorded, seats: list[Seat]) -> Recorded | None:
    """The driving side sees the whole exchange; a party sees its own slice."""
    kind = type(sent.message)
    own = [seat for seat in seats if seat.role in (kind.sender, kind.receiver)]
    if not own:
        return None
    if any(seat.role in DRIVING or seat.number is None for seat in own):
        return sent
    numbers = [seat.number for seat in own if seat.number is not None]
    places = np.flatnonzero(np.isin(sent.numbers, numbers))
    return sent._replace(numbers=sent.numbers[places], message=sent.message.take(places)) if len(places) else None


def _mailed(sent: Recorded, addressees: Numbers, seats: list[Seat]) -> Recorded | None:
    """Mail that these seats wrote or received."""
    kind, writers = type(sent.message), sent.writers()
    is_written, is_received = np.zeros((2, len(addressees)), np.bool_)
    for seat in seats:
        if seat.role == kind.sender:
            is_written |= True if seat.number is None else writers == seat.number
        if seat.role == kind.receiver:
            is_received |= True if seat.number is None else addressees == seat.number
    places = np.flatnonzero(is_written | is_received)
    if not len(places):
        return None
    is_named = is_written | any(seat.role in DRIVING for seat in seats)
    numbers = np.where(is_named, writers, UNNAMED)[places]
    message = sent.message if len(places) == len(addressees) else sent.message.take(places)
    return Recorded(sent.round_number, numbers, message, addressees[places])


View = list[Recorded]
