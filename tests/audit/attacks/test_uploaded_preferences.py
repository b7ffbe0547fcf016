from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import NOTHING, Bare, sent
from audit.gradient_views import asked, at_random
from hushrec.audit.attacks.uploaded_preferences import from_the_middle, judge, preferred
from hushrec.audit.scoreboard import Truth


def test_distances_by_hand() -> None:
    """All rows are multiples of (3, 4), of length 5: 1, 1, -1 and 2 times it. The middle is 1: 0, 0, 10 and 5."""
    rows = np.array([[3.0, 4], [3, 4], [-3, -4], [6, 8]])
    np.testing.assert_allclose(from_the_middle(rows), [0, 0, 10, 5], atol=1e-9)


def test_who_moves_the_other_way_is_preferred(owning: Callable[..., Truth]) -> None:
    rows = np.outer([1.0, -1, 1, 1], [0.5, 0.5])
    found = preferred(asked(np.zeros((4, 2)), {7: ([0, 1, 2, 3], rows)}), NOTHING)
    owned: list[list[int]] = [[] for _ in range(7)]
    assert judge(found, owning([*owned, [1]], 4)).scores.tolist() == [1.0]


def test_scores_are_taken_as_they_are(owning: Callable[..., Truth]) -> None:
    """Own 1 and 2 have .9 and .3, others .5 and .3: 2 wins of the first, half of the second's two pairs' ties."""
    found = preferred([sent({0: [(0, 0.5), (1, 0.9), (2, 0.3), (3, 0.3)]})], NOTHING)
    assert judge(found, owning([[1, 2]], 4)).scores.tolist() == [0.625]


def test_at_chance_where_rows_tell_nothing(owning: Callable[..., Truth]) -> None:
    """The AUC of 6 against 14 items has a deviation of .144; of the mean of 300 clients .0083. |z| < 4."""
    view, owned = at_random(300, 40, seed=3)
    assert judge(preferred(view, NOTHING), owning(owned, 40)).scores.mean() == pytest.approx(0.5, abs=4 * 0.0083)


def test_lists_without_numbers_and_nothing_at_all(owning: Callable[..., Truth]) -> None:
    for view in ([], [sent({0: [(1, 0.0), (2, 0.0)]}, Bare)]):
        assert len(judge(preferred(view, NOTHING), owning([[1]], 3)).victims) == 0
