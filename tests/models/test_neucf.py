"""NeuCF's gradients against numbers worked by hand and against PyTorch's, its start and its training."""

from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.models.neucf import (
    Activation,
    Gradients,
    batch_gradients,
    initial_layers,
    initial_vectors,
    num_weights,
    train_epoch,
    views,
)

ACTIVATIONS: tuple[Activation, ...] = ("relu", "quadratic")
Tables = tuple[np.ndarray, np.ndarray, np.ndarray]


def made(num_factors: int, num_users: int = 7, num_items: int = 9, seed: int = 0) -> Tables:
    """Vectors and layers of ordinary size; no layer is zero."""
    draws = np.random.default_rng(seed)
    shapes = ((num_users, 2 * num_factors), (num_items, 2 * num_factors), (num_weights(num_factors),))
    user_vectors, item_vectors, layers = (draws.normal(0, 0.5, shape).astype(np.float32) for shape in shapes)
    return user_vectors, item_vectors, layers


def some_batch(size: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of 7 users and 9 items: with repeats, if there are more than 9."""
    draws = np.random.default_rng(seed)
    users, items = (draws.integers(0, most, size).astype(np.int32) for most in (7, 9))
    return users, items, draws.integers(1, 6, size).astype(np.float32)


def worked(tables: Tables, batch: Any, activation: Activation) -> tuple[Gradients, float]:
    """Gradients, in room that was not empty, and the loss."""
    out = Gradients.empty(len(batch[0]), tables[0].shape[1] // 2)
    for part in out:
        part.fill(np.nan)
    return out, batch_gradients(*tables, *batch, activation, out)


# --- Start -------------------------------------------------------------------------------------------------


def test_parts_of_the_layers() -> None:
    """With 2 factors: W has the rows (0, 1 | 2, 3) and (4, 5 | 6, 7), then c, o_g and o_h."""
    parts = views(np.arange(14, dtype=np.float32), 2)
    assert [part.tolist() for part in parts] == [
        [[0, 1], [4, 5]], [[2, 3], [6, 7]], [8, 9], [10, 11], [12, 13],
    ]  # fmt: skip
    assert num_weights(2) == 14
    assert num_weights(16) == 32 * 16 + 16 + 32


def test_layers_start_normal_with_variance_2_over_outputs() -> None:
    """Of 64 outputs in W (8192 numbers) and of 1 in o (128): |z| < 5 for mean and variance, fixed seed."""
    parts = views(initial_layers(64, Draws(0).generator("layers")), 64)
    assert not parts.bias.any()
    weights = np.concatenate([parts.user_weight, parts.item_weight]).ravel() / np.sqrt(2 / 64)
    outputs = np.concatenate([parts.product_output, parts.hidden_output]) / np.sqrt(2)
    for numbers in (weights, outputs):
        assert abs(numbers.mean()) < 5 / np.sqrt(numbers.size)
        assert abs((numbers**2).mean() - 1) < 5 * np.sqrt(2 / numbers.size)


@pytest.mark.parametrize("mode", ["layers", "vectors"])
def test_start_has_the_spread_of_pytorchs_kaiming_normal(mode: str) -> None:
    """The variance of its numbers and ours differ by less than 5 standard errors, fixed seeds."""
    torch = pytest.importorskip("torch")
    if mode == "layers":
        ours = views(initial_layers(64, Draws(0).generator("layers")), 64).user_weight
        theirs = torch.empty(64, 128)
    else:
        ours = initial_vectors("user-vectors", np.arange(400, dtype=np.int32), 16, 400, Draws(0))
        theirs = torch.empty(400, 16)
    generator = torch.Generator().manual_seed(0)
    torch.nn.init.kaiming_normal_(theirs, mode="fan_out", generator=generator)
    share = float(ours.var()) / float(theirs.var())
    assert abs(share - 1) < 5 * np.sqrt(2 / ours.size + 2 / theirs.numel())


def test_a_vector_is_the_same_whoever_draws_it() -> None:
    everyone = initial_vectors("user-vectors", np.arange(30, dtype=np.int32), 13, 30, Draws(3))
    some = np.array([7, 2, 29], np.int32)
    np.testing.assert_array_equal(initial_vectors("user-vectors", some, 13, 30, Draws(3)), everyone[some])
    assert len(np.unique(everyone)) > 0.99 * everyone.size
    assert (initial_vectors("item-vectors", some, 13, 30, Draws(3)) != everyone[some]).all()
    assert (initial_vectors("user-vectors", some, 13, 30, Draws(4)) != everyone[some]).all()


def test_vectors_start_normal_with_variance_2_over_rows() -> None:
    """16000 numbers: moments 1 to 4 within 5 standard errors, fixed seed; columns are not correlated."""
    numbers = initial_vectors("v", np.arange(500, dtype=np.int32), 16, 500, Draws(0)) / np.sqrt(2 / 500)
    for moment, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((numbers**moment).mean() - expected) < 5 * np.sqrt(variance / numbers.size)
    correlations = np.corrcoef(numbers.T)[np.triu_indices(32, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)


# --- Gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "rating", "loss", "gradients"),
    [
        ("relu", 4.0, 4.0, [6, 16, 4, 8, 8, -8, 8, 24, 6]),
        ("quadratic", 3.1875, 1.0, [3, 4, 2, 2, 2, -2, 2, 12, 1.1875]),
    ],
)
def test_hand_worked_gradient(activation: Activation, rating: float, loss: float, gradients: list[float]) -> None:
    """One factor: u = (2, 1), v = (3, -1), W = (2, 1), c = 1/2, o = (1/2, 2), so W [u_h; v_h] + c = 3/2.

    relu: 1/2 * 6 + 2 * 3/2 = 6, error 2, so the derivative by the prediction is 4 and by the inner sum 4*2 = 8.
    quadratic: act = (9/4 + 3/2 + 1) / 8 = 19/32, act' = (3 + 1) / 8 = 1/2, so 3 + 19/16 = 4.1875, error 1; the
    derivative by the prediction is 2, by the inner sum 2 * 2 * 1/2 = 2.
    Times the first: u_g 1/2*3, v_g 1/2*2, o_g 6, o_h act. Times the other: u_h 2, v_h 1, W 1 and -1, c 1.
    """
    tables = tuple(np.array(part, np.float32) for part in ([[2, 1]], [[3, -1]], [2, 1, 0.5, 0.5, 2]))
    nought = np.zeros(1, np.int32)
    out, found = worked(tables, (nought, nought, np.array([rating], np.float32)), activation)
    assert np.concatenate([part.ravel() for part in out]).tolist() == gradients
    assert found == loss


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("num_factors", "size"), [(16, 128), (5, 40), (5, 3), (1, 1)])
def test_gradients_are_pytorchs(activation: Activation, num_factors: int, size: int) -> None:
    """In double precision there. A row of ours is the gradient by the copy of the vector that its rating uses."""
    torch = pytest.importorskip("torch")
    tables, batch = made(num_factors), some_batch(size)
    users, items, layers = (
        torch.tensor(part, dtype=torch.float64, requires_grad=True)
        for part in (tables[0][batch[0]], tables[1][batch[1]], tables[2])
    )
    rows = layers.reshape(-1, num_factors)
    weight = rows[: 2 * num_factors].reshape(num_factors, 2 * num_factors)
    bias, product_output, hidden_output = rows[2 * num_factors :]
    inner = torch.cat([users[:, num_factors:], items[:, num_factors:]], dim=1) @ weight.T + bias
    activated = torch.relu(inner) if activation == "relu" else (inner**2 + inner + 1) / 8
    product = users[:, :num_factors] * items[:, :num_factors]
    loss = torch.nn.functional.mse_loss(
        product @ product_output + activated @ hidden_output, torch.tensor(batch[2])
    )
    loss.backward()
    out, found = worked(tables, batch, activation)
    for ours, theirs in zip(out, (users.grad, items.grad, layers.grad), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-5, atol=2e-6 * float(theirs.abs().max()))
    assert found == pytest.approx(float(loss.detach()), rel=1e-6)


def test_the_tables_are_not_changed_and_rows_do_not_depend_on_the_batch() -> None:
    """But for the share: a rating's row in a batch of 4 times 4 is its row in a batch of one."""
    tables, batch = made(16), some_batch(4)
    before = [table.copy() for table in tables]
    out, _ = worked(tables, batch, "relu")
    for place in range(4):
        alone, _ = worked(tables, tuple(column[place : place + 1] for column in batch), "relu")
        np.testing.assert_array_equal(4 * out.user_rows[place], alone.user_rows[0])
        np.testing.assert_array_equal(4 * out.item_rows[place], alone.item_rows[0])
    for table, kept in zip(tables, before, strict=True):
        np.testing.assert_array_equal(table, kept)


# --- Training ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_epoch_is_steps_of_gradient_descent(activation: Activation) -> None:
    """Batches of 8 in the given order; the last 6 of 30 ratings are left out. Repeats in a batch add up."""
    rated, order = some_batch(30), np.random.default_rng(2).permutation(30)
    trained, expected = made(5), made(5)
    train_epoch(trained, rated, order, 8, 0.25, activation)
    for first in (0, 8, 16):
        batch = tuple(column[order[first : first + 8]] for column in rated)
        out, _ = worked(expected, batch, activation)
        np.subtract.at(expected[0], batch[0], np.float32(0.25) * out.user_rows)
        np.subtract.at(expected[1], batch[1], np.float32(0.25) * out.item_rows)
        expected[2][:] -= np.float32(0.25) * out.layers
    for ours, theirs, start in zip(trained, expected, made(5), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert (ours != start).any()
