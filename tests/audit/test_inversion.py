from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hushrec.audit.inversion import invert_blind, invert_known_errors, priors_from_own_items

RATINGS = np.arange(1.0, 6.0)


class Trained(NamedTuple):
    users: NDArray[np.float64]
    items: NDArray[np.float64]
    who: NDArray[np.int64]
    what: NDArray[np.int64]
    ratings: NDArray[np.float64]


@pytest.fixture(scope="module")
def trained() -> Trained:
    """PMF of 60 users and 80 items on rounded ratings with users' and items' means, by SGD on batches."""
    generator = np.random.default_rng(0)
    means = 3.5 + generator.normal(0, 0.4, 60)[:, None] + generator.normal(0, 0.5, 80)
    noisy = means + generator.normal(0, 0.6, (60, 80))
    who, what = np.nonzero(generator.random((60, 80)) < 0.4)
    ratings = np.clip(np.rint(noisy), 1, 5)[who, what]
    users, items = generator.uniform(-0.05, 0.05, (60, 8)), generator.uniform(-0.05, 0.05, (80, 8))
    for _ in range(60):
        for batch in np.array_split(generator.permutation(len(who)), len(who) // 64):
            u, i = who[batch], what[batch]
            errors = np.sum(users[u] * items[i], axis=1) - ratings[batch]
            of_users, of_items = (0.8 / 64 * errors[:, None] * rows for rows in (items[i], users[u]))
            np.subtract.at(users, u, of_users)
            np.subtract.at(items, i, of_items)
    return Trained(users, items, who, what, ratings)


def rows_of(model: Trained, batch_size: int, regularization: float = 0.0) -> tuple[NDArray, NDArray]:
    """Each rating's gradient of its user, and its error."""
    users, items = model.users[model.who], model.items[model.what]
    errors = np.sum(users * items, axis=1) - model.ratings
    return 2 / batch_size * errors[:, None] * items + regularization * users, errors


@pytest.mark.parametrize("regularization", [0.0, 0.01])
def test_a_known_prediction_gives_all_to_1e5(trained: Trained, regularization: float) -> None:
    gradients, errors = rows_of(trained, 64, regularization)
    users, items = trained.users[trained.who], trained.items[trained.what]
    predictions = trained.ratings + errors
    assert predictions.min() > 0
    near = np.abs(errors) < trained.ratings / 2  # else the prediction is the root far from the rating
    found = invert_blind(gradients, users, RATINGS, predictions, 64, regularization)
    assert near.mean() > 0.95
    np.testing.assert_array_equal(found.ratings[near], trained.ratings[near])
    np.testing.assert_allclose(found.vectors[near], items[near], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.predictions[near], predictions[near], rtol=1e-5)


def test_the_blind_attack_is_right_in_most_cases(trained: Trained) -> None:
    """The attacker has items of its own: those of the other, and noise of a tenth. Direction: always right."""
    gradients, _ = rows_of(trained, 64)
    users, items = trained.users[trained.who], trained.items[trained.what]
    own = trained.items + np.random.default_rng(1).normal(0, 0.1, trained.items.shape) * np.std(trained.items)
    counts = np.bincount(trained.what, minlength=80)
    found = invert_blind(gradients, users, RATINGS, priors_from_own_items(gradients, users, own, counts), 64)
    lengths = np.linalg.norm(found.vectors, axis=1) * np.linalg.norm(items, axis=1)
    cosines = np.sum(found.vectors * items, axis=1) / lengths
    assert np.mean(cosines > 0.999999) > 0.99
    assert np.mean(found.ratings == trained.ratings) > 0.8
    assert np.mean(np.linalg.norm(found.vectors - items, axis=1) < 0.1 * np.linalg.norm(items, axis=1)) > 0.8


def test_noise_hides_the_vectors(trained: Trained) -> None:
    gradients, errors = rows_of(trained, 64)
    users, items = trained.users[trained.who], trained.items[trained.what]
    noisy = gradients + np.random.default_rng(2).laplace(0, 5 * np.abs(gradients).mean(), gradients.shape)
    found = invert_blind(noisy, users, RATINGS, trained.ratings + errors, 64)
    assert np.isfinite(found.vectors).all()
    lengths = np.linalg.norm(found.vectors, axis=1) * np.linalg.norm(items, axis=1)
    assert np.mean(np.sum(found.vectors * items, axis=1) / lengths) < 0.6


def test_the_prior_by_hand() -> None:
    """The row points away from the user, so the vector points the other way: along the second and third own items,
    rated 3 times and once, with predictions 6 and 12: 7.5. The first own item is too far away to count.
    """
    own = np.array([[-1.0, 0], [2, 0], [4, 0]])
    priors = priors_from_own_items(np.array([[-2.0, 0]]), np.array([[3.0, 1.0]]), own, np.array([9, 3, 1]))
    np.testing.assert_allclose(priors, [7.5])


def test_a_row_of_zeros_tells_nothing() -> None:
    found = invert_blind(np.zeros((1, 3)), np.ones((1, 3)), RATINGS, np.array([3.2]), 64)
    assert (found.vectors.tolist(), found.predictions.tolist()) == ([[0, 0, 0]], [3.2])
    assert found.ratings.tolist() == [3]


def test_known_errors_give_single_vectors(trained: Trained) -> None:
    gradients, errors = rows_of(trained, 64, 0.01)
    users = trained.users[trained.who]
    found = invert_known_errors(gradients, errors, np.arange(len(errors)), 64, users, 0.01)
    np.testing.assert_allclose(found, trained.items[trained.what], rtol=1e-6, atol=1e-9)


def test_known_errors_of_a_mean_end_where_adam_does() -> None:
    """From a start within 0.005, for a mean of five rows and one of two; the least-norm solution is far away."""
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    owners, errors = np.array([0, 0, 0, 0, 0, 1, 1]), generator.normal(0, 1, 7)
    rows = 2 * errors[:, None] * generator.normal(0.4, 0.2, (7, 20))
    gradients = np.stack([rows[:5].mean(axis=0), rows[5:].mean(axis=0)])
    found = invert_known_errors(gradients, errors, owners, 1)
    weights = torch.tensor(np.array([[0.2] * 5 + [0] * 2, [0] * 5 + [0.5] * 2]) * 2 * errors)
    vectors = torch.tensor(generator.uniform(-0.005, 0.005, (7, 20)), requires_grad=True)
    adam = torch.optim.Adam([vectors], lr=1e-2)
    for _ in range(500):
        adam.zero_grad()
        torch.nn.functional.mse_loss(weights @ vectors, torch.tensor(gradients)).backward()
        adam.step()
    np.testing.assert_allclose(found, vectors.detach().numpy(), atol=0.015)
    least = 5 * errors[:5, None] * gradients[0] / (2 * np.sum(errors[:5] ** 2))
    assert np.abs(least - found[:5]).max() > 0.1
