from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hushrec.audit.attacks.fitting_pairs import ATTACK, fitting
from hushrec.audit.scoreboard import Own, Truth
from hushrec.draws import Draws
from hushrec.models.bpr import PairGradients, Pairing, RankingClients, keys_of, train_clients
from hushrec.protocol import Ragged, Recorded

from .test_pulled_up import Rows, Vectors


def knowing(**settings: Any) -> Own:
    return Own({"negatives": 1, "rho": 1, "regularization": 1.0, **settings}, {}, np.random.default_rng(0))


def seen(vectors: np.ndarray, starts: np.ndarray, items: np.ndarray, gradients: np.ndarray) -> list[Recorded]:
    numbers = np.arange(len(starts) - 1, dtype=np.int32)
    upload = Rows(Ragged(starts, items.astype(np.int32)), Ragged(starts, gradients.astype(np.float32)))
    request = Vectors(vectors.astype(np.float32), np.zeros(len(numbers), np.int32))
    return [Recorded(1, numbers, request), Recorded(1, numbers, upload)]


def sigma(margin: float) -> float:
    return 1 / (1 + np.exp(-margin))


def test_by_hand(owning: Callable[..., Truth]) -> None:
    """U = (1, 1). Items 0 and 1 are pulled up; 2 and 3 are pushed down.

    V is (2, 1), (-1, 0), (0, 0), (0, 1/2), the second number being the bias, so scores are 3, -1, 0 and 1/2. Item
    2 is paired with 0: both rows have sigma(-3). Item 3 is paired with 1: sigma(-(-1 - 1/2)). Without biases, D of
    0 is sigma(-2) (2 - 0) = .2384 and D of 1 is sigma(1) (-1 - 0) = -.7311. With lambda = .2384 only all of the
    first and none of the second give lambda U.
    """
    vectors = np.array([[2, 1], [-1, 0], [0, 0], [0, 0.5]])
    slopes = np.array([-sigma(-3), -sigma(1.5), sigma(-3), sigma(1.5)])
    view = seen(vectors, np.array([0, 4]), np.arange(4), slopes[:, None] * np.ones(2))
    found = fitting(view, knowing(regularization=2 * sigma(-2)))
    assert found.pairs.tolist() == [0, 1]
    np.testing.assert_allclose(found.scores, [1, 0], atol=0.02)
    assert ATTACK.judge(found, owning([[0]], 4)).scores.tolist() == [1.0]
    assert ATTACK.judge(found, owning([[1]], 4)).scores.tolist() == [0.0]


def test_without_pairs_rows_count_by_themselves() -> None:
    """One negative for two positives: rows of 0 and 1 give 1/2 * 2 and 1/2 * -1, that of the negative nothing."""
    vectors = np.array([[2, 0], [-1, 0], [0, 0]])
    slopes = np.array([-0.5, -0.5, 1.0])
    view = seen(vectors, np.array([0, 3]), np.arange(3), slopes[:, None] * np.ones(2))
    np.testing.assert_allclose(fitting(view, knowing()).scores, [1, 0], atol=0.02)


def test_chance_where_virtual_pairs_are_twins_of_real_ones(owning: Callable[..., Truth]) -> None:
    """Twins differ in their biases only, which are left out where U is solved for: both fit equally well."""
    rng = np.random.default_rng(1)
    half = rng.normal(size=(10, 3))  # five positives, five negatives
    vectors = np.column_stack([np.vstack([half, half]), rng.normal(size=20)])
    user = np.append(rng.normal(size=3), 1.0)
    slopes = np.zeros(20)
    for first in (0, 10):
        for place in range(5):
            margin = user @ (vectors[first + place] - vectors[first + 5 + place])
            slopes[first + place], slopes[first + 5 + place] = -sigma(-margin), sigma(-margin)
    found = fitting(seen(vectors, np.array([0, 20]), np.arange(20), slopes[:, None] * user), knowing())
    real, virtual = found.scores[:5], found.scores[5:]
    np.testing.assert_allclose(real, virtual, atol=1e-4)
    rounded = found._replace(scores=found.scores.round(3))
    assert ATTACK.judge(rounded, owning([[0, 1, 2, 3, 4]], 20)).scores.tolist() == [pytest.approx(0.5)]


def test_nobody_and_nothing() -> None:
    assert len(fitting([], knowing()).pairs) == 0
    view = seen(np.ones((2, 2)), np.array([0, 0]), np.empty(0), np.empty((0, 2)))
    assert len(fitting(view, knowing()).pairs) == 0


# --- Clients who know of it ----------------------------------------------------------------------------------


def uploads(owned: list[list[int]], vectors: np.ndarray, looks: int) -> PairGradients:
    starts = np.cumsum([0, *(len(one) for one in owned)])
    items = np.array([item for one in owned for item in one], np.int32)
    clients = RankingClients.enrol(starts, items, len(vectors), vectors.shape[1] - 1)
    how, rows = Pairing(2, 3, looks, 10, np.float32(1.0)), np.arange(len(owned))
    return train_clients(clients, rows, rows.astype(np.int32), vectors, how, keys_of(Draws(0)), 1)


def test_virtual_pairs_are_chosen_against_it(owning: Callable[..., Truth]) -> None:
    """Drawn blindly, virtual pairs do not add up to U; chosen among forty, they nearly do."""
    rng = np.random.default_rng(2)
    owned = [sorted(rng.choice(600, 15, replace=False).tolist()) for _ in range(40)]
    vectors = rng.normal(0, 0.3, (600, 9)).astype(np.float32)

    def auc(looks: int) -> float:
        got = uploads(owned, vectors, looks)
        found = fitting(seen(vectors, got.starts, got.items, got.gradients), knowing(negatives=2, rho=3))
        return float(ATTACK.judge(found, owning(owned, 600)).scores.mean())

    assert auc(1) > 0.7
    assert auc(40) < 0.53
