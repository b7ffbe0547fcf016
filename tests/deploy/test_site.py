"""A node refuses what is not meant for it, in one line of its log, and is afterwards what it was before."""

import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from federation import (
    Deliver,
    Expected,
    Fate,
    Federation,
    Leg,
    Ordered,
    ServerKilled,
    Wire,
    certificate,
    in_process,
    opened,
    small,
    snapshot,
    some_split,
)

from hushrec.data.holdings.node_files import NodeFiles
from hushrec.deploy.enrolment import NodeSettings, numbers_digest
from hushrec.deploy.identity import KeyCard, key_card
from hushrec.deploy.orders import Assignment, HostEntry, Hosts, Invitation
from hushrec.deploy.site import open_site
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import (
    Contents,
    Kind,
    Mail,
    Packet,
    Refusal,
    about,
    contents_of,
    encode_packet,
)
from hushrec.runtime.wire import WireError, decode, encode

SYSTEM = "fedrec++"
MESSAGES = SYSTEMS[SYSTEM].messages


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


@cache
def undisturbed() -> Expected:
    return in_process(SYSTEM, small(SYSTEM), some_split())


def refused(federation: Federation, name: str, attack: bytes) -> str:
    """Hand a packet to a node's site: refused, one line of log, nothing changed on disk; the reason."""
    kit = federation.folder / name
    files, lines = snapshot(kit / "private"), federation.log(name)
    try:
        reply = opened(federation.site(name).handle(attack))
        assert reply.kind == Kind.REFUSAL
        told = about(reply, Refusal).reason
    except WireError as error:
        told = str(error)
    assert snapshot(kit / "private") == files
    [line] = federation.log(name)[len(lines) :]
    assert line["event"] == "refused"
    assert "\n" not in told
    assert len(told) < 200
    return told


# --- Packets that come in the middle of a run ------------------------------------------------------------------

Attack = Callable[["Moment"], bytes]


class Moment:
    """A packet that is about to be delivered, and all that the victim got before it."""

    def __init__(self, packet: bytes, wire: Wire, leg: Leg) -> None:
        self.packet, self.decoded, self.leg, self.wire = packet, opened(packet), leg, wire
        self.past = [(one, data) for one, data in wire.requests[:-1] if one.node == leg.node]

    def earlier(self, phase: str, rounds_ago: int = 0) -> bytes:
        """The last packet of a phase."""
        wanted = self.leg.round_number - rounds_ago
        held = [
            data
            for leg, data in self.past
            if leg.phase == phase and (not rounds_ago or leg.round_number == wanted)
        ]
        return held[-1]

    def letters(self) -> list[tuple[Mail, Any]]:
        return contents_of(self.decoded)[1]

    def with_letters(self, letters: list[tuple[Mail, Any]], **values: Any) -> bytes:
        contents = msgspec.msgpack.encode(Contents(1, [mail for mail, _ in letters]))
        sections = (self.decoded.sections[0], *(letter for _, letter in letters))
        return self.changed(about=contents, sections=sections, **values)

    def changed(self, data: bytes | None = None, **values: Any) -> bytes:
        packet = self.decoded if data is None else opened(data)
        known = {name: getattr(packet, name) for name in packet.__dataclass_fields__}
        return encode_packet(Packet(**{**known, **values}))

    def with_frame(self, change: Callable[[Any], Any] = lambda message: message, **values: Any) -> bytes:
        """Another request of the same type."""
        frame = decode(self.decoded.sections[0], MESSAGES)
        numbers = values.pop("numbers", frame.numbers)
        made = encode(change(frame.message), values.pop("frame_round", frame.round_number), numbers)
        return self.changed(sections=(made, *self.decoded.sections[1:]), **values)


def with_factors(value: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Any]:
    def change(message: Any) -> Any:
        known = {kind.name: getattr(message, kind.name) for kind in message.kinds()}
        return type(message)(**{**known, "item_factors": value(known["item_factors"].copy())})

    return change


def flipped(data: Any) -> bytes:
    altered = bytearray(data)
    altered[len(altered) // 2] ^= 1
    return bytes(altered)


def mail_of(moment: Moment, **values: Any) -> list[tuple[Mail, Any]]:
    """The letters with another outside on the first."""
    (mail, letter), *others = moment.letters()
    return [(msgspec.structs.replace(mail, **values), letter), *others]


AT_UPLOAD: dict[str, Attack] = {
    "replayed enrolment": lambda now: now.earlier("enrol"),
    "replayed assignment": lambda now: now.earlier("assign"),
    "replayed start": lambda now: now.earlier("start"),
    "replayed ask of the round before": lambda now: now.earlier("ItemFactors", 1),
    "replayed last ask, altered": lambda now: flipped(now.past[-1][1]),
    "another run": lambda now: now.changed(run_id=bytes(16)),
    "an older number": lambda now: now.changed(sequence=now.decoded.sequence - 1),
    "number zero": lambda now: now.changed(sequence=0),
    "an older round": lambda now: now.with_frame(round_number=0, frame_round=0),
    "a reply": lambda now: now.changed(kind=Kind.REPLY),
    "a refusal": lambda now: now.changed(kind=Kind.REFUSAL),
    "an unknown kind": lambda now: now.packet[:3] + b"\x63" + now.packet[4:],
    "another version": lambda now: b"HP\x03" + now.packet[3:],
    "random bytes": lambda now: np.random.default_rng(0).bytes(500),
    "nothing": lambda now: b"",
    "cut": lambda now: now.packet[:-8],
    "contents altered": lambda now: now.changed(about=b"\xc1"),
    "frame altered": lambda now: now.changed(sections=(bytes(now.decoded.sections[0])[:-4],)),
    "frame of another round": lambda now: now.with_frame(frame_round=1),
    "frame for other clients": lambda now: now.with_frame(
        numbers=np.arange(len(decode(now.decoded.sections[0], MESSAGES).numbers), dtype=np.int32)
    ),
    "factors that are not finite": lambda now: now.with_frame(with_factors(lambda array: array * np.nan)),
    "an ask from nowhere": lambda now: now.changed(
        now.earlier("start"), sequence=now.decoded.sequence, about=b"\xc0"
    ),
}
MIDWAY: dict[str, Attack] = {
    "factors of another catalogue": lambda now: now.with_frame(with_factors(lambda array: array[:-1])),
    "too few factors": lambda now: now.with_frame(with_factors(lambda array: array[:, :-1].copy())),
    "a round that was never counted": lambda now: now.with_frame(
        lambda message: type(message)(message.item_factors, message.counted_round + 5, message.denoiser)
    ),
    "a denoiser that is nobody": lambda now: now.with_frame(
        lambda message: type(message)(message.item_factors, message.counted_round, message.denoiser + 1000)
    ),
}
AT_COLLECTION: dict[str, Attack] = {
    "mail altered": lambda now: now.with_letters([(mail, flipped(letter)) for mail, letter in now.letters()]),
    "one letter altered": lambda now: now.with_letters(
        [(now.letters()[0][0], flipped(now.letters()[0][1])), *now.letters()[1:]]
    ),
    "mail twice": lambda now: now.with_letters([*now.letters(), now.letters()[0]]),
    "no mail": lambda now: now.with_letters([]),
    "mail of the round before": lambda now: now.with_letters(
        contents_of(opened(now.earlier("DenoiserFactors", 1)))[1]
    ),
    "mail of the round before among others": lambda now: now.with_letters(
        [*now.letters(), *contents_of(opened(now.earlier("DenoiserFactors", 1)))[1]]
    ),
    "mail for another client": lambda now: now.with_letters(
        mail_of(now, addressee=now.letters()[0][0].addressee + 1)
    ),
    "mail for nobody": lambda now: now.with_letters(mail_of(now, addressee=-1)),
    "mail of another type": lambda now: now.with_letters(mail_of(now, code=12)),
    "mail of another ask": lambda now: now.with_letters(mail_of(now, sequence=3)),
    "mail of another node's clients": lambda now: now.with_letters(
        [
            entry
            for leg, data in now.wire.requests
            if leg.place == now.leg.place and leg.node != now.leg.node
            for entry in contents_of(opened(data))[1]
        ]
    ),
    "mail that is empty": lambda now: now.with_letters([(mail, b"") for mail, _ in now.letters()]),
}


TOLD = {
    "replayed ask of the round before": "replayed or altered",
    "another run": "does not take part",
    "a reply": "only a node sends",
    "cut": "too early",
    "frame for other clients": "not of this node",
    "factors that are not finite": "not finite",
    "mail twice": "came twice",
    "mail altered": "is not signed by",
}


@pytest.mark.parametrize("is_new_process", [False, True], ids=["same-process", "new-process"])
@pytest.mark.parametrize("phase", ["ItemFactors", "DenoiserFactors"])
def test_intruding_packets_have_no_effect(federation: Federation, phase: str, is_new_process: bool) -> None:
    """Neither on the node's disk, nor on the honest packet of round 2 that comes after them, nor on the result."""
    ordered, told = federation.order(SYSTEM), dict[str, str]()
    attacks = {"ItemFactors": AT_UPLOAD, "DenoiserFactors": AT_COLLECTION}[phase]
    last = federation.nodes[-1]  # packets to the others of the call are known when it gets its own

    def mishap(leg: Leg) -> Fate | None:
        return fate_of(leg) if (leg.phase, leg.round_number, leg.node) == (phase, 2, last) and not told else None

    def fate_of(leg: Leg) -> Fate:
        def fate(deliver: Deliver, packet: bytes) -> bytes:
            for name, attack in attacks.items():
                if is_new_process:
                    federation.kill(leg.node)
                told[name] = refused(federation, leg.node, attack(Moment(packet, wire, leg)))
                assert TOLD.get(name, "") in told[name]
            return deliver(packet)

        return fate

    wire = Wire(federation, mishap)
    reports = ordered.finish(wire)
    assert told.keys() == attacks.keys()
    assert [report.status for report in reports] == ["done"]
    ordered.assert_equals(undisturbed())


@pytest.mark.parametrize("what", MIDWAY)
def test_an_ask_that_fails_midway_counts_as_asked(federation: Federation, what: str) -> None:
    """Else one could be tried after the other, and errors read. It ends the run, which a server can do anyway."""
    ordered, last = federation.order(SYSTEM), federation.nodes[-1]

    def fate(deliver: Deliver, packet: bytes) -> bytes:
        moment = Moment(packet, wire, wire.legs[-1])
        assert opened(deliver(MIDWAY[what](moment))).kind == Kind.REFUSAL
        federation.kill(last)
        return deliver(packet)

    def mishap(leg: Leg) -> Fate | None:
        return fate if (leg.phase, leg.round_number, leg.node) == ("ItemFactors", 2, last) else None

    wire = Wire(federation, mishap)
    report = ordered.drive(wire)
    assert "asked again in round 2 with another" in report.lost[last]


def test_a_packet_too_large_is_refused_unread(federation: Federation) -> None:
    federation.settle("node-2", max_packet_bytes=1000)
    try:
        for size in (1001, 5_000_000):
            assert refused(federation, "node-2", bytes(size)) == f"a packet of {size} bytes is larger than 1000"
        report = federation.order(SYSTEM).drive()
        assert report.status == "failed" or list(report.lost) == ["node-2"]
    finally:
        federation.settle("node-2")


def test_the_same_packet_again_gets_the_same_reply(federation: Federation) -> None:
    """Which is no replay: its reply was lost. Sealed mail differs, as each seal does; what is inside does not."""
    seen = []

    def twice(deliver: Deliver, packet: bytes) -> bytes:
        replies = [opened(deliver(packet)) for _ in range(2)]
        federation.kill()
        replies.append(opened(deliver(packet)))
        assert {reply.kind for reply in replies} == {Kind.REPLY}
        if replies[0].sections:
            assert len({bytes(reply.sections[0]) for reply in replies}) == 1
        seen.append(replies[0])
        return encode_packet(replies[-1])

    ordered = federation.order(SYSTEM)
    ordered.finish(Wire(federation, lambda _leg: twice))
    ordered.assert_equals(undisturbed())
    assert len(seen) > 20


# --- Consent ---------------------------------------------------------------------------------------------------


def enrolment(ordered: Ordered, **values: Any) -> bytes:
    """The first packet of a run."""
    wire = Wire(ordered.federation, lambda _leg: _stop)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    packet = opened(wire.requests[0][1])
    invitation = msgspec.structs.replace(about(packet, Invitation), **values)
    known = (packet.kind, packet.run_id, packet.round_number, packet.sequence)
    return encode_packet(Packet(*known, msgspec.msgpack.encode(invitation)))


def _stop(_deliver: Deliver, _packet: bytes) -> bytes:
    raise ServerKilled


CONSENTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "system": ({"systems": ["fedrec"]}, {}, "does not take part in fedrec++; its owner can allow it with --allow"),
    "shared seed": (
        {"accepts_shared_seed": False},
        {},
        "draws from its own secret; order the run with --seeds secret",
    ),
    "required setting": ({"required": {"rho": "3"}}, {}, "takes part only with rho 3"),
    "required truth value": ({"required": {"biases": "false"}}, {}, "takes part only with biases false"),
    "required number that is none": ({"required": {"rho": "two"}}, {}, "takes part only with rho two"),
    "required padding": ({"required": {"padding": "powers"}}, {}, "takes part only with padding powers"),
    "missing setting": ({"required": {"epsilon": "1"}}, {}, "takes part only with epsilon 1"),
}


@pytest.mark.parametrize("what", CONSENTS)
def test_a_node_does_only_what_its_owner_agreed_to(federation: Federation, what: str) -> None:
    settings, _, told = CONSENTS[what]
    ordered = federation.order(SYSTEM)
    packet = enrolment(ordered)
    federation.settle("node-2", **settings)
    try:
        assert told in refused(federation, "node-2", packet)
    finally:
        federation.settle("node-2")
    assert not ordered.node_folder("node-2").exists()
    ordered.finish()
    ordered.assert_equals(undisturbed())


def test_systems_that_show_ratings_are_not_allowed_by_default(tmp_path: Path, federation: Federation) -> None:
    usual = NodeSettings(NodeFiles("x"))
    assert usual.systems == sorted(set(SYSTEMS) - {"pmf", "neumf", "ngcf", "lightgcn", "neucf", "saros"})
    assert not usual.accepts_shared_seed
    federation.settle("node-2", systems=usual.systems)
    try:
        assert "does not take part in pmf" in refused(federation, "node-2", enrolment(federation.order("pmf")))
    finally:
        federation.settle("node-2")


@pytest.mark.parametrize(
    "required",
    [{"rho": "2", "resample": "every-round"}, {"rho": "2.0", "biases": "true"}, {"biases": "True"}],
    ids=["texts", "other ways to write it", "as Python writes it"],
)
def test_a_required_setting_that_is_met_is_no_hindrance(federation: Federation, required: dict[str, str]) -> None:
    federation.settle("node-2", required=required)
    try:
        assert federation.order(SYSTEM).drive().status == "done"
    finally:
        federation.settle("node-2")


def test_the_same_run_with_other_settings_is_refused(federation: Federation) -> None:
    """Once enrolled, a node is in this run and no other of that id."""
    ordered = federation.order(SYSTEM)
    ordered.drive()
    other = federation.order(SYSTEM)
    for values in ({"config": small(SYSTEM, rho=1)}, {"seed": 1}, {"system": "fedrec", "config": small("fedrec")}):
        packet = opened(enrolment(other, **values))
        same_run = encode_packet(Packet(packet.kind, ordered.run_id, 0, 9 << 32, packet.about))
        assert "other settings" in refused(federation, "node-2", same_run)


@pytest.mark.parametrize(
    "values",
    [{"system": "nothing"}, {"config": {"rho": "x"}}, {"config": {"zzz": 1}}, {"config": {"num_factors": 0}}],
)
def test_an_impossible_invitation_is_refused(federation: Federation, values: dict[str, Any]) -> None:
    ordered = federation.order(SYSTEM)
    refused(federation, "node-2", enrolment(ordered, **values))
    assert not ordered.node_folder("node-2").exists()


def test_why_a_system_cannot_be_loaded_stays_on_the_node(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the owner's may name its folders and modules."""

    def broken(name: str) -> Any:
        raise HushrecError(f"{name} cannot be loaded: no module at /home/clinic-of-dr-x")

    packet = enrolment(federation.order(SYSTEM))
    monkeypatch.setattr("hushrec.deploy.node_run.system_named", broken)
    assert refused(federation, "node-2", packet) == "cannot; its own log (private/node.log) says why"
    assert "clinic-of-dr-x" in federation.log("node-2")[-1]["reason"]


_NOT_SAID = "cannot; its own log (private/node.log) says why"


def test_an_invitation_with_an_unknown_catalogue_names_no_item(federation: Federation) -> None:
    """How many of its rated items are missing is the node's secret too."""
    ordered = federation.order(SYSTEM)
    catalogue = msgspec.structs.replace(
        about(opened(enrolment(ordered)), Invitation).catalogue, ids=["1", "2"], titles=None
    )
    told = "some of its items are not in the catalogue, the order's --items"
    assert refused(federation, "node-2", enrolment(ordered, catalogue=catalogue)) == _NOT_SAID
    assert federation.log("node-2")[-1]["reason"] == told


def test_an_invitation_with_another_scale_names_no_rating(federation: Federation) -> None:
    ordered = federation.order(SYSTEM)
    told = "its ratings are not all within 2 to 4, the order's --rating-range"
    assert refused(federation, "node-2", enrolment(ordered, rating_range=(2.0, 4.0))) == _NOT_SAID
    assert federation.log("node-2")[-1]["reason"] == told


def test_nothing_is_served_before_its_time(federation: Federation) -> None:
    ordered, done = federation.order(SYSTEM), federation.order(SYSTEM)
    wire = Wire(federation)
    done.drive(wire)
    for _, data in [entry for entry in wire.requests if entry[0].node == "node-2"][1:]:
        packet = opened(data)
        early = Packet(
            packet.kind, ordered.run_id, packet.round_number, packet.sequence, packet.about, packet.sections
        )
        assert "does not take part" in refused(federation, "node-2", encode_packet(early))
    with pytest.raises(ServerKilled):
        ordered.drive(Wire(federation, lambda leg: _stop if leg.phase == "start" else None))
    for place, sequence in ((-1, (1 << 32) + 50), (-3, (1 << 32) + 51)):
        packet = opened([data for leg, data in wire.requests if leg.node == "node-2"][place])
        early = Packet(packet.kind, ordered.run_id, packet.round_number, sequence, packet.about, packet.sections)
        assert "before the start" in refused(federation, "node-2", encode_packet(early))


# --- Who the others are ----------------------------------------------------------------------------------------


def start_packet(ordered: Ordered) -> tuple[Packet, Hosts]:
    """The packet that tells a node of the others, not yet delivered."""
    wire = Wire(ordered.federation, lambda leg: _stop if leg.phase == "start" else None)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    packet = opened(wire.requests[-1][1])
    return packet, about(packet, Hosts)


def changed_host(hosts: Hosts, place: int, **values: Any) -> Hosts:
    entries = list(hosts.hosts)
    card = values.pop("card", entries[place].card)
    entries[place] = msgspec.structs.replace(entries[place], card=card, **values)
    return msgspec.structs.replace(hosts, hosts=entries)


def forged(
    federation: Federation,
    folder: Path,
    name: str,
    run_id: bytes,
    numbers: list[int],
    ours: str,
    hosts: tuple[str, ...] = (),
) -> KeyCard:
    """A card signed by another key under that name."""
    kit = folder / name
    (kit / "startup").mkdir(parents=True, exist_ok=True)
    own, key = certificate(name, ours, hosts)
    (kit / "startup" / "client.crt").write_bytes(own)
    (kit / "startup" / "client.key").write_bytes(key)
    return key_card(kit, run_id, numbers_digest(numbers))


def test_a_foreign_or_altered_card_is_refused(federation: Federation, tmp_path: Path) -> None:
    """The server cannot pass off a key of its own, whatever it puts into the list of hosts."""
    ordered = federation.order(SYSTEM)
    packet, hosts = start_packet(ordered)
    victim, place = "node-3", 0
    entry, other = hosts.hosts[0], hosts.hosts[1]
    foreign = forged(federation, tmp_path / "foreign", entry.card.name, packet.run_id, entry.numbers, "strangers")
    server = forged(federation, tmp_path / "ours", "server", packet.run_id, entry.numbers, "our federation")
    ghost = forged(
        federation, tmp_path / "ghost", "node-9", packet.run_id, entry.numbers, "our federation", ("node-9",)
    )
    earlier = forged(federation, tmp_path / "earlier", "node-9", bytes(16), entry.numbers, "our federation")
    card = entry.card

    def with_card(**values: Any) -> KeyCard:
        return KeyCard(**{name: values.get(name, getattr(card, name)) for name in card.__dataclass_fields__})

    bad = {
        "of a foreign root": {"card": foreign},
        "of the server": {"card": server},
        "of a name that is no node": {"card": ghost},
        "of another run": {"card": earlier},
        "with another key": {"card": with_card(public_key=other.card.public_key)},
        "under another name": {"card": with_card(name="node-2")},
        "of another node": {"card": other.card},
        "for other clients": {"numbers": [*entry.numbers, 1000]},
        "with a spoilt signature": {"card": with_card(signature=flipped(card.signature))},
        "without a certificate": {"card": with_card(certificate=b"")},
    }
    for what, values in bad.items():
        changed = msgspec.msgpack.encode(changed_host(hosts, place, **values))
        attack = Packet(packet.kind, packet.run_id, 0, packet.sequence, changed)
        assert refused(federation, victim, encode_packet(attack)), what
        assert not (ordered.node_folder(victim) / "hosts.msgpack").exists()
    ordered.finish()
    ordered.assert_equals(undisturbed())


BAD_HOSTS: dict[str, tuple[Callable[[list[HostEntry]], dict[str, Any]], str]] = {
    "without the node itself": (lambda entries: {"hosts": entries[:-1]}, "hosts without this node itself"),
    "nobody": (lambda _entries: {"hosts": []}, "hosts without this node itself"),
    "a host twice": (lambda entries: {"hosts": [*entries, entries[0]]}, "one of the hosts twice"),
    "the node itself twice": (lambda entries: {"hosts": [*entries, entries[-1]]}, "one of the hosts twice"),
    "padding below zero": (lambda _entries: {"pad_bytes": -1}, "does not say what a start must say"),
}


@pytest.mark.parametrize("what", BAD_HOSTS)
def test_hosts_that_make_no_sense_are_refused(federation: Federation, what: str) -> None:
    """Nothing else is wrong with what is told, and the refusal names what is."""
    ordered, (changes, words) = federation.order(SYSTEM), BAD_HOSTS[what]
    packet, hosts = start_packet(ordered)
    assert hosts.hosts[-1].card.name == "node-3"
    changed = msgspec.msgpack.encode(msgspec.structs.replace(hosts, **changes(hosts.hosts)))
    attack = encode_packet(Packet(packet.kind, packet.run_id, 0, packet.sequence, changed))
    assert words in refused(federation, "node-3", attack)


@pytest.mark.parametrize("numbers", [[], [0], [0] * 10, [-1], [2**31], list(range(1000, 1010))])
def test_numbers_that_were_not_agreed_on_are_refused(federation: Federation, numbers: list[int]) -> None:
    ordered = federation.order(SYSTEM)
    wire = Wire(federation, lambda leg: _stop if leg.phase == "assign" else None)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    packet = opened(wire.requests[-1][1])
    changed = msgspec.msgpack.encode(Assignment(numbers))
    attack = Packet(packet.kind, packet.run_id, 0, packet.sequence, changed)
    refused(federation, wire.requests[-1][0].node, encode_packet(attack))
    ordered.finish()
    ordered.assert_equals(undisturbed())


# --- What a node keeps and says --------------------------------------------------------------------------------


def test_files_of_a_node_are_its_users_alone(federation: Federation) -> None:
    """All that is private lies in a folder that nobody else can enter; what is secret is closed itself, too."""
    ordered = federation.order(SYSTEM, shares_seed=False)
    ordered.drive()
    for name in federation.nodes:
        private = federation.folder / name / "private"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        secrets = {"mail.key", "node.json", "node.log", "secret-seed", "state.npz", "train.npz", "numbers.npz"}
        found = {path.name: path for path in private.rglob("*") if path.is_file()}
        assert secrets <= set(found)
        for file in secrets:
            assert stat.S_IMODE(found[file].stat().st_mode) == 0o600, file


def test_everything_private_is_closed_even_without_its_folder(federation: Federation) -> None:
    ordered = federation.order(SYSTEM)
    ordered.drive()
    for path in ordered.node_folder("node-1").parent.rglob("*"):
        assert not path.stat().st_mode & 0o077, path.name


def test_a_log_has_one_line_per_packet(federation: Federation) -> None:
    before = {name: len(federation.log(name)) for name in federation.nodes}
    ordered, wire = federation.order(SYSTEM), Wire(federation)
    ordered.drive(wire)
    for name in federation.nodes:
        lines = federation.log(name)[before[name] :]
        assert len(lines) == len([leg for leg in wire.legs if leg.node == name])
        assert {line["event"] for line in lines} == {"served"}
        assert {line["run"] for line in lines} == {ordered.order.run_id[:8]}


def test_an_unforeseen_error_is_a_refusal_that_tells_nothing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = federation.order(SYSTEM)
    packet = enrolment(ordered)

    def broken(*_about: Any, **_values: Any) -> None:
        raise RuntimeError("user 17 rated item 4 with 5.0")

    monkeypatch.setattr("hushrec.data.holdings.users.read_own", broken)
    assert refused(federation, "node-1", packet) == "cannot; its own log (private/node.log) says why"
    assert "RuntimeError" in federation.log("node-1")[-1]["reason"]


def test_words_of_an_unforeseen_error_are_not_logged(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_an_unforeseen_error_is_a_refusal_that_tells_nothing(federation, monkeypatch)
    assert "user 17" not in federation.log("node-1")[-1]["reason"]


def test_a_node_needs_its_settings(tmp_path: Path, federation: Federation) -> None:
    with pytest.raises(HushrecError, match="has no settings; start the node with: hushrec deploy node"):
        open_site(tmp_path)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "node.json").write_text('{"data": 5}')
    with pytest.raises(HushrecError, match="is damaged"):
        open_site(tmp_path)


# --- Seeds -----------------------------------------------------------------------------------------------------


def test_secret_seeds_learn_and_differ(federation: Federation) -> None:
    """Each node draws from its own secret; the error on withheld ratings falls all the same."""
    metrics = {}
    for num_rounds in (1, 25):
        config = small(
            SYSTEM, num_rounds=num_rounds, rho=1, learning_rate=0.3, decay=1.0, num_factors=3, biases=False
        )
        ordered = federation.order(SYSTEM, config, shares_seed=False)
        assert ordered.drive().status == "done"
        metrics[num_rounds] = msgspec.json.decode((ordered.folder / "run.json").read_bytes())["folds"][0][
            "metrics"
        ]
    assert metrics[25]["RMSE"] < 0.8 * metrics[1]["RMSE"]
    seeds = {(ordered.node_folder(name) / "secret-seed").read_text() for name in federation.nodes}
    assert len(seeds) == 3
    assert all(len(bytes.fromhex(seed)) == 32 for seed in seeds)


def test_with_secret_seeds_two_runs_differ_and_a_restart_does_not(federation: Federation) -> None:
    """Secrets are drawn once per run, before anything depends on them."""
    digests = []
    for _ in range(2):
        ordered, killed = federation.order(SYSTEM, shares_seed=False), set[str]()

        def mishap(leg: Leg, killed: set[str] = killed) -> Fate | None:
            if leg.phase in killed:
                return None
            killed.add(leg.phase)

            def fate(deliver: Deliver, packet: bytes) -> bytes:
                first = deliver(packet)
                federation.kill(leg.node)
                again = deliver(packet)
                one, other = opened(first), opened(again)
                if leg.phase != "ItemFactors":
                    assert list(map(bytes, one.sections)) == list(map(bytes, other.sections))
                elif one.sections:
                    assert bytes(one.sections[0]) == bytes(other.sections[0])
                federation.kill()
                raise ServerKilled

            return fate

        ordered.finish(Wire(federation, mishap), most=12)
        before, rounds = {"enrol", "assign", "start", "agree"}, {"ItemFactors", "DenoiserFactors", "Settle"}
        assert killed == {*before, *rounds, "measure"}
        digests.append(ordered.model_sha256())
    assert digests[0] != digests[1]


def test_a_shared_seed_is_not_a_secret_one(federation: Federation) -> None:
    ordered = federation.order(SYSTEM, shares_seed=False)
    ordered.drive()
    assert ordered.model_sha256() != undisturbed().model_sha256
    assert not np.array_equal(ordered.private()["user_factors"], undisturbed().private["user_factors"])
