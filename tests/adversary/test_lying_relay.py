"""A relay that lies, and nodes that answer garbage: nobody is framed, nothing is lost.

A relay gets letters without their writers' names and passes them on. Whatever it does with them, no other node may
be left out for it: the server bans for what it has seen itself, and names all who may be at fault for the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import (
    Expected,
    Federation,
    Leg,
    ServerKilled,
    Wire,
    in_process,
    losing_from,
    opened,
    small,
    some_split,
)
from deploy.watching import Clock, Engine, driving, supervised
from hushrec.deploy import supervisor
from hushrec.deploy.driver import Report
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.denoising import assign, draw_denoisers
from hushrec.registry import SYSTEMS
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
from hushrec.runtime.wire import decode, encode

NODES = ["node-1", "node-2", "node-3"]
LIAR = "node-2"
CONFIG = small("fedrec++") | {"denoisers": 4}
# Of each denoiser every node has two clients or more: without one letter, a sum has two clients less at least.
OF_TWO = small("fedrec++", participation=1.0) | {"denoisers": 2}
Letters = list[tuple[Mail, Buffer]]
Lie = Callable[[Letters], Letters]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


@cache
def expected(first_round: int, numbers: tuple[int, ...], is_of_two: bool = False) -> Expected:
    losses = losing_from(first_round, np.array(numbers, np.int32))
    return in_process("fedrec++", OF_TWO if is_of_two else CONFIG, some_split(), losses)


def with_letters(reply: bytes, change: Lie) -> bytes:
    """The same reply with other letters."""
    packet = decode_packet(reply)
    frames, letters = contents_of(packet)
    changed = change(list(letters))
    contents = msgspec.msgpack.encode(Contents(len(frames), [mail for mail, _ in changed]))
    known = (packet.kind, packet.run_id, packet.round_number, packet.sequence)
    return encode_packet(Packet(*known, contents, (*frames, *(letter for _, letter in changed))))


def flip(letters: Letters) -> Letters:
    """A byte of the first letter."""
    (mail, letter), *others = letters
    altered = bytearray(letter)
    altered[40] ^= 1
    return [(mail, bytes(altered)), *others]


def misdirect(letters: Letters) -> Letters:
    """The first letter to another client, who is no denoiser and reads none."""
    (mail, letter), *others = letters
    readers = {mail.addressee for mail, _ in letters}
    addressee = next(number for number in range(10) if number not in readers)
    return [(msgspec.structs.replace(mail, addressee=addressee), letter), *others]


def exchange(letters: Letters) -> Letters:
    """Each letter to the reader of another."""
    ordered = sorted(letters, key=lambda letter: letter[0].addressee)
    assert ordered[0][0].addressee != ordered[-1][0].addressee
    return [(mail, ordered[place - 1][1]) for place, (mail, _) in enumerate(ordered)]


PROVEN: dict[str, Lie] = {
    "keeps mail back": lambda letters: letters[1:],
    "sends a letter twice": lambda letters: [letters[0], *letters],
    "sends a letter twice instead of another": lambda letters: [letters[0], letters[0], *letters[2:]],
    "sends a letter to nobody": lambda letters: [
        (msgspec.structs.replace(letters[0][0], addressee=10**6), letters[0][1]),
        *letters[1:],
    ],
    "passes a letter on as another kind": lambda letters: [
        (msgspec.structs.replace(letters[0][0], code=letters[0][0].code ^ 1), letters[0][1]),
        *letters[1:],
    ],
    "passes a letter on as one of another ask": lambda letters: [
        (msgspec.structs.replace(letters[0][0], sequence=1), letters[0][1]),
        *letters[1:],
    ],
}
UNPROVEN: dict[str, Lie] = {
    "flips a byte": flip,
    "sends a letter to who reads none": misdirect,
    "sends letters to each other's readers": exchange,
}


@dataclass
class LyingRelay:
    """What a relay does to the mail of one round and later, so many times."""

    lie: Lie
    from_round: int = 2
    times: int = 10**6
    told: list[Report] = field(default_factory=list)

    def __call__(self, leg: Leg) -> Any:
        if (leg.phase, leg.node) != ("relay", LIAR) or leg.round_number < self.from_round or not self.times:
            return None

        def fate(deliver: Callable[[bytes], bytes], packet: bytes) -> bytes:
            self.times -= 1
            return with_letters(deliver(packet), self.lie)

        return fate


def watched_over(federation: Federation, clock: Clock, mishap: "LyingRelay") -> Any:
    ordered = federation.order("fedrec++", OF_TWO if mishap.lie is misdirect else CONFIG, relay="onion")
    engine = Engine(ordered.folder, clock, driving(federation, mishap))
    watcher, told, watched = supervised(engine, min_nodes=2)
    return ordered, watcher, told, watched


def without(federation: Federation, name: str, first_round: int) -> Expected:
    return expected(first_round, tuple(federation.numbers(name).tolist()))


@pytest.mark.parametrize("what", PROVEN)
def test_a_relay_whose_lie_the_server_sees_is_left_out_alone(
    federation: Federation,
    clock: Clock,
    what: str,
) -> None:
    """And the rest of the run is that of a run without it."""
    ordered, watcher, told, watched = watched_over(federation, clock, LyingRelay(PROVEN[what]))
    watcher.run()
    assert set(watcher.banned) == {LIAR}
    assert all(report.proven == [LIAR] == list(report.lost) for report in watched if report.status == "paused")
    assert told[-1] == f"{LIAR} failed 3 times in one round and is left out from now on"
    ordered.assert_equals(without(federation, LIAR, 2), away=[LIAR])


@pytest.mark.parametrize("what", [*PROVEN, *UNPROVEN])
def test_a_lie_that_is_told_once_changes_nothing(
    federation: Federation,
    clock: Clock,
    what: str,
) -> None:
    lie = (PROVEN | UNPROVEN)[what]
    ordered, watcher, _, watched = watched_over(federation, clock, LyingRelay(lie, times=1))
    watcher.run()
    assert watcher.banned == {}
    assert any(report.status == "paused" for report in watched)
    ordered.assert_equals(expected(99, (), lie is misdirect))


@pytest.mark.parametrize("what", UNPROVEN)
def test_a_relay_cannot_frame_anybody(
    federation: Federation,
    clock: Clock,
    what: str,
) -> None:
    """Again and again: nobody is left out, the run ends, all who may be at fault are named, the liar too."""
    ordered, watcher, told, watched = watched_over(federation, clock, LyingRelay(UNPROVEN[what]))
    with pytest.raises(HushrecError) as caught:
        watcher.run()
    assert watcher.banned == {}
    assert [(report.proven, report.lost) for report in watched if report.proven] == []
    assert not any("left out" in line for line in told)
    line = str(caught.value)
    assert UNPROVEN[what] is misdirect or f"{LIAR} (passed on mail " in line
    assert all(f"{name} (" in line for name in NODES)  # who wrote through it, and who refused
    assert ("refused: letter " in line) == (UNPROVEN[what] is not misdirect)
    assert "\n" not in line
    # Nothing is lost: an honest relay in its place, and the run goes on to the same bits.
    engine = Engine(ordered.folder, clock, driving(federation, lambda _leg: None))
    again, _, _ = supervised(engine, min_nodes=2)
    again.run()
    ordered.assert_equals(expected(99, (), UNPROVEN[what] is misdirect))


def test_of_two_denoisers_each_has_two_clients_of_every_node(federation: Federation) -> None:
    """What makes the outcome of a letter that goes astray certain."""
    denoisers = draw_denoisers(2, 30, Draws(0))
    for round_number in (1, 2, 3):
        dealt = assign(np.arange(30, dtype=np.int32), denoisers, round_number, Draws(0))
        for denoiser in dealt.denoisers:
            own = dealt.ordinary[dealt.denoiser_of == denoiser]
            assert all(np.isin(own, federation.numbers(name)).sum() >= 2 for name in NODES)


def test_a_writer_is_held_to_what_it_signs(federation: Federation) -> None:
    """Without a relay a letter comes from its writer alone: one that it has not signed is its own fault."""
    ordered = federation.order("fedrec++", CONFIG)

    def mishap(leg: Leg) -> Any:
        if (leg.phase, leg.node) != ("ItemFactors", LIAR):
            return None
        return lambda deliver, packet: with_letters(deliver(packet), flip)

    report = ordered.drive(Wire(federation, mishap))
    assert report.status == "paused"
    assert report.proven == [LIAR]
    assert set(report.lost) == {LIAR}


def test_a_reader_cannot_frame_a_writer(federation: Federation, clock: Clock) -> None:
    """It refuses a sound letter again and again: neither is left out."""

    def refuse(deliver: Callable[[bytes], bytes], packet: bytes) -> bytes:
        return encode_packet(decode_packet(packet).refusal(Refusal("letter 1: does not open", letter=0)))

    def mishap(leg: Leg) -> Any:
        return refuse if leg.phase == "DenoiserFactors" and leg.round_number >= 2 else None

    ordered = federation.order("fedrec++", CONFIG)
    engine = Engine(ordered.folder, clock, driving(federation, mishap))
    watcher, _, _ = supervised(engine, min_nodes=1)
    with pytest.raises(HushrecError, match="it may be the fault of"):
        watcher.run()
    assert watcher.banned == {}


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _reply: b"",
    "noise": lambda reply: np.random.default_rng(0).bytes(len(reply)),
    "cut": lambda reply: reply[:-8],
    "nested without end": lambda reply: about_of(
        reply, b"\x82\xa1x" + b"\x91" * 10**5 + b"\xc0\xaanum_frames\x01"
    ),
    "seconds that are none": lambda reply: about_of(reply, b"\x81\xa7seconds\x81\xa1x\xa1y"),
    "a frame for nobody": lambda reply: with_an_empty_frame(reply),
    "the same mail twice": lambda reply: with_letters(reply, lambda letters: [*letters, letters[0]]),
    "mail to nobody": lambda reply: with_letters(
        reply, lambda letters: [(msgspec.structs.replace(mail, addressee=2**40), one) for mail, one in letters]
    ),
    "mail to less than nobody": lambda reply: with_letters(
        reply, lambda letters: [(msgspec.structs.replace(mail, addressee=-5), one) for mail, one in letters]
    ),
}


def about_of(reply: bytes, about: bytes) -> bytes:
    packet = decode_packet(reply)
    return encode_packet(
        Packet(packet.kind, packet.run_id, packet.round_number, packet.sequence, about, packet.sections)
    )


def with_an_empty_frame(reply: bytes) -> bytes:
    """One more frame, of the right type, for no client."""
    packet = decode_packet(reply)
    frames, letters = contents_of(packet)
    frame = decode(bytearray(frames[0]), SYSTEMS["fedrec++"].messages)
    empty = encode(frame.message.part(0, 0), frame.round_number, frame.numbers[:0])
    contents = msgspec.msgpack.encode(Contents(len(frames) + 1, [mail for mail, _ in letters]))
    sections = (*frames, empty, *(letter for _, letter in letters))
    return encode_packet(
        Packet(packet.kind, packet.run_id, packet.round_number, packet.sequence, contents, sections)
    )


@pytest.mark.parametrize("what", GARBAGE)
def test_a_node_that_answers_garbage_is_left_out_alone(
    federation: Federation,
    clock: Clock,
    what: str,
) -> None:
    def mishap(leg: Leg) -> Any:
        if (leg.phase, leg.node) != ("ItemFactors", LIAR) or leg.round_number < 2:
            return None
        return lambda deliver, packet: GARBAGE[what](deliver(packet))

    ordered = federation.order("fedrec++", CONFIG)
    engine = Engine(ordered.folder, clock, driving(federation, mishap))
    watcher, _, watched = supervised(engine, min_nodes=2)
    watcher.run()
    assert set(watcher.banned) == {LIAR}
    assert all(list(report.lost) == [LIAR] == report.proven for report in watched if report.status == "paused")
    ordered.assert_equals(without(federation, LIAR, 2), away=[LIAR])


def test_no_mail_is_left_behind(federation: Federation, tmp_path: Path) -> None:
    """Letters wait in a file without a name."""
    ordered = federation.order("fedrec++", CONFIG)
    ordered.finish()
    names = sorted(path.name for path in ordered.folder.iterdir())
    assert names == [
        "fold-1",
        "hosts.msgpack",
        "items.msgpack",
        "lock",
        "order.json",
        "progress.json",
        "run.json",
        "signatures.msgpack",
    ]


def test_letters_are_not_passed_on_one_by_one(federation: Federation) -> None:
    """Else a server reads off an honest relay who wrote to whom: it knows from whom it has each letter."""
    ordered = federation.order("fedrec++", CONFIG, relay="onion")

    def stopped(_deliver: Any, _packet: bytes) -> bytes:
        raise ServerKilled

    wire = Wire(federation, lambda leg: stopped if leg.phase == "relay" else None)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    given: Letters = []
    for leg, data in wire.replies:
        given += contents_of(opened(data))[1] if leg.phase == "ItemFactors" else []
    sequence = 1000 << 32

    def passed_on(relay: str, letters: Letters) -> Packet:
        nonlocal sequence
        sequence += 1
        contents = msgspec.msgpack.encode(Contents(0, [mail for mail, _ in letters]))
        asked = Packet(Kind.RELAY, ordered.run_id, 1, sequence, contents, tuple(letter for _, letter in letters))
        return opened(federation.site(relay).handle(encode_packet(asked)))

    for relay in NODES:
        first, *others = [entry for entry in given if entry[0].relay == relay]
        assert others
        batch = [first, *others]
        moved = msgspec.structs.replace(first[0], sequence=first[0].sequence + 1)
        for lie, words in (
            ([*batch, first], "to pass on a letter twice"),
            ([first, first], "to pass on a letter twice"),
            ([*batch, (moved, first[1])], "does not open"),
        ):
            reply = passed_on(relay, lie)
            assert reply.kind == Kind.REFUSAL
            assert words in about(reply, Refusal).reason
        federation.kill(relay)
        assert passed_on(relay, batch).kind == Kind.REPLY
        assert passed_on(relay, [*others, first]).kind == Kind.REPLY  # the same, in another order
        for other in ([first], others, others[:1]):
            federation.kill(relay)
            reply = passed_on(relay, other)
            assert reply.kind == Kind.REFUSAL
            assert "letters of one ask in two batches" in about(reply, Refusal).reason
