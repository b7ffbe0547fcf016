from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hushrec.audit import matching
from hushrec.audit.matching import Quadratic, match_gradients, solve_single, taken_apart
from hushrec.errors import HushrecError

DIM = 3
QUADRATIC = (0.125, 0.5, 0.25)


class Sent(NamedTuple):
    users: NDArray[np.float64]
    items: NDArray[np.float64]  # (gradients, ratings, 2 dim)
    ratings: NDArray[np.float64]
    layers: NDArray[np.float64]
    user_gradients: NDArray[np.float64]
    layer_gradients: NDArray[np.float64]


def sent(size: int, num_ratings: int = 1, quadratic: Quadratic | None = None, bias: float = 1.0) -> Sent:
    """Gradients of the mean squared error, by PyTorch; with the bias, units fire more often."""
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    users, items = (
        generator.normal(0.3, 0.5, (size, 2 * DIM)),
        generator.normal(0.3, 0.5, (size, num_ratings, 2 * DIM)),
    )
    ratings, layers = generator.integers(1, 6, (size, num_ratings)).astype(float), generator.normal(0, 0.8, 27)
    layers[18:21] = bias
    rows = []
    for user, vectors, values in zip(users, items, ratings, strict=True):
        u, flat = (torch.tensor(one, requires_grad=True) for one in (user, layers))
        loss = torch.mean(
            (predicted(torch, u, torch.tensor(vectors), flat, quadratic) - torch.tensor(values)) ** 2
        )
        rows.append(torch.cat(torch.autograd.grad(loss, [u, flat])).numpy())
    both = np.stack(rows)
    return Sent(users, items, ratings, layers, both[:, : 2 * DIM], both[:, 2 * DIM :])


def predicted(torch, user, items, layers, quadratic):  # type: ignore[no-untyped-def]
    hidden, bias, output = layers[:18].reshape(DIM, 2 * DIM), layers[18:21], layers[21:]
    inputs = torch.cat([user[DIM:].expand(len(items), DIM), items[:, DIM:]], dim=1) @ hidden.T + bias
    if quadratic is None:
        values = torch.relu(inputs)
    else:
        values = quadratic[0] * inputs**2 + quadratic[1] * inputs + quadratic[2]
    return (user[:DIM] * items[:, :DIM]) @ output[:DIM] + values @ output[DIM:]


def cosines(found: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the mlp halves."""
    left, right = found[..., DIM:], true[..., DIM:]
    together: NDArray[np.float64] = np.sum(left * right, axis=-1) / (
        np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    )
    return together


@pytest.mark.parametrize("quadratic", [None, QUADRATIC])
def test_the_gradient_of_the_difference_is_autograds(quadratic: Quadratic | None) -> None:
    torch = pytest.importorskip("torch")
    made = sent(1, 2, quadratic)
    generator = np.random.default_rng(1)
    x, target = generator.normal(0, 0.5, (2, 2 * DIM + 1)), generator.normal(0, 0.5, 2 * DIM + 27)
    gradient = np.empty(x.size)
    loss = matching._difference(
        x.ravel(), made.users[0], taken_apart(made.layers, DIM), target, np.array(quadratic or (), float), gradient
    )
    user, layers, at = (torch.tensor(one, requires_grad=True) for one in (made.users[0], made.layers, x))
    errors = predicted(torch, user, at[:, :-1], layers, quadratic) - at[:, -1]
    rows = torch.cat(torch.autograd.grad(torch.mean(errors**2), [user, layers], create_graph=True))
    difference = torch.sum((rows - torch.tensor(target)) ** 2)
    difference.backward()
    assert loss == pytest.approx(difference.item(), rel=1e-12)
    np.testing.assert_allclose(gradient, at.grad.numpy().ravel(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("quadratic", [None, QUADRATIC])
def test_single_ratings_are_solved_without_a_search(quadratic: Quadratic | None) -> None:
    made = sent(60, quadratic=quadratic)
    rows = made.layer_gradients / 128
    found = solve_single(rows, made.users, made.layers, batch_size=128, quadratic=quadratic)
    fired = found.num_fired > 0
    assert fired.mean() > 0.9
    np.testing.assert_allclose(found.vectors[fired], made.items[fired], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.ratings[fired], made.ratings[fired], rtol=1e-5)


def test_without_a_unit_that_fires_nothing_is_solved() -> None:
    made = sent(5, bias=-30.0)
    found = solve_single(made.layer_gradients, made.users, made.layers)
    assert found.num_fired.tolist() == [0] * 5
    assert not found.vectors.any()


def test_noise_on_the_layers_gradient_stops_the_closed_form() -> None:
    made = sent(40)
    noisy = made.layer_gradients + np.random.default_rng(3).laplace(0, 5, made.layer_gradients.shape)
    found = solve_single(noisy, made.users, made.layers)
    assert np.mean(cosines(found.vectors, made.items)) < 0.6


def test_matching_finds_the_direction() -> None:
    """With a line search and some starts nearly always; as the authors search, less often."""
    made = sent(60)
    fired = np.count_nonzero(made.layer_gradients[:, 18:21], axis=1) >= 2
    shares = []
    for num_starts, line_search in ((5, True), (1, False)):
        found = match_gradients(
            made.user_gradients,
            made.layer_gradients,
            made.users,
            made.layers,
            np.random.default_rng(0),
            num_starts=num_starts,
            line_search=line_search,
        )
        assert np.isfinite(found.vectors).all()
        solved = fired & (found.losses < 1e-8)
        assert np.median(cosines(found.vectors, made.items)[solved, 0]) > 0.999
        np.testing.assert_allclose(np.median(np.abs(found.ratings - made.ratings)[solved]), 0, atol=1e-3)
        shares.append(np.mean(cosines(found.vectors, made.items)[fired, 0] > 0.99))
    assert shares[0] > 0.9
    assert 0.1 < shares[1] <= shares[0]


def test_batch_size_is_a_scale_only() -> None:
    made = sent(3)
    arguments = made.users, made.layers
    one = match_gradients(made.user_gradients, made.layer_gradients, *arguments, np.random.default_rng(0))
    rows = made.user_gradients / 128, made.layer_gradients / 128
    other = match_gradients(*rows, *arguments, np.random.default_rng(0), batch_size=128)
    np.testing.assert_array_equal(one.vectors, other.vectors)  # a power of two


def test_a_mean_of_several_is_harder() -> None:
    """As the authors search; the found vectors come in no order, so the best fit of each counts."""
    single, several = sent(40), sent(40, 5)
    found = [
        match_gradients(
            one.user_gradients,
            one.layer_gradients,
            one.users,
            one.layers,
            np.random.default_rng(0),
            num_ratings=one.items.shape[1],
            num_steps=100,
            line_search=True,
        )
        for one in (single, several)
    ]
    assert found[1].vectors.shape == (40, 5, 2 * DIM)
    easy = cosines(found[0].vectors, single.items)
    hard = cosines(found[1].vectors[:, :, None], several.items[:, None]).max(axis=1)
    assert np.mean(hard > 0.999) < np.mean(easy > 0.999)


def test_noise_spoils_the_match() -> None:
    made = sent(40)
    generator = np.random.default_rng(4)
    noisy = [rows + generator.laplace(0, 5, rows.shape) for rows in (made.user_gradients, made.layer_gradients)]
    found = match_gradients(*noisy, made.users, made.layers, generator, line_search=True, num_steps=50)
    assert np.mean(cosines(found.vectors, made.items)) < 0.5
    assert found.losses.min() > 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(HushrecError, match="need layers of 27 numbers"):
        taken_apart(np.zeros(26), DIM)
    with pytest.raises(HushrecError, match="every gradient needs"):
        match_gradients(
            np.zeros((2, 6)), np.zeros((2, 27)), np.zeros((3, 6)), np.zeros(27), np.random.default_rng(0)
        )
