import numpy as np
import pytest

from hushrec.models.fcf import PositiveModel
from hushrec.privacy.filling import Listing
from hushrec.systems.fedmf.clients import (
    FRACTION_BITS,
    Training,
    newcomer_weights,
    to_fixed,
    to_float,
    train_clients,
)

LISTING = Listing(
    np.array([0, 3, 3, 7]),
    np.array([0, 2, 5, 1, 2, 3, 4], np.int32),
    np.array([0, -1, -1, -1, 0, 1, -1], np.int32),
)


def some_factors(num_rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=0.3, size=(num_rows, 4)).astype(np.float32)


def slow(users: np.ndarray, items: np.ndarray, training: Training) -> tuple[np.ndarray, np.ndarray]:
    """The same steps, one number after the other."""
    users, steps = users.astype(np.float64), np.empty((7, 4))
    rate, shrink = 2 * float(training.learning_rate), 2 * float(training.learning_rate * training.regularization)
    for user in range(3):
        for _ in range(training.epochs):
            for place in range(LISTING.starts[user], LISTING.starts[user + 1]):
                item = items[LISTING.items[place]].astype(np.float64)
                error = float(LISTING.rated_place[place] >= 0) - users[user] @ item
                users[user] += rate * error * item - shrink * users[user]
                steps[place] = rate * error * users[user] - shrink * item
    return users, steps


@pytest.mark.parametrize("epochs", [1, 3])
def test_training_is_that_of_the_slow_loop(epochs: int) -> None:
    training = Training(np.float32(0.05), np.float32(0.1), epochs)
    users, items = some_factors(3, 0), some_factors(6, 1)
    expected_users, expected_steps = slow(users, items, training)
    steps, beyond = train_clients(np.arange(3), users, items, LISTING, training, 2**29)
    assert beyond == -1
    np.testing.assert_allclose(users, expected_users, rtol=1e-5)
    np.testing.assert_allclose(steps, expected_steps * 2**FRACTION_BITS, atol=0.6)
    np.testing.assert_array_equal(users[1], some_factors(3, 0)[1])


def test_steps_are_the_gradient_of_the_squared_error() -> None:
    """With a tiny learning rate U_u hardly moves, and a step is -gamma times the slope of e^2 + lambda |V_i|^2."""
    training = Training(np.float32(2.0**-6), np.float32(0.0), 1)
    users, items = some_factors(3, 0), some_factors(6, 1)
    start = users.astype(np.float64)
    single = Listing(np.array([0, 1]), LISTING.items[:1], LISTING.rated_place[:1])
    steps, _ = train_clients(np.arange(1), users, items, single, training, 2**29)
    moved = users.astype(np.float64)

    def loss(item: np.ndarray) -> float:
        # The error is that of before the update of U_u, the direction that of after it.
        return float(-2 * (1 - start[0] @ items[0]) * (moved[0] @ item))

    for factor in range(4):
        unit = np.eye(4)[factor]
        slope = (loss(items[0] + unit) - loss(items[0] - unit)) / 2
        np.testing.assert_allclose(steps[0, factor] / 2**FRACTION_BITS, -slope / 64, atol=1e-6)


@pytest.mark.parametrize("bad", [1e6, np.nan, np.inf])
def test_a_step_beyond_the_limit_is_told(bad: float) -> None:
    users = some_factors(3, 0)
    users[2] = bad
    with np.errstate(all="ignore"):
        training = Training(np.float32(0.1), np.float32(0.1), 1)
        _, beyond = train_clients(np.arange(3), users, some_factors(6, 1), LISTING, training, 2**22)
    assert beyond == 2


def test_fixed_point_there_and_back() -> None:
    numbers = np.array([[0.5, -0.25, 3 * 2.0**-20, 2.0**-22, 100.0]], np.float32)
    assert to_fixed(numbers).tolist() == [[2**19, -(2**18), 3, 0, 100 * 2**20]]
    np.testing.assert_array_equal(to_float(to_fixed(numbers))[0, [0, 1, 2, 4]], numbers[0, [0, 1, 2, 4]])


def test_a_newcomer_has_the_least_expected_loss() -> None:
    """3 positives of 9 items and 1 negative each: another item is drawn with 1/2, lambda counts 6 times."""
    items = some_factors(9, 3)
    model = PositiveModel(some_factors(2, 4), items, newcomer_weights(num_negatives=1, regularization=0.05))
    mine = np.array([1, 4, 5], np.int32)
    scores = model.fold_in(mine, np.ones(3, np.float32))
    wanted = np.zeros(9)
    wanted[mine] = 1
    weight = np.where(wanted == 1, 1.0, 0.5)
    matrix = items.T @ (weight[:, None] * items) + 6 * 0.05 * np.eye(4)
    np.testing.assert_allclose(scores, items @ np.linalg.solve(matrix, items.T @ (weight * wanted)), rtol=1e-4)
