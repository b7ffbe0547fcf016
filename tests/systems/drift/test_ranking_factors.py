import numpy as np
import pytest
from scipy.optimize import minimize

from hushrec.errors import HushrecError
from hushrec.systems.drift.ranking_factors import RankingFactors

DRAWS = np.random.default_rng(0)
MODEL = RankingFactors(*(DRAWS.normal(size=(size, 3)).astype(np.float32) for size in (4, 12)), regularization=0.1)


def test_scores_are_products() -> None:
    """By hand: (1, 2) . (3, 4) = 11."""
    model = RankingFactors(np.array([[1, 2]], np.float32), np.array([[3, 4], [0, 1]], np.float32), 0.0)
    assert model.score(np.array([0], np.int32)).tolist() == [[11, 2]]
    assert model.predict(np.array([0, 0], np.int32), np.array([1, 0], np.int32)).tolist() == [2, 11]


def test_one_prediction_is_one_score() -> None:
    users, items = np.array([3, 0, 3], np.int32), np.array([11, 5, 0], np.int32)
    np.testing.assert_allclose(MODEL.predict(users, items), MODEL.score(users)[np.arange(3), items], rtol=1e-6)


@pytest.mark.parametrize("ratings", [[1, 0, 1, 0, 0], [1, 0]])
def test_a_newcomers_vector_is_the_best_one(ratings: list[int]) -> None:
    """Against SciPy: the mean of -log sigma(w) over all pairs, and the ridge."""
    items, given = np.arange(len(ratings), dtype=np.int32), np.array(ratings, np.float32)
    liked, others = (MODEL.item_factors[items[given == sign]].astype(float) for sign in (1, 0))
    differences = (liked[:, None] - others[None]).reshape(-1, 3)

    def loss(vector: np.ndarray) -> float:
        return float(np.log1p(np.exp(-differences @ vector)).mean() + 0.05 * (vector**2).sum())

    best = minimize(loss, np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(MODEL.fold_in(items, given), MODEL.item_factors @ best, atol=1e-3)


def test_a_newcomer_who_only_likes_is_served() -> None:
    """What it likes is above what others are on average."""
    scores = MODEL.fold_in(np.array([2, 5], np.int32), np.ones(2, np.float32))
    assert scores[[2, 5]].mean() > scores.mean()


def test_a_newcomer_who_likes_nothing_gets_equal_scores() -> None:
    assert not MODEL.fold_in(np.array([2], np.int32), np.zeros(1, np.float32)).any()


@pytest.mark.parametrize("rating", [5.0, -1.0, 0.5, np.nan])
def test_ratings_of_another_scale_are_refused(rating: float) -> None:
    with pytest.raises(HushrecError, match=r"\Aa newcomer's ratings are 1 \(liked\) or 0 \(not\).*; give these\Z"):
        MODEL.fold_in(np.array([2, 3], np.int32), np.array([1, rating], np.float32))
