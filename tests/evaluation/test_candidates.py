"""One rule: what is measured is what is listed."""

from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.evaluation import evaluated_users, ranking_metrics, ranking_per_user, top_k
from hushrec.evaluation.candidates import candidates, usable_min_raters
from hushrec.evaluation.feedback import relevance_limit
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from systems.runs import short

DATA = "synthetic:users=80,items=60,ratings=1000"
ONE_THREAD = RuntimeOptions(threads=1)


def data_of(rows: list[list[int]], num_items: int) -> Interactions:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows]).astype(np.int32)
    items = np.array([item for row in rows for item in row], np.int32)
    return Interactions(
        users, items, None, None, None, np.arange(len(rows)), np.arange(num_items), None, None, "made", "", True
    )


def test_what_is_no_candidate_is_neither_listed_nor_hit_by_hand() -> None:
    """Items 0 and 1 have two raters, 2 has one, 3 none. User 2 has 3 and 0 in the test part and ranks 3, 2, 1, 0.

    With two raters the list is 1, 0: one of two relevant items, at rank 2. With one it is 2, 1, 0.
    """
    train = data_of([[0, 1, 2], [0, 1], []], 4)
    test = data_of([[], [], [0, 3]], 4)
    scores = np.array([[1.0, 2.0, 3.0, 4.0]] * 3)
    expected = {0: (1, 0.5, 1.0), 1: (3, 0.5, 1 / 3), 2: (2, 0.5, 0.5)}
    for min_raters, (rank, recall, reciprocal) in expected.items():
        values = ranking_metrics(
            lambda users: scores[users],
            train.by_user(),
            test.by_user(),
            (rank, 3),
            candidates=candidates(train, min_raters),
        )
        assert values[f"Recall@{rank}"] == pytest.approx(recall)
        assert values["MRR@3"] == pytest.approx(reciprocal)
    items, best = top_k(scores[:1], 3, None, candidates(train, 2))
    assert items.tolist() == [[1, 0, -1]]
    assert best.tolist() == [[2.0, 1.0, -np.inf]]


def test_candidates_are_as_if_the_others_did_not_exist() -> None:
    generator = np.random.default_rng(3)
    scores = generator.normal(size=(30, 40)).round(1)  # with ties
    is_candidate = generator.random(40) < 0.6
    excluded = [np.sort(generator.choice(40, 6, replace=False)).astype(np.int32) for _ in scores]
    starts = np.arange(0, 6 * 31, 6)
    found, _ = top_k(scores, 7, (starts, np.concatenate(excluded)), is_candidate)
    for row, own, listed in zip(scores, excluded, found, strict=True):
        left = np.setdiff1d(np.flatnonzero(is_candidate), own)
        assert listed.tolist() == sorted(left.tolist(), key=lambda item: (-row[item], item))[:7]
    with pytest.raises(HushrecError, match="candidates have shape"):
        top_k(scores, 7, None, is_candidate[:5])


def test_items_of_no_score_are_not_listed() -> None:
    """A partner scores only its own items, the others minus infinity: with candidates, these hit nothing."""
    train, test = data_of([[0, 1, 2], [2]], 3), data_of([[], [1]], 3)
    scores = np.array([[0.0] * 3, [1.0, -np.inf, 0.0]])
    arguments = (lambda users: scores[users]), train.by_user(), test.by_user(), (2,)
    assert ranking_metrics(*arguments)["HR@2"] == 1
    assert ranking_metrics(*arguments, candidates=candidates(train, 1))["HR@2"] == 0


def test_the_usual_number_falls_where_too_few_items_have_it() -> None:
    train = data_of([[0, 1, 2]] * 10 + [[3]], 5)
    assert usable_min_raters(10, train, 3) == 10
    assert usable_min_raters(10, train, 4) == 1
    assert usable_min_raters(0, train, 99) == 0
    assert usable_min_raters(10, data_of([[0, 1, 2]], 5), 3) == 0, (
        "a lone user has seen all that anybody has rated"
    )
    assert candidates(train, 0) is None
    assert candidates(data_of([[]], 3), 5) is None, "a server without data"
    with pytest.raises(HushrecError, match="no item has 11 raters; use fewer, as in min_raters=0"):
        candidates(train, 11)


@pytest.mark.parametrize(("name", "usual"), [("fedrec++", 10), ("fcf", 1)])
@pytest.mark.parametrize("min_raters", [None, 0, 14])
def test_lists_of_all_users_give_the_printed_hit_rate(
    name: str, usual: int, min_raters: int | None, tmp_path: Path
) -> None:
    """By the public functions only: what `recommend` lists for everybody, against the test part."""
    system, data = SYSTEMS[name], hushrec.load(DATA)
    config = system.configure(short(name))
    settings = settings_for(system, at=(10,), data=data, min_raters=min_raters)
    done = run(system, config, data, settings, ONE_THREAD, tmp_path / "run")
    assert done.provenance.min_raters == (usual if min_raters is None else min_raters)
    (split,) = splits_for(system, data, settings, config)
    rows, limit = split.test.by_user(), relevance_limit(split.test)
    model = hushrec.load_run(tmp_path / "run")
    users = evaluated_users(rows, limit)
    lists = model.recommend(split.test.user_ids[users], k=10)
    listed = [split.test.item_numbers(np.array([entry.item for entry in one])) for one in lists]
    raters = np.bincount(split.train.items, minlength=data.num_items)
    hits = []
    for user, items in zip(users, listed, strict=True):
        own = slice(rows.starts[user], rows.starts[user + 1])
        is_relevant = np.ones(own.stop - own.start, bool) if limit is None else rows.ratings[own] >= limit
        hits.append(bool(np.isin(items, rows.items[own][is_relevant]).any()))
        assert (raters[items] >= done.provenance.min_raters).all()
    assert np.mean(hits) == done.mean["HR@10"]
    assert 0 < np.mean(hits) < 1
    assert model.evaluate(split.test)["HR@10"] == done.mean["HR@10"]


def test_curves_have_the_rule_of_the_final_metrics() -> None:
    system, data = SYSTEMS["fcf"], hushrec.load(DATA)
    values = set()
    for min_raters in (0, 14):
        settings = settings_for(system, data=data, min_raters=min_raters)
        (fold,) = run(system, system.configure(short("fcf")), data, settings, ONE_THREAD).folds
        assert fold.curve["NDCG@20"][-1] == fold.metrics["NDCG@20"]
        values.add(fold.metrics["NDCG@20"])
    assert len(values) == 2


def test_a_run_goes_on_with_its_own_number(tmp_path: Path) -> None:
    system, data = SYSTEMS["pmf"], hushrec.load(DATA)
    config = system.configure(short("pmf"))
    run(system, config, data, settings_for(system, min_raters=3), ONE_THREAD, tmp_path / "run")
    wished = settings_for(system, num_folds=2, min_raters=None)
    done = run(system, config, data, wished, ONE_THREAD, tmp_path / "run", resume=True)
    assert len(done.folds) == 2
    assert read_run(tmp_path / "run").provenance.min_raters == 3
    other = settings_for(system, num_folds=2, min_raters=4)
    with pytest.raises(HushrecError, match="holds a run with min_raters 3, not 4"):
        run(system, config, data, other, ONE_THREAD, tmp_path / "run", resume=True)


def test_impossible_numbers_are_refused_before_training() -> None:
    system, data = SYSTEMS["pmf"], hushrec.load(DATA)
    with pytest.raises(HushrecError, match="min_raters=-1: a number of users is 0 or more"):
        settings_for(system, min_raters=-1)
    with pytest.raises(HushrecError, match="no item has 81 raters"):
        run(system, system.configure({}), data, settings_for(system, min_raters=81), ONE_THREAD)


def test_candidates_of_every_item_change_nothing() -> None:
    generator = np.random.default_rng(5)
    train, test = data_of([[0, 3], [1, 2], [2]], 6), data_of([[1, 4], [5], [0, 3]], 6)
    scores = generator.normal(size=(3, 6))
    arguments = (lambda users: scores[users]), train.by_user(), test.by_user()
    everything, unsaid = (ranking_per_user(*arguments, candidates=one) for one in (np.ones(6, bool), None))
    for name, values in unsaid.items():
        assert values.tolist() == everything[name].tolist()
