from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.models.neucf import train_epoch
from hushrec.systems import neucf

from .runs import Finished, assert_same, digest, run, some_ratings, table


def tables(finished: Finished, round_number: int = -1) -> list[np.ndarray]:
    state = finished.states[round_number]
    return [state.user_vectors, state.item_vectors, state.layers]


@pytest.mark.parametrize(
    ("activation", "rating", "expected"),
    [
        ("relu", 4.0, [1.25, -1, 2.5, -2, 1, 2, -0.5, -2.5, 1.25]),
        ("quadratic", 3.1875, [1.625, 0.5, 2.75, -1.25, 1.75, 1.25, 0.25, -1, 1.8515625]),
    ],
)
def test_hand_worked_round(activation: str, rating: float, expected: list[float]) -> None:
    """One rating, one factor, a learning rate of 1/8. u = (2, 1), v = (3, -1), W = (2, 1), c = 1/2, o = (1/2, 2).

    The gradients are worked in tests/models/test_neucf.py: (6, 16), (4, 8), (8, -8), 8, (24, 6) with relu and
    (3, 4), (2, 2), (2, -2), 2, (12, 19/16) with the quadratic activation.
    """

    def prepare(state: Any, _private: Any) -> Any:
        parts = ([[2, 1]], [[3, -1]], [2, 1, 0.5, 0.5, 2])
        user_vectors, item_vectors, layers = (np.array(part, np.float32) for part in parts)
        return replace(state, user_vectors=user_vectors, item_vectors=item_vectors, layers=layers)

    finished = run(
        "neucf", table([{0: rating}], 1), num_factors=1, num_rounds=1, learning_rate=0.125, activation=activation,
        prepare=prepare,
    )  # fmt: skip
    assert np.concatenate([array.ravel() for array in tables(finished)]).tolist() == expected


def test_ratings_are_handed_over_once_and_as_pmf_hands_them_over() -> None:
    finished = run("neucf", some_ratings(), num_rounds=3)
    assert {sent.round_number for sent in finished.transcript.recorded} == {1}
    assert digest(finished) == digest(run("pmf", some_ratings(), num_rounds=3))


def test_a_round_is_an_epoch_over_all_ratings_in_an_order_of_its_own() -> None:
    """Round 2 from where round 1 ended, with the decayed learning rate."""
    ratings = some_ratings()
    finished = run("neucf", ratings, num_rounds=2, batch_size=16, learning_rate=0.2, decay=0.5)
    trained = [array.copy() for array in tables(finished, 1)]
    rows = ratings.rows
    users = np.repeat(np.arange(ratings.num_users, dtype=np.int32), np.diff(rows.starts))
    orders = [Draws(0).generator("batches", number).permutation(len(users)) for number in (1, 2)]
    train_epoch(tuple(trained), (users, rows.items, rows.ratings), orders[1], 16, 0.1, "relu")
    for ours, expected in zip(tables(finished), trained, strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert (orders[0] != orders[1]).any()


def test_fewer_ratings_than_a_batch_are_one_batch() -> None:
    ratings = some_ratings(6)
    num_ratings = len(ratings.rows.items)
    assert_same(run("neucf", ratings, batch_size=1000), run("neucf", ratings, batch_size=num_ratings))


def test_what_was_before_a_round_is_not_changed_by_it() -> None:
    finished = run("neucf", some_ratings(), num_rounds=2, batch_size=16)
    start = neucf.start(24, 30, finished.config, Draws(0))
    for array, before in zip(
        tables(finished, 0), (start.user_vectors, start.item_vectors, start.layers), strict=True
    ):
        np.testing.assert_array_equal(array, before)


def test_a_client_that_is_lost_has_no_ratings_on_the_server() -> None:
    """Its vector stays as it was."""
    finished = run("neucf", some_ratings(), batch_size=16, losses=lambda _round, _request, to: to == 4)
    state = finished.states[-1]
    assert state.starts[4] == state.starts[5]
    is_moved = (state.user_vectors != finished.states[0].user_vectors).any(axis=1)
    assert np.flatnonzero(~is_moved).tolist() == [4]


@pytest.mark.parametrize("activation", ["relu", "quadratic"])
def test_divergence_is_refused_in_one_line(activation: str) -> None:
    remedy = r"\Around \d+: the model is not finite; .* use a learning_rate= below 100\Z"
    with pytest.raises(DivergedError, match=remedy):
        run("neucf", some_ratings(), num_rounds=30, batch_size=16, learning_rate=100.0, activation=activation)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "batch_size= must be at least 1"),
        ({"decay": 1.5}, "decay=1.5 is not in (0, 1]"),
        ({"activation": "tanh"}, "bad setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError) as refused:
        neucf.SYSTEM.configure(values)
    assert message in str(refused.value)
