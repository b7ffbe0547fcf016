"""Means of nodes join to the mean over all their test ratings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import Federation, Wire, some_split

from hushrec.data.holdings import USERS
from hushrec.data.holdings.node_files import Catalogue, NodeFiles
from hushrec.deploy.measuring import joined, shared_digest
from hushrec.deploy.orders import Measured
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.evaluation.feedback import relevance_limit
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.packets import about, decode_packet


def test_means_are_weighted_by_ratings_and_users() -> None:
    """MAE: (1*1 + 3*2) / 4; RMSE: sqrt((1*1 + 3*4) / 4); NDCG by users: (2*0.5 + 6*0.1) / 8."""
    parts = [
        Measured({"MAE": 1.0, "RMSE": 1.0, "NDCG@10": 0.5}, num_test=1, num_users=2),
        Measured({"MAE": 2.0, "RMSE": 2.0, "NDCG@10": 0.1}, num_test=3, num_users=6),
    ]
    found = joined(parts)
    assert found["MAE"] == pytest.approx(7 / 4)
    assert found["RMSE"] == pytest.approx((13 / 4) ** 0.5)
    assert found["NDCG@10"] == pytest.approx(0.2)


def test_nodes_without_test_ratings_do_not_count() -> None:
    whole = Measured({"MAE": 1.0, "RMSE": 2.0}, num_test=10)
    assert joined([Measured(), whole, Measured()]) == {"MAE": 1.0, "RMSE": 2.0}
    assert joined([Measured(), Measured()]) == {}
    assert joined([]) == {}


def test_joining_errors_equals_one_pile_of_errors() -> None:
    drawn = np.random.default_rng(0)
    piles = [drawn.normal(size=size) for size in (1, 7, 100)]
    parts = [
        Measured({"MAE": float(np.abs(one).mean()), "RMSE": float(np.sqrt((one**2).mean()))}, len(one), len(one))
        for one in piles
    ]
    errors = np.concatenate(piles)
    assert joined(parts)["MAE"] == pytest.approx(np.abs(errors).mean())
    assert joined(parts)["RMSE"] == pytest.approx(np.sqrt((errors**2).mean()))


def test_metrics_over_nothing_do_not_end_the_run() -> None:
    assert joined([Measured({"RMSE": 1.0}, num_test=0)]) == {}
    nobody = Measured({"NDCG@10": 0.9}, num_test=5, num_users=0)
    assert joined([nobody, Measured({"NDCG@10": 0.1}, num_test=5, num_users=3)]) == pytest.approx({"NDCG@10": 0.1})


def test_what_most_nodes_hold_is_the_model() -> None:
    one, other = "a" * 64, "b" * 64
    said = [Measured(model_sha256=digest) for digest in ("", other, one, other)]
    assert shared_digest(said) == other
    assert shared_digest(said[:3]) == shared_digest([said[2], said[1]])
    assert shared_digest([Measured()]) == ""


def measured(folder: Path, **settings: Any) -> tuple[list[Measured], dict[str, float], Federation]:
    federation = Federation(folder / "f", 2)
    for name in federation.nodes if settings else ():
        federation.settle(name, **settings)
    ordered, wire = federation.order("fedrec"), Wire(federation)
    assert ordered.drive(wire).status == "done"
    said = [about(decode_packet(data), Measured) for leg, data in wire.replies if leg.phase == "measure"]
    return said, read_run(ordered.folder).folds[0].metrics, federation


def test_nodes_tell_means_over_all_they_have(tmp_path: Path) -> None:
    said, metrics, _ = measured(tmp_path)
    assert len(said) == 2
    assert sum(one.num_test for one in said) == len(some_split().test)
    assert sum(one.num_train for one in said) == len(some_split().train)
    assert joined(said) == metrics
    assert {"MAE", "RMSE"} <= set(metrics)


def test_nodes_measure_the_lists_that_they_show(tmp_path: Path) -> None:
    """A node's HR@10: the share of users whose list, as `recommend` gives it there, has a liked test item."""
    said, _, federation = measured(tmp_path)
    test, found = some_split().test, []
    liked = test.ratings >= relevance_limit(test, None)
    held: dict[str, set[str]] = {}
    for user, item in zip(test.users[liked], test.items[liked], strict=True):
        held.setdefault(str(test.user_ids[user]), set()).add(str(test.item_ids[item]))
    for name in federation.nodes:
        [folder] = (federation.folder / name / "private" / "runs").iterdir()
        assert read_run(folder).provenance.min_raters == 1, "too few people for the usual ten raters"
        model = load_run(folder)
        users = [user for user in model.ranker().train.user_ids if str(user) in held]
        lists = [{str(entry.item) for entry in one} for one in model.recommend(users, 10)]
        found.append(np.mean([bool(held[str(user)] & one) for user, one in zip(users, lists, strict=True)]))
    assert found == pytest.approx([one.metrics["HR@10"] for one in said])


def test_facts_are_not_computed_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a model of its own tells metrics; facts may cost much, and would not be sent."""

    def facts(_private: Any, _config: Any) -> dict[str, float]:
        raise AssertionError("computed")

    fedrec = SYSTEMS["fedrec"]
    told = replace(fedrec, result=replace(fedrec.result, facts=facts))
    monkeypatch.setattr("hushrec.deploy.node_run.system_named", lambda _name: told)
    said, _, _ = measured(tmp_path)
    assert all(one.metrics and not one.facts for one in said)


def test_a_federation_without_test_ratings_has_a_model_and_no_metrics(tmp_path: Path) -> None:
    said, metrics, federation = measured(tmp_path, test=None)
    assert said == [Measured()] * 2
    assert metrics == {}
    for name in federation.nodes:
        [folder] = (federation.folder / name / "private" / "runs").iterdir()
        assert read_run(folder).party == "node"


def test_test_ratings_that_do_not_fit_are_told_before_the_first_round(tmp_path: Path) -> None:
    """A file without ratings: the node says so when it enrols, or does without; it does not hold up the end."""
    (tmp_path / "test.csv").write_text("user,item,rating\n")
    federation = Federation(tmp_path / "f", 2)
    federation.settle("node-2", test=str(tmp_path / "test.csv"))
    report = federation.order("fedrec").drive()
    assert report.status == "done" or report.round_number == 0


@pytest.mark.parametrize("user", [-1, 4, 1000])
def test_test_ratings_of_unknown_users_are_not_taken_for_others(tmp_path: Path, user: int) -> None:
    """The users of this node have even ids; somebody else's test ratings are cold or refused, not user 6's."""
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("user,item,rating\n2,1,3\n6,1,4\n6,2,5\n8,2,1\n")
    test.write_text(f"user,item,rating\n{user},2,3\n")
    catalogue = Catalogue(["1", "2"], True)
    own = USERS.read(NodeFiles(str(train)), "node-1", catalogue, (1.0, 5.0)).train
    with pytest.raises(HushrecError, match=r"^1 users of the test ratings are not clients .*; leave them out$"):
        USERS.read_test(NodeFiles(str(train), str(test)), own, catalogue, (1.0, 5.0))
