"""Owners of DRIFT on nodes: what each holds is in the charter, so that no deed is believed but the one pledged.

An honest driver has owners register; then the orchestrator is ours, and the node of an owner works with it: it
signs whatever it is asked to, with its own keys. The users' side is as it was, or starts anew in between.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import Federation, ServerKilled, Wire, in_process, opened, owner_split, quick, small
from hushrec.deploy.charter import Agreed
from hushrec.deploy.orders import Hosts
from hushrec.protocol import Message, Numbers, Ragged, Sealed
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import Contents, Kind, Mail, Packet, Refusal, about, contents_of, encode_packet
from hushrec.runtime.wire import decode, encode
from hushrec.systems.drift.deeds import Deed, sign
from hushrec.systems.drift.members import Owner
from hushrec.systems.drift.messages import Begin, OwnerKey, Register

CONFIG = small("drift", epochs=1, parts=2)
USERS_SIDE = 5  # the number behind the owners'
Letters = list[tuple[Mail, Any]]


def stop(_deliver: Any, _packet: bytes) -> bytes:
    raise ServerKilled


class Orchestrator:
    """Ours, which goes on where the honest one was stopped, before a packet of this phase."""

    def __init__(self, federation: Federation, phase: str = "Begin") -> None:
        self.federation, self.ordered = federation, federation.order("drift", CONFIG)
        wire = Wire(federation, lambda leg: stop if leg.phase == phase else None)
        with pytest.raises(ServerKilled):
            self.ordered.drive(wire)
        self.last = opened(wire.requests[-1][1])
        told = next(data for leg, data in wire.requests if leg.phase == "start")
        self.hosts = about(opened(told), Hosts)
        self._sequence = self.last.sequence

    def node_of(self, number: int) -> str:
        (name,) = (host.card.name for host in self.hosts.hosts if number in host.numbers)
        return name

    def node(self, number: int) -> Any:
        """A party's node, from the inside: those who work with us show it."""
        site = self.federation.site(self.node_of(number))
        return site._runs[self.ordered.run_id]._opened()

    def owner(self, number: int) -> Owner:
        (owner,) = (one for one in self.node(number).private.owners if one.number == number)
        assert isinstance(owner, Owner)
        return owner

    @property
    def table(self) -> tuple[Any, Numbers]:
        """Who holds what, as it was to be told."""
        begin: Any = decode(self.last.sections[0], SYSTEMS["drift"].messages).message
        return begin.starts, begin.owners

    def letters_with(self, writer: int, owner: int, deed: Deed) -> Letters:
        """The letters of the others, and one of the node of `writer` in which `owner` signs."""
        gone = {self.node_of(writer), self.node_of(owner)}
        others = [entry for entry in contents_of(self.last)[1] if entry[0].writer not in gone]
        kept = [self.deed(number, self.owner(number).held) for number in self.owners_on(gone) if number != owner]
        owners = [number for number in self.owners_on(gone) if number != owner]
        parts = [*zip(owners, kept, strict=True), (owner, deed)]
        columns = (
            np.stack([np.frombuffer(getattr(one, name), np.uint8) for _, one in parts])
            for name in ("key", "signing_key", "signature")
        )
        starts = np.arange(len(parts) + 1)
        message = OwnerKey(
            np.array([number for number, _ in parts], np.int32), *(Ragged(starts, column) for column in columns)
        )
        mail = [Sealed(message, np.full(len(parts), USERS_SIDE, np.int32))]
        return [*others, *self.node(writer).post.write(mail, 1, others[0][0].sequence)]

    def owners_on(self, names: set[str]) -> list[int]:
        return sorted(number for host in self.hosts.hosts if host.card.name in names for number in host.numbers)

    def deed(self, number: int, items: Numbers) -> Deed:
        owner = self.owner(number)
        return sign(owner.signing_seed, number, USERS_SIDE, owner.key, np.sort(items))

    def ask(self, message: Message, number: int, letters: Letters) -> str:
        """What the node says who refuses; empty if it answers."""
        self._sequence += 1
        contents = msgspec.msgpack.encode(Contents(1, [mail for mail, _ in letters]))
        sections = (encode(message, 1, np.array([number], np.int32)), *(letter for _, letter in letters))
        packet = Packet(Kind.ASK, self.ordered.run_id, 1, self._sequence, contents, sections)
        with quick():
            reply = opened(self.federation.site(self.node_of(number)).handle(encode_packet(packet)))
        return about(reply, Refusal).reason if reply.kind == Kind.REFUSAL else ""


def with_owner(table: tuple[Any, Numbers], owner: int) -> Begin:
    """The table in which one holds everything, beside the others."""
    cells = [np.union1d(cell, [owner]) for cell in np.split(table[1], table[0][1:-1])]
    starts = np.concatenate([[0], np.cumsum([len(cell) for cell in cells])]).astype(np.int64)
    return Begin(starts, np.concatenate(cells).astype(np.int32))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("owners") / "f", 5, owner_split())


def greedy(ours: Orchestrator) -> tuple[Begin, Letters]:
    """Owner 1 signs for everything in its first deed."""
    everything = np.arange(len(ours.table[0]) - 1, dtype=np.int32)
    return with_owner(ours.table, 1), ours.letters_with(1, 1, ours.deed(1, everything))


def rekeyed(ours: Orchestrator) -> tuple[Begin, Letters]:
    """Owner 1 signs for its own items with another key."""
    owner = ours.owner(1)
    deed = sign(bytes(32), 1, USERS_SIDE, owner.key, np.sort(owner.held))
    return Begin(*ours.table), ours.letters_with(1, 1, deed)


def impostor(ours: Orchestrator) -> tuple[Begin, Letters]:
    """The node of owner 1 signs for owner 0, whose own letter never comes; the table is the true one."""
    key = ours.owner(1).key
    forged = sign(ours.owner(1).signing_seed, 0, USERS_SIDE, key, np.sort(ours.owner(0).held))
    return Begin(*ours.table), ours.letters_with(1, 0, forged)


PLEDGED = "owner 1 claims other items or signs with another key than it pledged; refuse the table"
NOT_ITS_OWN = "a letter in the name of a party that its writer does not host; drop it"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("lie", "refusal"), [(greedy, PLEDGED), (rekeyed, PLEDGED), (impostor, NOT_ITS_OWN)])
def test_a_first_deed_is_not_believed_if_another_was_pledged(
    federation: Federation,
    lie: Callable[[Orchestrator], tuple[Begin, Letters]],
    refusal: str,
    is_restarted: bool,
) -> None:
    """The users' side refuses, nothing is lost, and the run ends as it should."""
    ours = Orchestrator(federation)
    table, letters = lie(ours)
    if is_restarted:
        federation.kill(ours.node_of(USERS_SIDE))
    assert ours.ask(table, USERS_SIDE, letters).endswith(refusal)
    assert ours.ask(Begin(*ours.table), USERS_SIDE, list(contents_of(ours.last)[1])) == ""
    federation.kill()
    assert ours.ask(table, USERS_SIDE, letters).endswith(refusal)
    ours.ordered.finish()
    assert ours.ordered.model_sha256() == in_process("drift", CONFIG, owner_split()).model_sha256


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_owner_gives_its_key_to_the_users_side_of_the_charter_alone(
    federation: Federation, is_restarted: bool
) -> None:
    """Also if nobody has asked it before, or it has just started anew."""
    ours = Orchestrator(federation, "Register")
    for number in range(4):
        if is_restarted:
            federation.kill(ours.node_of(number))
        for other in range(number + 1, USERS_SIDE):
            request = Register(np.array(other, np.int32), np.zeros(1, np.int32))
            assert ours.ask(request, number, []) == (
                f"party {other} is not the users' side of this run; ask with its number"
            )
        assert ours.ask(Register(np.array(USERS_SIDE, np.int32), np.zeros(1, np.int32)), number, []) == ""


def test_pledges_are_in_the_charter_and_cannot_be_exchanged(federation: Federation) -> None:
    ours = Orchestrator(federation)
    path = ours.ordered.node_folder(ours.node_of(USERS_SIDE)) / "charter.msgpack"
    charter = msgspec.msgpack.decode(path.read_bytes(), type=Agreed).charter
    pledges = {member.name: member.pledges for member in charter.members}
    assert pledges.pop(ours.node_of(USERS_SIDE)) == [b""]
    assert len({pledge for (pledge,) in pledges.values()}) == 5
    assert all(len(pledge) == 32 for (pledge,) in pledges.values())
    for entry in ours.hosts.hosts:
        for changed in ((b"x" * 32,), (), (*entry.card.pledges, b"x" * 32)):
            hosts = [
                msgspec.structs.replace(one, card=replace(one.card, pledges=changed)) if one is entry else one
                for one in ours.hosts.hosts
            ]
            said = msgspec.msgpack.encode(msgspec.structs.replace(ours.hosts, hosts=hosts))
            ours._sequence += 1
            packet = Packet(Kind.START, ours.ordered.run_id, 0, ours._sequence, said)
            for node in (ours.node_of(0), ours.node_of(USERS_SIDE)):
                reply = opened(federation.site(node).handle(encode_packet(packet)))
                assert reply.kind == Kind.REFUSAL
