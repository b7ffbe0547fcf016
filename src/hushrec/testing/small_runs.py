"""Small runs of a system: in this process, and on nodes behind packets. All that is sent is kept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushrec.data import Split
from hushrec.draws import Draws
from hushrec.privacy.sealing import new_keys
from hushrec.protocol import AnySystem, Arrays, Message, Numbers, Recorded, Scorer, Transcript, result_arrays
from hushrec.protocol.padding import padding_of
from hushrec.runtime.calling import Caller
from hushrec.runtime.in_process import InProcess, Losses, RuntimeOptions
from hushrec.runtime.node import Node
from hushrec.runtime.over_network import OverNetwork
from hushrec.runtime.packets import decode_packet, encode_packet
from hushrec.runtime.post import Host, Post
from hushrec.runtime.training import Job, prepared
from hushrec.runtime.transport import Delivery
from hushrec.runtime.wire import encode


@dataclass(frozen=True)
class Finished:
    """A run after its last round."""

    system: AnySystem
    config: Any
    draws: Draws
    states: list[Any]  # of the driving side, before the first round and after each
    private: Any
    transcript: Transcript

    @property
    def scorer(self) -> Scorer:
        """The model with what all parties have."""
        return self.system.result.whole(self.states[-1], self.private, self.config, None)

    @property
    def results(self) -> Arrays:
        """The results of all parties together."""
        return result_arrays(self.states[-1]) | result_arrays(self.private)

    def sent(self, message_type: type[Message], round_number: int | None = None) -> list[Recorded]:
        """What was sent of a type, in a round or in all."""
        return [
            one
            for one in self.transcript.recorded
            if type(one.message) is message_type and round_number in (None, one.round_number)
        ]


def settings_for(system: AnySystem, num_rounds: int, own: Mapping[str, Any]) -> dict[str, Any]:
    """Few numbers and few rounds, where the system has such settings, and what it says itself."""
    known = {entry.name for entry in fields(system.config)}
    usual = {"num_factors": 5, "num_rounds": num_rounds}
    return {name: value for name, value in usual.items() if name in known} | dict(own)


def finish(
    system: AnySystem,
    config: Any,
    draws: Draws,
    state: Any,
    private: Any,
    *,
    threads: int = 1,
    cohort_size: int | None = None,
    losses: Losses | None = None,
) -> Finished:
    """All rounds, in this process."""
    transcript = Transcript(keep_payloads=True)
    options = RuntimeOptions(threads=threads, cohort_size=cohort_size, keep_payloads=True, losses=losses)
    runtime = InProcess(system, config, draws, private, transcript, options)
    states = [state]
    try:
        for round_number in range(1, config.num_rounds + 1):
            states.append(runtime.run_round(states[-1], round_number))
    finally:
        runtime.close()
    return Finished(system, config, draws, states, private, transcript)


class Letter(NamedTuple):
    """One party's message in a frame of its own."""

    place: tuple[int, str, int]  # round, type, writer or asked party
    sent: Recorded  # of that party alone
    frame: bytes


def letters(finished: Finished) -> Iterator[Letter]:
    """Every message that was sent, as it would travel."""
    for sent in finished.transcript.recorded:
        names = sent.numbers if sent.addressees is None else sent.addressees
        parties = sent.numbers if sent.addressees is None else sent.writers()
        for place, party in enumerate(parties.tolist()):
            own = slice(place, place + 1)
            one = sent._replace(numbers=parties[own], message=sent.message.part(place, place + 1))
            frame = encode(one.message, sent.round_number, names[own])
            yield Letter((sent.round_number, type(sent.message).__name__, party), one, bytes(frame))


def digest(finished: Finished, *left_out: type[Message]) -> str:
    """SHA-256 of all frames, whatever the order in which they were sent."""
    kept = [letter for letter in letters(finished) if type(letter.sent.message) not in left_out]
    ordered = sorted((letter.place, letter.frame) for letter in kept)
    return sha256(b"".join(frame for _, frame in ordered)).hexdigest()


# --- On nodes ------------------------------------------------------------------------------------------------

_RUN = b"small run 16 by."


class _Presence(NamedTuple):
    """What a node says of its parties."""

    num_clients: int
    numbers: list[int] | None
    names: list[str]


class _Hub:
    """Carries packets to nodes by function calls."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def call(self, _phase: str, requests: Mapping[str, bytes], _round: int, _timeout: float) -> Delivery:
        """The nodes' replies, as bytes."""
        answers = {name: self._nodes[name].answer(decode_packet(data)) for name, data in requests.items()}
        return Delivery({name: encode_packet(answer) for name, answer in answers.items()})


def finish_on_nodes(job: Job, folder: Path) -> tuple[Any, dict[str, Node], Transcript]:
    """The same run with the parties on two nodes, or as many as they need, which read their own files."""
    system, holders, train, draws = job.system, job.system.holders, job.train, Draws(job.seed)
    names = holders.node_names(train, min(2, holders.how_many(train)))
    files = holders.deal(Split(train, train, 1), names, 0, folder)
    catalogue = holders.catalogue(train)
    held = {name: holders.read(files[name], name, catalogue, train.rating_range) for name in names}
    said = {
        name: _Presence(
            holders.num_parties(own.train),
            None if own.numbers is None else own.numbers.tolist(),
            holders.names(own.train),
        )
        for name, own in held.items()
    }
    members: dict[str, Numbers] = {
        name: np.array(numbers, np.int32) for name, numbers in holders.number(said).items()
    }
    keys = {name: new_keys() for name in names}
    hosts = [Host(name, keys[name].public, np.sort(members[name])) for name in names]
    nodes = {}
    for name, own in held.items():
        data = prepared(system, own.train)
        private = system.enrol(members[name], holders.rows(data), data.num_items, job.config, draws)
        post = Post(_RUN, hosts, name, keys[name], lambda below: below - 1, padding=padding_of(job.config))
        nodes[name] = Node(system, job.config, draws, members[name], private, post)
    transcript, state = Transcript(), job.start().state
    places = {name: np.sort(numbers) for name, numbers in members.items()}
    network = OverNetwork(system, job.config, draws, places, Caller(_Hub(nodes), _RUN, 60.0, 0), transcript)
    for round_number in range(1, job.config.num_rounds + 1):
        state = network.run_round(state, round_number)
    return state, nodes, transcript
