"""A server that lies to nodes as they are: each lie is refused, in one line, and nothing is learned by it.

The nodes are real ones (`Site`), in one process. An honest driver brings them into round 2 of 3; then the server
is ours. It has all that a server has: what it was told, all letters on their way, and keys of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import (
    Deliver,
    Fate,
    Federation,
    Leg,
    Ordered,
    ServerKilled,
    Wire,
    in_process,
    opened,
    quick,
    small,
    snapshot,
    some_split,
)
from hushrec.deploy.charter import Agreement, Signature
from hushrec.deploy.enrolment import numbers_digest
from hushrec.deploy.identity import KeyCard, key_card
from hushrec.deploy.orders import Assignment, HostEntry, Hosts, Invitation
from hushrec.errors import HushrecError
from hushrec.privacy.sealing import Binding, Written, new_keys, write_letter
from hushrec.protocol import Message, Numbers, Ragged
from hushrec.registry import SYSTEMS
from hushrec.runtime.guard import Guard, GuardError, Limits, Slices, check_catalogue
from hushrec.runtime.packets import Contents, Kind, Mail, Packet, Refusal, about, contents_of, encode_packet
from hushrec.runtime.wire import code_of, decode, encode
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, ItemFactors, Noise

SYSTEM = "fedrec++"
CONFIG = small(SYSTEM, biases=False, shrinkage=0.0, participation=1.0)
Letters = list[tuple[Mail, Any]]


def stopped(_deliver: Deliver, _packet: bytes) -> bytes:
    raise ServerKilled


class Server:
    """Our server, which goes on where the honest one was stopped."""

    def __init__(self, federation: Federation, phase: str = "DenoiserFactors", round_number: int = 2) -> None:
        self.federation, self.ordered = federation, federation.order(SYSTEM, CONFIG)

        def mishap(leg: Leg) -> Fate | None:
            return stopped if (leg.phase, leg.round_number) == (phase, round_number) else None

        self.wire = Wire(federation, mishap)
        with pytest.raises(ServerKilled):
            self.ordered.drive(self.wire)
        self._sequence = opened(self.wire.requests[-1][1]).sequence + 1000

    # --- What it knows ---

    @property
    def hosts(self) -> Hosts:
        """What nodes were told."""
        (told, *_) = (data for leg, data in self.wire.requests if leg.phase == "start")
        return about(opened(told), Hosts)

    def node_of(self, number: int) -> str:
        (name,) = (host.card.name for host in self.hosts.hosts if number in host.numbers)
        return name

    def request(self, node: str, phase: str = "ItemFactors", round_number: int = 2) -> tuple[Numbers, Any, int]:
        """Whom an honest request went to, what it said, and its number."""
        held = [data for leg, data in self.wire.requests if (leg.phase, leg.node) == (phase, node)]
        for packet in map(opened, held):
            if packet.round_number == round_number:
                frame = decode(packet.sections[0], SYSTEMS[SYSTEM].messages)
                return frame.numbers, frame.message, packet.sequence
        raise AssertionError(f"nobody asked {node}")

    def letters(self, round_number: int = 2) -> Letters:
        """All that were written in a round."""
        replies = [data for leg, data in self.wire.replies if leg.phase == "ItemFactors"]
        packets = [packet for packet in map(opened, replies) if packet.round_number == round_number]
        return [entry for packet in packets for entry in contents_of(packet)[1]]

    def denoiser(self) -> tuple[int, Letters]:
        """A denoiser to whom all nodes wrote in the round, and what they wrote."""
        by_number: dict[int, Letters] = {}
        for mail, letter in self.letters():
            by_number.setdefault(mail.addressee, []).append((mail, letter))
        number = max(by_number, key=lambda one: len(by_number[one]))
        assert {mail.writer for mail, _ in by_number[number]} == set(self.federation.nodes)
        return number, by_number[number]

    # --- What it does ---

    def send(self, node: str, packet: Packet) -> Packet:
        with quick():
            return opened(self.federation.site(node).handle(encode_packet(packet)))

    def tell(self, node: str, kind: Kind, said: object) -> Packet:
        data = msgspec.msgpack.encode(said)
        return self.send(node, Packet(kind, self.ordered.run_id, 0, self.next(), data))

    def ask(
        self,
        node: str,
        message: Message,
        numbers: list[int],
        letters: Letters | None = None,
        round_number: int = 2,
    ) -> Packet:
        held = letters or []
        contents = msgspec.msgpack.encode(Contents(1, [mail for mail, _ in held]))
        frame = encode(message, round_number, np.array(numbers, np.int32))
        sections = (frame, *(letter for _, letter in held))
        return self.send(
            node, Packet(Kind.ASK, self.ordered.run_id, round_number, self.next(), contents, sections)
        )

    def collect(self, number: int, letters: Letters, round_number: int = 2) -> Packet:
        """Ask a client as a denoiser, with the V of the round."""
        node = self.node_of(number)
        vectors = self.request(self.federation.nodes[0], round_number=round_number)[1].item_factors
        request = DenoiserFactors(vectors, np.array([round_number - 1], np.int32))
        return self.ask(node, request, [number], letters, round_number)

    def next(self) -> int:
        self._sequence += 1
        return self._sequence


def refused(reply: Packet) -> str:
    """What a node says that refuses: a line, and nothing beside it."""
    assert reply.kind == Kind.REFUSAL
    assert reply.sections == ()
    reason = about(reply, Refusal).reason
    assert "\n" not in reason
    assert len(reason) < 200
    return reason


def unmoved(server: Server, node: str, lie: Callable[[], Packet], words: str) -> None:
    """A lie is refused with these words, and changes nothing that the node keeps, and is so after a kill -9."""
    private = server.federation.folder / node / "private"
    before = snapshot(private)
    for _ in range(2):
        assert words in refused(lie())
        assert snapshot(private) == before
        server.federation.kill(node)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


@pytest.fixture
def server(federation: Federation) -> Server:
    return Server(federation)


def assert_undisturbed(ordered: Ordered) -> None:
    """The honest server comes back, and ends with the bits of a run in which nobody lied."""
    ordered.attempt += 1  # its numbers of calls are behind ours
    ordered.finish()
    ordered.assert_equals(in_process(SYSTEM, CONFIG, some_split()))


# --- Letters -----------------------------------------------------------------------------------------------------


def empty_noise(num_clients: int) -> Noise:
    nothing = np.zeros(num_clients + 1, np.int64)
    width = CONFIG["num_factors"]
    return Noise(Ragged(nothing, np.empty(0, np.int32)), Ragged(nothing, np.empty((0, width), np.float32)))


def forged(server: Server, number: int, writer: str = "node-1", round_number: int = 2) -> tuple[Mail, bytes]:
    """A letter of three clients, sealed to its addressee as any, and signed by the server."""
    (host,) = (host for host in server.hosts.hosts if number in host.numbers)
    code, sequence = code_of(Noise), 7
    bound = Binding(server.ordered.run_id, round_number, sequence, code, number)
    frame = encode(empty_noise(3), round_number, np.full(3, number, np.int32))
    keys = new_keys()
    letter = write_letter(frame, host.card.public_key, bound, Written(writer), keys.signing)
    return Mail(number, code, sequence, writer=writer), letter


def test_a_forged_letter_makes_nobody_answer_as_a_denoiser(server: Server) -> None:
    """Not even those who are appointed; before, one ask told all ratings of all clients."""
    appointed = server.hosts.appointed["denoiser"]
    for number in appointed:
        node = server.node_of(number)
        unmoved(server, node, lambda number=number: server.collect(number, [forged(server, number)]), "not signed")
    assert_undisturbed(server.ordered)


@pytest.mark.parametrize("writer", ["server", "node-9", ""])
def test_a_letter_of_who_is_no_host_is_refused(server: Server, writer: str) -> None:
    number, _ = server.denoiser()
    lie = lambda: server.collect(number, [forged(server, number, writer)])  # noqa: E731
    unmoved(server, server.node_of(number), lie, "no host")


def test_a_letter_cannot_be_moved_to_another_addressee_or_round(server: Server) -> None:
    number, letters = server.denoiser()
    (mail, letter), *others = letters
    node = server.node_of(number)
    others_here = [
        one for one in server.hosts.appointed["denoiser"] if one != number and server.node_of(one) == node
    ]
    for other in others_here:
        moved = [(msgspec.structs.replace(one, addressee=other), data) for one, data in letters]
        unmoved(server, node, lambda other=other, moved=moved: server.collect(other, moved), "not signed")
    earlier = [entry for entry in server.letters(1) if entry[0].addressee == number]
    for held in (earlier, [(mail, letter), *earlier]):
        if held:
            refused(server.collect(number, held))
    renamed = [(msgspec.structs.replace(mail, writer=others[0][0].writer), letter), *others]
    unmoved(server, node, lambda: server.collect(number, renamed), "not signed")


def test_a_letter_cannot_come_twice_or_be_left_out_of_its_writers(server: Server) -> None:
    number, letters = server.denoiser()
    node = server.node_of(number)
    unmoved(server, node, lambda: server.collect(number, [*letters, letters[0]]), "twice")
    assert server.collect(number, letters).kind == Kind.REPLY


def with_a_byte_changed(reply: Packet) -> Packet:
    spoilt = bytearray(reply.sections[-1])
    spoilt[-1] ^= 1
    return replace(reply, sections=(*reply.sections[:-1], bytes(spoilt)))


def with_the_name_of_another(reply: Packet) -> Packet:
    contents = about(reply, Contents)
    mail = [msgspec.structs.replace(one, writer="node-1") for one in contents.mail]
    return replace(reply, about=msgspec.msgpack.encode(msgspec.structs.replace(contents, mail=mail)))


@pytest.mark.parametrize(
    ("change", "words"),
    [(with_a_byte_changed, "not signed"), (with_the_name_of_another, "sent mail in another's name")],
)
def test_a_letter_that_its_sender_did_not_sign_is_its_own_proven_fault(
    federation: Federation, change: Callable[[Packet], Packet], words: str
) -> None:
    """The server notices it before anybody is asked to open it, and nobody else is blamed."""
    ordered, altered = federation.order(SYSTEM, CONFIG), list[str]()

    def spoiling(deliver: Deliver, packet: bytes) -> bytes:
        altered.append("once")
        return encode_packet(change(opened(deliver(packet))))

    def mishap(leg: Leg) -> Fate | None:
        return spoiling if (leg.phase, leg.node) == ("ItemFactors", "node-2") and not altered else None

    report = ordered.drive(Wire(federation, mishap))
    assert list(report.lost) == report.proven == ["node-2"]
    assert words in report.lost["node-2"]


# --- Denoisers ---------------------------------------------------------------------------------------------------


def test_a_lone_letter_is_not_summed_up(server: Server) -> None:
    """In round 3, one client is asked alone; its letter is genuine, and all that its denoiser gets."""
    number, _ = server.denoiser()
    node = next(name for name in server.federation.nodes if name != server.node_of(number))
    numbers, request, _ = server.request(node)
    counted = np.array([2], np.int32)
    one = ItemFactors(request.item_factors, counted, np.array([number], np.int32))
    reply = server.ask(node, one, [int(numbers[0])], round_number=3)
    assert reply.kind == Kind.REPLY
    _, letters = contents_of(reply)
    ask = DenoiserFactors(request.item_factors, counted)
    denoiser = server.node_of(number)
    unmoved(server, denoiser, lambda: server.ask(denoiser, ask, [number], letters, 3), "the noise of 1 clients")


def test_sums_with_and_without_one_client_are_not_both_told(server: Server) -> None:
    """The difference would be that client's noise. Nested sums that differ by more are."""
    guard = Guard(Limits(3, min_writers=2))
    request = DenoiserFactors(np.zeros((4, 2), np.float32), np.array([0], np.int32))
    asked = np.array([5], np.int32)

    def summed(*clients: str) -> None:
        seen = guard.admit(1, request, asked)
        guard.memory = guard.admit_mail(seen, request, asked, {5: Slices(tuple(one.encode() for one in clients))})

    summed(*"abcdef")
    summed(*"abcdef")
    for clients in ("abcde", "abcdefg", "abcdgh", "bcdefg", "a", ""):
        with pytest.raises(GuardError):
            summed(*clients)
    summed(*"abcd")
    for clients in ("abce", "cdef", "abc"):
        with pytest.raises(GuardError):
            summed(*clients)
    summed(*"ab")
    summed(*"abcdefgh")

    number, letters = server.denoiser()
    assert server.collect(number, letters).kind == Kind.REPLY
    sizes = {mail.writer: num_clients(server, mail) for mail, _ in letters}
    assert min(sizes.values()) >= 2  # so that an honest round can go on without a node
    node = server.node_of(number)
    writer = next(name for name in sizes if name != node)
    sequence, again = server.next(), Letters()
    for name in sizes:  # all write once more, in one ask, but for one client
        asked, said, _ = server.request(name)
        places = np.arange(len(asked))
        if name == writer:
            places = np.delete(places, np.flatnonzero(said.denoiser == number)[0])
        contents, frame = msgspec.msgpack.encode(Contents(1)), encode(said.take(places), 2, asked[places])
        reply = server.send(name, Packet(Kind.ASK, server.ordered.run_id, 2, sequence, contents, (frame,)))
        assert reply.kind == Kind.REPLY
        again += [entry for entry in contents_of(reply)[1] if entry[0].addressee == number]
    unmoved(server, node, lambda: server.collect(number, again), "differ by fewer than 2 clients")


def num_clients(server: Server, mail: Mail) -> int:
    """How many clients of a letter's writer have this denoiser."""
    return int((server.request(mail.writer)[1].denoiser == mail.addressee).sum())


def test_a_client_is_not_a_denoiser_because_the_server_says_so(server: Server) -> None:
    """Neither is it asked as one, nor is anything sent to it; whoever is lost, those who may succeed are known."""
    appointed = server.hosts.appointed["denoiser"]
    assert len(appointed) == 3 * CONFIG["denoisers"] + 10 < server.hosts.num_clients
    everybody = [number for host in server.hosts.hosts for number in host.numbers]
    victims = sorted(set(everybody) - set(appointed))
    _, letters = server.denoiser()
    for victim in victims[:3]:
        node = server.node_of(victim)
        unmoved(server, node, lambda victim=victim: server.collect(victim, letters), "not appointed")
    for node in server.federation.nodes:
        numbers, request, _ = server.request(node)
        counted = np.full(len(numbers), 2, np.int32)
        named = ItemFactors(request.item_factors, counted, np.full(len(numbers), victims[0], np.int32))
        for _ in range(2):  # what was asked is kept; nothing is sent
            assert "not appointed" in refused(server.ask(node, named, numbers.tolist(), None, 3))
            server.federation.kill(node)


# --- Rounds ------------------------------------------------------------------------------------------------------


def test_a_round_is_not_answered_again_with_another_v(server: Server) -> None:
    """Nor with another denoiser, or with an update that is said not to have counted; with the same it is."""
    node = "node-1"
    numbers, request, _ = server.request(node)
    asked = numbers.tolist()
    lies = {
        "another item_factors": replace(request, item_factors=request.item_factors * np.float32(0)),
        "another ItemFactors": replace(request, denoiser=np.roll(request.denoiser, 1)),
        "with another": replace(request, counted_round=request.counted_round - 1),
    }
    for words, lie in lies.items():
        unmoved(server, node, lambda lie=lie: server.ask(node, lie, asked), words)
    nudged = request.item_factors.copy()
    nudged[0, 0] = np.nextafter(nudged[0, 0], np.float32(9))
    one = replace(request, item_factors=nudged).take(np.array([0]))
    unmoved(server, node, lambda: server.ask(node, one, asked[:1]), "another item_factors")
    number, letters = server.denoiser()
    other = DenoiserFactors(nudged, np.array([1], np.int32))
    where = server.node_of(number)
    unmoved(server, where, lambda: server.ask(where, other, [number], letters), "another item_factors")
    again = server.ask(node, request, asked)
    assert again.kind == Kind.REPLY
    first = next(
        data
        for leg, data in server.wire.replies
        if (leg.phase, leg.node, leg.round_number) == ("ItemFactors", node, 2)
    )
    assert bytes(again.sections[0]) == bytes(opened(first).sections[0])
    assert_undisturbed(server.ordered)


def test_an_ask_that_ended_in_an_error_is_not_asked_again_with_another_v(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server could try one V after the other, and read something off each error."""
    node = "node-1"
    numbers, request, _ = server.request(node)
    asked, third = numbers.tolist(), replace(request, counted_round=np.full(len(numbers), 2, np.int32))

    def failing(*_: Any) -> None:
        raise HushrecError("an error of whatever kind")

    with monkeypatch.context() as broken:
        broken.setattr("hushrec.runtime.node.check_own", failing)
        assert refused(server.ask(node, third, asked, None, 3)).startswith("cannot")
    other = replace(third, item_factors=third.item_factors * np.float32(0))
    for _ in range(2):
        assert "another item_factors" in refused(server.ask(node, other, asked, None, 3))
        server.federation.kill(node)
    assert server.ask(node, third, asked, None, 3).kind == Kind.REPLY


def test_rounds_beyond_the_last_are_not_answered(server: Server) -> None:
    node = "node-2"
    numbers, request, _ = server.request(node)
    later = replace(request, counted_round=np.full(len(numbers), 2, np.int32))
    for round_number in (4, 5, 1000, 2**31):
        lie = lambda round_number=round_number: server.ask(node, later, numbers.tolist(), None, round_number)  # noqa: E731
        unmoved(server, node, lie, f"round {round_number} of a run of 3")  # the ledger is asked before the guard
    assert_undisturbed(server.ordered)


def test_rounds_do_not_go_back(server: Server) -> None:
    node = "node-2"
    numbers, request, _ = server.request(node, round_number=1)
    for round_number in (0, 1):
        refused(server.ask(node, request, numbers.tolist(), None, round_number))


@pytest.mark.parametrize("size", [1000.0, 33.0, 1e12])
def test_a_v_of_thousands_is_not_taken(server: Server, size: float) -> None:
    """In a round that was not begun: of those that were, the V is known."""
    node = "node-3"
    numbers, request, _ = server.request(node)
    long = np.zeros_like(request.item_factors)
    long[1, 1] = size
    lie = ItemFactors(long, np.full(len(numbers), 2, np.int32), request.denoiser)
    unmoved(
        server, node, lambda: server.ask(node, lie, numbers.tolist(), None, 3), "item_factors is longer than 32"
    )


# --- The charter -------------------------------------------------------------------------------------------------


def other_hosts(hosts: Hosts) -> dict[str, Hosts]:
    """What a server could tell one node and not the others."""
    appointed = hosts.appointed["denoiser"]
    return {
        "appointed": msgspec.structs.replace(hosts, appointed={"denoiser": appointed[:-1]}),
        "pad bytes": msgspec.structs.replace(hosts, pad_bytes=64),
        "num clients": msgspec.structs.replace(hosts, num_clients=hosts.num_clients + 1),
        "host node-2": msgspec.structs.replace(
            hosts, hosts=[host for host in hosts.hosts if host.card.name != "node-2"]
        ),
    }


@pytest.mark.parametrize("what", ["appointed", "pad bytes", "num clients", "host node-2"])
def test_two_nodes_that_are_told_different_charters_answer_neither(federation: Federation, what: str) -> None:
    server = Server(federation, "start", 0)
    hosts = server.hosts
    told = {"node-1": hosts, "node-2": hosts, "node-3": other_hosts(hosts)[what]}
    signatures = {}
    for name, said in told.items():
        signatures[name] = about(server.tell(name, Kind.START, said), Signature).signature
    for name in ("node-1", "node-3"):
        reason = refused(server.tell(name, Kind.AGREE, Agreement(signatures)))
        assert "did not sign the charter" in reason
        request = ItemFactors(np.zeros((40, 4), np.float32), np.zeros(1, np.int32), np.array([-1], np.int32))
        number = next(host.numbers[0] for host in hosts.hosts if host.card.name == name)
        assert "before all nodes have signed" in refused(server.ask(name, request, [number], None, 1))
    assert_undisturbed(server.ordered)


def test_no_node_has_the_clients_of_another(federation: Federation) -> None:
    """One that works with the server says that all clients are on it; else it would get all their letters."""
    server = Server(federation, "start", 0)
    hosts, liar = server.hosts.hosts, "node-3"
    everybody = sorted(number for host in hosts for number in host.numbers)
    card = key_card(federation.folder / liar, server.ordered.run_id, numbers_digest(everybody), b"n" * 16)
    entries = [host if host.card.name != liar else HostEntry(card, everybody) for host in hosts]
    said = msgspec.structs.replace(server.hosts, hosts=entries)
    for name in ("node-1", "node-2"):
        assert "a charter with one client twice, on node-" in refused(server.tell(name, Kind.START, said))
    assert_undisturbed(server.ordered)


@pytest.mark.parametrize("what", ["appointed", "pad bytes", "num clients", "host node-2"])
def test_what_differs_from_the_charter_is_named(server: Server, what: str) -> None:
    unmoved(server, "node-1", lambda: server.tell("node-1", Kind.START, other_hosts(server.hosts)[what]), what)
    assert_undisturbed(server.ordered)


def test_who_is_away_may_change(server: Server) -> None:
    said = msgspec.structs.replace(server.hosts, away=["node-2"])
    assert server.tell("node-1", Kind.START, said).kind == Kind.REPLY
    assert_undisturbed(server.ordered)


def test_signatures_of_an_earlier_beginning_are_worth_nothing(federation: Federation) -> None:
    """Both nodes sign one charter, and then another: neither can be shown the first any more."""
    server = Server(federation, "start", 0)
    first, nodes = server.hosts, federation.nodes
    others = other_hosts(first)["appointed"]
    signed = {name: about(server.tell(name, Kind.START, first), Signature).signature for name in nodes}
    cards = {
        host.card.name: about(server.tell(host.card.name, Kind.ASSIGN, Assignment(host.numbers)), KeyCard)
        for host in first.hosts
    }
    for name in nodes:
        assert "gave last" in refused(server.tell(name, Kind.AGREE, Agreement(signed)))
        assert "gave last" in refused(server.tell(name, Kind.START, first))
    entries = [msgspec.structs.replace(host, card=cards[host.card.name]) for host in others.hosts]
    second = msgspec.structs.replace(others, hosts=entries)
    anew = {name: about(server.tell(name, Kind.START, second), Signature).signature for name in nodes}
    assert "did not sign" in refused(server.tell("node-1", Kind.AGREE, Agreement(signed)))
    assert server.tell("node-1", Kind.AGREE, Agreement(anew)).kind == Kind.REPLY
    assert "told otherwise than all nodes have signed" in refused(server.tell("node-1", Kind.START, first))


def test_everybody_cannot_be_appointed(federation: Federation) -> None:
    server = Server(federation, "start", 0)
    everybody = list(range(server.hosts.num_clients))
    for appointed in ({"denoiser": everybody}, {}, {"denoiser": [3, 2]}, {"denoiser": [1000]}):
        said = msgspec.structs.replace(server.hosts, appointed=appointed)
        reason = refused(server.tell("node-1", Kind.START, said))
        assert "appointed as denoiser" in reason


def test_a_node_of_few_clients_per_denoiser_says_so_at_once(federation: Federation) -> None:
    ordered = federation.order(SYSTEM, {**CONFIG, "denoisers": 14})
    report = ordered.drive()
    assert report.status == "failed"
    assert "use at most 10" in report.reason


# --- The catalogue -----------------------------------------------------------------------------------------------


def invitation(server: Server) -> Invitation:
    (told, *_) = (data for leg, data in server.wire.requests if leg.phase == "enrol")
    return about(opened(told), Invitation)


def with_invented(invited: Invitation, num_invented: int) -> Invitation:
    catalogue = invited.catalogue
    ids = [*catalogue.ids, *(f"{1_000_000 + number}" for number in range(num_invented))]
    return msgspec.structs.replace(invited, catalogue=msgspec.structs.replace(catalogue, ids=ids, titles=None))


def test_invented_items_are_refused_by_who_knows_the_items(federation: Federation, tmp_path: Path) -> None:
    server = Server(federation, "enrol", 0)
    invited, known = invitation(server), tmp_path / "items.tsv"
    known.write_text("".join(f"{item}\n" for item in invited.catalogue.ids))
    federation.settle("node-1", items=str(known))
    try:
        lie = with_invented(invited, 1)
        assert "not in the list of this node's owner" in refused(server.tell("node-1", Kind.ENROL, lie))
        assert server.tell("node-1", Kind.ENROL, invited).kind == Kind.REPLY
    finally:
        federation.settle("node-1")


def test_a_catalogue_that_nobody_can_have_rated_is_refused() -> None:
    """ML-100K on one node of five: about 1,300 items are rated there, of 1,682 and 100,000 invented ones."""
    check_catalogue(1682, 1300)
    check_catalogue(1682, 20)  # a phone cannot tell
    with pytest.raises(GuardError, match="more than 20 times as many items"):
        check_catalogue(101_682, 1300)


def test_no_lie_ends_in_a_traceback(server: Server) -> None:
    for kind in (Kind.AGREE, Kind.START, Kind.ASSIGN):
        for said in ({}, {"signatures": {"node-1": b""}}, {"signatures": 5}, [], b"\0"):
            refused(server.tell("node-1", kind, said))
    with pytest.raises(HushrecError):
        Written("node-1", 3, 2)
