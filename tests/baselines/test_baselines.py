"""Every baseline against another way to the same numbers."""

import sys
from collections import Counter

import numpy as np
import pytest

import hushrec
from hushrec.baselines import BASELINES, Biases, Popularity, are_installed
from hushrec.baselines.library import ALS, ItemKNN
from hushrec.data import Interactions
from hushrec.evaluation.feedback import EXPLICIT, IMPLICIT, SIGNED

ALL = {one.name: one for one in BASELINES}


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=60,items=40,ratings=700")


def test_popularity_counts(data: Interactions) -> None:
    counts = Counter(data.items.tolist())
    scores = Popularity.fit(data).score(np.array([3, 5], np.int32))
    assert scores.tolist() == [[counts[item] for item in range(40)]] * 2


def test_biases_are_the_ridge_regression_of_indicators(data: Interactions) -> None:
    """Normal equations of all biases at once, with 2 on the diagonal."""
    assert data.ratings is not None
    rows = np.arange(len(data))
    indicators = np.zeros((len(data), 100))
    indicators[rows, data.users] = indicators[rows, 60 + data.items] = 1
    left = data.ratings.astype(float) - data.ratings.mean(dtype=float)
    best = np.linalg.solve(indicators.T @ indicators + 2 * np.eye(100), indicators.T @ left)
    found = Biases.fit(data)
    np.testing.assert_allclose(np.concatenate([found.of_users, found.of_items]), best, atol=2e-4)
    users, items = np.array([0, 7], np.int32), np.array([39, 2], np.int32)
    expected = np.clip(data.ratings.mean(dtype=float) + best[users] + best[60 + items], 1, 5)
    np.testing.assert_allclose(found.predict(users, items), expected, atol=1e-3)


def test_predictions_of_biases_by_hand() -> None:
    """3 + 2 + 1 and 3 - 2 - 1 are outside of the range; a user without a rating has no bias."""
    found = Biases(3.0, np.array([2.0, -2.0, 0.0]), np.array([1.0, -1.0]), (1.0, 5.0))
    users, items = np.array([0, 1, 1, 2], np.int32), np.array([0, 1, 0, 1], np.int32)
    assert found.predict(users, items).tolist() == [5.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("kind", [Popularity, Biases, ItemKNN, ALS])
def test_pairs_are_ranked_as_lists_are(
    kind: type[Popularity | Biases | ItemKNN | ALS], data: Interactions
) -> None:
    model = kind.fit(data, 3)
    users, items = np.full(40, 5, np.int32), np.arange(40, dtype=np.int32)
    listed, pairs = model.score(users[:1])[0], model.predict(users, items)
    if kind is Biases:
        listed = np.clip(listed + model.mean + model.of_users[5], 1, 5)
    np.testing.assert_allclose(pairs, listed, rtol=1e-4, atol=1e-5)
    assert np.array_equal(model.score(users), kind.fit(data, 3).score(users)), "the same numbers every time"


def test_item_knn_by_the_definition(data: Interactions) -> None:
    """Cosines of items, whose users weigh log(items) - log(1 + own items); each has all 40 neighbours."""
    counts = np.zeros((60, 40))
    counts[data.users, data.items] = 1
    weighted = counts * (np.log(40) - np.log1p(counts.sum(axis=1)))[:, None]
    columns = weighted / np.linalg.norm(weighted, axis=0)
    np.testing.assert_allclose(ItemKNN.fit(data).likeness.toarray(), columns.T @ columns, atol=1e-5)


def test_item_knn_of_items_that_weigh_nothing() -> None:
    """The only user of item 0 has all items but one, and so the weight log(3) - log(3)."""
    users, items = np.array([0, 0, 1, 1], np.int32), np.array([0, 1, 1, 2], np.int32)
    data = Interactions(users, items, None, None, None, np.arange(2), np.arange(3), None, None, "made", "", True)
    assert np.isfinite(ItemKNN.fit(data).score(np.array([0, 1], np.int32))).all()


def test_what_suits_which_feedback(data: Interactions) -> None:
    clicks = data.as_implicit()
    assert [one.name for one in BASELINES if one.suits(data, EXPLICIT)] == [
        "popularity",
        "biases",
        "item-kNN",
        "ALS",
    ]
    assert [one.name for one in BASELINES if one.suits(clicks, IMPLICIT)] == ["popularity", "item-kNN", "ALS"]
    signed = data.as_signed(4)
    assert not ALL["biases"].suits(signed, SIGNED)
    assert SIGNED.liked(signed).ratings.min() == 1
    assert len(SIGNED.liked(signed)) == np.count_nonzero(data.ratings >= 4)
    assert EXPLICIT.liked(data) is data


def test_times_grow_with_the_data(data: Interactions) -> None:
    larger = hushrec.load("synthetic:users=600,items=400,ratings=7000")
    for one in BASELINES:
        assert 0 < one.seconds(data, 10, 40) < one.seconds(data, 1000, 40)
        assert one.seconds(data, 10, 4) < one.seconds(data, 10, 40)
        assert one.fit_seconds(data) < one.fit_seconds(larger)
    assert are_installed()


def test_the_package_takes_its_time_once(data: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("implicit")
    warm = ALL["ALS"].seconds(data, 10, 40)
    monkeypatch.delitem(sys.modules, "implicit")
    assert ALL["ALS"].seconds(data, 10, 40) == pytest.approx(warm + 2)
    assert ALL["biases"].seconds(data, 10, 40) < 0.1
