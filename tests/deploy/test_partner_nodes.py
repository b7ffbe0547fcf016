"""Partners as nodes: each with its own users, visitors and items, which nobody else is told."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import (
    Federation,
    Leg,
    Lost,
    Wire,
    in_process,
    losing_from,
    partner_split,
    small,
)

from hushrec.data import Interactions, Partners
from hushrec.data.holdings import PARTNERS
from hushrec.data.holdings.node_files import Catalogue, NodeFiles
from hushrec.data.holdings.partners import rows_of_partners
from hushrec.deploy.driver import Report
from hushrec.deploy.orders import Invitation
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.protocol import Message, Ragged, Reply, Sealed
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import read_arrays
from hushrec.runtime.packets import about, decode_packet
from hushrec.systems.fedcore.inference import EncryptedScores, PublicKeys, Serve
from hushrec.systems.fedcore.system import SYSTEM, TakeStep, UserGradients

NAME = "fedcore"
NO_CATALOGUE = Catalogue([], False)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("partners") / "two", 2, partner_split(2))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("partners") / "three", 3, partner_split(3))


def plain(**values: Any) -> dict[str, Any]:
    """PMF without encryption, unless told: the quickest."""
    return small(NAME, **{"model": "pmf", "inference": "none", "unaligned": 1.0, **values})


def written(folder: Path, **files: str) -> NodeFiles:
    """A node's files."""
    for name, text in files.items():
        (folder / name).write_text(("user,item,rating\n" if name in ("data", "test") else "") + text)
    return NodeFiles(**{name: str(folder / name) for name in files})


def partner_of(files: NodeFiles, name: str, rating_range: tuple[float, float] | None) -> Interactions:
    """What a partner's node reads."""
    return PARTNERS.read(files, name, NO_CATALOGUE, rating_range).train


def partners_of(data: Interactions) -> Partners:
    assert isinstance(data.holding, Partners)
    return data.holding


# --- What a partner brings ---------------------------------------------------------------------------------------


def test_users_visitors_and_items_are_numbered_by_their_ids_as_texts(tmp_path: Path) -> None:
    """As texts, 10 and 100 come before 9; visitors are accounts without a rating, twice or not."""
    settings = written(tmp_path, data="9,7,5\n10,7,1\n9,31,2\n", visitors="100\n\n 8 \n9\n100\n")
    train = partner_of(settings, "shop-a", (1.0, 5.0))
    assert train.user_ids.tolist() == ["shop-a:10", "shop-a:100", "shop-a:8", "shop-a:9"]
    rows = rows_of_partners(train)
    assert rows.user_ids.tolist() == ["10", "100", "8", "9"]
    assert rows.item_ids.tolist() == ["31", "7"]
    assert (rows.users.tolist(), rows.items.tolist(), rows.ratings.tolist()) == ([0, 3, 3], [1, 0, 1], [1, 2, 5])
    assert (rows.starts.tolist(), rows.user_starts.tolist(), rows.item_starts.tolist()) == ([0, 3], [0, 4], [0, 2])


def test_a_partners_own_catalogue_has_unrated_items_and_titles(tmp_path: Path) -> None:
    settings = written(tmp_path, data="1,7,5\n", items="7\tSeven\n10\tTen\n")
    train = partner_of(settings, "a", None)
    assert train.item_ids.tolist() == ["a:10", "a:7"]
    assert train.titles is not None
    assert train.titles.tolist() == ["Ten", "Seven"]
    assert train.items.tolist() == [1]


def test_test_ratings_are_of_users_or_visitors(tmp_path: Path) -> None:
    settings = written(tmp_path, data="9,7,5\n10,3,1\n", visitors="100\n", test="100,7,2\n9,3,4\n")
    train = partner_of(settings, "a", (1.0, 5.0))
    test = PARTNERS.read_test(settings, train, NO_CATALOGUE, (1.0, 5.0))
    assert (test.user_ids[test.users].tolist(), test.ratings) == (["a:100", "a:9"], pytest.approx([2, 4]))
    assert test.item_ids[test.items].tolist() == ["a:7", "a:3"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"data": "1,7,5\n", "items": "8\n"}, "1 rated items are not in the catalogue"),
        ({"data": "1,7,5\n", "test": "1,8,5\n"}, "1 rated items are not in the catalogue"),
        ({"data": "1,7,5\n", "test": "2,7,5\n"}, "1 users of the test ratings are not clients of this node"),
        ({"data": "1,7,9\n"}, "rating is 9"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    with pytest.raises(HushrecError, match=reason):
        partner_of(written(tmp_path, **files), "a", (1.0, 5.0))


def test_a_partner_needs_ratings(tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("user,item\n1,2\n")
    with pytest.raises(HushrecError, match=r"seen.csv has no ratings, which partners need; add a column rating"):
        partner_of(NodeFiles(str(tmp_path / "seen.csv"), test=str(tmp_path / "seen.csv")), "a", None)


def test_visitors_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    settings = NodeFiles(written(tmp_path, data="1,7,5\n").data, visitors=str(tmp_path / "missing"))
    with pytest.raises(HushrecError, match=r"cannot read the visitors in .*missing; write one user per line"):
        partner_of(settings, "a", None)


@pytest.mark.parametrize("num_partners", [2, 3])
def test_what_was_dealt_comes_back_as_it_was(tmp_path: Path, num_partners: int) -> None:
    """Through files of each partner: the same numbers, rows and names as in one process."""
    split = partner_split(num_partners)
    names = [f"node-{number}" for number in range(num_partners)]
    rows = rows_of_partners(split.train)
    for place, (name, share) in enumerate(PARTNERS.deal(split, names, 0, tmp_path).items()):
        train = partner_of(share, name, split.train.rating_range)
        own = rows_of_partners(train)
        for column, starts in (("users", "starts"), ("items", "starts"), ("ratings", "starts"),
                               ("user_ids", "user_starts"), ("item_ids", "item_starts")):  # fmt: skip
            first, last = getattr(rows, starts)[place : place + 2]
            np.testing.assert_array_equal(getattr(own, column), getattr(rows, column)[first:last], column)
        test = PARTNERS.read_test(share, train, NO_CATALOGUE, split.train.rating_range)
        assert _rows(test) == _rows(split.test, partners_of(split.test).names[place])
        assert share.numbers is None


def _rows(data: Interactions, partner: str = "") -> set[tuple[str, str, float]]:
    """Ratings by the partner's own ids."""
    users, items = data.user_ids[data.users], data.item_ids[data.items]
    found = zip(users.tolist(), items.tolist(), data.ratings.tolist(), strict=True)
    mine = [row for row in found if not partner or row[0].startswith(f"{partner}:")]
    return {(user.partition(":")[2], item.partition(":")[2], rating) for user, item, rating in mine}


def test_every_partner_is_one_node(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="3 nodes for 2 partners"):
        PARTNERS.deal(partner_split(2), ["a", "b", "c"], 0, tmp_path)


# --- What comes out ----------------------------------------------------------------------------------------------


def test_secret_seeds_keep_common_vectors_in_step(federation: Federation) -> None:
    """The nodes draw from secrets of their own, and all copies of common users are equal to the bit."""
    ordered = federation.order(NAME, plain(), shares_seed=False)
    assert ordered.drive().status == "done"
    vectors = []
    for name in federation.nodes:
        state = read_arrays(ordered.node_folder(name) / "fold-1" / "state.npz")
        common = state["private.common_users"]
        order = np.argsort(common[common >= 0])
        vectors.append(state["private.user_factors"][common >= 0][order])
    assert len(vectors[0])
    np.testing.assert_array_equal(*vectors)


def test_nodes_are_told_no_item_and_tell_none(federation: Federation) -> None:
    ordered, wire = federation.order(NAME, plain()), Wire(federation)
    ordered.drive(wire)
    for leg, packet in wire.requests:
        if leg.phase == "enrol":
            assert about(decode_packet(packet), Invitation).catalogue == NO_CATALOGUE
    done = read_run(ordered.folder)
    assert done.provenance.deal is None
    assert (done.party, done.party_name, done.num_parties) == ("server", "partner", 2)


def test_visitors_are_served_with_what_came_back(federation: Federation) -> None:
    """Asked about: the scores of the partner that knows them, to the errors of encryption. The others: a mean."""
    config = small(NAME)
    ordered, progress = federation.order(NAME, config), in_process(NAME, config, federation.split).progress
    assert ordered.drive().status == "done"
    train = federation.split.train
    partners = partners_of(train)
    for place, (node, partner) in enumerate(zip(federation.nodes, partners.names, strict=True)):
        model = load_run(ordered.node_folder(node))
        state = read_arrays(ordered.node_folder(node) / "fold-1" / "state.npz")
        is_answered = np.isfinite(state["private.answers"][0]).any(axis=1)
        assert is_answered.any()
        own_train = model.ranker().train
        asked = [str(one).partition(":")[2] for one in own_train.user_ids[state["private.asked"][0]]]
        known = [one for one, is_in in zip(asked, is_answered, strict=True) if is_in]
        items = [str(one).partition(":")[2] for one in own_train.item_ids]
        scorer = SYSTEM.result.whole(
            progress.state, progress.private, SYSTEM.configure(config), train.rating_range
        )
        numbers = train.user_numbers([f"{partner}:{one}" for one in known])
        first, last = partners.item_starts[place : place + 2]
        expected = scorer.score(numbers)[:, first:last]
        found = model.ranker().scorer.score(own_train.user_numbers([f"{node}:{one}" for one in known]))
        np.testing.assert_allclose(found, expected, atol=1e-4)
        predicted = model.predict(f"{node}:{known[0]}", [f"{node}:{item}" for item in items])
        np.testing.assert_allclose(predicted, np.clip(expected[0], *train.rating_range), atol=1e-4)
        lists = model.recommend([f"{node}:{known[0]}", own_train.user_ids[own_train.users[0]]], 3, min_raters=0)
        assert [len(one) for one in lists] == [3, 3]


def test_with_top_k_only_ranks_come_back(federation: Federation) -> None:
    ordered = federation.order(NAME, plain(inference="ckks", top_k=4, num_rounds=1))
    assert ordered.drive().status == "done"
    model = load_run(ordered.node_folder("node-1"))
    state = read_arrays(ordered.node_folder("node-1") / "fold-1" / "state.npz")
    is_answered = np.isfinite(state["private.answers"][0]).any(axis=1)
    [visitor, *_] = model.ranker().train.user_ids[state["private.asked"][0][is_answered]]
    [found] = model.recommend([visitor], 10, min_raters=0)
    assert [entry.score for entry in found] == [4, 3, 2, 1]
    everything = model.predict(visitor, model.ranker().train.item_ids)
    assert ((everything >= 1) & (everything <= 5)).all()


def test_a_partner_measures_users_and_visitors(federation: Federation) -> None:
    ordered = federation.order(NAME, plain())
    ordered.drive()
    metrics = read_run(ordered.folder).folds[0].metrics
    for node in federation.nodes:
        assert {f"{node} {group} {metric}" for group in ("own", "cold") for metric in ("MAE", "RMSE")} <= set(
            metrics
        )


# --- Who is gone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", ["psi", "keyed-hash"])
def test_users_are_aligned_without_a_partner_that_is_gone(three: Federation, alignment: str) -> None:
    """It was there in the first try, so that the others had found users in common with it."""
    config, victim = plain(alignment=alignment), "node-2"

    def mishap(leg: Leg) -> Any:
        def fate(_deliver: Any, _packet: bytes) -> bytes:
            raise Lost("connection refused")

        return fate if leg.node == victim and leg.phase in ("TakeStep", "Settle") else None

    ordered = three.order(NAME, config)
    assert ordered.drive(Wire(three, mishap)).status == "paused"
    assert ordered.drive(Wire(three, mishap), away=[victim]).status == "done"
    losses = losing_from(1, three.numbers(victim))
    ordered.assert_equals(in_process(NAME, config, three.split, losses), away=[victim])


def test_a_partner_that_is_left_alone_does_not_go_on(federation: Federation) -> None:
    def mishap(leg: Leg) -> Any:
        def fate(_deliver: Any, _packet: bytes) -> bytes:
            raise Lost("connection refused")

        return fate if leg.node == "node-2" and leg.round_number == 2 else None

    ordered = federation.order(NAME, plain())
    assert ordered.drive(Wire(federation, mishap)).status == "paused"
    report = ordered.drive(away=["node-2"])
    assert_told(report, "failed", "fewer than two partners are left; bring the others back and use --resume")
    assert ordered.drive().status == "done"
    ordered.assert_equals(in_process(NAME, plain(), federation.split))


def assert_told(report: Report, status: str, reason: str) -> None:
    assert report.status == status, report.reason
    assert "\n" not in report.reason
    assert reason in report.reason


# --- What is refused ---------------------------------------------------------------------------------------------


def test_partners_without_a_common_user_are_told_so(federation: Federation, tmp_path: Path) -> None:
    data = tmp_path / "ratings.csv"
    data.write_text("user,item,rating\n" + "".join(f"stranger-{user},{user % 7},3\n" for user in range(50)))
    federation.settle("node-2", data=str(data), test=None, visitors=None, items=None)
    try:
        report = federation.order(NAME, plain()).drive()
    finally:
        federation.settle("node-2")
    assert_told(report, "failed", "a partner has no user in common with the others")


def test_a_node_without_ratings_of_its_own_is_told_at_home(federation: Federation, tmp_path: Path) -> None:
    """The words of its own files stay on the node."""
    federation.settle("node-2", visitors=str(tmp_path / "missing"))
    try:
        report = federation.order(NAME, plain()).drive()
    finally:
        federation.settle("node-2")
    assert_told(report, "paused", "node-2 (refused: cannot; its own log (private/node.log) says why)")


def test_onions_are_of_no_use_to_partners(federation: Federation) -> None:
    with pytest.raises(HushrecError, match="--relay onion hides who writes to whom; in fedcore everybody knows"):
        federation.order(NAME, plain(), relay="onion")


def dishonest(
    monkeypatch: pytest.MonkeyPatch, request: type[Message], kind: type[Message], change: Callable[[Any], Any]
) -> None:
    """Once, what a partner mails to another is not what it should be."""
    honest, num_left = SYSTEM.handlers[request], [1]

    def handler(*about: Any) -> Reply:
        reply = honest.answer(*about)
        mail = list(reply.mail)
        for place, sealed in enumerate(mail):
            if num_left[0] and isinstance(sealed.message, kind) and sealed.message.num_rows:
                num_left[0] = 0
                mail[place] = Sealed(change(sealed.message), sealed.addressees)
        return Reply(reply.message, tuple(mail))

    monkeypatch.setitem(SYSTEM.handlers, request, replace(honest, answer=handler))  # type: ignore[arg-type]


def narrower(message: UserGradients) -> UserGradients:
    rows = message.gradients
    return replace(message, gradients=Ragged(rows.starts, rows.values[:, :-1].copy()))


def of_strangers(message: UserGradients) -> UserGradients:
    return replace(message, users=Ragged(message.users.starts, message.users.values + 1000))


def damaged(values: Ragged) -> Ragged:
    """Other bytes behind the header."""
    changed = values.values.copy()
    changed[200:-200] ^= 0x55
    return Ragged(values.starts, changed)


def damaged_scores(message: EncryptedScores) -> EncryptedScores:
    return EncryptedScores(message.asker, message.num_visitors, damaged(message.scores))


def scores_of_more(message: EncryptedScores) -> EncryptedScores:
    """For a visitor whose vector was never sent: there is no key for it."""
    twice = np.concatenate([message.scores.values] * 2)
    return EncryptedScores(message.asker, 2 * message.num_visitors, Ragged.one(twice))


def damaged_keys(message: PublicKeys) -> PublicKeys:
    return PublicKeys(message.home, damaged(message.keys))


FALSE: dict[str, tuple[type[Message], type[Message], Callable[[Any], Any], str]] = {
    "width": (TakeStep, UserGradients, narrower, "wrote mail that node"),
    "strangers": (TakeStep, UserGradients, of_strangers, "its own log (private/node.log) says why"),
    "ciphertext": (Serve, EncryptedScores, damaged_scores, "its own log (private/node.log) says why"),
    "key": (Serve, EncryptedScores, scores_of_more, "encrypted scores are cut off, or of other visitors"),
    "public keys": (Serve, PublicKeys, damaged_keys, "its own log (private/node.log) says why"),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.slow if what == "public keys" else ()) for what in FALSE]
)
def test_what_a_partner_should_not_send_pauses_the_run_and_loses_nothing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    request, kind, change, told = FALSE[what]
    config = plain(inference="ckks" if request is Serve else "none", num_rounds=2)
    dishonest(monkeypatch, request, kind, change)
    ordered = federation.order(NAME, config)
    report = ordered.drive()
    assert_told(report, "paused", told)
    reasons = [entry.get("reason", "") for name in federation.nodes for entry in federation.log(name)]
    assert any(word in reason for reason in reasons for word in ("begin", "again", "agree", "ask", "align")), (
        reasons
    )
    assert ordered.drive().status == "done"
    monkeypatch.undo()
    ordered.assert_equals(in_process(NAME, config | {"inference": "none"}, federation.split))


def test_no_system_of_partners_is_forgotten() -> None:
    assert [name for name, system in SYSTEMS.items() if system.holders is PARTNERS] == [NAME]
