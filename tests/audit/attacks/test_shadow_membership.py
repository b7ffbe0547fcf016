from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import NOTHING, Bare, sent
from audit.gradient_views import asked, at_random
from hushrec.audit.attacks.shadow_membership import doubt, judge, shadow
from hushrec.audit.scoreboard import Truth


def test_shadow_by_hand() -> None:
    """Five of seven points are on 1 + 2 x; the other two are far off, and do not pull the line."""
    at = np.array([0.0, 1, 2, 3, 4, 5, 6])
    seen = 1 + 2 * at
    seen[2], seen[5] = 50.0, -40.0
    np.testing.assert_allclose(shadow(seen, at, np.random.default_rng(0)), 1 + 2 * at, atol=1e-9)


def test_gradients_by_hand(owning: Callable[..., Truth]) -> None:
    """U = (1, 0), V_i = (x_i, 1): rows are (U V_i - y_i) U, with y = 1 of items 1 and 4, else 0.

    Along U the others are on the line x; items 1 and 4 are 1 below it. So these are told, all 2 times 4 pairs.
    """
    x = np.array([0.3, -0.2, 0.5, 0.1, 0.7, -0.4])
    owned = np.array([0.0, 1, 0, 0, 1, 0])
    rows = np.stack([x - owned, np.zeros(6)], axis=1)
    found = doubt(asked(np.stack([x, np.ones(6)], axis=1), {0: (list(range(6)), rows)}), NOTHING)
    np.testing.assert_allclose(found.distances, owned, atol=1e-6)
    assert judge(found, owning([[1, 4]], 6)).scores.tolist() == [1.0]


def test_scores_by_hand() -> None:
    """Three clients say .2, .4, .6, .8 of items 0 to 3; a fourth the same, but .9 of item 0, its own."""
    usual = [(item, 0.2 + 0.2 * item) for item in range(4)]
    view = [sent({0: usual, 1: usual, 2: usual, 3: [(0, 0.9), *usual[1:]]})]
    found = doubt(view, NOTHING)
    assert found.pairs[found.distances.argmax()] == 3 * 2**31
    assert found.distances.max() == pytest.approx(0.7, abs=0.01)


def test_which_cohort_came_first_does_not_matter() -> None:
    """Threads send batches in any order; guesses are drawn client by client."""
    draws = np.random.default_rng(0)
    batches = [
        sent({client: [(item, float(draws.random())) for item in range(12)] for client in (first, first + 1)})
        for first in (0, 2)
    ]
    orders = (batches, batches[::-1])
    own = [NOTHING._replace(generator=np.random.default_rng(5)) for _ in orders]
    one, two = (doubt(view, known) for view, known in zip(orders, own, strict=True))
    np.testing.assert_array_equal(one.distances, two.distances)


def test_at_chance_where_rows_tell_nothing(owning: Callable[..., Truth]) -> None:
    """The AUC of 6 against 14 items has a deviation of .144; of the mean of 300 clients .0083. |z| < 4."""
    view, owned = at_random(300, 40, seed=2)
    assert judge(doubt(view, NOTHING), owning(owned, 40)).scores.mean() == pytest.approx(0.5, abs=4 * 0.0083)


def test_lists_without_numbers_and_nothing_at_all(owning: Callable[..., Truth]) -> None:
    for view in ([], [sent({0: [(1, 0.0), (2, 0.0)]}, Bare)]):
        assert len(judge(doubt(view, NOTHING), owning([[1]], 3)).victims) == 0
