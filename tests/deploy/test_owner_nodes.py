"""Owners and the users' side as nodes: the same bits as in one process, whoever is killed; what each one sees."""

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

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
    losing_from,
    opened,
    owner_split,
    small,
    split_for,
)

from hushrec.cli.deploy import OwnFiles
from hushrec.cli.work.deploy import node_files
from hushrec.data import Interactions
from hushrec.data.holdings import OWNERS, SOLE_OWNER
from hushrec.data.holdings.node_files import Catalogue, NodeFiles, read_held_items, read_own
from hushrec.data.holdings.owners import owners_of, rows_of_owners
from hushrec.deploy.orders import Enrolled
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import load_fold
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import load_train, read_arrays
from hushrec.runtime.packets import contents_of
from hushrec.runtime.wire import decode
from hushrec.systems.drift import kept_by_users
from hushrec.systems.drift.members import owner_key
from hushrec.systems.drift.messages import OwnerKey, SentInteractions
from hushrec.systems.drift.store import OwnerStore

COMMAND = [sys.executable, "-m", "hushrec.cli.app"]
NAME, STORE = "drift", Path("fold-1") / "owners.sqlite"
CATALOGUE = Catalogue(["1", "2", "3", "10"], True)


def settings(**values: Any) -> dict[str, Any]:
    """A short run: two epochs in two rounds each; groups of blocks from several rounds."""
    return small(NAME, **{"epochs": 2, "parts": 2, "theta": 5, "window": 80, **values})


@cache
def undisturbed() -> Expected:
    return in_process(NAME, settings(), owner_split())


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("owners") / "f", 3, owner_split())


@pytest.fixture(scope="module")
def done(federation: Federation) -> tuple[Ordered, Wire]:
    """An undisturbed run, and all that went over the wire."""
    ordered, wire = federation.order(NAME, settings()), Wire(federation)
    report = ordered.drive(wire)
    assert report.status == "done", report.reason
    return ordered, wire


def num_deliveries(data: Interactions, epochs: int = 2) -> int:
    return epochs * int(np.diff(owners_of(data).starts)[data.items].sum())


def assert_whole(ordered: Ordered, expected: Expected) -> None:
    """The right model, and every interaction accepted once."""
    assert ordered.model_sha256() == expected.model_sha256
    facts = read_run(ordered.folder).folds[0].facts
    assert facts == SYSTEMS[ordered.order.system].result.facts(expected.progress.private, None)
    assert facts["interactions accepted"] == num_deliveries(ordered.federation.split.train)


# --- The same bits ---------------------------------------------------------------------------------------------


def test_nodes_of_owners_give_the_model_of_one_process(done: tuple[Ordered, Wire]) -> None:
    assert_whole(done[0], undisturbed())


@pytest.mark.parametrize(("name", "num_nodes"), [("drift", 5), ("drift", 1), ("saros", 1)])
def test_however_the_owners_are_dealt(tmp_path: Path, name: str, num_nodes: int) -> None:
    split = split_for(name, num_nodes)
    config = small(name, epochs=2, parts=2)
    ordered = Federation(tmp_path / "f", num_nodes, split).order(name, config)
    assert ordered.drive().status == "done"
    assert_whole(ordered, in_process(name, config, split))


def test_what_was_dealt_are_items_and_events_in_order(tmp_path: Path) -> None:
    train = owner_split().train
    shares = OWNERS.deal(owner_split(), ["a", "b", "users"], 0, tmp_path)
    held = {name: read_held_items(Path(shares[name].owned or ""), "") for name in ("a", "b")}
    assert {line.owner for line in held["a"]} == {"owner1", "owner3", "owner5"}
    assert len(held["a"]) + len(held["b"]) == len(owners_of(train).owners)
    assert (shares["a"].data, shares["a"].test, shares["users"].owned) == (None, None, None)
    catalogue = Catalogue([str(item) for item in train.item_ids.tolist()], True)
    rows = rows_of_owners(OWNERS.read(shares["users"], "users", catalogue, (0.0, 1.0)).train)
    for name in ("users", "items", "is_positive"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(rows_of_owners(train), name))
    assert rows.num_users == train.num_users


def test_more_nodes_than_owners_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="6 nodes for 5 owners; use at most one node per owner"):
        OWNERS.deal(owner_split(), [*(f"n{place}" for place in range(6)), "users"], 0, tmp_path)


# --- Who sees what ---------------------------------------------------------------------------------------------


def test_owners_hold_no_event_and_the_users_side_no_block(done: tuple[Ordered, Wire]) -> None:
    ordered, _ = done
    for name in ordered.federation.nodes:
        folder = ordered.node_folder(name)
        train = load_train(folder / "fold-1" / "train.npz", SYSTEMS[NAME], "", "", False)
        assert (len(train) > 0) == (train.num_users > 0) == (name == "users")
        assert (folder / STORE).exists() == (name != "users")
    assert len(read_arrays(ordered.node_folder("users") / "fold-1" / "state.npz")["private.entries"]) == 0


def test_a_store_has_only_interactions_with_own_items(done: tuple[Ordered, Wire]) -> None:
    ordered, _ = done
    owners = owners_of(owner_split().train)
    num_found = 0
    for name in ("node-1", "node-2", "node-3"):
        with closing(sqlite3.connect(ordered.node_folder(name) / STORE)) as file:
            rows = file.execute("SELECT owner, item FROM interactions").fetchall()
        numbers = set(ordered.federation.numbers(name).tolist())
        for owner, item in rows:
            assert owner in numbers
            assert owner in owners.owners[owners.starts[item] : owners.starts[item + 1]]
        num_found += len(rows)
    assert num_found > 50


def test_no_key_and_no_interaction_is_in_what_the_server_relays(done: tuple[Ordered, Wire]) -> None:
    """Keys are sealed to the users' side, and what is encrypted under them is sealed once more to the owners."""
    packets = [data for leg, data in (*done[1].requests, *done[1].replies) if leg.round_number]
    keys = [owner_key(Draws(0), number) for number in range(5)]
    assert len(set(keys)) == 5
    assert not any(key in data for key in keys for data in packets)
    messages = SYSTEMS[NAME].messages
    frames = [frame for data in packets for frame in contents_of(opened(data))[0]]
    in_the_clear = {type(decode(frame, messages).message) for frame in frames}
    with_kept_vectors = set(kept_by_users.MESSAGES)
    assert in_the_clear == set(messages) - with_kept_vectors - {OwnerKey, SentInteractions}


def test_mail_goes_only_with_the_ask_that_reads_it(done: tuple[Ordered, Wire]) -> None:
    num_letters: dict[str, int] = {}
    for leg, data in done[1].requests:
        if leg.round_number:
            num_letters[leg.phase] = num_letters.get(leg.phase, 0) + len(contents_of(opened(data))[1])
    assert num_letters["TakeIn"] > 0
    assert num_letters["Begin"] > 0
    assert {num_letters[phase] for phase in ("Register", "NextWindow", "Vectors", "Recommend")} == {0}


def test_the_server_recommends_by_number(done: tuple[Ordered, Wire]) -> None:
    """The users' side has the ids of the numbers, and the server has not."""
    ordered, _ = done
    job, progress = load_fold(ordered.folder)
    train = owner_split().train
    assert job.train.user_ids.tolist() == list(range(train.num_users))
    expected = undisturbed().progress
    users = np.arange(train.num_users, dtype=np.int32)
    ours = job.system.result.server(expected.state, job.config, None).score(users)
    np.testing.assert_array_equal(job.scorer(progress).score(users), ours)
    lines = (ordered.node_folder("users") / "users.tsv").read_text().splitlines()
    assert [line.split("\t") for line in lines] == [[str(user), str(n)] for n, user in enumerate(train.user_ids)]


def test_the_server_keeps_how_many_owners_there_are(done: tuple[Ordered, Wire]) -> None:
    run = read_run(done[0].folder)
    assert (run.party, run.party_name, run.num_parties) == ("server", "owner", 5)


def test_onions_are_of_no_use_to_owners(federation: Federation) -> None:
    with pytest.raises(HushrecError, match="--relay onion hides who writes to whom; in drift everybody knows"):
        federation.order(NAME, settings(), relay="onion")


# --- Who dies and comes back -----------------------------------------------------------------------------------


def killed_before(_deliver: Deliver, _packet: bytes) -> bytes:
    raise Lost("connection refused")


def killed_after(deliver: Deliver, packet: bytes) -> bytes:
    deliver(packet)
    raise Lost("connection closed")


PHASES = ("Register", "NextWindow", "TakeIn", "Vectors")


@pytest.mark.parametrize(
    ("phase", "fate"), [*((phase, killed_after) for phase in PHASES), ("TakeIn", killed_before)]
)
def test_a_node_that_dies_in_a_phase_comes_back(
    federation: Federation, done: tuple[Ordered, Wire], phase: str, fate: Fate
) -> None:
    """In the middle of the run, where the phase is in it more than once."""
    legs = [leg for leg in done[1].legs if leg.phase == phase]
    chosen = legs[len(legs) // 2]
    ordered = federation.order(NAME, settings())

    def mishap(leg: Leg) -> Fate | None:
        if (leg.place, leg.node) != (chosen.place, chosen.node):
            return None

        def ends(deliver: Deliver, packet: bytes) -> bytes:
            try:
                return fate(deliver, packet)
            finally:
                federation.kill(leg.node)

        return ends

    reports = ordered.finish(Wire(federation, mishap))
    assert [report.status for report in reports] == ["paused", "done"]
    assert_whole(ordered, undisturbed())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_kills_at_random_moments_change_nothing(federation: Federation, seed: int) -> None:
    """Owners, the users' side and the server, before or after they did their work; up to twelve times a run."""
    chance, ordered, num_killed = random.Random(seed), federation.order(NAME, settings()), 0

    def mishap(leg: Leg) -> Fate | None:
        nonlocal num_killed
        if num_killed == 12 or chance.random() > 0.05:
            return None
        num_killed += 1
        kind = chance.choice(["before", "after", "server"])

        def ends(deliver: Deliver, packet: bytes) -> bytes:
            if kind != "before":
                deliver(packet)
            if kind == "server":
                raise ServerKilled
            federation.kill(leg.node)
            raise Lost("connection closed")

        return ends

    ordered.finish(Wire(federation, mishap), most=40)
    assert num_killed >= 4
    assert_whole(ordered, undisturbed())


def test_a_kill_while_the_store_is_written(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply does not leave, the transaction is not there, the round begins again."""
    save, calls = OwnerStore._save_interactions, 0

    def dies(self: OwnerStore, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (7, 40, 90):
            monkeypatch.setattr(self, "_file", Dead(self._file))
            raise NodeKilled
        return save(self, *arguments)

    monkeypatch.setattr(OwnerStore, "_save_interactions", dies)
    ordered = federation.order(NAME, settings())
    reports = ordered.finish()
    assert [report.status for report in reports] == ["paused"] * 3 + ["done"]
    assert_whole(ordered, undisturbed())


class Dead:
    """The connection of a dead process: nothing was committed, and nothing is rolled back by hand."""

    in_transaction = False

    def __init__(self, file: sqlite3.Connection) -> None:
        file.close()


def test_owners_that_are_lost_for_good_are_left_out_from_then_on(federation: Federation) -> None:
    lost = "node-2"
    expected = in_process(NAME, settings(), owner_split(), losing_from(3, federation.numbers(lost)))
    ordered = federation.order(NAME, settings())

    def gone(leg: Leg) -> Fate | None:
        return killed_before if leg.node == lost and leg.round_number == 3 else None

    assert ordered.drive(Wire(federation, gone)).status == "paused"
    assert ordered.drive(away=[lost]).status == "done"
    assert ordered.model_sha256() == expected.model_sha256
    assert expected.model_sha256 != undisturbed().model_sha256


def test_without_the_users_side_nothing_goes_on(federation: Federation) -> None:
    ordered = federation.order(NAME, settings())

    def gone(leg: Leg) -> Fate | None:
        return killed_before if leg.node == "users" and leg.round_number == 2 else None

    ordered.drive(Wire(federation, gone))
    report = ordered.drive(away=["users"])
    assert (report.status, report.reason) == (
        "failed",
        "the users' side is lost: no event comes; bring it back and use --resume",
    )
    assert ordered.drive().status == "done"
    assert_whole(ordered, undisturbed())


def _missing(path: Path) -> None:
    path.unlink()


def _damaged(path: Path) -> None:
    path.write_bytes(b"nothing" * 1000)


@pytest.mark.parametrize(
    ("harm", "reason"), [(_missing, "is missing: put it back"), (_damaged, "is damaged: put")]
)
def test_a_store_that_cannot_be_used_ends_the_run_with_one_line(
    federation: Federation, harm: Callable[[Path], None], reason: str
) -> None:
    ordered = federation.order(NAME, settings())

    def gone(leg: Leg) -> Fate | None:
        return killed_before if leg.node == "node-1" and leg.round_number == 2 else None

    ordered.drive(Wire(federation, gone))
    federation.kill()
    path = ordered.node_folder("node-1") / STORE
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    harm(path)
    report = ordered.drive()
    assert (report.status, report.reason.count("\n")) == ("failed", 0)
    assert "node-1 refused: has lost what it had kept; its own log (private/node.log) says more" in report.reason
    assert reason in federation.log("node-1")[-1]["reason"]


# --- What nodes bring, and misuse --------------------------------------------------------------------------------


def held(tmp_path: Path, text: str) -> NodeFiles:
    (tmp_path / "items.tsv").write_text(text)
    return NodeFiles(owned=str(tmp_path / "items.tsv"))


def test_owners_are_numbered_by_name(tmp_path: Path) -> None:
    files = held(tmp_path, "10\tzoo\n2\tart\n10\tart\n\n 2 \t art\n")
    owners = owners_of(OWNERS.read(files, "node-1", CATALOGUE, None).train)
    assert (owners.names, owners.has_users) == (("art", "zoo"), False)
    assert (owners.starts.tolist(), owners.owners.tolist()) == ([0, 0, 1, 1, 3], [0, 0, 1])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2\tart\n7\tart\n8\tzoo\n", "2 owned items are not in the catalogue; leave them out"),
        ("2 art\n", "line 1: expected an item and an owner with a tab between them"),
        ("2\tart\n3\t\n", "line 2: expected an item and an owner"),
        ("2\tart\textra\n", "line 1: expected an item and an owner"),
        ("\n\n", "names no item; write lines of item, tab, owner"),
        ("".join(f"2\tfilm {number}\n" for number in range(1001)), "names 1001 owners, more than 1000"),
    ],
)
def test_items_that_do_not_fit_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(HushrecError, match=reason):
        OWNERS.read(held(tmp_path, text), "node-1", CATALOGUE, None)


def test_items_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HushrecError, match=r"cannot read the owned items in .*none; write lines of item, tab, owner"
    ):
        OWNERS.read(NodeFiles(owned=str(tmp_path / "none")), "node-1", CATALOGUE, None)


def test_the_users_side_counts_visitors_and_goes_by_time(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user,item,rating,timestamp\n9,2,5,30\n7,10,1,20\n9,3,2,10\n")
    (tmp_path / "v.txt").write_text("8\n9\n")
    own = NodeFiles(data=str(tmp_path / "e.csv"), visitors=str(tmp_path / "v.txt"))
    train = OWNERS.read(own, "users", CATALOGUE, (1.0, 5.0)).train
    rows = rows_of_owners(train)
    assert (train.user_ids.tolist(), rows.num_users) == ([7, 8, 9], 3)
    assert (rows.users.tolist(), rows.items.tolist()) == ([2, 0, 2], [2, 3, 1])
    assert rows.is_positive.tolist() == [False, False, True]
    (tmp_path / "v.txt").write_text("eight\n")
    with pytest.raises(HushrecError, match="ids of visitors are texts, those of the events numbers"):
        OWNERS.read(own, "users", CATALOGUE, (1.0, 5.0))


def enrolled(*owners: str, has_users: bool = False) -> Enrolled:
    return Enrolled(len(owners) + has_users, None, 1, list(owners))


def test_numbers_go_by_name_over_all_nodes() -> None:
    nodes = {"x": enrolled("b", "d"), "y": enrolled(has_users=True), "z": enrolled("a", "c")}
    assert OWNERS.number(nodes) == {"x": [1, 3], "y": [4], "z": [0, 2]}


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"x": enrolled("a"), "y": enrolled("a")}, "the owner 'a' is on x and on y; use one node for it"),
        (
            {"x": enrolled("a"), "y": enrolled("b")},
            "events are on no node; start one node, and only one, with --data",
        ),
        (
            {"x": enrolled("a"), "y": enrolled(has_users=True), "z": enrolled(has_users=True)},
            "events are on y, z; start one node, and only one, with --data",
        ),
        (
            {"x": enrolled("a"), "y": Enrolled(2, None, 1)},
            "events are on y; start one node, and only one, with --data",
        ),
        ({"y": enrolled(has_users=True)}, "no node holds items; start one with hushrec deploy node --owned"),
    ],
)
def test_nodes_that_do_not_fit_together_are_refused(nodes: dict[str, Enrolled], reason: str) -> None:
    with pytest.raises(HushrecError, match=reason):
        OWNERS.number(nodes)


def test_one_owner_is_one() -> None:
    with pytest.raises(HushrecError, match="2 owners where one holds all items; name one in --owned"):
        SOLE_OWNER.number({"x": enrolled("a", "b"), "y": enrolled(has_users=True)})


def test_what_a_node_says_of_its_owners_must_make_sense() -> None:
    assert enrolled("a", "b").has_sense()
    assert not enrolled("b", "a").has_sense()
    assert not enrolled("a", "a").has_sense()
    assert enrolled("a", has_users=True).has_sense()
    assert not Enrolled(1, None, 1, ["a", "b"]).has_sense()


def test_a_node_of_owners_takes_no_part_in_other_systems(federation: Federation) -> None:
    report = federation.order("fedrec").drive()
    assert report.status == "failed"
    assert "refused: this node holds no ratings; it cannot take part in fedrec" in report.reason


def test_a_node_without_ratings_says_so() -> None:
    with pytest.raises(HushrecError, match="this node has no ratings; start it with --data"):
        read_own(NodeFiles(), None, None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "say what this node has: --data with ratings or events, or --owned with items of owners"),
        ({"data": Path("a"), "owned": Path("b")}, "say what this node has: --data"),
        (
            {"owned": Path("b"), "test": Path("c")},
            "--owned goes without --test, --numbers, --visitors and --items",
        ),
    ],
)
def test_a_node_has_one_thing(tmp_path: Path, options: dict[str, Path], reason: str) -> None:
    with pytest.raises(HushrecError, match=reason):
        node_files(OwnFiles(**options))


@pytest.mark.slow
def test_local_gives_the_bits_of_run(tmp_path: Path) -> None:
    """Real processes and real TLS: two nodes of owners, one of users; the server's folder recommends."""
    pytest.importorskip("nvflare")
    train = owner_split().train
    rows = zip(train.users.tolist(), train.items.tolist(), train.ratings.tolist(), train.timestamps, strict=True)
    lines = [f"{user},{item},{1 + 4 * rating:g},{time}\n" for user, item, rating, time in rows]
    (tmp_path / "events.csv").write_text("user,item,rating,timestamp\n" + "".join(lines))
    options = ["--data", str(tmp_path / "events.csv"), "--owners", "4", "--epochs", "1", "--parts", "2", "--json"]
    folder = tmp_path / "kept"
    deployed = subprocess.run(
        [*COMMAND, "deploy", "local", "--nodes", "2", "--system", NAME, *options, "--out", str(folder)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert deployed.returncode == 0, deployed.stderr
    alone = subprocess.run([*COMMAND, "run", NAME, *options], capture_output=True, text=True, check=True)
    ours, theirs = json.loads(deployed.stdout), json.loads(alone.stdout)
    assert ours["folds"][0]["model_sha256"] == theirs["folds"][0]["model_sha256"]
    assert ours["folds"][0]["facts"] == theirs["folds"][0]["facts"]
    assert ours["deployment"]["nodes"] == 3
    assert len(load_run(folder).recommend([0], k=3, min_raters=0)[0]) == 3
