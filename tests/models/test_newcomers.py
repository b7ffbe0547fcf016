"""Vectors of newcomers: against SciPy's minimum, slopes against differences, and what keeps them in bounds."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit

from hushrec.models.newcomers import (
    FrozenNetwork,
    Wishes,
    least,
    newcomer_vector,
    usual_around_zero,
    usual_of,
    wishes_of,
)

DRAWS = np.random.default_rng(0)
USUAL = usual_of(DRAWS.normal(1.0, 2.0, (50, 6)))
QUADRATIC = (0.125, 0.5, 0.25)


def network(num_products: int = 4, quadratic: tuple[float, float, float] | None = None) -> FrozenNetwork:
    draws = np.random.default_rng(1)
    return FrozenNetwork(
        draws.normal(size=(30, num_products)), draws.normal(size=(30, 5)),
        draws.normal(size=(6 - num_products, 5)),
        [(draws.normal(size=(5, 3)), draws.normal(size=3)), (draws.normal(size=(3, 1)), draws.normal(size=1))],
        quadratic,
    )  # fmt: skip


def by_hand(frozen: FrozenNetwork, vector: np.ndarray, item: int) -> float:
    split = frozen.products.shape[1]
    hidden = frozen.inner[item] + vector[split:] @ frozen.user_weight
    for weight, bias in frozen.layers:
        if frozen.quadratic is None:
            hidden = np.maximum(hidden, 0)
        else:
            square, slope, offset = frozen.quadratic
            hidden = square * hidden**2 + slope * hidden + offset
        hidden = hidden @ weight + bias
    return float(frozen.products[item] @ vector[:split] + hidden[0])


@pytest.mark.parametrize("quadratic", [None, QUADRATIC])
@pytest.mark.parametrize("num_products", [0, 4, 6])
def test_a_network_and_its_slopes(num_products: int, quadratic: tuple[float, float, float] | None) -> None:
    frozen, vector = network(num_products, quadratic), np.linspace(-1, 1, 6)
    said, slopes = frozen(vector)
    for item in (0, 7, 29):
        assert said[item] == pytest.approx(by_hand(frozen, vector, item))
        found = approx_fprime(vector, lambda moved, item=item: by_hand(frozen, moved, item), 1e-7)
        np.testing.assert_allclose(slopes()[item], found, atol=1e-5)


def test_products_alone_need_no_layers() -> None:
    frozen = FrozenNetwork(np.array([[1.0, 2.0], [3.0, 4.0]]), np.empty((0, 0)), np.empty((0, 0)), ())
    said, slopes = frozen(np.array([10.0, 1.0]))
    assert said.tolist() == [12, 34]
    assert slopes().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_the_vector_has_the_least_loss(loss: str) -> None:
    """Where the model is a product the loss has one minimum: SciPy's."""
    frozen = FrozenNetwork(DRAWS.normal(size=(40, 6)), np.empty((0, 0)), np.empty((0, 0)), ())
    wishes = wishes_of(np.array([3, 5, 21], np.int32), 40, 4)

    def value(vector: np.ndarray) -> float:
        said, away = frozen.products @ vector, vector - USUAL.mean
        of_items = (said - wishes.targets) ** 2 / 2
        if loss == "logistic":
            chances = expit(said)
            of_items = -np.log(np.where(wishes.targets > 0, chances, 1 - chances))
        return float(wishes.weights @ of_items + away @ USUAL.precision @ away / 2)

    found = newcomer_vector(frozen, wishes, USUAL, loss)
    np.testing.assert_allclose(found, minimize(value, USUAL.mean, tol=1e-12).x, atol=1e-4)


def test_squares_have_a_closed_form() -> None:
    """Ridge regression towards the mean."""
    known, ratings = DRAWS.normal(size=(9, 6)), DRAWS.normal(size=9)
    frozen = FrozenNetwork(known, np.empty((0, 0)), np.empty((0, 0)), ())
    found = newcomer_vector(frozen, Wishes(ratings, np.full(9, 2.0)), USUAL, "square")
    errors = ratings - known @ USUAL.mean
    expected = USUAL.mean + np.linalg.solve(2 * known.T @ known + USUAL.precision, 2 * known.T @ errors)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("rating", [0.0, 5.0, -1e3, 1e6, 1e12])
@pytest.mark.parametrize("quadratic", [None, QUADRATIC])
def test_no_wish_leads_far_from_the_usual(rating: float, quadratic: tuple[float, float, float] | None) -> None:
    """(x - m) P (x - m) is at most twice the loss of m, whatever is wished."""
    frozen, wishes = network(4, quadratic), Wishes(np.full(30, rating), np.ones(30))
    start = 0.5 * ((frozen(USUAL.mean)[0] - rating) ** 2).sum()
    away = newcomer_vector(frozen, wishes, USUAL, "square") - USUAL.mean
    assert np.isfinite(away).all()
    assert away @ USUAL.precision @ away <= 2 * start


def test_what_is_not_finite_leads_nowhere() -> None:
    found = newcomer_vector(network(), Wishes(np.full(30, np.nan), np.ones(30)), USUAL, "square")
    np.testing.assert_array_equal(found, USUAL.mean)


def test_without_a_wish_it_is_the_usual_vector() -> None:
    nothing = Wishes(np.zeros(30), np.zeros(30))
    np.testing.assert_allclose(newcomer_vector(network(), nothing, USUAL, "logistic"), USUAL.mean, atol=1e-9)


def test_steps_are_counted() -> None:
    """A loss that falls for ever, by less and less, ends after 30 steps."""
    asked = []

    def falling(vector: np.ndarray) -> tuple[float, Callable[[], tuple[np.ndarray, np.ndarray]]]:
        asked.append(vector)
        return float(np.exp(-vector[0])), lambda: (-np.exp(-vector), np.exp(-vector)[:, None])

    assert np.isfinite(least(falling, np.zeros(1))).all()
    assert len(asked) == 31


def test_slopes_are_computed_only_where_a_step_was_made() -> None:
    """|x| from 1, with steps that are too long until they are damped enough."""
    tried, bent = [], []

    def state(vector: np.ndarray) -> tuple[float, Callable[[], tuple[np.ndarray, np.ndarray]]]:
        tried.append(abs(vector[0]))

        def bends() -> tuple[np.ndarray, np.ndarray]:
            bent.append(abs(vector[0]))
            return np.sign(vector), np.full((1, 1), 0.1)

        return float(abs(vector[0])), bends

    found = abs(least(state, np.ones(1))[0])
    assert bent == sorted(set(bent), reverse=True)
    assert len(bent) < len(tried) - 2
    assert found == min(tried) < 1


def test_where_vectors_usually_are() -> None:
    vectors = DRAWS.normal(size=(2000, 3)) @ np.diag([1.0, 2.0, 3.0]) + [5, 0, -5]
    usual = usual_of(vectors.astype(np.float32))
    np.testing.assert_allclose(usual.mean, [5, 0, -5], atol=0.3)
    spread = 0.1 * (1 + 4 + 9) / 3
    np.testing.assert_allclose(np.linalg.inv(usual.precision), np.diag([1, 4, 9]) + spread * np.eye(3), atol=0.7)
    alone = usual_of(vectors[:1])
    np.testing.assert_array_equal(alone.mean, vectors[0])
    assert np.isfinite(alone.precision).all()
    assert usual_around_zero(2, 0.25).precision.tolist() == [[4, 0], [0, 4]]


def test_others_count_as_much_as_would_be_drawn() -> None:
    """Of 10 items 2 are the newcomer's: 8 drawn ones of 8 others count 1 each, 2 of 8 a quarter each."""
    items = np.array([1, 8], np.int32)
    assert wishes_of(items, 10, 4).weights.tolist() == [1.0] * 10
    few = wishes_of(items, 10, 1)
    assert few.targets.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    assert few.weights.tolist() == [0.25, 1, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 1, 0.25]
    assert wishes_of(np.arange(3, dtype=np.int32), 3, 4).weights.tolist() == [1, 1, 1]
