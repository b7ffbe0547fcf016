from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import Upload, sent
from hushrec.audit.attacks.frequency_with_scores import Sums, add_scores, judge
from hushrec.audit.scoreboard import Truth


def summed(*rounds: Upload) -> Sums:
    sums = None
    for uploads in rounds:
        sums = add_scores(sums, [sent(uploads)])
    assert sums is not None
    return sums


def test_sums_by_hand() -> None:
    """A repeat within a round counts once, with its last score."""
    sums = summed({0: [(4, 0.5), (2, 0.25), (4, 0.75)], 1: [(2, 1.0)]}, {0: [(2, 0.5)]}, {1: [(3, 0.125)]})
    assert sums.pairs.tolist() == [2, 4, 2**31 + 2, 2**31 + 3]
    assert sums.totals.tolist() == [0.75, 0.75, 1.0, 0.125]


def test_auc_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 owns 2 and 5, with sums 1.0 and 0.25; 4 and 6 have 0.5 and 0.25.

    Pairs of own and other: 1 > 0.5, 1 > 0.25, 0.25 < 0.5, 0.25 = 0.25: 2.5 of 4. By times alone it would be
    3 of 4 (2 twice, all others once: ties), by the last scores less.
    """
    sums = summed({0: [(2, 0.5), (4, 0.5)]}, {0: [(2, 0.5), (5, 0.25), (6, 0.25)]})
    outcome = judge(sums, owning([[2, 5]], 9))
    assert outcome.victims.tolist() == [0]
    assert outcome.scores.tolist() == [0.625]
    assert outcome.chances.tolist() == [0.5]


def test_at_chance_where_lists_and_scores_tell_nothing(owning: Callable[..., Truth]) -> None:
    """300 clients list half of 20 items at random with random scores, ten rounds.

    The AUC of 8 against 12 items has a deviation of .135; of the mean of 300, .0078. |z| < 4, fixed seed.
    """
    generator = np.random.default_rng(0)
    owned = [sorted(generator.choice(20, 8, replace=False).tolist()) for _ in range(300)]
    rounds: list[Upload] = [
        {
            user: [
                (item, float(generator.random())) for item in np.flatnonzero(generator.random(20) < 0.5).tolist()
            ]
            for user in range(300)
        }
        for _ in range(10)
    ]
    assert judge(summed(*rounds), owning(owned, 20)).scores.mean() == pytest.approx(0.5, abs=4 * 0.0078)


def test_nothing_seen(owning: Callable[..., Truth]) -> None:
    outcome = judge(add_scores(None, []), owning([[1]], 3))
    assert [len(column) for column in outcome] == [0, 0, 0, 0]
