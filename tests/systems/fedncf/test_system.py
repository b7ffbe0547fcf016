from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.systems.fedncf import system as fedncf
from systems.positive_runs import Finished, Positives, assert_same, checkerboard, positives, run, some_positives
from systems.runs import digest

GOLDEN = "e3d344bba8baf44c1c4d81d6172fb6e74ae393617bb0cf513792aa62b10d546c"
VARIANTS = ("gmf", "mlp", "neumf")


def fit(data: Positives, **options: Any) -> Finished:
    small = {"layers": (6, 5, 3), "participation": 1.0, "batch_size": 16}
    return run(fedncf.SYSTEM, data, **{**small, **options})


def hand_worked(**options: Any) -> Finished:
    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = [[1], [-1], [5]]
        item_factors, layers = np.array([[1], [2], [2]], np.float32), np.array([1, 0], np.float32)
        return replace(state, item_factors=item_factors, layers=layers)

    return fit(
        positives([[0], [1, 2], []], 3), variant="gmf", num_factors=1, num_rounds=1, num_negatives=1, epochs=1,
        learning_rate=0.25, prepare=prepare, cohort_size=2, **options,
    )  # fmt: skip


def test_hand_worked_round() -> None:
    """GMF with one factor: the score is b + g u v. V = (1, 2, 2), g = 1, b = 0, and Adam's first step has the size
    of the learning rate, 1/4, against the sign of the gradient. With s(x) = 1 / (1 + e^-x):

    User 0, u = 1, has item 0 (score 1, error s(1) - 1 = -0.27) and draws j = 1 or 2 (score 2, error s(2) = 0.88).
        v_0: -0.27 u < 0, up; v_j: 0.88 u > 0, down; u and g: -0.27 * 1 + 0.88 * 2 > 0, down; b: 0.61 > 0, down.
    User 1, u = -1, has items 1 and 2 (score -2, error -0.88) and draws item 0 (score -1, error 0.27).
        v_0: 0.27 u < 0, up; v_1, v_2: -0.88 u > 0, down; u: 0.27 * 1 - 0.88 * 4 < 0, up; g, which has u as a
        factor, down; b: 0.27 - 1.76 < 0, up.
    User 2 has nothing, and counts nowhere.

    Items: each is moved by 1/4 by all who have listed it, so V = (1.25, 1.75, 1.75). That of 1 and 2 which user 0
    has not drawn moves as far: its mean is that of user 1 alone.
    Layers: user 0 has 2 samples of 3 items, user 1 has 3. g = 1 - 1/4, b = (-2/4 + 3/4) / 5 = 1/20.
    """
    finished = hand_worked()
    (zero_and_one, two) = finished.sent(fedncf.ItemSteps)
    lists = zero_and_one.message.items
    assert lists.lengths.tolist() == [2, 3]
    assert lists.values[0] == 0
    assert lists.values[2:].tolist() == [0, 1, 2]
    np.testing.assert_allclose(
        zero_and_one.message.gradients.values.ravel(), [0.25, -0.25, 0.25, -0.25, -0.25], rtol=1e-5
    )
    assert two.message.items.lengths.tolist() == [0]
    weighted = finished.sent(fedncf.LayerSteps)[0].message.gradients.values.reshape(2, 3)
    np.testing.assert_allclose(weighted, [[2 / 3, -1 / 6, -1 / 6], [1, -1 / 4, 1 / 4]], rtol=1e-5)
    np.testing.assert_allclose(finished.state.item_factors.ravel(), [1.25, 1.75, 1.75], rtol=1e-6)
    np.testing.assert_allclose(finished.state.layers, [0.75, 0.05], rtol=1e-6)
    np.testing.assert_allclose(finished.private.user_factors.ravel(), [0.75, -0.75, 5.0], rtol=1e-6)
    scores = finished.scorer.score(np.array([1], np.int32))[0]
    np.testing.assert_allclose(scores, 0.05 - 0.75 * 0.75 * np.array([1.25, 1.75, 1.75]), rtol=1e-5)


def test_hand_worked_shrinkage() -> None:
    """As above, with two clients who would not move an item counted beside those who listed it.

    All who list an item move it by 1/4, upwards or downwards. Item 0 is listed by both users: 1 + (1/4 + 1/4) / 4.
    Of items 1 and 2 user 0 has drawn one, so 2 - (1/4 + 1/4) / 4; the other is user 1's alone: 2 - 1/4 / 3. Layers
    move as without.
    """
    finished = hand_worked(shrinkage=2.0)
    drawn = int(finished.sent(fedncf.ItemSteps)[0].message.items.values[1])
    expected = np.full(3, 2 - 1 / 12)
    expected[[0, drawn]] = 1 + 1 / 8, 2 - 1 / 8
    np.testing.assert_allclose(finished.state.item_factors.ravel(), expected, rtol=1e-6)
    np.testing.assert_allclose(finished.state.layers, [0.75, 0.05], rtol=1e-6)


def test_a_client_lost_between_its_two_uploads_counts_for_the_items_only() -> None:
    """User 0 is lost before it sends its layers: they are moved by user 1 alone, g by -1/4 and b by 1/4."""
    finished = hand_worked(losses=lambda _round, request, to: (to == 0) & (request is fedncf.SendLayers))
    np.testing.assert_allclose(finished.state.item_factors.ravel(), [1.25, 1.75, 1.75], rtol=1e-6)
    np.testing.assert_allclose(finished.state.layers, [0.75, 0.25], rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_and_cohorts_do_not_matter(variant: str) -> None:
    data = some_positives()
    expected = fit(data, variant=variant, cohort_size=1)
    for threads, cohort_size in ((1, 7), (1, None), (2, 1), (2, 7), (2, None)):
        finished = fit(data, variant=variant, threads=threads, cohort_size=cohort_size)
        assert_same(finished, expected)
        np.testing.assert_array_equal(finished.state.layers, expected.state.layers)


def test_golden_transcript() -> None:
    assert digest(fit(some_positives(6, 20), num_factors=3, num_rounds=2)) == GOLDEN


def test_a_share_of_clients_takes_part_and_the_others_stay_as_they_are() -> None:
    finished = fit(some_positives(), participation=0.25, num_rounds=1)
    (sent,) = finished.sent(fedncf.ItemSteps)
    assert len(sent.numbers) == 6
    is_moved = (finished.private.user_factors != finished.private.previous_user_factors).any(axis=1)
    assert np.flatnonzero(is_moved).tolist() == sent.numbers.tolist()


def test_uploads_list_positives_and_drawn_items() -> None:
    data = some_positives(24, 200)
    finished = fit(data, num_negatives=2, num_rounds=2)
    num_positives = np.diff(data.rows.starts)
    for sent in finished.sent(fedncf.ItemSteps):
        np.testing.assert_array_equal(sent.message.items.lengths, 3 * num_positives[sent.numbers])
    first, second = (sent.message.items.values for sent in finished.sent(fedncf.ItemSteps))
    assert (first != second).any(), "negatives are drawn anew every round"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_planted_checkerboards_withheld_item_is_ranked_first(variant: str) -> None:
    """Of the 11 items that a user does not have, one is right; alone, clients find the same."""
    data, withheld = checkerboard()
    finished = fit(
        data, variant=variant, num_factors=8, layers=(16, 8, 8), num_negatives=1, learning_rate=0.01, num_rounds=60
    )
    alone = fedncf.SYSTEM.result.party(finished.private, finished.config, None)
    users = np.arange(40, dtype=np.int32)
    scores = finished.scorer.score(users)
    np.testing.assert_array_equal(alone.score(users), scores)
    newcomers = np.array(
        [alone.fold_in(data.rows.items[slice(*data.rows.starts[user : user + 2])], None) for user in range(40)]
    )
    for user in range(40):
        newcomers[user, data.rows.items[data.rows.starts[user] : data.rows.starts[user + 1]]] = -np.inf
        scores[user, data.rows.items[data.rows.starts[user] : data.rows.starts[user + 1]]] = -np.inf
    assert (scores.argmax(axis=1) == withheld).sum() >= 38
    assert (newcomers.argmax(axis=1) == withheld).sum() >= 36


def test_models_that_do_not_fit_are_refused() -> None:
    finished = fit(some_positives(), num_rounds=1)
    request = finished.sent(fedncf.Model)[0]
    short = request._replace(message=replace(request.message, layers=request.message.layers[:-1]))
    with pytest.raises(HushrecError, match=r"61 weights came, clients expect \(30, 8\) and 62; use"):
        finished.ask_again(short)


@pytest.mark.parametrize("layers", [(48,), (5, 4), ()])
def test_impossible_layers_are_refused(layers: tuple[int, ...]) -> None:
    with pytest.raises(HushrecError, match=r"layers= needs an even number of inputs and the outputs"):
        fedncf.SYSTEM.configure({"layers": layers})
