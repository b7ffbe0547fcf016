from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.systems import fcf

from .positive_runs import Finished, Positives, assert_same, checkerboard, positives, run, some_positives
from .runs import digest

GOLDEN = "561e7d89eb7f32fa74274a2b2b28402a4c33ba2ea47c3e2b1e36a6016b7167fb"


def fit(data: Positives, **options: Any) -> Finished:
    return run(fcf.SYSTEM, data, **options)


def hand_worked(num_rounds: int) -> Finished:
    def prepare(state: Any, _private: Any) -> Any:
        return replace(state, item_factors=np.array([[1], [2], [1]], np.float32))

    return fit(
        positives([[0], [1, 2]], 3), num_factors=1, num_rounds=num_rounds, confidence=1.0, regularization=1.0,
        learning_rate=0.25, first_decay=0.5, second_decay=0.75, prepare=prepare, cohort_size=2,
    )  # fmt: skip


def test_hand_worked_round() -> None:
    """V = (1, 2, 1), alpha = lambda = 1, so V^T V = 6. User 0 has item 0, user 1 has items 1 and 2.

    x_0 = 2*1 / (6 + 1 + 1) = 1/4; x_1 = 2*(2 + 1) / (6 + 4 + 1 + 1) = 1/2.
    User 0: -2*2*(1 - 1/4)/4 = -3/4, 2*(2/4)/4 = 1/4, 2*(1/4)/4 = 1/8.
    User 1: 2*(1/2)/2 = 1/2, -2*2*(1 - 1)/2 = 0, -2*2*(1 - 1/2)/2 = -1.
    With 2 lambda v_i the sums are 1.75, 4.25, 1.125. Adam's first step has the size of the learning rate, 1/4.
    Then V = (0.75, 1.75, 0.75) and V^T V = 4.1875, from which clients solve at the end:
    x_0 = 1.5 / (4.1875 + 0.5625 + 1), x_1 = 2*2.5 / (4.1875 + 3.625 + 1).
    """
    finished = hand_worked(1)
    (uploads,) = finished.sent(fcf.ItemGradients)
    assert uploads.message.gradients.values.ravel().tolist() == [-0.75, 0.25, 0.125, 0.5, 0.0, -1.0]
    assert finished.state.item_factors.ravel().tolist() == [0.75, 1.75, 0.75]
    np.testing.assert_allclose(finished.private.user_factors.ravel(), [1.5 / 5.75, 5 / 8.8125], rtol=1e-6)


def test_hand_worked_second_step_of_adam() -> None:
    """beta_1 = 1/2 and beta_2 = 3/4; the first gradient g is (1.75, 4.25, 1.125), the second h follows from x.

    Unbiased means are (g/4 + h/2) / (3/4) and (3/16 g^2 + h^2/4) / (7/16).
    """
    first, finished = hand_worked(1), hand_worked(2)
    v, x = first.state.item_factors.ravel(), first.private.user_factors.ravel()
    wanted, confidence = np.array([[1, 0, 0], [0, 1, 1]]), np.array([[2, 1, 1], [1, 2, 2]])
    h = (-2 * confidence * (wanted - np.outer(x, v)) * x[:, None]).sum(axis=0) + 2 * v
    g = np.array([1.75, 4.25, 1.125])
    step = (g / 4 + h / 2) / 0.75 / np.sqrt((3 / 16 * g**2 + h**2 / 4) / (7 / 16))
    np.testing.assert_allclose(finished.state.item_factors.ravel(), v - step / 4, rtol=1e-5)


def test_threads_and_cohorts_do_not_matter() -> None:
    data = some_positives()
    expected = fit(data, cohort_size=1)
    for threads, cohort_size in ((1, 7), (1, None), (2, 1), (2, 7), (2, None)):
        finished = fit(data, threads=threads, cohort_size=cohort_size)
        assert_same(finished, expected)
        assert finished.transcript.tallies == expected.transcript.tallies


def test_golden_transcript() -> None:
    assert digest(fit(some_positives(6, 20), num_factors=3, num_rounds=2)) == GOLDEN


def test_another_seed_gives_another_run() -> None:
    one, other = (fit(some_positives(), seed=seed) for seed in (0, 1))
    assert (one.scorer.item_factors != other.scorer.item_factors).all()


def test_same_ask_twice_gives_the_same_reply() -> None:
    finished = fit(some_positives(), num_rounds=1)
    before = finished.private.user_factors.copy()
    for request, reply in zip(finished.sent(fcf.ItemFactors), finished.sent(fcf.ItemGradients), strict=True):
        again = finished.ask_again(request)
        np.testing.assert_array_equal(again.gradients.values, reply.message.gradients.values)
    finished.ask_again(finished.sent(fcf.Settle)[0])
    np.testing.assert_array_equal(finished.private.user_factors, before)


def test_uploads_hold_all_items_and_bytes_are_counted() -> None:
    finished = fit(some_positives(24, 30), num_rounds=3)
    table, header = 30 * 5 * 4, 20
    up = finished.transcript.total(fcf.ItemGradients)
    assert (up.messages, up.rows) == (72, 72 * 30)
    assert up.payload_bytes == 72 * (table + header + 4 + 4)
    down = finished.transcript.total(fcf.ItemFactors)
    assert down.payload_bytes == 72 * (table + header + 8)


def test_groups_make_a_step_each_and_hold_every_client_once() -> None:
    finished = fit(some_positives(24), clients_per_step=10, num_rounds=2, cohort_size=100)
    asked = [sent.numbers.tolist() for sent in finished.sent(fcf.ItemFactors)]
    assert [len(one) for one in asked] == [8, 8, 8] * 2
    for in_round in (asked[:3], asked[3:]):
        assert sorted(client for group in in_round for client in group) == list(range(24))
    assert asked[0] != asked[3]
    assert int(finished.state.num_steps) == 6
    assert (finished.sent(fcf.ItemFactors)[0].message.item_factors
            != finished.sent(fcf.ItemFactors)[1].message.item_factors).any()  # fmt: skip


def test_lost_clients_do_not_count() -> None:
    """With all lost there is no step; with one lost the result is that of the others alone."""
    data = some_positives()
    nobody = fit(data, losses=lambda _round, _request, to: to >= 0)
    assert int(nobody.state.num_steps) == 0
    lost = fit(data, losses=lambda _round, _request, to: to == 23)
    without = positives(
        [data.rows.items[data.rows.starts[u] : data.rows.starts[u + 1]].tolist() for u in range(23)], 30
    )
    alone = fit(without)
    np.testing.assert_array_equal(lost.state.item_factors, alone.state.item_factors)
    np.testing.assert_array_equal(lost.private.user_factors[:23], alone.private.user_factors)
    assert not lost.private.user_factors[23].any()


def test_a_planted_checkerboards_withheld_item_is_ranked_first() -> None:
    """Of the 11 items that a user does not have, one is right; all 40 come out, also as newcomers and alone."""
    data, withheld = checkerboard()
    finished = fit(data, num_rounds=60, learning_rate=0.05)
    alone = fcf.SYSTEM.result.party(finished.private, finished.config, None)
    users = np.arange(40, dtype=np.int32)
    scores, newcomers = finished.scorer.score(users), np.empty((40, 20), np.float32)
    np.testing.assert_array_equal(alone.score(users), scores)
    for user in range(40):
        items = data.rows.items[data.rows.starts[user] : data.rows.starts[user + 1]]
        newcomers[user] = finished.scorer.fold_in(items, np.ones(len(items), np.float32))
        np.testing.assert_allclose(newcomers[user], scores[user], atol=1e-5)
        scores[user, items] = newcomers[user, items] = -np.inf
    np.testing.assert_array_equal(scores.argmax(axis=1), withheld)
    np.testing.assert_array_equal(newcomers.argmax(axis=1), withheld)
    np.testing.assert_allclose(
        finished.scorer.predict(users[:3], users[:3]), np.diag(finished.scorer.score(users[:3])), rtol=1e-6
    )


def test_a_v_of_another_catalogue_is_refused() -> None:
    finished = fit(some_positives(), num_rounds=1)
    request = finished.sent(fcf.ItemFactors)[0]
    short = request._replace(message=fcf.ItemFactors(np.zeros((29, 5), np.float32)))
    with pytest.raises(HushrecError, match=r"V has the shape \(29, 5\) and clients expect \(30, 5\); send that"):
        finished.ask_again(short)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_factors": 0}, "num_factors="),
        ({"num_rounds": 0}, "num_rounds="),
        ({"participation": 0.0}, "participation=0.0 is not in"),
        ({"clients_per_step": -1}, "clients_per_step="),
        ({"confidence": -1.0}, "confidence="),
        ({"learning_rate": 0.0}, "learning_rate="),
        ({"first_decay": 1.0}, "first_decay="),
        ({"second_decay": 1.0}, "second_decay="),
        ({"regularization": 0.0}, "regularization="),
        ({"initial_scale": 0.0}, "initial_scale="),
        ({"preset": "papr"}, "no preset 'papr' of fcf; choose from paper, tuned"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        fcf.SYSTEM.configure(values)
