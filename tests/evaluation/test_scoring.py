"""Scoring less changes nothing: candidates alone, blocks of users, and a learning curve of some users."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.baselines.library import ALS
from hushrec.baselines.popularity import Popularity
from hushrec.data import random_share
from hushrec.draws import Draws
from hushrec.evaluation import evaluated_users, ranking_metrics
from hushrec.evaluation.candidates import candidates
from hushrec.evaluation.feedback import IMPLICIT, ranking_quality, thinned
from hushrec.evaluation.lists import list_measures
from hushrec.evaluation.scoring import Narrowable, scores_among
from hushrec.models.bpr import Pairing, RankingModel
from hushrec.models.fcf import PositiveModel, Weights
from hushrec.models.pmf import FactorModel
from hushrec.systems.drift.ranking_factors import RankingFactors

SPLIT = random_share(hushrec.load("synthetic:users=90,items=400,ratings=2500").as_implicit(), 0.2, 0)


def models() -> list[Any]:
    """One of each kind that can leave items out, untrained."""
    train = SPLIT.train
    draws = np.random.default_rng(2)
    users = draws.normal(size=(train.num_users, 9)).astype(np.float32)
    items = draws.normal(size=(train.num_items, 9)).round(1).astype(np.float32)
    items[1::7] = items[::7][: len(items[1::7])]  # ties
    rated = FactorModel(users, items, (1.0, 5.0), np.ones(3), 0.1)
    return [
        rated,
        replace(rated, has_biases=True),
        RankingModel(users, items, Pairing(1, 0, 1, 2, np.float32(1))),
        PositiveModel(users, items, lambda _positives, _items: Weights(1.0, 1.0)),
        RankingFactors(users, items, 0.1),
        Popularity.fit(train),
        ALS(users, items),
    ]


def slow_ndcg(scores: np.ndarray, is_candidate: np.ndarray, length: int) -> float:
    """By sorting every candidate of every user in Python."""
    found = []
    for user in np.unique(SPLIT.test.users):
        own = set(SPLIT.train.items[SPLIT.train.users == user].tolist())
        left = [item for item in np.flatnonzero(is_candidate).tolist() if item not in own]
        listed = sorted(left, key=lambda item: (-scores[user, item], item))[:length]
        relevant = set(SPLIT.test.items[SPLIT.test.users == user].tolist())
        gains = [1 / np.log2(rank + 2) for rank, item in enumerate(listed) if item in relevant]
        found.append(sum(gains) / sum(1 / np.log2(rank + 2) for rank in range(min(length, len(relevant)))))
    return float(np.mean(found))


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_what_is_not_scored_changes_no_list(model: Any) -> None:
    train, everybody = SPLIT.train, np.arange(SPLIT.train.num_users, dtype=np.int32)
    is_candidate = candidates(train, 5)
    assert is_candidate is not None
    assert 10 < is_candidate.sum() < 0.9 * len(is_candidate)
    assert isinstance(model, Narrowable)
    score, whole = scores_among(model, is_candidate), np.array(model.score(everybody))
    np.testing.assert_allclose(score(everybody), whole[:, is_candidate], rtol=1e-4, atol=1e-5)
    whole[:, is_candidate] = score(everybody)  # BLAS may round by the shape of a product; ties are to fall alike
    rows = train.by_user(), SPLIT.test.by_user()
    fast = ranking_quality(model, train, SPLIT.test, (3, 10), None, 5)
    assert fast == ranking_metrics(lambda users: whole[users], *rows, (3, 10), candidates=is_candidate)
    assert fast["NDCG@10"] == pytest.approx(slow_ndcg(whole, is_candidate, 10), abs=1e-12)
    assert IMPLICIT.curve(model, train, SPLIT.test, (3, 10), 5)["NDCG@10"] == fast["NDCG@10"]
    lists = [
        list_measures(by, rows[0], train.num_items, 10, Draws(0), is_candidate) for by in (score, model.score)
    ]
    assert lists[0] == lists[1]


def test_all_items_are_scored_where_all_can_be_listed() -> None:
    (model, *_) = models()
    for is_candidate in (None, np.ones(SPLIT.train.num_items, bool)):
        assert scores_among(model, is_candidate) == model.score


def test_a_curve_of_large_data_is_of_every_nth_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a third of the scores that all users take, users 0, 3, 6, ... of those who are measured are ranked."""
    users = evaluated_users(SPLIT.test.by_user())
    most = -(-len(users) * SPLIT.test.num_items // 3)
    some = thinned(SPLIT.test, None, most)
    np.testing.assert_array_equal(np.unique(some.users), users[::3])
    assert len(some) == np.isin(SPLIT.test.users, users[::3]).sum()
    assert thinned(SPLIT.test, None, 3 * most) is SPLIT.test
    monkeypatch.setattr("hushrec.evaluation.feedback.MOST_CURVE_SCORES", most)
    (model, *_) = models()
    curve = IMPLICIT.curve(model, SPLIT.train, SPLIT.test, (10,), 1)
    assert curve["NDCG@10"] == ranking_quality(model, SPLIT.train, some, (10,), None, 1)["NDCG@10"]
    assert curve["NDCG@10"] != ranking_quality(model, SPLIT.train, SPLIT.test, (10,), None, 1)["NDCG@10"]
