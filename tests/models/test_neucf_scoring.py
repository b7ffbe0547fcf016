"""NeuCF's predictions in all their forms."""

import numpy as np
import pytest

from hushrec.models.neucf import Activation, views
from hushrec.models.neucf_scoring import NeuCFModel, item_products, predict, score, user_products

from .test_neucf import ACTIVATIONS, Tables, made


def in_double(tables: Tables, activation: Activation) -> np.ndarray:
    """Predictions of all users and items, by the formula."""
    num_factors = tables[0].shape[1] // 2
    users, items = (table.astype(np.float64) for table in tables[:2])
    parts = views(tables[2].astype(np.float64), num_factors)
    inner = (users[:, num_factors:] @ parts.user_weight.T)[:, None]
    inner = inner + items[:, num_factors:] @ parts.item_weight.T + parts.bias
    activated = np.maximum(inner, 0) if activation == "relu" else (inner**2 + inner + 1) / 8
    product = (users[:, :num_factors] * parts.product_output) @ items[:, :num_factors].T
    return product + activated @ parts.hidden_output


def every_pair(num_users: int, num_items: int) -> tuple[np.ndarray, np.ndarray]:
    users, items = np.divmod(np.arange(num_users * num_items, dtype=np.int32), np.int32(num_items))
    return users, items


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("num_factors", "num_items"), [(16, 1300), (5, 9), (1, 1)])
def test_pairs_and_all_items_are_predicted_alike(activation: Activation, num_factors: int, num_items: int) -> None:
    """Also with more items than are scored at a time."""
    tables = made(num_factors, num_users=6, num_items=num_items)
    expected = in_double(tables, activation)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(score(*tables, activation), expected, **tolerance)
    pairs = predict(*tables, *every_pair(6, num_items), activation)
    np.testing.assert_allclose(pairs.reshape(6, num_items), expected, **tolerance)


@pytest.mark.parametrize("num_factors", [16, 5, 1])
def test_quadratic_predictions_are_inner_products_of_both_sides(num_factors: int) -> None:
    tables = made(num_factors, num_users=8, num_items=40)
    left, (right, offsets) = user_products(tables[0], tables[2]), item_products(tables[1], tables[2])
    assert left.shape == (8, 2 * num_factors + 1)
    assert right.shape == (40, 2 * num_factors + 1)
    assert offsets.shape == (40,)
    assert {one.dtype for one in (left, right, offsets)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(left @ right.T + offsets, in_double(tables, "quadratic"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(left @ right.T + offsets, score(*tables, "quadratic"), rtol=1e-5, atol=1e-5)


def test_hand_worked_products() -> None:
    """The numbers of `test_hand_worked_gradient`: h = 2, q = -1/2, act(x) = (x^2 + x + 1) / 8, o = (1/2, 2).

    Left: u_g = 2, h = 2, 2 (4 + 2) / 8 = 3/2. Right: 1/2 * 3 = 3/2, 2/8 * 2 * -1/2 = -1/4, 1.
    Offset: 2 (1/4 - 1/2 + 1) / 8 = 3/16. Together: 3 - 1/2 + 3/2 + 3/16 = 4.1875.
    """
    users, items = np.array([[2, 1]], np.float32), np.array([[3, -1]], np.float32)
    layers = np.array([2, 1, 0.5, 0.5, 2], np.float32)
    left, (right, offsets) = user_products(users, layers), item_products(items, layers)
    assert left.tolist() == [[2, 2, 1.5]]
    assert right.tolist() == [[1.5, -0.25, 1]]
    assert offsets.tolist() == [0.1875]
    assert score(users, items, layers, "quadratic").tolist() == [[4.1875]]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_model_clips_predictions_and_not_scores(activation: Activation) -> None:
    tables = made(5)
    users, items = every_pair(7, 9)
    expected = in_double(tables, activation)
    low, high = np.quantile(expected, [0.3, 0.6])
    model = NeuCFModel(*tables, activation, (float(low), float(high)))
    np.testing.assert_allclose(
        model.predict(users, items), np.clip(expected, low, high).ravel(), rtol=1e-5, atol=1e-5
    )
    some = np.array([4, 1], np.int32)
    np.testing.assert_allclose(model.score(some), expected[some], rtol=1e-5, atol=1e-5)
    free = NeuCFModel(*tables, activation, None)
    np.testing.assert_allclose(free.predict(users, items), expected.ravel(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_newcomer_with_a_users_ratings_gets_that_users_scores(activation: Activation) -> None:
    """Ratings of all items, noiseless: the usual vectors are far apart, so only that of the user fits."""
    tables = made(5)
    model = NeuCFModel(*tables, activation, (0.0, 0.04))
    everybody, items = model.score(np.arange(7, dtype=np.int32)), np.arange(9, dtype=np.int32)
    for user in range(7):
        found = model.fold_in(items, everybody[user])
        away = np.abs(everybody - found).max(axis=1)
        assert away.argmin() == user
        assert away[user] < 0.1 * np.delete(away, user).min()


def test_few_ratings_hardly_move_a_newcomer() -> None:
    """From the mean user's scores, and towards what was rated."""
    users, items, layers = made(5)
    model = NeuCFModel(users, items, layers, "relu", (1.0, 5.0))
    mean = score(users.mean(axis=0, keepdims=True), items, layers, "relu")[0]
    item = np.array([4], np.int32)
    for sign in (-1, 1):
        found = model.fold_in(item, mean[item] + np.float32(sign))
        assert 0 < sign * (found[4] - mean[4]) < 1
