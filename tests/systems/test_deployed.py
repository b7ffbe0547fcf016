"""What every system owes on a network: the bits of a run in one process, whoever hosts whom."""

from collections.abc import Callable
from dataclasses import fields
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
    Lost,
    Wire,
    in_process,
    losing_from,
    small,
    split_for,
)
from hushrec.data import holdings
from hushrec.data.holdings import Holders
from hushrec.deploy.orders import Invitation
from hushrec.privacy.secure_sum.messages import Shares
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import load_train
from hushrec.runtime.packets import Contents, about, decode_packet
from hushrec.runtime.training import prepared
from hushrec.settings import shown_to_parties

NAMES = list(SYSTEMS)
PARTNERS = [name for name in NAMES if SYSTEMS[name].holders is holdings.PARTNERS]
ALONE = [
    name for name in NAMES if SYSTEMS[name].holders is holdings.SOLE_OWNER
]  # its node, beside that of the users
OWNED = [name for name in NAMES if SYSTEMS[name].holders is holdings.OWNERS] + ALONE
# All partners write to all others, users to all owners: who writes to whom is no secret.
# Shares of secure sums are mail, too; without that switch none are written.
WITH_ONIONS = [
    name for name in NAMES if set(SYSTEMS[name].inboxes) - {Shares} and SYSTEMS[name].holders.hides_writers
]


def many(name: str) -> int:
    """Of nodes: with partners, each pair of them has work to do; of owners, one has an owner more than another."""
    return 1 if name in ALONE else 3 if name in (*PARTNERS, *OWNED) else 5


def two(name: str) -> int:
    """Nodes, if there can be as many."""
    return min(2, many(name))


def with_counts(names: list[str]) -> list[tuple[str, int]]:
    """Systems and numbers of nodes; a partner is not alone."""
    counts = [(name, count) for name in names for count in (1, 2, many(name)) if count <= many(name)]
    return sorted({(name, count) for name, count in counts if count > 1 or name not in PARTNERS})


Federations = Callable[[str, int], Federation]


@pytest.fixture(scope="module")
def federations(tmp_path_factory: pytest.TempPathFactory) -> Federations:
    """For a system, by number of nodes; each deals the clients in another way."""
    folder = tmp_path_factory.mktemp("federations")

    @cache
    def made(holders: Holders[Any], count: int) -> Federation:
        some = next(name for name in NAMES if SYSTEMS[name].holders is holders)
        return Federation(folder / f"{type(holders).__name__}-{count}", count, split_for(some, count), seed=count)

    return lambda name, count: made(SYSTEMS[name].holders, count)


@cache
def expected(name: str, num_nodes: int) -> Expected:
    """Whoever hosts users, they are the same; partners are not."""
    if name not in PARTNERS and num_nodes:
        return expected(name, 0)
    return in_process(name, small(name), split_for(name, num_nodes))


@pytest.mark.parametrize(("name", "num_nodes"), with_counts(NAMES))
def test_deployed_equals_one_process(name: str, num_nodes: int, federations: Federations) -> None:
    ordered = federations(name, num_nodes).order(name)
    report = ordered.drive()
    assert (report.status, report.reason, report.round_number) == ("done", "", 3)
    ordered.assert_equals(expected(name, num_nodes))


@pytest.mark.parametrize(("name", "num_nodes"), with_counts(WITH_ONIONS))
def test_onions_change_nothing(name: str, num_nodes: int, federations: Federations) -> None:
    """And all letters of a run have one size."""
    ordered, wire = federations(name, num_nodes).order(name, relay="onion"), Wire(federations(name, num_nodes))
    assert ordered.drive(wire).status == "done"
    ordered.assert_equals(expected(name, num_nodes))
    sizes = {
        (leg.phase == "relay", len(section))
        for leg, reply in wire.replies
        if leg.phase in {kind.__name__ for kind in SYSTEMS[name].handlers} | {"relay"}
        for section in decode_packet(reply).sections[about(decode_packet(reply), Contents).num_frames :]
    }
    assert len(sizes) == 2, "one size of onions, one of what relays make of them"


@pytest.mark.parametrize(
    ("name", "relay"),
    [(name, "direct") for name in NAMES] + [(name, "onion") for name in WITH_ONIONS],
)
def test_a_new_process_for_every_packet_changes_nothing(name: str, relay: Any, federations: Federations) -> None:
    ordered = federations(name, two(name)).order(name, relay=relay)
    assert ordered.drive(Wire(federations(name, two(name)), reopens=True)).status == "done"
    ordered.assert_equals(expected(name, two(name)))


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_survives_a_lost_reply_and_a_dead_node(name: str, federations: Federations) -> None:
    """In one run: in each phase, once, a node serves its packet and dies before anybody hears of it."""
    federation = federations(name, two(name))
    ordered, lost_in = federation.order(name), set[str]()

    def mishap(leg: Leg) -> Any:
        if leg.phase in lost_in:
            return None
        lost_in.add(leg.phase)

        def fate(deliver: Any, packet: bytes) -> bytes:
            deliver(packet)
            federation.kill(leg.node)
            raise Lost("killed")

        return fate

    ordered.finish(Wire(federation, mishap), most=12)
    run = expected(name, two(name))
    asked = {kind.__name__ for kind in SYSTEMS[name].handlers if run.progress.transcript.total(kind).messages}
    assert asked
    assert lost_in >= {"enrol", "assign", "start", "measure"} | asked
    ordered.assert_equals(run)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ALONE])
def test_a_node_that_is_gone_takes_its_clients_with_it(name: str, federations: Federations) -> None:
    """From the round on in which it was lost: 2, or 1 where only the first round asks anybody."""
    federation, victim = federations(name, many(name)), "node-3"
    first = 1 if SYSTEMS[name].about.hands_over_data else 2

    def mishap(leg: Leg) -> Any:
        def fate(_deliver: Any, _packet: bytes) -> bytes:
            raise Lost("connection refused")

        is_gone = leg.round_number >= first and leg.phase not in ("enrol", "assign", "start")
        return fate if leg.node == victim and is_gone else None

    ordered = federation.order(name)
    assert ordered.drive(Wire(federation, mishap)).status == "paused"
    assert ordered.drive(Wire(federation, mishap), away=[victim]).status == "done"
    losses = losing_from(first, federation.numbers(victim))
    ordered.assert_equals(in_process(name, small(name), federation.split, losses), away=[victim])


@pytest.mark.parametrize("name", NAMES)
def test_what_travels_is_counted_as_in_one_process(name: str, federations: Federations) -> None:
    """As many messages and rows of each type; mail is counted by letter, and nobody looks inside."""
    ordered = federations(name, many(name)).order(name)
    ordered.drive()
    transcript = expected(name, many(name)).progress.transcript
    for count in read_run(ordered.folder).folds[0].messages:
        [kind] = [kind for kind in SYSTEMS[name].messages if kind.__name__ == count.type]
        total = transcript.total(kind)
        if kind in SYSTEMS[name].inboxes:
            assert count.messages <= total.messages
            assert (count.messages > 0) == (total.messages > 0)
        else:
            assert (count.messages, count.rows) == (total.messages, total.rows)
        assert (count.bytes > 0) == (total.messages > 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_server_knows_items_and_a_number_of_clients(name: str, federations: Federations) -> None:
    ordered = federations(name, two(name)).order(name)
    ordered.drive()
    known = load_train(ordered.folder / "fold-1" / "train.npz", SYSTEMS[name], "", "", False)
    assert len(known) == 0
    items = [] if name in PARTNERS else federations(name, two(name)).split.train.item_ids
    np.testing.assert_array_equal(known.item_ids, items)
    assert known.user_ids.tolist() == list(range(2 if name in PARTNERS else 30))


@pytest.mark.parametrize(
    ("name", "num_nodes"), with_counts([name for name in NAMES if SYSTEMS[name].result.party])
)
def test_metrics_equal_those_of_one_process(name: str, num_nodes: int, federations: Federations) -> None:
    """To rounding: a mean of the nodes' means, weighted, is summed in another order."""
    ordered, split, system = (
        federations(name, num_nodes).order(name, min_raters=0),
        split_for(name, num_nodes),
        SYSTEMS[name],
    )
    ordered.drive()
    done, progress = read_run(ordered.folder).folds[0], expected(name, num_nodes).progress
    train, test = prepared(system, split.train), prepared(system, split.test)
    scorer = system.result.party(progress.private, system.configure(small(name)), train.rating_range)
    whose = "client " if system.result.server else ""
    metrics = {
        f"{whose}{metric}": value for metric, value in system.feedback.evaluate(scorer, train, test, (10,)).items()
    }
    measured = {metric for metric in done.metrics if not metric.startswith("node-")}  # the others: of one partner
    assert measured == metrics.keys()
    for metric, value in metrics.items():
        assert done.metrics[metric] == pytest.approx(value, rel=1e-5), metric
    assert (done.num_train, done.num_test) == (len(split.train), len(split.test))
    assert msgspec.json.decode((ordered.folder / "run.json").read_bytes())["party"] == "server"


# --- What the server keeps to itself -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_secret_settings_never_leave_the_server(name: str, federations: Federations) -> None:
    """No packet has a name or a value of one; a node's files have the defaults, not the values."""
    system, secret = SYSTEMS[name], _secret_settings(name)
    values = {key: value for key, value in UNMISTAKABLE.items() if key in secret}
    federation = federations(name, two(name))
    ordered, wire = federation.order(name, small(name, **values)), Wire(federation)
    assert ordered.drive(wire).status == "done"
    enrolled = [packet for leg, packet in wire.requests if leg.phase == "enrol"]
    assert enrolled
    for packet in enrolled:
        invitation = about(decode_packet(packet), Invitation)
        assert invitation.config == shown_to_parties(system.configure(ordered.order.config))
        assert not secret & invitation.config.keys()
    told = [str(value).encode() for value in values.values()]
    for data in (data for _, data in (*wire.requests, *wire.replies)):
        assert not [needle for needle in (*told, *(name.encode() for name in secret)) if needle in data]
    for path in (path for node in federation.nodes for path in files_of(ordered.node_folder(node))):
        assert not [needle for needle in told if needle in path.read_bytes()]


UNMISTAKABLE: dict[str, Any] = {
    "server_model": "lightgcn",
    "server_learning_rate": 0.0123,
}


def _secret_settings(name: str) -> set[str]:
    return {entry.name for entry in fields(SYSTEMS[name].config) if entry.metadata.get("is_secret")}


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_ptf_fedrecs_server_hides_its_model() -> None:
    assert _secret_settings("ptf-fedrec") == {
        "server_model", "confident_share", "dispersal", "message_dropout", "from_popularity",
        *(entry.name for entry in fields(SYSTEMS["ptf-fedrec"].config) if entry.name.startswith("server_")),
    }  # fmt: skip


def test_nodes_of_fedmf_need_one_key(federations: Federations) -> None:
    """With seeds of their own they have keys of their own: refused, not decrypted to noise."""
    ordered = federations("fedmf", 2).order("fedmf", small("fedmf", encryption="bfv"), shares_seed=False)
    report = ordered.drive()
    assert report.status in ("failed", "paused")
    assert "\n" not in report.reason
    assert "--seeds shared" in report.reason


def test_fedmf_with_ciphertexts_equals_one_process(federations: Federations) -> None:
    ordered, config = federations("fedmf", 2).order("fedmf", small("fedmf", encryption="bfv")), small("fedmf")
    assert ordered.drive().status == "done"
    ordered.assert_equals(in_process("fedmf", config, split_for("fedmf", 2)))
