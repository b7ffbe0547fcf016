"""A run survives whoever is killed, late or talks nonsense, in every phase, and ends with the same bits."""

from collections.abc import Callable
from functools import cache
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
    Lost,
    NodeKilled,
    Ordered,
    ServerKilled,
    Wire,
    in_process,
    killed_at_write,
    losing_from,
    once,
    opened,
    small,
    some_split,
)

from hushrec.deploy.driver import drive, read_report
from hushrec.deploy.orders import Attempt, Enrolled, Measured
from hushrec.errors import HushrecError
from hushrec.runs.record import read_run
from hushrec.runtime.packets import Contents, Kind, Packet, Refusal, encode_packet
from hushrec.systems import fedrec_plus_plus

SYSTEM = "fedrec++"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


@cache
def undisturbed() -> Expected:
    return in_process(SYSTEM, small(SYSTEM), some_split())


@cache
def without(first_round: int, numbers: tuple[int, ...]) -> Expected:
    return in_process(SYSTEM, small(SYSTEM), some_split(), losing_from(first_round, np.array(numbers)))


# --- Where something can go wrong ------------------------------------------------------------------------------

PHASES = {
    "enrol": 0, "assign": 1, "start": 2, "agree": 3, "ItemFactors": 7, "relay": 8, "DenoiserFactors": 9,
    "Settle": 13, "measure": 14,
}  # fmt: skip
"""Places of calls in a run of three rounds with onions: the phases of round 2, and those around the rounds."""


@pytest.fixture(scope="module")
def legs(federation: Federation) -> list[Leg]:
    """All packets of an undisturbed run with onions."""
    wire = Wire(federation)
    ordered = federation.order(SYSTEM, relay="onion")
    report = ordered.drive(wire)
    assert report.status == "done", report.reason
    ordered.assert_equals(undisturbed())
    assert wire.calls == 15
    for phase, place in PHASES.items():
        assert {leg.phase for leg in wire.legs if leg.place == place} == {phase}
    return wire.legs


def victim_of(legs: list[Leg], phase: str) -> str:
    """A node that has a part in the phase. Relays are drawn anew in each run; node-2 has mail to pass on."""
    names = [leg.node for leg in legs if leg.place == PHASES[phase]]
    return "node-2" if phase == "relay" else names[-1]


def finished(ordered: Ordered, mishap: Callable[[Leg], Fate | None]) -> list[Any]:
    reports = ordered.finish(Wire(ordered.federation, mishap))
    ordered.assert_equals(undisturbed())
    for report in reports:
        assert "\n" not in report.reason
    return reports


# --- Who is killed or late -------------------------------------------------------------------------------------


def never_arrives(_deliver: Deliver, _packet: bytes) -> bytes:
    raise Lost("connection refused")


def too_late(deliver: Deliver, packet: bytes) -> bytes:
    deliver(packet)
    raise Lost("no reply within 60 s")


def server_killed_before(_deliver: Deliver, _packet: bytes) -> bytes:
    raise ServerKilled


def server_killed_after(deliver: Deliver, packet: bytes) -> bytes:
    deliver(packet)
    raise ServerKilled


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("fate", "is_killed"),
    [(never_arrives, True), (too_late, False), (too_late, True)],
    ids=["killed-before", "too-slow", "killed-after"],
)
def test_a_node_that_comes_back_changes_nothing(
    federation: Federation, legs: list[Leg], phase: str, fate: Fate, is_killed: bool
) -> None:
    """Before or after it served the packet; the same process, or a new one that knows what was written down."""
    victim = victim_of(legs, phase)

    def fate_and_death(deliver: Deliver, packet: bytes) -> bytes:
        try:
            return fate(deliver, packet)
        finally:
            if is_killed:
                federation.kill(victim)

    ordered = federation.order(SYSTEM, relay="onion")
    reports = finished(ordered, once(PHASES[phase], victim, fate_and_death))
    assert [report.status for report in reports] == ["paused", "done"]
    lost = reports[0]
    assert list(lost.lost) == [victim]
    number = {"enrol": 0, "assign": 0, "start": 0, "agree": 0, "Settle": 3, "measure": 3}.get(phase, 2)
    assert lost.reason.startswith(f"round {number}, {phase}: lost {victim} (")
    assert lost.round_number == {"Settle": 2, "measure": 3}.get(phase, max(number - 1, 0))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("fate", "is_killed"),
    [(server_killed_before, False), (server_killed_after, False), (server_killed_after, True)],
    ids=["before", "after", "with-a-node"],
)
def test_a_server_that_comes_back_changes_nothing(
    federation: Federation, legs: list[Leg], phase: str, fate: Fate, is_killed: bool
) -> None:
    """The job ends in the middle of a call: some nodes have served it and some have not, perhaps one died too."""
    victim = victim_of(legs, phase)

    def fate_and_death(deliver: Deliver, packet: bytes) -> bytes:
        try:
            return fate(deliver, packet)
        finally:
            if is_killed:
                federation.kill(victim)

    ordered = federation.order(SYSTEM, relay="onion")
    reports = finished(ordered, once(PHASES[phase], victim, fate_and_death))
    assert [report.status for report in reports] == ["done"]
    assert ordered.attempt == 2


@pytest.mark.parametrize(
    ("number", "is_after"),
    [(number, True) for number in range(1, 13)] + [(number, False) for number in (3, 5, 6, 11, 12)],
)
def test_a_node_can_be_killed_at_every_write(federation: Federation, number: int, is_after: bool) -> None:
    """A write is a file put in its place; what was not yet there is made again."""
    victim, ordered = federation.nodes[0], federation.order(SYSTEM)
    with killed_at_write(number, federation.folder / victim, NodeKilled(), is_after) as written:
        reports = ordered.finish()
    ordered.assert_equals(undisturbed())
    assert len(written) >= number
    assert [report.status for report in reports] == ["paused", "done"]


@pytest.mark.parametrize(
    ("number", "is_after"),
    [(number, True) for number in range(1, 13)] + [(number, False) for number in (3, 8, 12)],
)
def test_the_server_can_be_killed_at_every_write(federation: Federation, number: int, is_after: bool) -> None:
    ordered = federation.order(SYSTEM)
    with killed_at_write(number, ordered.folder, ServerKilled(), is_after) as written:
        reports = ordered.finish()
    ordered.assert_equals(undisturbed())
    assert reports[-1].round_number == 3
    assert read_run(ordered.folder).folds[0].num_rounds == 3
    assert ordered.attempt == 2, written


def test_writes_that_are_tested_are_all_there_are(federation: Federation) -> None:
    """The ranges above end with the last write of an undisturbed run."""
    ordered = federation.order(SYSTEM)
    with killed_at_write(0, ordered.folder, ServerKilled(), False) as written:
        ordered.drive()
    assert len(written) == 12, written
    with killed_at_write(0, federation.folder / federation.nodes[0], NodeKilled(), False) as written:
        federation.order(SYSTEM).drive()
    assert len(written) == 12, written


def test_a_finished_run_can_be_asked_for_again(federation: Federation) -> None:
    """The last word of the job was lost; another job finds nothing left to do but to measure."""
    ordered, wire = federation.order(SYSTEM), Wire(federation)
    ordered.drive()
    report = ordered.drive(wire)
    assert report.status == "done", report.reason
    assert {leg.phase for leg in wire.legs} == {"enrol", "start", "agree", "measure"}
    ordered.assert_equals(undisturbed())


def test_bytes_are_not_counted_twice(federation: Federation) -> None:
    whole, disturbed = federation.order(SYSTEM), federation.order(SYSTEM)
    whole.drive()
    disturbed.finish(Wire(federation, once(7, "node-1", too_late)))
    one, other = (read_run(ordered.folder).folds[0] for ordered in (whole, disturbed))
    assert one.sent_bytes == other.sent_bytes
    assert one.messages == other.messages
    assert one.metrics == other.metrics


# --- Who is gone for good --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "first_round"),
    [("start", 1), ("agree", 1), ("ItemFactors", 2), ("DenoiserFactors", 2), ("Settle", 3), ("measure", 4)],
)
@pytest.mark.parametrize("fate", [never_arrives, too_late], ids=lambda fate: fate.__name__)
def test_the_run_goes_on_without_a_node(federation: Federation, phase: str, first_round: int, fate: Fate) -> None:
    """As in one process when its clients are lost from that round on; the rest stays lossless."""
    place = {"start": 2, "agree": 3, "ItemFactors": 6, "DenoiserFactors": 7, "Settle": 10, "measure": 11}[phase]
    ordered, probe = federation.order(SYSTEM), Wire(federation)
    federation.order(SYSTEM).drive(probe)
    victim = [leg.node for leg in probe.legs if leg.place == place][-1]
    wire = Wire(federation, lambda leg: fate if leg.node == victim and leg.place >= place else None)
    assert ordered.drive(wire).status == "paused"
    assert ordered.finish(wire, away=[victim])[-1].status == "done"
    numbers = tuple(federation.numbers(victim).tolist())
    ordered.assert_equals(without(first_round, numbers), away=[victim])


def test_a_node_that_was_away_can_come_back(federation: Federation) -> None:
    """Lost in round 2, back in round 3: the losses of one process in round 2 only."""
    ordered, victim = federation.order(SYSTEM), "node-2"

    def mishap(leg: Leg) -> Fate | None:
        if leg.node == victim and leg.round_number == 2:
            return too_late
        return server_killed_before if leg.phase == "ItemFactors" and leg.round_number == 3 and is_first else None

    is_first = True
    assert ordered.drive(Wire(federation, mishap)).status == "paused"
    with pytest.raises(ServerKilled):
        ordered.drive(Wire(federation, mishap), away=[victim])
    assert ordered.drive().status == "done"
    numbers = federation.numbers(victim)
    expected = in_process(
        SYSTEM, small(SYSTEM), some_split(), lambda number, _request, to: np.isin(to, numbers) & (number == 2)
    )
    ordered.assert_equals(expected)


def test_an_onion_goes_on_without_a_node(federation: Federation) -> None:
    ordered, victim = federation.order(SYSTEM, relay="onion"), "node-3"
    wire = Wire(federation, lambda leg: never_arrives if leg.node == victim and leg.round_number >= 2 else None)
    assert ordered.drive(wire).status == "paused"
    assert ordered.finish(wire, away=[victim], most=2)[-1].status == "done"
    ordered.assert_equals(without(2, tuple(federation.numbers(victim).tolist())), away=[victim])


def test_a_run_can_begin_without_a_node(federation: Federation) -> None:
    """Its clients' numbers were agreed on, so that the others are who they are."""
    ordered = federation.order(SYSTEM)
    assert ordered.drive(away=["node-2"]).status == "done"
    ordered.assert_equals(without(1, tuple(federation.numbers("node-2").tolist())), away=["node-2"])


# --- Who talks nonsense ----------------------------------------------------------------------------------------


def changed(**values: Any) -> Fate:
    """The node's reply, with other fields."""

    def fate(deliver: Deliver, packet: bytes) -> bytes:
        reply = opened(deliver(packet))
        known = {name: getattr(reply, name) for name in reply.__dataclass_fields__}
        return encode_packet(Packet(**{**known, **values}))

    return fate


GARBAGE: dict[str, Fate] = {
    "nothing": lambda deliver, packet: deliver(packet)[:0],
    "noise": lambda deliver, packet: np.random.default_rng(0).bytes(len(deliver(packet))),
    "cut": lambda deliver, packet: deliver(packet)[:-8],
    "its own request": lambda _deliver, packet: packet,
    "another run": changed(run_id=bytes(16)),
    "another round": changed(round_number=9),
    "another call": changed(sequence=1),
    "a refusal": changed(kind=Kind.REFUSAL, about=msgspec.msgpack.encode(Refusal("no")), sections=()),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_once_is_asked_for_again(federation: Federation, what: str) -> None:
    """One node in every call, within the same attempt: the second time it makes sense."""
    garbled: set[tuple[str, int]] = set()

    def mishap(leg: Leg) -> Fate | None:
        is_first = (leg.phase, leg.round_number) not in garbled
        garbled.add((leg.phase, leg.round_number))
        return GARBAGE[what] if is_first else None

    reports = finished(federation.order(SYSTEM, relay="onion"), mishap)
    assert [report.status for report in reports] == ["done"]
    assert {phase for phase, _ in garbled} == set(PHASES)


@pytest.mark.parametrize("phase", PHASES)
def test_a_reply_without_sense_loses_the_node_and_not_the_run(
    federation: Federation, legs: list[Leg], phase: str
) -> None:
    ordered, victim = federation.order(SYSTEM, relay="onion"), victim_of(legs, phase)
    reports = finished(ordered, once(PHASES[phase], victim, changed(about=b"\xc1", sections=())))
    assert [report.status for report in reports] == ["paused", "done"]
    assert list(reports[0].lost) == [victim]


@pytest.mark.parametrize("phase", ["ItemFactors", "DenoiserFactors", "Settle", "assign"])
def test_another_nodes_reply_is_no_reply(federation: Federation, phase: str) -> None:
    """The second node of a call gives the first one's reply for its own."""
    ordered, held, garbled = federation.order(SYSTEM), list[bytes](), list[str]()

    def mishap(leg: Leg) -> Fate | None:
        if leg.phase != phase or leg.round_number not in (0, 2, 3) or garbled:
            return None

        def keep_or_swap(deliver: Deliver, packet: bytes) -> bytes:
            own = deliver(packet)
            if held:
                garbled.append(leg.node)
                return held.pop()
            held.append(own)
            return own

        return keep_or_swap

    reports = finished(ordered, mishap)
    assert list(reports[0].lost) == garbled
    assert [report.status for report in reports] == ["paused", "done"]


def resaid(change: Callable[[Any], Any], kind: type[Any]) -> Fate:
    """The node's own words, changed."""

    def fate(deliver: Deliver, packet: bytes) -> bytes:
        reply = opened(deliver(packet))
        said = change(msgspec.msgpack.decode(reply.about, type=kind))
        known = (reply.kind, reply.run_id, reply.round_number, reply.sequence)
        return encode_packet(Packet(*known, msgspec.msgpack.encode(said), reply.sections))

    return fate


SENSELESS: dict[str, Callable[[Enrolled], Enrolled]] = {
    "letters of a petabyte": lambda said: msgspec.structs.replace(said, letter_bytes=1 << 50),
    "another count": lambda said: msgspec.structs.replace(said, num_clients=said.num_clients + 1),
    "numbers below zero": lambda said: Enrolled(2, [-1, -2], said.letter_bytes),
    "numbers beyond all": lambda said: Enrolled(1, [2**63], said.letter_bytes),
    "the same number twice": lambda said: Enrolled(2, [0, 0], said.letter_bytes),
}


@pytest.mark.parametrize("what", SENSELESS)
def test_an_enrolment_without_sense_loses_the_node(federation: Federation, what: str) -> None:
    ordered = federation.order(SYSTEM, relay="onion")
    reports = finished(ordered, once(0, "node-2", resaid(SENSELESS[what], Enrolled)))
    assert list(reports[0].lost) == ["node-2"]


MISMEASURED: dict[str, Callable[[Measured], Measured]] = {
    "no ratings": lambda said: Measured(said.metrics, 0, 0, 10),
    "not a number": lambda said: msgspec.structs.replace(said, metrics={"RMSE": float("nan")}),
    "infinite": lambda said: msgspec.structs.replace(said, metrics={"RMSE": float("inf")}),
    "below zero": lambda said: msgspec.structs.replace(said, num_test=-said.num_test),
    "no digest": lambda said: msgspec.structs.replace(said, model_sha256="[red]" + 59 * "a"),
}


@pytest.mark.parametrize("what", MISMEASURED)
def test_a_measurement_without_sense_loses_the_node(federation: Federation, what: str) -> None:
    ordered = federation.order(SYSTEM)
    reports = finished(ordered, once(11, "node-2", resaid(MISMEASURED[what], Measured)))
    assert list(reports[0].lost) == ["node-2"]
    assert set(read_run(ordered.folder).folds[0].metrics) >= {"MAE", "RMSE"}


def test_a_node_cannot_name_a_model_that_the_server_knows(federation: Federation) -> None:
    fate = resaid(lambda said: msgspec.structs.replace(said, model_sha256=64 * "a"), Measured)
    ordered = federation.order(SYSTEM)
    finished(ordered, lambda leg: fate if leg.phase == "measure" else None)
    ordered.assert_equals(undisturbed())


def test_nobody_counts_test_ratings_without_training_ratings(federation: Federation) -> None:
    """A node does not know which items have training ratings on others."""
    ordered = federation.order(SYSTEM)
    ordered.drive()
    assert read_run(ordered.folder).folds[0].num_cold is None


def test_a_node_cannot_make_the_report_unreadable(federation: Federation) -> None:
    fate = resaid(lambda said: msgspec.structs.replace(said, seconds={"compute": float("nan")}), Contents)
    ordered = federation.order(SYSTEM)
    finished(ordered, lambda leg: fate if leg.phase == "ItemFactors" else None)
    assert read_report(ordered.folder) is not None


def test_garbage_in_sealed_mail_does_not_end_the_run(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but the denoiser can see it: an item that is not in the catalogue."""
    honest, num_left = fedrec_plus_plus.reply, 1

    def dishonest(*about: Any) -> Any:
        nonlocal num_left
        reply = honest(*about)
        if num_left:
            num_left -= 1
            reply.mail[0].message.items.values[0] = 1000
        return reply

    monkeypatch.setattr(fedrec_plus_plus, "reply", dishonest)
    reports = finished(federation.order(SYSTEM), lambda _leg: None)
    assert [report.status for report in reports] == ["paused", "done"]


# --- What ends a run -------------------------------------------------------------------------------------------


def test_what_a_node_does_not_agree_to_ends_the_run_in_one_line(federation: Federation) -> None:
    federation.settle("node-2", systems=["fedrec"])
    try:
        report = federation.order(SYSTEM).drive()
    finally:
        federation.settle("node-2")
    expected = "this node does not take part in fedrec++; its owner can allow it with --allow"
    assert report.status == "failed"
    assert report.reason == f"round 0, enrol: node-2 refused: {expected}"


def test_divergence_ends_the_run_with_the_remedy(federation: Federation) -> None:
    config = small(SYSTEM, learning_rate=1000.0, decay=1.0, num_rounds=30)
    report = federation.order(SYSTEM, config).drive()
    assert report.status == "failed"
    assert "use a --learning-rate below 1000" in report.reason
    assert "\n" not in report.reason


def test_nodes_must_agree_on_numbers_or_have_none(federation: Federation) -> None:
    federation.settle("node-2", numbers=None)
    try:
        report = federation.order(SYSTEM).drive()
    finally:
        federation.settle("node-2")
    assert report.status == "failed"
    assert report.reason == ("some nodes have agreed numbers of clients, not node-2; use --numbers on all or none")


def test_two_nodes_with_the_same_clients_are_refused(federation: Federation) -> None:
    share = federation.shares["node-1"]
    federation.settle("node-2", data=str(share.data), numbers=str(share.numbers), test=None)
    try:
        report = federation.order(SYSTEM).drive()
    finally:
        federation.settle("node-2")
    assert report.status == "failed"
    assert "not 0, 1, 2, ... each on one node" in report.reason


def test_without_agreed_numbers_clients_are_dealt_by_name(federation: Federation) -> None:
    for name in federation.nodes:
        federation.settle(name, numbers=None)
    try:
        ordered = federation.order(SYSTEM)
        ordered.finish(Wire(federation, once(7, "node-2", too_late)))
    finally:
        for name in federation.nodes:
            federation.settle(name)
    sizes = [len(federation.numbers(name)) for name in federation.nodes]
    assert np.isfinite(ordered.private()["user_factors"]).all()
    assert len(ordered.private()["user_factors"]) <= sum(sizes)
    assert ordered.model_sha256() != undisturbed().model_sha256


def test_two_jobs_on_one_run_wait_for_each_other(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second job that finds the first one still there gives up after a while and changes nothing."""
    monkeypatch.setattr("hushrec.deploy.driver._LOCK_SECONDS", 0.2)
    ordered = federation.order(SYSTEM)
    job = msgspec.json.encode(Attempt(ordered.order.run_name, 9))
    told = []

    def meanwhile(deliver: Deliver, packet: bytes) -> bytes:
        with pytest.raises(HushrecError, match="an earlier job still works on") as caught:
            drive(Wire(federation), federation.nodes, federation.folder, job)
        told.append(str(caught.value))
        return deliver(packet)

    finished(ordered, once(4, "node-1", meanwhile))
    assert len(told) == 1


# --- Anything, at any time -------------------------------------------------------------------------------------

ANY = [never_arrives, too_late, server_killed_before, server_killed_after, *GARBAGE.values()]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed >= 30 else ()) for seed in range(120)]
)
def test_a_random_schedule_of_mishaps_ends_with_the_same_bits(federation: Federation, seed: int) -> None:
    """A packet in 12 meets a mishap, half of which kill the node as well, until 5 have happened."""
    drawn, num_left = np.random.default_rng(seed), 5
    relay = "onion" if seed % 2 else "direct"

    def mishap(leg: Leg) -> Fate | None:
        nonlocal num_left
        if not num_left or drawn.random() > 1 / 12:
            return None
        num_left -= 1
        fate, is_killed = ANY[drawn.integers(len(ANY))], drawn.random() < 0.5

        def fate_and_death(deliver: Deliver, packet: bytes) -> bytes:
            try:
                return fate(deliver, packet)
            finally:
                if is_killed:
                    federation.kill(leg.node)

        return fate_and_death

    finished(federation.order(SYSTEM, relay=relay), mishap)
