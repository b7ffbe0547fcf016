from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import Bare, sent
from hushrec.audit.attacks.upload_frequency import Counts, count, judge
from hushrec.audit.scoreboard import Truth


def counted(*rounds: dict[int, list[int]]) -> Counts:
    counts = None
    for uploads in rounds:
        counts = count(
            counts, [sent({user: [(item, 0.0) for item in items] for user, items in uploads.items()}, Bare)]
        )
    assert counts is not None
    return counts


def test_counts_by_hand() -> None:
    """A repeat within a round counts once."""
    counts = counted({0: [4, 2, 4], 1: [2]}, {0: [2]}, {1: [3], 0: [2, 5]})
    assert counts.pairs.tolist() == [2, 4, 5, 2**31 + 2, 2**31 + 3]
    assert counts.times.tolist() == [3, 1, 1, 1, 1]


def test_auc_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 owns 2 and 5, listed 3 times and once; 4 and 6 are listed once and twice.

    Pairs of own and other: 3 > 1, 3 > 2, 1 = 1, 1 < 2: 2.5 of 4. Client 1 lists own items only: left out.
    """
    counts = counted({0: [2, 4], 1: [1]}, {0: [2, 6]}, {0: [2, 5, 6]})
    outcome = judge(counts, owning([[2, 5], [1]], 9))
    assert outcome.victims.tolist() == [0]
    assert outcome.scores.tolist() == [0.625]
    assert outcome.chances.tolist() == [0.5]


def test_one_round_tells_nothing(owning: Callable[..., Truth]) -> None:
    outcome = judge(counted({0: [0, 1, 2, 3], 1: [0, 3]}), owning([[0, 1], [3]], 5))
    assert outcome.scores.tolist() == [0.5, 0.5]


def test_auc_is_that_of_all_pairs(owning: Callable[..., Truth]) -> None:
    """Against comparing every own item with every other."""
    generator = np.random.default_rng(0)
    owned = [sorted(generator.choice(30, 8, replace=False).tolist()) for _ in range(12)]
    rounds = [{user: np.flatnonzero(generator.random(30) < 0.4).tolist() for user in range(12)} for _ in range(5)]
    outcome = judge(counted(*rounds), owning(owned, 30))
    assert outcome.victims.tolist() == list(range(12))
    for user, score in enumerate(outcome.scores):
        times = np.array([sum(item in one[user] for one in rounds) for item in range(30)])
        own = times[[item for item in owned[user] if times[item]]]
        others = times[[item for item in range(30) if item not in owned[user] and times[item]]]
        wins = (own[:, None] > others) + 0.5 * (own[:, None] == others)
        assert score == pytest.approx(wins.mean())


def test_nothing_seen(owning: Callable[..., Truth]) -> None:
    outcome = judge(count(None, []), owning([[1]], 3))
    assert [len(column) for column in outcome] == [0, 0, 0, 0]
