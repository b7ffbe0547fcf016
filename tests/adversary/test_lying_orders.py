"""An operator who orders more than owners agreed to: refused in one line, and nothing is lost or given away."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import Deliver, Federation, Leg, Ordered, ServerKilled, Wire, opened, small, snapshot
from hushrec.deploy.consent import ledger_of, words_of
from hushrec.deploy.orders import Invitation, Measure
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import Kind, Packet, Refusal, about, encode_packet
from hushrec.runtime.wire import decode, encode

WORDS = {words.partition(":")[0]: words for name in SYSTEMS for words in words_of(SYSTEMS[name])}
SECURE = {"secure_sums": True}


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path / "f", 2)


def settled(federation: Federation, **values: Any) -> None:
    """Nodes that accept what is protected, and what is said here."""
    for name in federation.nodes:
        federation.settle(name, **{"accepts_everything": False, **values})


def accepting(*settings: str) -> dict[str, str]:
    return {WORDS[one]: "2026-11-18" for one in settings}


def refused(ordered: Ordered, reason: str) -> None:
    """The run ends with this reason; no node has a folder of it, and none was charged."""
    report = ordered.drive()
    assert report.status == "failed"
    assert reason in report.reason
    assert "\n" not in report.reason
    for name in ordered.federation.nodes:
        assert not ordered.node_folder(name).exists()
        assert ordered.order.run_id not in rounds(ordered.federation, name)


def rounds(federation: Federation, name: str = "node-1") -> dict[str, int]:
    """How many rounds of each run a node answered, as its ledger has it."""
    return {run: len(entry.rounds) for run, entry in ledger_of(federation.folder / name).entries().items()}


def answer_to(federation: Federation, name: str, packet: bytes) -> str:
    """Why a node refuses a packet; nothing on its disk changes by it."""
    private = federation.folder / name / "private"
    before = snapshot(private)
    reply = opened(federation.site(name).handle(packet))
    assert reply.kind == Kind.REFUSAL
    assert snapshot(private) == before
    return about(reply, Refusal).reason


# --- Weaker settings than the words cover ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "system", "values"),
    [
        ((), "fedrec", {"rho": 0}),
        ((), "fedmf", {"encryption": "none"}),
        (("fedrec",), "fedrec", {"rho": 0}),
        (("fedrec with secure sums",), "fedrec", {}),
        (("fedrec",), "fedrec++", {}),
        (("fedrec++ with shares [2, inf)",), "fedrec++", {}),
        (("fedmf",), "fedmf", {"encryption": "none"}),
        (("sdcf with secure sums",), "sdcf", {}),
    ],
    ids=lambda value: str(value),
)
def test_weaker_settings_than_the_words_cover(
    federation: Federation, accepted: tuple[str, ...], system: str, values: dict[str, Any]
) -> None:
    settled(federation, accepted=accepting(*accepted))
    refused(federation.order(system, small(system, **values)), "its owner has not accepted that; the line for it")


def test_masks_that_are_only_counted_are_made_all_the_same(federation: Federation) -> None:
    """`secure_masks counted` is for simulations; a node makes them whatever the order says."""
    settled(federation)
    ordered, wire = federation.order("sdcf", small("sdcf", **SECURE, secure_masks="counted")), Wire(federation)
    assert ordered.drive(wire).status == "done"
    plain = federation.order("sdcf", small("sdcf", **SECURE, secure_masks="real"))
    assert plain.drive().status == "done"
    assert ordered.model_sha256() == plain.model_sha256()
    assert {leg.phase for leg in wire.legs} > {"SendKeys", "SendShares", "Unmask"}


# --- Other settings in the middle of a run ---------------------------------------------------------------------


def after_one_round(ordered: Ordered) -> list[tuple[Leg, bytes]]:
    """The server dies after a round; what it had sent."""

    def die(_deliver: Deliver, _packet: bytes) -> bytes:
        raise ServerKilled

    wire = Wire(ordered.federation, lambda leg: die if leg.round_number == 2 else None)
    with pytest.raises(ServerKilled):
        ordered.drive(wire)
    return wire.requests


def changed(packet: bytes, sequence: int, **config: Any) -> bytes:
    """An invitation with other settings, as a new packet."""
    old = opened(packet)
    invitation = about(old, Invitation)
    invitation = msgspec.structs.replace(invitation, config={**invitation.config, **config})
    body = msgspec.msgpack.encode(invitation)
    return encode_packet(Packet(old.kind, old.run_id, old.round_number, sequence, body))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"secure_sums": False}, "its owner has not accepted that"),
        ({"participation": 0.1}, "its owner has not accepted that"),
        ({"num_rounds": 1000}, "the same run with other settings than this node has in its ledger"),
        ({"num_rounds": 2}, "the same run with other settings than this node has in its ledger"),
        ({"learning_rate": 0.5}, "the same run with other settings than this node has in its ledger"),
    ],
    ids=["no masks", "few people", "more rounds", "fewer rounds", "another rate"],
)
def test_other_settings_in_the_middle_of_a_run(federation: Federation, values: dict[str, Any], says: str) -> None:
    settled(federation)
    ordered = federation.order("sdcf", small("sdcf", **SECURE))
    requests = after_one_round(ordered)
    [enrolment] = [data for leg, data in requests if (leg.phase, leg.node) == ("enrol", "node-1")]
    for _ in range(2):
        assert says in answer_to(federation, "node-1", changed(enrolment, 2**33, **values))
        federation.kill()  # nor does a new process forget
    assert rounds(federation) == {ordered.order.run_id: 1}
    ordered.finish()
    assert rounds(federation) == {ordered.order.run_id: 3}


def test_rounds_beyond_those_that_were_ordered(federation: Federation) -> None:
    """A server that goes on asking after the last round, or after it had the run measured."""
    settled(federation)
    ordered, wire = federation.order("sdcf", small("sdcf", **SECURE)), Wire(federation)
    assert ordered.drive(wire).status == "done"
    last = next(data for leg, data in reversed(wire.requests) if (leg.phase, leg.node) == ("SendKeys", "node-1"))
    for number in (4, 5, 2**20):
        old = opened(last)
        packet = Packet(old.kind, old.run_id, number, 2**33 + number, old.about, old.sections)
        assert f"round {number} of a run that has ended on this node" in answer_to(
            federation, "node-1", encode_packet(packet)
        )
    assert rounds(federation) == {ordered.order.run_id: 3}


def test_a_measurement_in_the_middle_ends_the_run(federation: Federation) -> None:
    """Who is given back what a run has not used cannot use it after."""
    settled(federation, budget={"rounds": 5.0})
    ordered = federation.order("sdcf", small("sdcf", **SECURE))
    after_one_round(ordered)
    body = msgspec.msgpack.encode({"at": (10,), "relevant_from": None})
    measure = Packet(Kind.EVALUATE, ordered.run_id, 0, 2**33 - 1, body)
    assert opened(federation.site("node-1").handle(encode_packet(measure))).kind == Kind.REPLY
    report = ordered.drive()
    assert report.status == "failed"
    assert "round 2 of a run that has ended on this node; order a new run" in report.reason
    assert rounds(federation) == {ordered.order.run_id: 1}


def test_a_run_is_measured_once_whatever_model_is_sent_after_it(federation: Federation) -> None:
    """A V of the server's choice for each measurement would tell the test ratings item by item."""
    config = small("fedrec", biases=False)
    ordered, wire = federation.order("fedrec", config), Wire(federation)
    assert ordered.drive(wire).status == "done"
    settle, measure = (
        next(opened(data) for leg, data in reversed(wire.requests) if (leg.node, leg.phase) == ("node-1", phase))
        for phase in ("Settle", "measure")
    )
    honest = next(
        opened(data).about
        for leg, data in reversed(wire.replies)
        if leg.phase == "measure" and leg.node == "node-1"
    )

    def said(packet: Packet, sequence: int, **values: Any) -> Packet:
        changed = replace(packet, sequence=sequence, **values)
        return opened(federation.site("node-1").handle(encode_packet(changed)))

    frame = decode(bytearray(settle.sections[0]), SYSTEMS["fedrec"].messages)
    message: Any = frame.message
    chosen = replace(message, item_factors=np.full_like(message.item_factors, 5.0))
    section = encode(chosen, frame.round_number, frame.numbers)
    assert said(settle, 2**40, sections=(section,)).kind == Kind.REPLY
    assert said(measure, 2**40 + 1).about == honest
    order = about(measure, Measure)
    others = [{"at": (1,)}, {"relevant_from": 5.0}, {"relevant_from": float("nan")}, {"min_raters": 9}]
    for place, values in enumerate(others):
        other = msgspec.msgpack.encode(msgspec.structs.replace(order, **values))
        for number in (2 * place, 2 * place + 1):
            reply = said(measure, 2**40 + 2 + number, about=other)
            assert "another measurement than this run's first" in about(reply, Refusal).reason
            federation.kill("node-1")
    again = said(measure, 2**41)
    assert (again.kind, again.about) == (Kind.REPLY, honest)


def test_nothing_is_measured_before_all_have_signed(federation: Federation) -> None:
    def stopped(_deliver: Any, _packet: bytes) -> bytes:
        raise ServerKilled

    ordered = federation.order("fedrec")
    with pytest.raises(ServerKilled):
        ordered.drive(Wire(federation, lambda leg: stopped if leg.phase == "agree" else None))
    body = msgspec.msgpack.encode(Measure((10,), None))
    measure = Packet(Kind.EVALUATE, ordered.run_id, 0, 2**40, body)
    assert "before all nodes have signed the charter" in answer_to(federation, "node-1", encode_packet(measure))


# --- More than the budget --------------------------------------------------------------------------------------


def test_the_same_run_under_other_names_does_not_overdraw_a_budget(federation: Federation) -> None:
    settled(federation, budget={"rounds": 7.0})
    done = [federation.order("sdcf", small("sdcf", **SECURE)) for _ in range(2)]
    for ordered in done:
        assert ordered.drive().status == "done"
    before = {name: snapshot(federation.folder / name / "private") for name in federation.nodes}
    for _ in range(3):
        again = federation.order("sdcf", small("sdcf", **SECURE))
        refused(again, "this run may cost rounds 3, and of this node's budget 1 is left")
        federation.kill()
    assert {name: snapshot(federation.folder / name / "private") for name in federation.nodes} == before
    assert rounds(federation) == {ordered.order.run_id: 3 for ordered in done}


def test_orders_that_are_never_run_hold_what_they_may_cost(federation: Federation) -> None:
    """So a server cannot first enrol for everything and then ask for it."""
    settled(federation, budget={"rounds": 7.0})

    def die(_deliver: Deliver, _packet: bytes) -> bytes:
        raise ServerKilled

    held = [federation.order("sdcf", small("sdcf", **SECURE)) for _ in range(2)]
    for ordered in held:
        with pytest.raises(ServerKilled):
            ordered.drive(Wire(federation, lambda leg: die if leg.round_number == 1 else None))
    refused(federation.order("sdcf", small("sdcf", **SECURE)), "of this node's budget 1 is left")
    for ordered in held:
        ordered.finish()
    assert sum(rounds(federation).values()) == 6


def two_at_once(federation: Federation, budget: float) -> tuple[Ordered, Ordered, Any]:
    """While one run is in its second round, another is ordered; how that one ended."""
    settled(federation, budget={"rounds": budget})
    other, reports = federation.order("sdcf", small("sdcf", **SECURE)), list[Any]()

    def order_another(leg: Leg) -> None:
        if leg.round_number == 2 and not reports:
            reports.append(None)
            reports[0] = other.drive()

    first = federation.order("sdcf", small("sdcf", **SECURE))
    assert first.drive(Wire(federation, order_another)).status == "done"
    return first, other, reports[0]


def test_two_runs_at_once_do_not_overdraw_a_budget_together(federation: Federation) -> None:
    """What the first one leaves is not enough for the second."""
    first, _, report = two_at_once(federation, 5.0)
    assert report.status == "failed"
    assert "this run may cost rounds 3, and of this node's budget 2 is left" in report.reason
    assert rounds(federation) == {first.order.run_id: 3}


def test_two_runs_at_once_within_a_budget_are_both_served(federation: Federation) -> None:
    first, other, report = two_at_once(federation, 6.0)
    assert report.status == "done"
    assert rounds(federation) == {first.order.run_id: 3, other.order.run_id: 3}
    assert first.model_sha256() == other.model_sha256()


def test_noise_that_is_promised_at_a_large_delta_is_not_cheap(federation: Federation) -> None:
    """An epsilon of .1 at a delta of one half is next to no noise."""
    settled(federation, budget={"epsilon": 8.0})
    config = small("sdcf", **SECURE, noise_multiplier=0.3, delta=0.4, num_rounds=1)
    refused(federation.order("sdcf", config), "this run may cost epsilon")


def test_a_node_that_is_killed_anywhere_has_counted_what_left(federation: Federation) -> None:
    """Killed right after each of its answers: the run goes on to its end, and no round is counted twice."""
    settled(federation, budget={"rounds": 3.0})
    ordered = federation.order("sdcf", small("sdcf", **SECURE))
    wire = Wire(federation, reopens=True)
    assert ordered.drive(wire).status == "done"
    asked = {leg.round_number for leg in wire.legs if leg.round_number}
    assert rounds(federation, "node-1") == rounds(federation, "node-2") == {ordered.order.run_id: len(asked)}


# --- Orders that do not fit ------------------------------------------------------------------------------------


def test_rated_items_cannot_be_read_off_refused_orders(federation: Federation) -> None:
    """A catalogue that lacks an item tells whether somebody has it; so few may not fit, then none is looked at."""
    settled(federation)
    ordered = federation.order("sdcf", small("sdcf", **SECURE))
    going_on = after_one_round(ordered)
    [packet] = [data for leg, data in going_on if (leg.phase, leg.node) == ("enrol", "node-1")]
    old, everything = opened(packet), about(opened(packet), Invitation)

    def order(number: int, *lacking: str) -> str:
        """What a node says to a new run without these items: empty if it takes part."""
        left = [item for item in everything.catalogue.ids if item not in lacking]
        catalogue = msgspec.structs.replace(everything.catalogue, ids=left, titles=None)
        body = msgspec.msgpack.encode(msgspec.structs.replace(everything, catalogue=catalogue))
        told = encode_packet(Packet(old.kind, number.to_bytes(16, "big"), 0, 1, body))
        reply = opened(federation.site("node-1").handle(told))
        return about(reply, Refusal).reason if reply.kind == Kind.REFUSAL else ""

    train = federation.split.train
    here = np.isin(train.users, federation.numbers("node-1"))
    rated = sorted({str(train.item_ids[item]) for item in train.items[here]})
    unrated = sorted(set(everything.catalogue.ids) - set(rated))
    assert order(1) == ""
    for number, item in enumerate(rated[:3], 2):
        for again in range(3):  # which tells nothing new: an honest server tries it again, too
            assert order(100 * again + number, item).startswith("cannot")
            federation.kill()
    for number, lacking in enumerate(([rated[3]], unrated[:1], rated, []), 10):
        assert "3 orders did not fit this node's files" in order(number, *lacking)
    assert order(20, rated[0]).startswith("cannot")
    assert order(1) == "", "a run that it takes part in goes on"
    (federation.folder / "node-1" / "private" / "misfits.txt").unlink()
    assert order(30) == ""
    assert ordered.finish()[-1].status == "done"
