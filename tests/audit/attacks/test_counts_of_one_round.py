from collections.abc import Callable

import numpy as np
import pytest

from audit.attacks.sums import known, rounds_of, seen
from hushrec.audit.attacks.counts_of_one_round import judge, likely
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import paired


def test_counts_are_shares_of_participants() -> None:
    """Of two participants both have item 0, one has item 1, and nobody has item 2."""
    pairs, scores = likely(seen([4, 7], [2, 1, 0]))
    assert pairs.tolist() == paired(np.repeat([4, 7], 3), np.tile(np.arange(3), 2)).tolist()
    assert scores.tolist() == [1.0, 0.5, 0.0, 1.0, 0.5, 0.0]


def test_where_lists_are_seen_they_are_shares_of_who_lists() -> None:
    """Item 0 is listed by 4 alone and has a rater; item 1 is listed by both and has one."""
    listed = paired(np.array([4, 4, 7]), np.array([0, 1, 1]))
    pairs, scores = likely(seen([4, 7], [1, 1], listed=listed))
    assert pairs.tolist() == listed.tolist()
    assert scores.tolist() == [1.0, 0.5, 0.5]


def test_a_round_of_one_tells_all_and_is_scored_so(owning: Callable[..., Truth]) -> None:
    outcome = judge(known(seen([1], [0, 1, 1, 0])), owning([[0], [1, 2], [3]], 4))
    assert outcome.victims.tolist() == [1]
    assert outcome.scores.tolist() == [1.0]
    assert outcome.chances.tolist() == [0.0]  # others have 0 and 3


def test_at_chance_where_all_of_very_many_take_part(owning: Callable[..., Truth]) -> None:
    """2,000 clients have each of 40 items with chances of their own: 0.002 is the interval's half width."""
    generator = np.random.default_rng(0)
    has = generator.random((2000, 40)) < np.linspace(0.05, 0.6, 40)
    truth = owning([np.flatnonzero(row).tolist() for row in has], 40)
    outcome = judge(rounds_of(has, [np.arange(2000)]), truth)
    assert outcome.scores.mean() == pytest.approx(outcome.chances.mean(), abs=0.005)
    few = judge(rounds_of(has, [np.arange(5)]), truth)
    assert few.scores.mean() > few.chances.mean() + 0.05
