from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import NOTHING, Bare, Told, Upload, sent
from hushrec.audit.attacks.order_change import ATTACK, Compared, compare
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import clients_of, items_of


def compared(*rounds: Upload) -> Compared:
    found, generator = None, np.random.default_rng(0)
    for number, uploads in enumerate(rounds, start=1):
        found = compare(found, [sent(uploads, round_number=number)], generator)
    assert found is not None
    return found


def guessed(*rounds: Upload) -> dict[int, list[int]]:
    guesses = compared(*rounds).guesses
    pairs = guesses.pairs[guesses.is_guess]
    return {int(one): items_of(pairs[clients_of(pairs) == one]).tolist() for one in guesses.clients}


def scored(*scores: float) -> list[tuple[int, float]]:
    return list(enumerate(scores))


def test_the_items_that_rose_most_are_guessed() -> None:
    """Ranks of items 0 to 9 go from 0..9 to 2, 3, 4, 5, 6, 7, 8, 0, 1, 9: items 7 and 8 rose by seven.

    Of ten rows two are guessed. Of client 5's four rows it is one: item 3 rose by three, item 1 fell.
    """
    before = scored(*np.linspace(0.9, 0.1, 10))
    now = scored(0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.9, 0.8, 0.05)
    few = [(0, 0.9), (1, 0.8), (2, 0.7), (3, 0.6)], [(3, 0.9), (0, 0.8), (2, 0.7), (1, 0.6)]
    assert guessed({2: before, 5: few[0]}, {2: now, 5: few[1]}) == {2: [7, 8], 5: [3]}


def test_ranks_are_among_the_items_that_are_seen_again() -> None:
    """Item 9 is new and the highest: no rank of the others changes by it, and so nothing rose."""
    assert guessed({0: scored(0.9, 0.5, 0.1)}, {0: [(0, 0.3), (1, 0.2), (2, 0.1), (9, 0.9)]}) == {0: []}


def test_only_what_rose_is_guessed() -> None:
    """Of ten rows two could be guessed; items 0 and 1 have changed places, and item 1 alone rose."""
    before, now = scored(*np.linspace(0.9, 0.1, 10)), scored(0.8, 0.9, *np.linspace(0.7, 0.1, 8))
    assert guessed({0: before}, {0: now}) == {0: [1]}


def test_the_last_upload_is_remembered_over_a_round_that_was_sat_out() -> None:
    first, second = scored(0.9, 0.5, 0.1), scored(0.1, 0.5, 0.9)
    assert guessed({0: first, 1: first}, {1: second}, {0: second}) == {0: [2]}
    assert guessed({0: first, 1: first}, {1: second}, {0: second, 1: first}) == {0: [2], 1: [0]}


def test_f1_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 has items 2 and 8. Of items 0 to 3, seen twice, item 2 rose from last but one to first: a hit.

    F1 = 2 * 1 / (1 + 2). Blindly one guess among the four hits 1/4 times: 2 * 1/4 / 3. Client 1 is seen once.
    """
    truth = owning([[2, 8], [1]], 10)
    found = compared({0: scored(0.9, 0.8, 0.7, 0.6)}, {0: scored(0.8, 0.7, 0.9, 0.6), 1: scored(0.9, 0.8)})
    outcome = ATTACK.judge(found, truth)
    assert outcome.victims.tolist() == [0]
    np.testing.assert_allclose(outcome.scores, [2 / 3])
    np.testing.assert_allclose(outcome.chances, [1 / 6])


def test_one_round_tells_of_nobody(owning: Callable[..., Truth]) -> None:
    assert not len(ATTACK.judge(compared({0: scored(0.9, 0.1)}), owning([[0]], 3)).victims)


def test_shuffled_scores_tell_nothing(owning: Callable[..., Truth]) -> None:
    """4,000 times, also where positives are listed more often: the mean F1 has a standard error of about 0.002."""
    truth, generator = owning([[0, 1, 2, 3, 4, 5]] * 4000, 60), np.random.default_rng(0)

    def upload() -> list[tuple[int, float]]:
        others = 10 + generator.permutation(30)[:15]
        return list(zip([*range(5), *others.tolist()], generator.random(20).tolist(), strict=True))

    rounds = [{user: upload() for user in range(4000)} for _ in range(2)]
    outcome = ATTACK.judge(compared(*rounds), truth)
    assert abs(outcome.scores.mean() - outcome.chances.mean()) < 0.01
    assert outcome.chances.mean() > 0.1


def test_positives_that_rise_are_found(owning: Callable[..., Truth]) -> None:
    """All items begin with equal scores; the two positives are trained, so their scores rise."""
    before, now = scored(*[0.5] * 10), scored(*[0.5] * 8, 0.9, 0.8)
    outcome = ATTACK.judge(compared({0: before}, {0: now}), owning([[8, 9]], 12))
    assert outcome.scores.tolist() == [1.0]
    assert outcome.chances.tolist() == [pytest.approx(0.2)]


def test_only_scored_uploads_of_clients_are_read() -> None:
    seen = [sent({0: [(1, 0.9)]}, Told), sent({0: [(1, 0.9)]}, Bare)]
    found = None
    for _ in range(2):
        found = ATTACK.look(found, seen, NOTHING)
    assert not len(found.guesses.clients)
