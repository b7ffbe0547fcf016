from collections.abc import Callable

import numpy as np
import pytest

from audit.conftest import Bare, Told, Upload, sent
from hushrec.audit.attacks.top_guess import guess_positives, judge
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import clients_of


def guessed(uploads: Upload, **options: float) -> dict[int, list[int]]:
    guesses = guess_positives([sent(uploads)], **options)
    pairs = guesses.pairs[guesses.is_guess]
    return {int(one): (pairs[clients_of(pairs) == one] % 2**31).tolist() for one in guesses.clients}


def test_the_best_fifth_of_the_rows_is_guessed() -> None:
    """11 rows: int(2.2) = 2 guesses. 4 rows: none by that rule, so 1."""
    scores = [0.1, 0.5, 0.9, 0.2, 0.3, 0.4, 0.8, 0.6, 0.0, 0.7, 0.05]
    assert guessed({3: list(enumerate(scores)), 1: [(7, 0.2), (4, 0.1), (5, 0.3), (6, 0.0)]}) == {
        3: [2, 6],
        1: [5],
    }


def test_rows_count_with_repeats_but_an_item_is_guessed_once_by_its_last_score() -> None:
    """10 rows of 4 items: 2 guesses. Item 0's last score is low, item 3's is high."""
    rows = [(0, 0.9)] * 4 + [(0, 0.1), (1, 0.5), (2, 0.4), (3, 0.0), (3, 0.0), (3, 0.8)]
    assert guessed({0: rows}) == {0: [1, 3]}


def test_no_more_guesses_than_items() -> None:
    assert guessed({0: [(5, 0.5)] * 30}) == {0: [5]}


def test_f1_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 has items 0, 1, 2 and shows 0, 1, 7..14: of 10 rows 2 are guessed, items 0 and 7.

    One hit, so precision 1/2, recall 1/3: F1 = 2/5. Blindly 2 of 10 rows hit 2 * 2/10 = 0.4 times: 2 * 0.4 / 5.
    Client 1 has item 3 and shows 3 and 4, with 3 as the better: F1 = 1; blindly 1/2.
    """
    rows = [(0, 0.9), (1, 0.1), (7, 0.8), *((item, 0.0) for item in range(8, 15))]
    truth = owning([[0, 1, 2], [3]], 20)
    seen = [sent({0: rows, 1: [(4, 0.5), (3, 0.6)]})]
    outcome = judge(guess_positives(seen), truth)
    assert outcome.victims.tolist() == [0, 1]
    np.testing.assert_allclose(outcome.scores, [0.4, 1.0])
    np.testing.assert_allclose(outcome.chances, [0.16, 0.5])


def test_chance_is_the_mean_of_random_guesses(owning: Callable[..., Truth]) -> None:
    """4,000 times random scores: the mean F1 has a standard error of about 0.002."""
    truth, generator = owning([[0, 1, 2, 3, 4, 5]] * 4000, 40), np.random.default_rng(0)
    items = [0, 1, 2, 3, *range(10, 26)]
    uploads = {user: list(zip(items, generator.random(20), strict=True)) for user in range(4000)}
    outcome = judge(guess_positives([sent(uploads)]), truth)
    assert abs(outcome.scores.mean() - outcome.chances.mean()) < 0.01
    assert outcome.chances[0] == pytest.approx(2 * 4 * 0.2 / 10)


def test_batches_and_their_order_do_not_matter(owning: Callable[..., Truth]) -> None:
    uploads = {user: [(item, (item * 7 + user) % 5 / 5) for item in range(user, user + 9)] for user in range(6)}
    truth = owning([[user, user + 1] for user in range(6)], 20)
    whole = judge(guess_positives([sent(uploads)]), truth)
    parts = judge(guess_positives([sent({user: uploads[user]}) for user in (4, 0, 5, 2, 1, 3)]), truth)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_scored_uploads_of_clients_are_read(owning: Callable[..., Truth]) -> None:
    seen = [sent({0: [(1, 0.9)]}, Told), sent({0: [(1, 0.9)]}, Bare)]
    assert not len(guess_positives(seen).clients)
