from collections.abc import Callable

import numpy as np
import pytest

from audit.attacks.sums import known, rounds_of, seen
from hushrec.audit.attacks.count_equations import guess, judge, solve
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import paired


def test_three_equations_of_three_unknowns_by_hand() -> None:
    """Sums of 0 and 1, of 1 and 2, of 0 and 2 are 1, 1, 2: so 0 and 2 have it, and 1 has not."""
    took_part = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1.0]])
    assert np.rint(solve(took_part, np.array([[1], [1], [2.0]]))).ravel().tolist() == [1, 0, 1]


def test_a_group_that_stays_together_is_told_its_share_and_no_more() -> None:
    """However often: 0 and 1 have each item alike."""
    sums = known(*(seen([0, 1], [2, 1, 0], number) for number in (1, 2, 3)))
    pairs, scores = guess(sums)
    assert pairs.tolist() == paired(np.repeat([0, 1], 3), np.tile(np.arange(3), 2)).tolist()
    np.testing.assert_allclose(scores, [1, 0.5, 0, 1, 0.5, 0], atol=1e-9)


def test_lists_narrow_who_it_can_be() -> None:
    """Item 0 has one rater in both rounds, listed by 0 and 1 and then by 0 and 2: the likeliest is 0."""
    first, second = (paired(np.array(who), np.zeros(2, np.int64)) for who in ([0, 1], [0, 2]))
    sums = known(seen([0, 1, 2], [1], 1, first), seen([0, 1, 2], [1], 2, second))
    pairs, scores = guess(sums)
    assert pairs.tolist() == paired(np.arange(3), np.zeros(3, np.int64)).tolist()
    assert scores[0] == pytest.approx(scores.max())
    assert scores[1] == pytest.approx(scores[2])


@pytest.fixture
def has() -> np.ndarray:  # type: ignore[type-arg]
    generator = np.random.default_rng(1)
    return generator.random((30, 50)) < np.linspace(0.02, 0.7, 50)


def test_more_rounds_tell_more_and_enough_tell_all(owning: Callable[..., Truth], has: np.ndarray) -> None:  # type: ignore[type-arg]
    truth = owning([np.flatnonzero(row).tolist() for row in has], 50)
    generator = np.random.default_rng(2)
    drawn = [np.sort(generator.choice(30, 8, replace=False)) for _ in range(40)]
    means = [judge(rounds_of(has, drawn[:number]), truth).scores.mean() for number in (8, 20, 40)]
    assert means[0] < means[1] < means[2]
    assert means[2] == pytest.approx(1.0, abs=1e-3)


def test_groups_that_stay_together_tell_what_one_round_of_each_does(
    owning: Callable[..., Truth],
    has: np.ndarray,  # type: ignore[type-arg]
) -> None:
    truth = owning([np.flatnonzero(row).tolist() for row in has], 50)
    groups = [np.arange(0, 15), np.arange(15, 30)]
    once, often = (judge(rounds_of(has, groups * times), truth).scores.mean() for times in (1, 20))
    assert often == pytest.approx(once, abs=0.002)
