"""Calls to nodes: packets out, replies in, one at a time; and who is to blame for those that do not come."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from hushrec.errors import DivergedError, HushrecError, MadeUpError, OutOfRangeError
from hushrec.runtime.mailroom import NoRoom
from hushrec.runtime.packets import Buffer, Kind, Packet, Refusal, about, decode_packet, encode_packet
from hushrec.runtime.transport import Requests, Transport
from hushrec.runtime.wire import WireError

LOGGER = logging.getLogger(__name__)

Receive = Callable[[str, Packet], None]


class NodesLost(HushrecError):
    """Nodes that did not answer as they should; the round can begin again, with or without them.

    `proven` are those whose own fault it is beyond doubt: they sent us what no honest node sends. Silence is no
    proof, nor is what one node says about another, or about itself: to refuse an ask may be the only right thing.
    And who sums up mail of others may have been sent a lie.
    """

    def __init__(
        self,
        phase: str,
        round_number: int,
        lost: Mapping[str, str],
        proven: Collection[str] = (),
        refused: Mapping[str, int] | None = None,
        silent: Collection[str] = (),
        declined: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        who = ", ".join(f"{name} ({reason})" for name, reason in sorted(lost.items()))
        super().__init__(f"round {round_number}, {phase}: lost {who}")
        self.lost, self.proven = dict(lost), frozenset(proven)
        self.phase, self.round_number = phase, round_number
        self.silent = frozenset(silent)  # who sent nothing at all
        self.refused = dict(refused or {})  # by node that refused, the place of the letter that is why, or -1
        self.declined = dict(
            declined or {}
        )  # by node that refused, the parties that cannot answer, if that is why


class RefusedForGood(HushrecError):
    """A node says that the run as a whole cannot go on."""


class Refused(HushrecError):
    """A node says why it does not answer.

    `letter` is the place of the letter that it cannot use, or -1; `declined` are parties that cannot answer.
    """

    def __init__(self, reason: str, letter: int, declined: Collection[int] = ()) -> None:
        super().__init__(reason)
        self.letter, self.declined = letter, declined


class Caller:
    """Calls nodes with packets of one run; each call has a number of its own, over all restarts."""

    def __init__(self, transport: Transport, run_id: bytes, timeout_seconds: float, first_sequence: int) -> None:
        self.run_id, self.timeout_seconds = run_id, timeout_seconds
        self._transport, self._sequence = transport, first_sequence

    def next_sequence(self) -> int:
        """The number of the next call."""
        self._sequence += 1
        return self._sequence

    def call(self, phase: str, requests: Mapping[str, Packet], round_number: int) -> dict[str, Packet]:
        """The nodes' replies, all of them, where they are small."""
        replies: dict[str, Packet] = {}
        if requests:
            head = next(iter(requests.values()))
            packets = Requests(requests, lambda name: iter([encode_packet(requests[name])]))
            self.take(phase, head, packets, round_number, replies.__setitem__)
        return replies

    def take(
        self,
        phase: str,
        head: Packet,
        requests: Requests,
        round_number: int,
        receive: Receive,
        has_mail: bool = False,
    ) -> None:
        """Have every reply received, one at a time, as they come; who answers garbage is asked once more.

        `head` is any of the requests, with or without its sections. What `receive` refuses is its sender's loss.
        With `has_mail`, replies follow from mail of others: then numbers that cannot be prove nothing, unless an
        honest party looks at them itself.
        """
        waiting = requests
        for _ in range(2):
            losses = _Losses(dict.fromkeys(waiting, "no reply"))
            delivery = self._transport.call(phase, waiting, round_number, self.timeout_seconds)
            final: dict[str, str] = {}
            for name, data in delivery.arriving():
                try:
                    self._take_one(losses, name, head, data, receive, has_mail)
                except RefusedForGood as error:
                    final[name] = str(error)
                del data
            if final:  # the first by name, so that it does not depend on who was quickest
                name = min(final)
                raise RefusedForGood(f"round {round_number}, {phase}: {name} {final[name]}")
            losses.told(delivery.lost)
            if not losses.lost:
                return
            if not losses.can_be_asked_again:
                break
            waiting = requests.only(losses.lost)
        raise NodesLost(
            phase, round_number, losses.lost, losses.proven, losses.refused, losses.silent, losses.declined
        )

    def _take_one(
        self, losses: "_Losses", name: str, head: Packet, data: Buffer, receive: Receive, has_mail: bool
    ) -> None:
        is_reply = False
        try:
            reply = _checked_reply(head, data)
            is_reply = True
            receive(name, reply)
            losses.answers(name)
        except (RefusedForGood, NoRoom):
            raise
        except Refused as error:
            losses.refuses(name, error)
        except HushrecError as error:
            if is_divergence(error):
                raise
            is_proven = not has_mail or isinstance(error, WireError | MadeUpError)
            losses.spoils(name, str(error), is_proven=is_proven, is_over=is_reply)
        except Exception as error:  # nothing that a node sends may end the run; but it may be a fault of ours
            LOGGER.exception("what %s sent cannot be used", name)
            losses.spoils(
                name, f"sent what cannot be used ({type(error).__name__})", is_proven=False, is_over=True
            )


@dataclass
class _Losses:
    """Who has not answered one call as it should, and why."""

    lost: dict[str, str]
    proven: set[str] = field(default_factory=set)
    refused: dict[str, int] = field(default_factory=dict)
    declined: dict[str, Collection[int]] = field(default_factory=dict)
    _heard: set[str] = field(default_factory=set)
    _again: set[str] = field(default_factory=set)  # who answered at once with something else than a reply

    def answers(self, name: str) -> None:
        self.lost.pop(name, None)

    def refuses(self, name: str, error: Refused) -> None:
        self.lost[name], self.refused[name] = str(error), error.letter
        if error.declined:
            self.declined[name] = error.declined
        self._heard.add(name)
        self._again.add(name)

    def spoils(self, name: str, why: str, is_proven: bool, is_over: bool) -> None:
        self.lost[name] = why
        self._heard.add(name)
        if is_proven:
            self.proven.add(name)
        if not is_over:
            self._again.add(name)

    def told(self, lost: Mapping[str, str]) -> None:
        """What the transport says of those who are still waited for."""
        self.lost |= {name: why for name, why in lost.items() if self.lost.get(name) == "no reply"}

    @property
    def silent(self) -> set[str]:
        return self.lost.keys() - self._heard

    @property
    def can_be_asked_again(self) -> bool:
        return set(self.lost) <= self._again


def _checked_reply(request: Packet, data: Buffer) -> Packet:
    reply = decode_packet(data)
    if not reply.is_reply_to(request):
        raise WireError("answered another request")
    if reply.kind == Kind.REFUSAL:
        refusal = about(reply, Refusal)
        reason = "refused: " + "".join(sign if sign.isprintable() else " " for sign in refusal.reason[:300])
        if refusal.is_final:
            raise RefusedForGood(reason)
        raise Refused(reason, refusal.letter, refusal.declined)
    if reply.kind != Kind.REPLY:
        raise WireError("answered with something that is not a reply")
    return reply


@contextmanager
def blamed(name: str, phase: str, round_number: int) -> Iterator[None]:
    """What is wrong with a node's reply is a loss of that node."""
    try:
        yield
    except HushrecError as error:
        if is_divergence(error):
            raise
        raise NodesLost(phase, round_number, {name: str(error)}, proven=[name]) from None


def is_divergence(error: HushrecError) -> bool:
    """Whether the training itself is at fault; a number that cannot be added up is its sender's own fault."""
    return isinstance(error, DivergedError) and not isinstance(error, OutOfRangeError)
