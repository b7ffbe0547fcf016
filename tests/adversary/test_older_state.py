"""A node that has lost what it kept of a run, or got an older copy back, answers no round a second time."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.federation import Federation, Leg, Ordered, ServerKilled, Wire, opened, quick, small
from hushrec.runtime.packets import Kind, Packet, Refusal, about, contents_of, encode_packet
from hushrec.runtime.wire import decode, encode
from hushrec.systems.sdcf import ItemFactors

NODE = "node-1"
CONFIG = small("sdcf")


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def driven_to(federation: Federation, round_number: int, ordered: Ordered | None = None) -> tuple[Ordered, Wire]:
    """The server ends before this round."""

    def stopped(_deliver: Any, _packet: bytes) -> bytes:
        raise ServerKilled

    def mishap(leg: Leg) -> Any:
        return stopped if leg.round_number == round_number else None

    ordered, wire = ordered or federation.order("sdcf", CONFIG), Wire(federation, mishap)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    return ordered, wire


def asked_again(federation: Federation, wire: Wire, round_number: int) -> Packet:
    """A round that was answered, with another V."""
    packet = next(
        packet
        for packet in (opened(data) for leg, data in wire.requests if leg.node == NODE)
        if packet.kind == Kind.ASK and packet.round_number == round_number
    )
    frame = decode(bytearray(contents_of(packet)[0][0]), (ItemFactors,))
    message: Any = frame.message
    other = ItemFactors(message.item_factors + np.float32(0.5), message.counted_round)
    sections = (encode(other, round_number, frame.numbers),)
    lie = Packet(Kind.ASK, packet.run_id, round_number, 2**40, packet.about, sections)
    with quick():
        return opened(federation.site(NODE).handle(encode_packet(lie)))


def no_state(folder: Path, _older: Path) -> None:
    (folder / "fold-1" / "state.npz").unlink()


def older_state(folder: Path, older: Path) -> None:
    shutil.copy(older / "fold-1" / "state.npz", folder / "fold-1" / "state.npz")


def older_folder(folder: Path, older: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


@pytest.mark.parametrize("spoil", [no_state, older_state, older_folder])
def test_a_round_is_not_answered_again_from_an_older_state(
    federation: Federation, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    ordered, _ = driven_to(federation, 2)
    folder, older = ordered.node_folder(NODE), tmp_path / "older"
    shutil.copytree(folder, older)
    _, wire = driven_to(federation, 3, ordered)
    federation.kill(NODE)
    spoil(folder, older)
    for _ in range(2):
        reply = asked_again(federation, wire, 2)
        assert reply.kind == Kind.REFUSAL
        assert about(reply, Refusal).is_final
        assert "is older than private/ledger.jsonl, which has round 2" in federation.log(NODE)[-1]["reason"]
        federation.kill(NODE)
    report = ordered.drive()
    assert report.status == "failed"
    assert "node-1 refused: has lost what it had kept" in report.reason


def test_a_run_does_not_begin_anew_on_a_node_whose_folder_was_deleted(federation: Federation) -> None:
    ordered, _ = driven_to(federation, 2)
    federation.kill(NODE)
    shutil.rmtree(ordered.node_folder(NODE))
    for _ in range(2):
        report = ordered.drive()
        assert report.status == "failed"
        assert "node-1 refused: has lost what it had kept" in report.reason
        federation.kill(NODE)


@pytest.mark.parametrize("relay", ["direct", "onion"])
def test_a_state_that_is_as_new_as_the_ledger_goes_on(federation: Federation, relay: str) -> None:
    """Also where a node only passes mail on in a round."""
    config = small("fedrec++", participation=0.2) if relay == "onion" else CONFIG
    ordered = federation.order("fedrec++" if relay == "onion" else "sdcf", config, relay=relay)
    driven_to(federation, 3, ordered)
    federation.kill()
    assert ordered.drive().status == "done"
