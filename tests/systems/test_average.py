import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.systems.average import Total

from .runs import run, some_ratings, table

THREE = table([{0: 4.0}, {0: 5.0, 2: 3.0}, {1: 1.0, 2: 2.5}], 4)


def test_hand_worked_round() -> None:
    """(4 + 5 + 3 + 1 + 2.5) / 5 = 3.1. The clients send (4, 1), (8, 2) and (3.5, 2)."""
    finished = run("average", THREE, num_rounds=1, cohort_size=2)
    sums, counts = (
        np.concatenate([getattr(sent.message, name) for sent in finished.sent(Total)])
        for name in ("sums", "counts")
    )
    assert sums.tolist() == [4.0, 8.0, 3.5]
    assert counts.tolist() == [1, 2, 2]
    assert finished.states[-1].totals.tolist() == [15.5, 5.0]
    mean = np.float32(3.1)
    assert finished.scorer.predict(np.array([0, 2], np.int32), np.array([3, 1], np.int32)).tolist() == [mean, mean]
    assert finished.scorer.score(np.array([0, 2], np.int32)).tolist() == [[mean] * 4] * 2
    assert finished.scorer.fold_in(np.array([0], np.int32), np.ones(1, np.float32)).tolist() == [mean] * 4


def test_it_is_the_mean_of_the_ratings_that_were_trained_on() -> None:
    ratings = some_ratings(300)
    finished = run("average", ratings, num_rounds=1, threads=2, cohort_size=7)
    expected = ratings.rows.ratings.astype(np.float64).mean()
    assert finished.scorer.score(np.zeros(1, np.int32))[0, 0] == pytest.approx(expected, rel=1e-7)


def test_later_rounds_ask_nobody_and_change_nothing() -> None:
    finished = run("average", THREE, num_rounds=3)
    assert {sent.round_number for sent in finished.transcript.recorded} == {1}
    assert finished.states[3] == finished.states[1]


def test_who_is_lost_does_not_count_and_who_has_no_rating_neither() -> None:
    finished = run("average", table([{}, {0: 4.0}, {1: 1.0}, {0: 2.0}], 2), losses=lambda _n, _r, to: to == 2)
    assert finished.states[-1].totals.tolist() == [6.0, 2.0]
    only_empty = run("average", table([{}, {0: 4.0}], 2), cohort_size=1)
    assert only_empty.states[-1].totals.tolist() == [4.0, 1.0]


@pytest.mark.parametrize("lost", [0, 1])
def test_no_ratings_at_all_are_refused_in_one_line(lost: int) -> None:
    """Because nobody answers, or because those who do have none."""
    ratings = table([{}, {0: 4.0}], 2)
    with pytest.raises(HushrecError, match=r"\Ano client handed over its ratings; there is nothing to train on\Z"):
        run("average", ratings, losses=lambda _number, _request, to: to >= lost)
