"""The runtime over a network: asks go to nodes as packets, replies come back, mail is relayed unread."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import NO_ONE, Answer, AnySystem, Ask, Message, Numbers, Recorded, Tally, Transcript
from hushrec.protocol.padding import padding_of
from hushrec.runtime.packets import (
    Buffer,
    Contents,
    Kind,
    Mail,
    Packet,
    Refusal,
    about,
    contents_of,
    decode_packet,
    encode_packet,
)
from hushrec.runtime.post import check_writer
from hushrec.runtime.rounds import drive_round
from hushrec.runtime.transport import Transport
from hushrec.runtime.wire import Frame, WireError, code_of, decode, encode

Letters = list[tuple[Mail, Buffer]]


class NodesLost(HushrecError):
    """Nodes that did not answer as they should; the round can begin again, with or without them."""

    def __init__(
        self, phase: str, round_number: int, lost: Mapping[str, str], letters: Mapping[str, int] | None = None
    ) -> None:
        who = ", ".join(f"{name} ({reason})" for name, reason in sorted(lost.items()))
        super().__init__(f"round {round_number}, {phase}: lost {who}")
        self.lost = dict(lost)
        self.round_number = round_number
        self.letters = dict(letters or {})  # by node, the place of the letter that it could not use


class RefusedForGood(HushrecError):
    """A node says that the run as a whole cannot go on."""


class LetterRefused(HushrecError):
    """A node says why it does not answer; `letter` is the place of the letter that it cannot use, or -1."""

    def __init__(self, reason: str, letter: int) -> None:
        super().__init__(reason)
        self.letter = letter


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
        """The nodes' replies, all of them; who answers garbage is asked once more."""
        replies: dict[str, Packet] = {}
        lost: dict[str, str] = {}
        letters: dict[str, int] = {}
        for _ in range(2):
            packets = {name: encode_packet(requests[name]) for name in requests if name not in replies}
            delivery = self._transport.call(phase, packets, round_number, self.timeout_seconds)
            lost = {name: delivery.lost.get(name, "no reply") for name in packets}
            for name, data in delivery.replies.items():
                try:
                    replies[name] = _checked_reply(requests[name], data)
                    del lost[name]
                except RefusedForGood as error:
                    raise RefusedForGood(f"round {round_number}, {phase}: {name} {error}") from None
                except HushrecError as error:
                    lost[name] = str(error)
                    if isinstance(error, LetterRefused) and error.letter >= 0:
                        letters[name] = error.letter
            if not lost or not set(lost) <= set(delivery.replies):
                break
        if lost:
            raise NodesLost(phase, round_number, lost, letters)
        return replies


def _checked_reply(request: Packet, data: bytes) -> Packet:
    reply = decode_packet(data)
    if not reply.is_reply_to(request):
        raise WireError("answered another request")
    if reply.kind == Kind.REFUSAL:
        refusal = about(reply, Refusal)
        reason = "refused: " + "".join(sign if sign.isprintable() else " " for sign in refusal.reason[:300])
        if refusal.is_final:
            raise RefusedForGood(reason)
        raise LetterRefused(reason, refusal.letter)
    if reply.kind != Kind.REPLY:
        raise WireError("answered with something that is not a reply")
    return reply


@contextmanager
def blamed(name: str, phase: str, round_number: int) -> Iterator[None]:
    """What is wrong with a node's reply is a loss of that node."""
    try:
        yield
    except DivergedError:
        raise
    except HushrecError as error:
        raise NodesLost(phase, round_number, {name: str(error)}) from None


class OverNetwork:
    """Drives one run of a system whose other parties are on nodes."""

    def __init__(
        self,
        system: AnySystem,
        config: Any,
        draws: Draws,
        members: Mapping[str, Numbers],  # the clients of each node, ascending
        caller: Caller,
        transcript: Transcript,
        away: Collection[str] = (),  # nodes to go on without
        num_clients: int = 0,  # of the run, if there are more than the nodes have
        signing_keys: Mapping[str, bytes] | None = None,  # of the nodes; None: who wrote a letter is not checked
    ) -> None:
        self._signing_keys = signing_keys
        self.system, self.config = system, system.in_full(config)
        self.draws, self.transcript, self._padding = draws, transcript, padding_of(config)
        self._caller = caller
        self._names = sorted(members)
        self._is_away = np.array([name in away for name in self._names])
        self._is_away = np.append(self._is_away, True)  # those whom no node hosts, at place -1
        hosted = 1 + max(int(numbers[-1]) for numbers in members.values())
        self._host_of = np.full(max(hosted, num_clients), -1, np.int64)
        for place, name in enumerate(self._names):
            self._host_of[members[name]] = place
        self._replies_to = tuple(kind for kind in system.messages if kind not in system.handlers)
        self._letters: dict[int, Letters] = {}  # by code of the type inside
        self._writers: dict[bytes, str] = {}  # of this round's letters, by their first bytes
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of the slowest node of each call, and here

    def run_round(self, state: Any, round_number: int) -> Any:
        """Drive one round of the driving side to its end."""
        self._letters.clear()
        self._writers.clear()
        return drive_round(
            self.system, state, round_number, self.config, self.draws, lambda ask: self._serve(ask, round_number)
        )

    def _serve(self, ask: Ask, round_number: int) -> Answer:
        phase = type(ask.request).__name__
        started = time.perf_counter()
        hosts = self._host_of[ask.to]
        requests: dict[str, Packet] = {}
        asked: dict[str, Numbers] = {}
        sequence = self._caller.next_sequence()
        for place, name in enumerate(self._names):
            places = np.flatnonzero(hosts == place)
            if len(places) and not self._is_away[place]:
                asked[name] = ask.to[places]
                requests[name] = self._request(ask.request.take(places), asked[name], round_number, sequence)
        self.seconds["encode"] += time.perf_counter() - started
        replies = self._call(phase, requests, round_number)
        started = time.perf_counter()
        post = self._take_in(ask, phase, asked, replies, round_number)
        self.seconds["decode"] += time.perf_counter() - started
        self._letters.update({code: self._relayed(letters, round_number) for code, letters in post.items()})
        return Answer(ask.to[self._is_away[hosts]])

    def _take_in(
        self, ask: Ask, phase: str, asked: dict[str, Numbers], replies: dict[str, Packet], round_number: int
    ) -> dict[int, Letters]:
        """Fold the replies, once all of them are known to be sound; returns the mail that came with them."""
        opened = {}
        for name, reply in replies.items():
            with blamed(name, phase, round_number):
                opened[name] = self._open(reply, asked[name], round_number)
                self._check_writer(name, opened[name][1], round_number)
        post: dict[int, Letters] = defaultdict(list)
        for name, (frames, letters) in opened.items():
            for frame in frames:
                with blamed(name, phase, round_number):
                    ask.replies.add(frame.numbers, frame.message)
            for mail, letter in letters:
                post[mail.code].append((mail, letter))
                self._writers[bytes(letter[:32])] = name
        return post

    def _request(self, message: Message, numbers: Numbers, round_number: int, sequence: int) -> Packet:
        """An ask, with the mail that came for those who are asked, of the types that they read now."""
        frame = encode(message, round_number, numbers, self._padding)
        self.transcript.record(Recorded(round_number, numbers, message), len(frame))
        wanted = set(numbers.tolist())
        held = [self._letters.get(code_of(kind), []) for kind in self.system.handlers[type(message)].reads]
        letters = [entry for kind in held for entry in kind if entry[0].addressee in wanted]
        contents = msgspec.msgpack.encode(Contents(1, [mail for mail, _ in letters]))
        sections = (frame, *(letter for _, letter in letters))
        return Packet(Kind.ASK, self._caller.run_id, round_number, sequence, contents, sections)

    def _call(self, phase: str, requests: dict[str, Packet], round_number: int) -> dict[str, Packet]:
        started = time.perf_counter()
        try:
            replies = self._caller.call(phase, requests, round_number)
        except NodesLost as error:
            raise self._with_writers_blamed(error, phase, requests) from None
        elapsed = time.perf_counter() - started
        claims = []
        for name, reply in replies.items():
            with blamed(name, phase, round_number):
                claims.append(_claimed(about(reply, Contents).seconds, elapsed))
        slowest = max(claims, key=_total, default={})
        for what, seconds in slowest.items():
            self.seconds[what] += seconds
        self.seconds["wire"] += elapsed - _total(slowest)
        return replies

    def _with_writers_blamed(self, error: NodesLost, phase: str, requests: dict[str, Packet]) -> NodesLost:
        """Who got a letter that cannot be used is not to blame, if we know who wrote it."""
        lost = dict(error.lost)
        for name, place in error.letters.items():
            carried = requests[name].sections[1:] if requests[name].kind == Kind.ASK else ()
            writer = self._writers.get(bytes(carried[place][:32])) if place < len(carried) else None
            if writer is not None:
                lost[writer] = f"wrote mail that {name} {lost.pop(name)}"
        return NodesLost(phase, error.round_number, lost)

    def _open(self, reply: Packet, asked: Numbers, round_number: int) -> tuple[list[Frame], Letters]:
        """Frames and letters of a reply, checked: it must answer for exactly those who were asked."""
        data, letters = contents_of(reply)
        frames = [decode(part, self._replies_to, padding=self._padding) for part in data]
        if any(frame.round_number != round_number for frame in frames):
            raise WireError("answered for another round")
        if not np.array_equal(np.concatenate([frame.numbers for frame in frames] or [NO_ONE]), asked):
            raise WireError("answered for others than were asked")
        for frame, part in zip(frames, data, strict=True):
            self.transcript.record(Recorded(round_number, frame.numbers, frame.message), len(part))
        codes = {code_of(kind): kind for kind in self.system.inboxes}
        for mail, letter in letters:
            if mail.code not in codes or mail.sequence != reply.sequence:
                raise WireError("sent mail of an unknown type or of another ask")
            if mail.relay and (mail.relay not in self._names or self._is_away[self._names.index(mail.relay)]):
                raise WireError("sent mail through a node that is not there")
            self.transcript.count(round_number, codes[mail.code], Tally(1, 0, len(letter)))
        return frames, letters

    def _check_writer(self, name: str, letters: Letters, round_number: int) -> None:
        """A letter that its sender has not signed is proof against the sender, and reaches nobody."""
        if self._signing_keys is not None:
            for mail, letter in letters:
                check_writer(mail, letter, self._caller.run_id, round_number, name, self._signing_keys[name])

    def _relayed(self, letters: Letters, round_number: int) -> Letters:
        """Letters without their outer layer, if they have one: via the nodes that are to relay them."""
        by_relay: dict[str, Letters] = defaultdict(list)
        for mail, letter in letters:
            by_relay[mail.relay].append((mail, letter))
        direct = by_relay.pop("", [])
        if not by_relay:
            return direct
        sequence = self._caller.next_sequence()
        requests = {}
        for name, held in by_relay.items():
            contents = msgspec.msgpack.encode(Contents(0, [mail for mail, _ in held]))
            sections = tuple(letter for _, letter in held)
            requests[name] = Packet(Kind.RELAY, self._caller.run_id, round_number, sequence, contents, sections)
        for name, reply in self._call("relay", requests, round_number).items():
            with blamed(name, "relay", round_number):
                _, passed = contents_of(reply)
                if len(passed) != len(by_relay[name]):
                    raise WireError("kept mail back")
            direct += passed
        return direct


def _claimed(seconds: Mapping[str, float], elapsed: float) -> Mapping[str, float]:
    """What a node says about its time, if it can be true."""
    is_known = seconds.keys() <= {"decode", "compute", "encode", "seal"}
    is_possible = is_known and all(0 <= value <= elapsed for value in seconds.values())
    return seconds if is_possible else {}


def _total(seconds: Mapping[str, float]) -> float:
    return sum(seconds.values())
