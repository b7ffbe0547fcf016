from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import NOTHING
from audit.gradient_views import asked
from hushrec.audit.attacks.public_vectors import Watched, judge, watch
from hushrec.audit.scoreboard import Truth
from hushrec.errors import HushrecError

OWN_ROWS = {0: ([0], np.ones((1, 2)))}  # the watcher's upload tells of item 0 alone


def watched(*moves: list[float]) -> Watched:
    """Rounds in which the first numbers of the items' vectors become these."""
    found = None
    for round_number, move in enumerate(moves, start=1):
        vectors = np.stack([np.array(move), np.zeros(len(move))], axis=1)
        found = watch(found, asked(vectors, OWN_ROWS, round_number), NOTHING)
    assert found is not None
    return found


def test_how_far_vectors_move_by_hand(owning: Callable[..., Truth]) -> None:
    """Items move by 3 + 1, 0, 2 and 1 in all: user 1 has items 0 and 3. 0 is before both others, 3 before one.

    Blind: of the others, one has item 0 and nobody has another. So 0 is before both others, 3 is level with them.
    """
    found = watched([0, 0, 0, 0], [3, 0, 1, 1], [2, 0, 2, 1])
    assert found.moved.tolist() == [4, 0, 2, 1]
    outcome = judge(found, owning([[0], [0, 3]], 4))
    assert outcome.victims.tolist() == [1], "not of the watcher itself"
    assert outcome.scores.tolist() == [0.75]
    assert outcome.chances.tolist() == [(2 + 1) / 4]


def test_the_watchers_own_items_tell_which_way_to_read_it(owning: Callable[..., Truth]) -> None:
    """Item 0, which the watcher told of, moves least: so what moves least is what others have."""
    outcome = judge(watched([0, 0, 0, 0], [0.5, 3, 2, 1]), owning([[0], [0, 3]], 4))
    assert outcome.scores.tolist() == [1.0]


def test_sent_once_vectors_tell_nothing(owning: Callable[..., Truth]) -> None:
    assert len(judge(watched([1, 2, 3, 4]), owning([[0], [0, 3]], 4)).victims) == 0
    with pytest.raises(HushrecError, match="was not sent the item vectors yet"):
        watch(None, [], NOTHING)


def test_at_chance_where_vectors_move_at_random(owning: Callable[..., Truth]) -> None:
    """60 items move at random; 400 users have a random 10 of them. One user's AUC has a deviation of .1, but all
    share one order of items: the mean has .1 / sqrt(400) = .005. |z| < 4.
    """
    generator = np.random.default_rng(4)
    owned = [sorted(generator.choice(60, 10, replace=False).tolist()) for _ in range(400)]
    found = watched([0.0] * 60, generator.random(60).tolist())
    assert judge(found, owning(owned, 60)).scores.mean() == pytest.approx(0.5, abs=4 * 0.005)
