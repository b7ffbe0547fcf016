"""What is private to a node is nowhere else: not on the server's disk, not on the wire, not in any log."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from federation import Federation, Wire, opened, small
from typer.testing import CliRunner

import hushrec
from hushrec.cli.verbs import app
from hushrec.data import Interactions, Split, k_folds, synthetic
from hushrec.data.holdings.node_files import Catalogue
from hushrec.deploy.identity import mail_key
from hushrec.deploy.orders import Enrolled, Order
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import load_train, read_arrays
from hushrec.runtime.packets import Kind, Refusal, about, contents_of
from hushrec.systems import fedrec_plus_plus
from hushrec.systems.fedrec_plus_plus import Noise

SYSTEM = "fedrec++"


def with_ids(data: Interactions) -> Interactions:
    """Users and items with ids that cannot be there by chance."""
    users = np.array([f"person-{number:03}-qzx" for number in range(data.num_users)])
    items = np.array([f"film-{number:03}" for number in range(data.num_items)])
    return replace(data, user_ids=users, item_ids=items)


def some_split() -> Split:
    data = with_ids(synthetic(30, 40, 400))
    return next(iter(k_folds(data, 5, 0)))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3, some_split())


class Finished:
    """A run and all that it left behind."""

    def __init__(self, federation: Federation, relay: Any, shares_seed: bool) -> None:
        self.federation, self.noise = federation, list[Any]()
        self.ordered = federation.order(SYSTEM, small(SYSTEM, num_factors=5), relay=relay, shares_seed=shares_seed)
        self.wire = Wire(federation)
        honest = fedrec_plus_plus.reply

        def watched(*given: Any) -> Any:
            reply = honest(*given)
            self.noise.append(reply.mail[0].message)
            return reply

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fedrec_plus_plus, "reply", watched)
            assert self.ordered.drive(self.wire).status == "done"

    def private_files(self, name: str) -> Iterator[Path]:
        return (path for path in (self.federation.folder / name / "private").rglob("*") if path.is_file())

    def secrets(self) -> Iterator[tuple[str, bytes]]:
        """What nobody else may have: each with a name for the failure."""
        for name in self.federation.nodes:
            folder = self.ordered.node_folder(name)
            yield f"{name}: mail key", mail_key(self.federation.folder / name)
            if (folder / "secret-seed").exists():
                yield f"{name}: seed", (folder / "secret-seed").read_bytes()
                yield f"{name}: seed", bytes.fromhex((folder / "secret-seed").read_text())
            state = read_arrays(folder / "fold-1" / "state.npz")
            for array in ("private.user_factors", "private.previous_user_factors"):
                for row in state[array]:
                    yield f"{name}: a row of {array}", row.tobytes()
                    yield f"{name}: a row of {array}, as text", repr(float(row[0])).encode()
            train = load_train(folder / "fold-1" / "train.npz", SYSTEMS[SYSTEM], "", "", False)
            rows = train.by_user()
            for user, (first, last) in enumerate(zip(rows.starts[:-1], rows.starts[1:], strict=True)):
                if last - first >= 3:
                    yield f"{name}: ratings of a user", rows.ratings[first:last].tobytes()
                yield f"{name}: a user", train.user_ids[user].encode()
                yield f"{name}: a user, in an array", train.user_ids[user].encode("utf-32-le")
            yield f"{name}: ratings", Path(self.federation.shares[name].data).read_bytes()[:200]
            yield f"{name}: numbers", Path(self.federation.shares[name].numbers).read_bytes()[:40]


@pytest.fixture(scope="module", params=["direct", "onion"])
def finished(federation: Federation, request: pytest.FixtureRequest) -> Finished:
    return Finished(federation, request.param, shares_seed=False)


def server_files(federation: Federation) -> dict[str, bytes]:
    """All that lies in the server's folders, arrays unpacked."""
    found = {}
    for folder in ("runs", "server"):
        for path in (federation.folder / folder).rglob("*"):
            if path.is_file():
                found[str(path.relative_to(federation.folder))] = path.read_bytes()
            if path.suffix == ".npz":
                for name, array in read_arrays(path).items():
                    found[f"{path.name}/{name}"] = array.tobytes()
    return found


def test_the_search_finds_what_is_there(finished: Finished) -> None:
    """Each secret is found where it belongs, so that not to find it elsewhere means something."""
    for name in finished.federation.nodes:
        held = b"".join(
            b"".join(array.tobytes() for array in read_arrays(path).values()) if path.suffix == ".npz"
            else path.read_bytes()
            for path in finished.private_files(name)
        )  # fmt: skip
        kinds = {what for what, secret in finished.secrets() if what.startswith(name) and secret in held}
        assert {f"{name}: mail key", f"{name}: a row of private.user_factors", f"{name}: seed"} <= kinds
        assert f"{name}: ratings of a user" in kinds
        assert f"{name}: a user, in an array" in kinds


def test_the_server_holds_nothing_private(finished: Finished) -> None:
    files = server_files(finished.federation)
    assert any(name.endswith("run.json") for name in files)
    assert any(name == "state.npz/server.item_factors" for name in files)
    for what, secret in finished.secrets():
        for name, data in files.items():
            assert secret not in data, f"{what} is in {name}"


def test_nothing_private_leaves_a_node(finished: Finished) -> None:
    """Nor comes from the server to another one."""
    packets = [data for _, data in (*finished.wire.requests, *finished.wire.replies)]
    for what, secret in finished.secrets():
        assert not any(secret in data for data in packets), what


def test_noise_travels_sealed(finished: Finished) -> None:
    """No row of it, beside the upload in which the same gradient must be; and never the frame."""
    replies = [opened(data) for leg, data in finished.wire.replies if leg.phase == "ItemFactors"]
    mail = [bytes(letter) for reply in replies for _, letter in contents_of(reply)[1]]
    assert mail
    assert len(finished.noise) >= 9
    rows = [row.tobytes() for noise in finished.noise for row in noise.gradients.values]
    assert len(rows) > 500
    for row in rows:
        assert not any(row in letter for letter in mail)
    uploads = b"".join(bytes(frame) for reply in replies for frame in contents_of(reply)[0])
    assert any(row in uploads for row in rows), "uploads hold them, among those of rated items"
    assert Noise in SYSTEMS[SYSTEM].inboxes


def test_the_server_learns_sizes_and_numbers_only(finished: Finished) -> None:
    """What a node says when it enrols."""
    [first, *_] = [data for leg, data in finished.wire.replies if leg.phase == "enrol"]
    said = about(opened(first), Enrolled)
    fields = {"num_clients", "numbers", "letter_bytes", "names", "consent"}
    assert set(msgspec.structs.asdict(said)) == fields
    assert said.names == []
    # Coarse: two binary digits.
    assert bin(said.letter_bytes).count("1") <= 2


def test_logs_hold_nothing_private(finished: Finished) -> None:
    for name in finished.federation.nodes:
        log = (finished.federation.folder / name / "private" / "node.log").read_bytes()
        assert log.count(b"\n") >= 8
        for what, secret in finished.secrets():
            assert secret not in log, what
        for line in finished.federation.log(name):
            assert set(line) <= {"time", "event", "kind", "round", "run", "reason"}
    assert not (finished.ordered.folder / "events.log").exists()


def test_file_names_tell_nothing(finished: Finished) -> None:
    names = {path.name for path in finished.federation.folder.rglob("*")}
    assert not any("person" in name or "film" in name for name in names)


# --- Refusals --------------------------------------------------------------------------------------------------

HEADER = "user,item,rating\n"
BAD_FILES = {
    "a bad rating": HEADER + "person-001-qzx,film-003,4\nperson-777-qzx,film-004,terrible\n",
    "a rating out of range": HEADER + "person-001-qzx,film-003,4\nperson-777-qzx,film-004,77.25\n",
    "the same twice": HEADER + "person-777-qzx,film-003,4\nperson-777-qzx,film-003,5\n",
    "an unknown item": HEADER + "person-777-qzx,film-zzz,4\n",
    "a short row": HEADER + "person-777-qzx,film-003\n",
    "no such columns": "who,what\nperson-777-qzx,film-003\n",
    "nothing": "",
    "no text": "\x00\x01\x02",
}
SECRETS = (b"person-777", b"film-zzz", b"77.25", b"terrible", b"film-003", b"film-004")


def refusal_of(federation: Federation, content: str | None, folder: Path, **settings: Any) -> tuple[bytes, bytes]:
    """What a node with that file of ratings answers, and what it writes to its log."""
    path = folder / "secret-name-of-a-clinic.csv"
    if content is not None:
        path.write_text(content)
    federation.settle("node-2", **{"data": str(path), "numbers": None, **settings})
    log = federation.folder / "node-2" / "private" / "node.log"
    before = len(log.read_bytes()) if log.exists() else 0
    wire = Wire(federation)
    try:
        report = federation.order(SYSTEM).drive(wire)
    finally:
        federation.settle("node-2")
    assert report.status in ("failed", "paused")
    reply = next(data for leg, data in wire.replies if leg.node == "node-2")
    assert opened(reply).kind == Kind.REFUSAL
    assert about(opened(reply), Refusal).reason == "cannot; its own log (private/node.log) says why"
    assert not any(secret in reply or secret.decode() in report.reason for secret in (*SECRETS, b"clinic"))
    return reply, log.read_bytes()[before:]


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_refusal_never_carries_words_of_the_nodes_files(
    federation: Federation, what: str, tmp_path: Path
) -> None:
    _, log = refusal_of(federation, BAD_FILES[what], tmp_path)
    assert log.count(b"refused") >= 1


def test_a_missing_file_is_not_named_to_the_server(federation: Federation, tmp_path: Path) -> None:
    refusal_of(federation, None, tmp_path)
    refusal_of(federation, BAD_FILES["an unknown item"], tmp_path, numbers=str(tmp_path / "clinic.tsv"))


@pytest.mark.parametrize("what", BAD_FILES)
def test_logs_hold_no_id_or_rating_of_a_bad_file(federation: Federation, what: str, tmp_path: Path) -> None:
    _, log = refusal_of(federation, BAD_FILES[what], tmp_path)
    found = [secret for secret in SECRETS if secret in log]
    assert found == []


# --- What each side can do with what it has --------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(federation: Federation) -> Finished:
    return Finished(federation, "direct", shares_seed=True)


def invoked(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=True)


def test_a_node_recommends_to_its_own_users(shared: Finished) -> None:
    """With the scores that a run in one process would give."""
    node, split = "node-2", shared.federation.split
    folder = shared.ordered.node_folder(node)
    user = split.train.user_ids[shared.federation.numbers(node)[0]]
    result = invoked("recommend", str(folder), "--user", user, "-k", "5", "--min-raters", "0", "--json")
    assert result.exit_code == 0, result.output
    listed = json.loads(result.stdout)
    assert len(listed) == 5
    assert all(entry["item"].startswith("film-") for entry in listed)
    model = hushrec.load_run(folder)
    whole = hushrec.FedRecPlusPlus(**small(SYSTEM, num_factors=5)).fit(split.train)
    items = [entry["item"] for entry in listed]
    np.testing.assert_array_equal(model.predict([user] * 5, items), whole.predict([user] * 5, items))
    expected = whole.recommend([user], 5, min_raters=0)[0]
    assert items == [entry.item for entry in expected]


def test_a_node_does_not_know_other_nodes_users(shared: Finished) -> None:
    stranger = shared.federation.split.train.user_ids[shared.federation.numbers("node-1")[0]]
    result = invoked("recommend", str(shared.ordered.node_folder("node-2")), "--user", stranger)
    assert result.exit_code != 0
    assert isinstance(result.exception, HushrecError | SystemExit)


def test_the_server_cannot_recommend(shared: Finished) -> None:
    with pytest.raises(HushrecError) as caught:
        hushrec.load_run(shared.ordered.folder)
    where = "recommend on a node, from its private/runs"
    assert str(caught.value) == f"the server of fedrec++ has no client's vector; {where}"


def test_a_node_can_report(shared: Finished, tmp_path: Path) -> None:
    """It has neither accuracy nor bytes: the server has both."""
    result = invoked("report", str(shared.ordered.node_folder("node-2")), "--out", str(tmp_path / "report.html"))
    assert result.exit_code == 0, result.output
    assert "No bytes were counted here." in (tmp_path / "report.html").read_text()


def test_a_kit_is_no_run_but_holds_some(shared: Finished) -> None:
    runs = shared.ordered.node_folder("node-2").parent
    kept = {path.parent for path in runs.glob("*/run.json")}
    with pytest.raises(HushrecError) as caught:
        hushrec.load_run(runs.parent.parent)
    said, _, newest = str(caught.value).partition("; name one, as the newest: ")
    assert said == f"{runs.parent.parent} is not a run, but holds {len(kept)}"
    assert Path(newest) in kept


def test_the_server_can_report_and_compare(shared: Finished, tmp_path: Path) -> None:
    folder = str(shared.ordered.folder)
    result = invoked("compare", folder, folder)
    assert result.exit_code == 0, result.output
    assert "FedRec++" in result.output
    result = invoked("report", folder, "--out", str(tmp_path / "report.html"))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report.html").read_text()
    assert "person-" not in page
    done = read_run(shared.ordered.folder)
    assert done.party == "server"
    assert done.folds[0].num_train == len(shared.federation.split.train)


def test_a_server_that_may_rank_can_rank(tmp_path: Path) -> None:
    """PMF: nodes hand over their ratings, if their owners allow it."""
    ordered = Federation(tmp_path / "f", 1, some_split()).order("pmf")
    assert ordered.drive().status == "done"
    assert hushrec.load_run(ordered.folder).recommend([0], 3, min_raters=0)[0]


def test_an_order_stays_on_the_server(shared: Finished) -> None:
    """Nodes are told of a run what they need: not its name, nor what the operator calls the data."""
    order: Order = shared.ordered.order
    names = (order.run_name.encode(), order.data_name.encode())
    for _, data in shared.wire.requests:
        assert not any(name in data for name in names)
    assert isinstance(
        msgspec.msgpack.decode((shared.ordered.folder / "items.msgpack").read_bytes(), type=Catalogue), Catalogue
    )
