"""Owners and partners that send numbers nobody can add up: their own fault, and no divergence of the others.

What the server sees itself is proof. A sealed letter is read by who gets it, who names its writer, as anybody else
may be lying then, too. Either way the others lose nothing: without the lie the run goes on to the same bits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import Federation, Leg, Wire, in_process, owner_split, partner_split, small
from hushrec.deploy.driver import Report
from hushrec.protocol import Message, Ragged, Sealed
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import Contents, Packet, contents_of, decode_packet, encode_packet, writable
from hushrec.runtime.post import Post
from hushrec.runtime.wire import decode, encode
from hushrec.systems.drift import kept_by_users
from hushrec.systems.drift.messages import BlockGradients, ItemSums, UserSums
from hushrec.systems.fedcore.co_training import Sums, is_addable
from hushrec.systems.fedcore.messages import LayerGradients, UserGradients

FAR = 1.0e9


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("owners") / "f", 3, owner_split())


@pytest.fixture(scope="module")
def partners(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("partners") / "f", 3, partner_split(3))


def made_up(message: Message, column: str, value: float) -> Message:
    """The same, but for the first number of a column that has some."""
    honest = getattr(message, column)
    values = np.array(honest.values)
    values.reshape(-1)[:1] = value
    return replace(message, **{column: Ragged(honest.starts, values)})  # type: ignore[call-arg]


def lying_reply(name: str, liar: str, kind: type[Message], column: str, value: float) -> Callable[[Leg], Any]:
    """A node that says so in its replies of a type."""

    def changed(deliver: Callable[[bytes], bytes], data: bytes) -> bytes:
        packet = decode_packet(deliver(data))
        frames, letters = contents_of(packet)
        told = []
        for one in frames:
            frame = decode(writable(one), SYSTEMS[name].messages)
            message = made_up(frame.message, column, value) if isinstance(frame.message, kind) else frame.message
            told.append(encode(message, frame.round_number, frame.numbers))
        about = msgspec.msgpack.encode(Contents(len(told), [mail for mail, _ in letters]))
        known = packet.kind, packet.run_id, packet.round_number, packet.sequence
        return encode_packet(Packet(*known, about, (*told, *(letter for _, letter in letters))))

    asks = {request.__name__ for request in SYSTEMS[name].handlers}
    return lambda leg: changed if leg.node == liar and leg.phase in asks else None


def lying_letters(
    monkeypatch: pytest.MonkeyPatch, liar: str, kind: type[Message], column: str, value: float
) -> None:
    """A node that writes so to others, in letters of a type."""
    honest = Post.write

    def written(post: Any, mail: Sequence[Sealed], *rest: Any) -> Any:
        if post._hosts[post._own].name == liar:
            mail = [
                replace(one, message=made_up(one.message, column, value)) if isinstance(one.message, kind) else one
                for one in mail
            ]
        return honest(post, mail, *rest)

    monkeypatch.setattr(Post, "write", written)


def ended(federation: Federation, report: Report) -> None:
    """Nobody took it for a training that diverges."""
    assert report.status == "paused"
    assert "diverge" not in report.reason
    assert not list(federation.folder.glob("*/private/runs/*/diverged"))


@pytest.mark.parametrize("value", [FAR, -2049.0, np.nan, -np.inf])
def test_gradients_of_an_owner_that_nobody_can_add_up_are_its_own_fault(owners: Federation, value: float) -> None:
    ordered, liar = owners.order("drift"), owners.nodes[0]
    report = ordered.drive(Wire(owners, lying_reply("drift", liar, BlockGradients, "gradients", value)))
    ended(owners, report)
    assert (report.proven, list(report.lost)) == ([liar], [liar])
    ordered.finish()
    ordered.assert_equals(in_process("drift", small("drift"), owners.split))


def test_sums_of_an_owner_that_nobody_can_add_up_are_its_own_fault(owners: Federation) -> None:
    config = small("drift", user_vectors="users", flag="inside")
    ordered, liar = owners.order("drift", config), owners.nodes[0]
    for value in (2**62, -(2**54) - 1):
        report = ordered.drive(Wire(owners, lying_reply("drift", liar, ItemSums, "sums", value)))
        ended(owners, report)
        assert (report.proven, list(report.lost)) == ([liar], [liar])
    ordered.finish()
    ordered.assert_equals(in_process("drift", config, owners.split))


def test_sums_for_the_users_side_that_cannot_be_added_up_are_their_writers(
    owners: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("drift", user_vectors="users", flag="inside")
    ordered, liar = owners.order("drift", config), owners.nodes[0]
    with monkeypatch.context() as lying:
        lying_letters(lying, liar, UserSums, "sums", 2**62)
        report = ordered.drive()
    ended(owners, report)
    assert "is too large" in report.lost[liar]
    assert report.lost.keys() == {liar, owners.nodes[-1]}  # who wrote it, and who says so
    assert not report.proven
    ordered.finish()
    ordered.assert_equals(in_process("drift", config, owners.split))


@pytest.mark.parametrize(
    ("kind", "column", "model"), [(UserGradients, "gradients", "pmf"), (LayerGradients, "gradient", "neucf")]
)
@pytest.mark.parametrize("value", [FAR, 1025.0])
def test_gradients_of_a_partner_that_nobody_can_add_up_are_its_own_fault(
    partners: Federation,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Message],
    column: str,
    model: str,
    value: float,
) -> None:
    config = small("fedcore", model=model, inference="none", unaligned=1.0, num_rounds=1)
    ordered, liar = partners.order("fedcore", config), partners.nodes[0]
    with monkeypatch.context() as lying:
        lying_letters(lying, liar, kind, column, value)
        report = ordered.drive()
    ended(partners, report)
    assert "a gradient of partner 0 is not finite or far too large" in report.lost[liar]
    ordered.finish()
    ordered.assert_equals(in_process("fedcore", config, partners.split))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("drift", {}),
        ("fedcore", {"model": "pmf", "inference": "none", "privatizer": "none"}),
    ],
)
def test_a_training_that_diverges_is_not_taken_for_a_lie(
    owners: Federation,
    partners: Federation,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: dict[str, Any],
) -> None:
    """Each says so itself, before it sends what nobody can add up."""
    largest = [0.0]
    honest = Post.write

    def written(post: Any, mail: Sequence[Sealed], *rest: Any) -> Any:
        sent = [one.message.gradients.values for one in mail if isinstance(one.message, UserGradients)]
        largest.extend(float(np.abs(rows).max(initial=0.0)) for rows in sent)
        return honest(post, mail, *rest)

    monkeypatch.setattr(Post, "write", written)
    ordered = (owners if name == "drift" else partners).order(name, small(name, learning_rate=1e6, **values))
    report = ordered.drive()
    assert report.status == "failed"
    assert "the training diverges" in report.reason
    assert not report.lost
    assert max(largest) < 1024


def test_an_owner_whose_sums_become_too_large_says_so(owners: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they may be of no size at all."""
    monkeypatch.setattr(kept_by_users, "_MANY_OWNERS", 2**50)
    report = owners.order("drift", small("drift", user_vectors="users", flag="inside")).drive()
    assert report.status == "failed"
    assert "the training diverges" in report.reason
    assert not report.lost


@pytest.mark.parametrize("num_partners", [2, 3, 63])
@pytest.mark.parametrize("num_rows", [1, 128, 70_000])
def test_what_all_partners_may_send_of_one_user_does_not_wrap(num_partners: int, num_rows: int) -> None:
    largest = np.float32(min(1023.9, 0.999 * 2**22 / (num_rows * num_partners)))
    rows = np.full((num_rows, 1), largest)
    assert is_addable(rows, num_partners)
    assert not is_addable(np.full((num_rows, 1), largest * 1.01), num_partners)
    sums = Sums.zeros(1, 1)
    for _ in range(num_partners):
        sums.add(np.zeros(num_rows, np.int32), rows, np.zeros(1, np.int32))
    assert sums.totals[0, 0] / 2.0**40 == pytest.approx(float(largest) * num_rows * num_partners)
