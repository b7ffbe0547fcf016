"""The runtime over a network: asks go to nodes as packets, replies come back, mail is relayed unread."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushrec.draws import Draws
from hushrec.errors import FaultyPartyError
from hushrec.protocol import Answer, AnySystem, Ask, Fold, Message, Numbers, Recorded, Tally, Transcript
from hushrec.protocol.padding import padding_of
from hushrec.runtime.calling import Caller, NodesLost, Receive
from hushrec.runtime.mailroom import Held, Mailroom
from hushrec.runtime.packets import Buffer, Contents, Kind, Mail, Packet, about, contents_of, writable
from hushrec.runtime.post import check_writer
from hushrec.runtime.rounds import drive_round
from hushrec.runtime.transport import Requests
from hushrec.runtime.wire import WireError, code_of, decode, encode


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
        mail_folder: Path | None = None,  # where mail waits; None: where temporary files are
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
        self._codes = {code_of(kind): kind for kind in system.inboxes}
        self._mailroom = Mailroom(mail_folder)
        self._letters: dict[int, list[Held]] = {}  # by code of the type inside
        self._through: dict[str, set[str]] = {}  # by relay, who sent letters through it in this round
        self._delivered: set[int] = set()  # places of letters
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of the slowest node of each call, and here

    def run_round(self, state: Any, round_number: int) -> Any:
        """Drive one round of the driving side to its end."""
        try:
            new_state = drive_round(
                self.system,
                state,
                round_number,
                self.config,
                self.draws,
                lambda ask: self._serve(ask, round_number),
            )
            self._check_delivered(round_number)
            return new_state
        except FaultyPartyError as error:
            # Found in what all sent together: whose fault it is, nobody can prove.
            names = {self._names[self._host_of[number]] for number in error.numbers}
            raise NodesLost("replies", round_number, dict.fromkeys(names, str(error))) from None
        finally:
            self._letters.clear()
            self._through.clear()
            self._delivered.clear()
            self._mailroom.empty()

    def _serve(self, ask: Ask, round_number: int) -> Answer:
        """Send an ask; who cannot answer in this round is as one who is lost, and the others are asked again."""
        try:
            return self._asked(ask, round_number)
        except NodesLost as error:
            if not (is_out := np.isin(ask.to, self._declined(error))).any():
                raise
            self._delivered.update(held.place for held in self._mail_for(type(ask.request), ask.to[is_out]))
            left = np.flatnonzero(~is_out)
            others = replace(ask, to=ask.to[left], request=ask.request.take(left))
            lost = self._serve(others, round_number).lost if len(left) else left
            return Answer(np.union1d(lost, ask.to[is_out]).astype(np.int32))

    def _declined(self, error: NodesLost) -> list[int]:
        """Parties that cannot answer, if that is all that is wrong; each node speaks of its own."""
        if error.lost.keys() - error.declined.keys():
            return []
        return [
            number
            for name, numbers in error.declined.items()
            for number in numbers
            if 0 <= number < len(self._host_of) and self._host_of[number] == self._names.index(name)
        ]

    def _asked(self, ask: Ask, round_number: int) -> Answer:
        """Send an ask, and fold the replies as they come.

        Each is folded into a fork of its own, which is merged when the reply is whole and sound; so a bad one
        spoils nothing. The system's own fold gets the sum of all when nobody was lost: two forks beside it.
        """
        phase, hosts = type(ask.request).__name__, self._host_of[ask.to]
        head = Packet(Kind.ASK, self._caller.run_id, round_number, self._caller.next_sequence(), b"")
        is_there = ~self._is_away[: len(self._names)]
        asked = {
            self._names[place]: np.flatnonzero(hosts == place)
            for place in np.unique(hosts[hosts >= 0])
            if is_there[place]
        }
        sent: dict[str, list[Held]] = {}
        post: dict[int, list[Held]] = defaultdict(list)
        gathered: list[Fold] = []

        def pieces_of(name: str) -> Iterator[bytes]:
            message, numbers = ask.request.take(asked[name]), ask.to[asked[name]]
            is_first = name not in sent
            sent[name] = self._mail_for(type(message), numbers)
            return self._mailroom.pieces(self._request(head, message, numbers, sent[name], is_first), sent[name])

        def receive(name: str, reply: Packet) -> None:
            fork = ask.replies.fork()
            letters = self._fold(name, reply, ask.to[asked[name]], fork)
            if gathered:
                gathered[0].merge(fork)
            else:
                gathered.append(fork)
            for held in letters:
                post[held.mail.code].append(held)

        try:
            has_mail = bool(self.system.handlers[type(ask.request)].reads)
            self._call(phase, head, Requests(asked, pieces_of), receive, has_mail)
        except NodesLost as error:
            raise self._with_suspects(error, sent) from None
        for fold in gathered:
            ask.replies.merge(fold)
        self._delivered.update(held.place for letters in sent.values() for held in letters)
        self._letters.update({code: self._relayed(letters, round_number) for code, letters in post.items()})
        return Answer(ask.to[self._is_away[hosts]])

    def _check_delivered(self, round_number: int) -> None:
        """A relay can send a letter to somebody who is not asked to read any: then it is as if it kept it back."""
        lost: dict[str, str] = {}
        for held in (held for letters in self._letters.values() for held in letters):
            is_waited_for = not self._is_away[self._host_of[held.mail.addressee]]
            if held.is_relayed and is_waited_for and held.place not in self._delivered:
                self._suspect(lost, held, "mail to somebody who reads none")
        if lost:
            raise NodesLost("relay", round_number, lost)

    def _mail_for(self, kind: type[Message], numbers: Numbers) -> list[Held]:
        """The mail that came for those who are asked, of the types that they read now."""
        wanted = set(numbers.tolist())
        letters = [self._letters.get(code_of(read), []) for read in self.system.handlers[kind].reads]
        return [held for of_kind in letters for held in of_kind if held.mail.addressee in wanted]

    def _request(
        self, head: Packet, message: Message, numbers: Numbers, letters: Sequence[Held], is_first: bool
    ) -> Packet:
        """An ask, without the mail that it announces; counted when it is made for the first time."""
        started = time.perf_counter()
        frame = encode(message, head.round_number, numbers, self._padding)
        if is_first:
            self.transcript.record(Recorded(head.round_number, numbers, message), len(frame))
        contents = msgspec.msgpack.encode(Contents(1, [held.mail for held in letters]))
        self.seconds["encode"] += time.perf_counter() - started
        return replace(head, about=contents, sections=(frame,))

    def _call(
        self, phase: str, head: Packet, requests: Requests, receive: Receive, has_mail: bool = False
    ) -> None:
        started, here = time.perf_counter(), self.seconds["encode"]
        claims: list[Mapping[str, float]] = []
        received = 0.0

        def timed(name: str, reply: Packet) -> None:
            nonlocal received
            begun = time.perf_counter()
            claims.append(_claimed(about(reply, Contents).seconds, begun - started))
            receive(name, reply)
            received += time.perf_counter() - begun

        self._caller.take(phase, head, requests, head.round_number, timed, has_mail)
        slowest = max(claims, key=_total, default={})
        for what, seconds in slowest.items():
            self.seconds[what] += seconds
        self.seconds["decode"] += received
        here = self.seconds["encode"] - here + received
        self.seconds["wire"] += max(0.0, time.perf_counter() - started - _total(slowest) - here)

    def _with_suspects(self, error: NodesLost, sent: Mapping[str, Sequence[Held]]) -> NodesLost:
        """Beside who refused mail, or sent what does not fit it: who wrote it or passed it on.

        Whose fault it is, nobody can prove.
        """
        lost = dict(error.lost)
        for name in error.lost.keys() - error.proven - error.silent - error.refused.keys():
            for held in sent.get(name, ()):
                self._suspect(lost, held, f"mail to {name}")
        for name, place in error.refused.items():
            if not 0 <= place < len(sent.get(name, ())):
                continue
            self._suspect(lost, sent[name][place], f"mail that {name} {error.lost[name]}")
        told = error.proven, None, error.silent, error.declined
        return NodesLost(error.phase, error.round_number, lost, *told)

    def _suspect(self, lost: dict[str, str], held: Held, what: str) -> None:
        lost.setdefault(held.writer, f"{'passed on' if held.is_relayed else 'wrote'} {what}")
        for writer in self._through[held.writer] if held.is_relayed else ():
            lost.setdefault(writer, f"may have written {what}")

    def _fold(self, name: str, reply: Packet, asked: Numbers, fork: Fold) -> list[Held]:
        """Fold a reply, which must answer for exactly those who were asked; the letters that came with it."""
        data, letters = contents_of(reply)
        num_answered = 0
        for part in data:
            frame = decode(writable(part), self._replies_to, padding=self._padding)
            if frame.round_number != reply.round_number:
                raise WireError("answered for another round")
            first, num_answered = num_answered, num_answered + len(frame.numbers)
            if not len(frame.numbers) or not np.array_equal(frame.numbers, asked[first:num_answered]):
                raise WireError("answered for others than were asked")
            fork.add(frame.numbers, frame.message)
            self.transcript.record(Recorded(reply.round_number, frame.numbers, frame.message), len(part))
        if num_answered != len(asked):
            raise WireError("answered for others than were asked")
        for mail, letter in letters:
            if mail.code not in self._codes or mail.sequence != reply.sequence:
                raise WireError("sent mail of an unknown type or of another ask")
            if mail.relay and (mail.relay not in self._names or self._is_away[self._names.index(mail.relay)]):
                raise WireError("sent mail through a node that is not there")
            if not mail.relay:
                self._check_addressee(mail)
            if self._signing_keys is not None:  # what its sender has not signed is proof against it
                check_writer(mail, letter, reply.run_id, reply.round_number, name, self._signing_keys[name])
            tally = Tally(1, 0, len(letter))
            self.transcript.count(reply.round_number, self._codes[mail.code], tally)
        return self._keep(name, letters)

    def _keep(self, name: str, letters: list[tuple[Mail, Buffer]], is_relayed: bool = False) -> list[Held]:
        held = [self._mailroom.keep(mail, letter, name, is_relayed) for mail, letter in letters]
        if len({one.head for one in held}) < len(held):
            raise WireError("sent the same letter twice")
        return held

    def _check_addressee(self, mail: Mail) -> None:
        if not (0 <= mail.addressee < len(self._host_of) and self._host_of[mail.addressee] >= 0):
            raise WireError("sent mail to a client that no node hosts")

    def _relayed(self, letters: list[Held], round_number: int) -> list[Held]:
        """Letters without their outer layer, if they have one: via the nodes that are to relay them."""
        by_relay: dict[str, list[Held]] = defaultdict(list)
        for held in letters:
            by_relay[held.mail.relay].append(held)
        direct = by_relay.pop("", [])
        if not by_relay:
            return direct
        for name, through in by_relay.items():
            self._through.setdefault(name, set()).update(held.writer for held in through)
        head = Packet(Kind.RELAY, self._caller.run_id, round_number, self._caller.next_sequence(), b"")

        def pieces_of(name: str) -> Iterator[bytes]:
            contents = msgspec.msgpack.encode(Contents(0, [held.mail for held in by_relay[name]]))
            return self._mailroom.pieces(replace(head, about=contents), by_relay[name])

        def receive(name: str, reply: Packet) -> None:
            direct.extend(self._passed_on(name, reply, by_relay[name]))

        try:
            self._call("relay", head, Requests(by_relay, pieces_of), receive)
        except NodesLost as error:
            raise self._with_writers(error, by_relay) from None
        return direct

    def _passed_on(self, name: str, reply: Packet, given: Sequence[Held]) -> list[Held]:
        """What a relay made of the letters that it was given: as many, of the same types and asks, each once."""
        frames, letters = contents_of(reply)
        if frames or len(letters) != len(given):
            raise WireError("kept mail back, or sent more than it was given")
        asks = sorted((mail.code, mail.sequence) for mail, _ in letters)
        if asks != sorted((held.mail.code, held.mail.sequence) for held in given):
            raise WireError("passed on mail as another kind than it was given")
        for mail, _ in letters:
            self._check_addressee(mail)
        return self._keep(name, letters, is_relayed=True)

    def _with_writers(self, error: NodesLost, by_relay: Mapping[str, Sequence[Held]]) -> NodesLost:
        """Beside a relay that cannot pass mail on: who wrote that mail."""
        lost = dict(error.lost)
        for name, place in error.refused.items():
            given = by_relay[name]
            for held in given[place : place + 1] if 0 <= place < len(given) else given:
                lost.setdefault(held.writer, f"wrote mail that {name} {error.lost[name]}")
        return NodesLost(error.phase, error.round_number, lost, error.proven, silent=error.silent)


def _claimed(seconds: Mapping[str, float], elapsed: float) -> Mapping[str, float]:
    """What a node says about its time, if it can be true."""
    is_known = seconds.keys() <= {"decode", "compute", "encode", "seal"}
    is_possible = is_known and all(0 <= value <= elapsed for value in seconds.values())
    return seconds if is_possible else {}


def _total(seconds: Mapping[str, float]) -> float:
    return sum(seconds.values())
