from collections.abc import Callable

import numpy as np

from audit.attacks.sums import known, seen
from hushrec.audit.attacks.differing_rounds import differences, judge
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import paired


def test_who_is_lost_once_is_the_difference(owning: Callable[..., Truth]) -> None:
    """0, 1 and 2 have items 0; 0, 1; 1, 2. Without 1 in the second round, 0 and 1 have one rater less."""
    sums = known(seen([0, 1, 2], [2, 2, 1], 1), seen([0, 2], [1, 1, 1], 2))
    pairs, victims = differences(sums)
    assert victims.tolist() == [1]
    assert pairs.tolist() == paired(np.array([1, 1]), np.array([0, 1])).tolist()
    outcome = judge(sums, owning([[0], [0, 1], [1, 2]], 3))
    assert outcome.scores.tolist() == [1.0]
    assert outcome.chances.tolist() == [1.0]  # 0 and 1 are as many as, and among, the most popular


def test_of_one_that_comes_and_one_that_goes_both_are_told(owning: Callable[..., Truth]) -> None:
    """1 has 0, 1 and goes; 3 has 0, 2 and comes: of item 0 nothing is seen."""
    sums = known(seen([0, 1], [1, 1, 0], 1), seen([0, 3], [1, 0, 1], 2))
    pairs, victims = differences(sums)
    assert victims.tolist() == [1, 3]
    assert pairs.tolist() == paired(np.array([1, 3]), np.array([1, 2])).tolist()


def test_the_closest_two_sums_count() -> None:
    """That of 0, 1, 2 and 0, 1 tells of 2 alone; that of 0, 1, 2 and 0 of 1 and 2 together."""
    sums = known(seen([0], [0, 0], 1), seen([0, 1, 2], [1, 1], 2), seen([0, 1], [1, 0], 3))
    pairs, victims = differences(sums)
    assert victims.tolist() == [1, 2]
    assert pairs.tolist() == paired(np.array([1, 2]), np.array([0, 1])).tolist()


def test_nothing_is_told_where_none_or_many_differ() -> None:
    """The same participants again, and four others."""
    sums = known(seen([0, 1, 2, 3], [2, 2], 1), seen([0, 1, 2, 3], [2, 2], 2), seen([4, 5, 6, 7], [0, 4], 3))
    pairs, victims = differences(sums)
    assert len(pairs) == len(victims) == 0
