"""The network against PyTorch: scores, gradients, and whole trainings with its Adam."""

from itertools import pairwise

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.models.client_mlp import mlp_room
from hushrec.privacy.filling import Listing
from hushrec.systems.fedncf import network as ncf
from hushrec.systems.fedncf.newcomers import frozen_network

torch = pytest.importorskip("torch")

DENSE = (8, 5, 3), (4, 7), (24, 12, 12, 6)
SHAPES = [
    *(ncf.Shape(variant, 4, dense) for variant in ("gmf", "mlp", "neumf") for dense in DENSE),
    *(ncf.Shape(variant, 4, DENSE[0], has_biases=True) for variant in ("gmf", "mlp", "neumf")),
]
NUM_ITEMS = 90


def score_by_torch(shape, user, vectors, layers):
    parts = torch.split(layers, [size for size, _ in shape.parts()])
    half = shape.num_products
    free = half - shape.has_biases
    score = parts[-1] + (parts[0][:free] * user[:free] * vectors[:, :free]).sum(1)
    if shape.has_biases:
        score = score + vectors[:, free]
    if shape.has_dense:
        values = torch.cat([user[half:].expand(len(vectors), -1), vectors[:, half:]], 1)
        for layer, sizes in enumerate(pairwise(shape.dense)):
            values = torch.relu(values @ parts[1 + 2 * layer].reshape(sizes) + parts[2 + 2 * layer])
        score = score + values @ parts[-2]
    return score


def loss_by_torch(shape, user, vectors, layers, labels):
    return torch.nn.functional.binary_cross_entropy_with_logits(
        score_by_torch(shape, user, vectors, layers), torch.tensor(labels, dtype=user.dtype)
    )


def network(shape, seed=0):
    generator = np.random.default_rng(seed)
    user = generator.normal(size=shape.num_columns).astype(np.float32)
    vectors = generator.normal(size=(NUM_ITEMS, shape.num_columns)).astype(np.float32)
    layers = (0.5 * generator.normal(size=shape.num_weights)).astype(np.float32)
    if shape.has_biases:
        user[shape.num_products - 1] = layers[shape.num_products - 1] = 1
    return user, vectors, layers


def composed(shape, user, layers):
    """u_g, g, u_h and the rest of `layers`, as kernels have it."""
    half = shape.num_products
    return np.concatenate([user[:half], layers[:half], user[half:], layers[half:]])


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_equal_those_of_torch(shape) -> None:
    user, vectors, layers = network(shape)
    other = -user
    if shape.has_biases:
        other[shape.num_products - 1] = 1
    model = ncf.NcfModel(np.stack([user, other]), vectors, layers, shape)
    scores = model.score(np.array([1, 0], np.int32))
    for row, own in zip(scores, (other, user), strict=True):
        expected = score_by_torch(shape, *(torch.tensor(one) for one in (own, vectors, layers)))
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-4)
    users, items = np.tile(np.array([1, 0], np.int32), 3), np.array([3, 3, 70, 89, 0, 0], np.int32)
    logits = torch.tensor(scores[1 - users, items])
    np.testing.assert_allclose(model.predict(users, items), torch.sigmoid(logits).numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_those_of_autograd(shape) -> None:
    """A batch of 150 samples of 90 items: more than a block, and items repeat."""
    user, vectors, layers = network(shape)
    generator, half = np.random.default_rng(1), shape.num_products
    slots = generator.integers(0, NUM_ITEMS, 150).astype(np.int32)
    labels = generator.integers(0, 2, 150).astype(np.float32)
    own = composed(shape, user, layers)
    tables = vectors[:, :half].ravel(), vectors[:, half:].ravel()
    out = np.zeros_like(own), np.zeros_like(tables[0]), np.zeros_like(tables[1])
    room = mlp_room(shape.for_kernels[2])
    ncf.ncf_gradients(own, shape.for_kernels, tables, (slots, labels), room, out)
    exact = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (user, vectors, layers)]
    loss_by_torch(shape, exact[0], exact[1][torch.tensor(slots).long()], exact[2], labels).backward()
    by_user, by_vectors, by_layers = (one.grad.numpy() for one in exact)
    np.testing.assert_allclose(out[0], composed(shape, by_user, by_layers), atol=2e-6)
    found = np.hstack([table.reshape(NUM_ITEMS, -1) for table in out[1:] if table.size])
    np.testing.assert_allclose(found, by_vectors, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_training_equals_that_of_torch(shape) -> None:
    """Five passes in one batch each, so that the order of samples does not matter. Items not listed stay."""
    user, vectors, layers = network(shape)
    generator = np.random.default_rng(2)
    listed = np.sort(generator.choice(NUM_ITEMS, 40, replace=False)).astype(np.int32)
    rated_place = np.where(generator.random(40) < 0.3, 0, -1).astype(np.int32)
    users, listing = user[None].copy(), Listing(np.array([0, 40]), listed, rated_place)
    item_steps, layer_steps = ncf.train_clients(
        users,
        vectors,
        layers,
        listing,
        np.zeros(1, np.int32),
        1,
        ncf.Training(shape, 5, 64, 0.01),
        Draws(0).key("order"),
    )
    trained = [torch.tensor(one, requires_grad=True) for one in (user, vectors, layers)]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        samples = trained[1][torch.tensor(listed).long()]
        loss_by_torch(shape, trained[0], samples, trained[2], rated_place >= 0).backward()
        optimizer.step()
    new_user, new_vectors, new_layers = (one.detach().numpy() for one in trained)
    np.testing.assert_allclose(users[0], new_user, atol=2e-4)
    np.testing.assert_allclose(item_steps, (new_vectors - vectors)[listed], atol=2e-4)
    np.testing.assert_allclose(layer_steps[0], new_layers - layers, atol=2e-4)


def test_a_client_does_not_depend_on_its_company() -> None:
    shape, draws = ncf.Shape("neumf", 5, (6, 5, 3)), Draws(0)
    generator = np.random.default_rng(0)
    lists = [np.sort(generator.choice(NUM_ITEMS, size, replace=False)).astype(np.int32) for size in (3, 0, 70, 21)]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    places = np.where(generator.random(starts[-1]) < 0.3, 0, -1).astype(np.int32)
    numbers, training = np.array([7, 8, 9, 20], np.int32), ncf.Training(shape, 2, 8, 0.01)
    users = ncf.initial_factors("user-factors", numbers, 50, shape, draws)
    vectors = ncf.initial_factors("item-factors", np.arange(NUM_ITEMS, dtype=np.int32), NUM_ITEMS, shape, draws)
    layers, together = ncf.initial_layers(shape, draws), users.copy()
    listing = Listing(starts, np.concatenate(lists), places)
    item_steps, layer_steps = ncf.train_clients(
        together, vectors, layers, listing, numbers, 3, training, draws.key("order")
    )
    for place in range(4):
        own, alone = slice(starts[place], starts[place + 1]), users[place : place + 1].copy()
        only = Listing(starts[place : place + 2] - starts[place], listing.items[own], places[own])
        number = numbers[place : place + 1]
        by_items, by_layers = ncf.train_clients(
            alone, vectors, layers, only, number, 3, training, draws.key("order")
        )
        np.testing.assert_array_equal(alone[0], together[place])
        np.testing.assert_array_equal(by_items, item_steps[own])
        np.testing.assert_array_equal(by_layers[0], layer_steps[place])
    np.testing.assert_array_equal(together[1], users[1])
    assert not layer_steps[1].any(), "a client without samples moves nothing"


def test_first_values_are_within_the_bounds_of_glorot_and_bengio() -> None:
    """NeuMF with 12 products and layers 48-24-12-6: the output has 18 inputs, sqrt(6 / 19); biases are zero."""
    shape = ncf.Shape("neumf", 12, (48, 24, 12, 6))
    assert shape.num_columns == 36
    assert shape.num_weights == 12 + 48 * 24 + 24 + 24 * 12 + 12 + 12 * 6 + 6 + 6 + 1
    layers, start = ncf.initial_layers(shape, Draws(0)), 0
    for size, bound in shape.parts():
        part = np.abs(layers[start : start + size])
        assert part.max() <= bound
        assert part.max() >= 0.7 * bound
        start += size
    assert shape.parts()[0][1] == shape.parts()[-2][1] == pytest.approx((6 / 19) ** 0.5)
    vectors = ncf.initial_factors("item-factors", np.arange(500, dtype=np.int32), 1682, shape, Draws(0))
    assert 0.99 < np.abs(vectors).max() / (6 / (1682 + 36)) ** 0.5 <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_network_by_the_users_vector(shape) -> None:
    user, vectors, layers = network(shape)
    dense = shape.dense if shape.has_dense else ()
    logits, slopes_of = frozen_network(vectors, layers, shape.num_products, dense)(user.astype(np.float64))
    slopes = slopes_of()
    model = ncf.NcfModel(user[None], vectors, layers, shape)
    np.testing.assert_allclose(logits, model.score(np.zeros(1, np.int32))[0], rtol=1e-4, atol=1e-4)
    given = torch.tensor(user, dtype=torch.float64, requires_grad=True)
    others = (torch.tensor(one, dtype=torch.float64) for one in (vectors, layers))
    score_by_torch(shape, given, *others)[7].backward()
    if shape.has_biases:  # its factor is 1, whatever the slope
        slopes[7, shape.num_products - 1] = 0
    np.testing.assert_allclose(slopes[7], given.grad.numpy(), atol=1e-6)


def test_biases_start_at_zero_and_their_factors_stay_one() -> None:
    """A client moves the biases of the items that it lists, upwards those that it has; nobody moves the ones."""
    shape, draws, place = ncf.Shape("neumf", 3, (6, 5), has_biases=True), Draws(0), 3
    numbers, items = np.arange(2, dtype=np.int32), np.arange(8, dtype=np.int32)
    users = ncf.initial_factors("user-factors", numbers, 8, shape, draws)
    vectors = ncf.initial_factors("item-factors", items, 8, shape, draws)
    layers = ncf.initial_layers(shape, draws)
    assert (users[:, place] == 1).all()
    assert (vectors[:, place] == 0).all()
    assert layers[place] == 1
    listing = Listing(np.array([0, 4, 8]), items, np.tile(np.array([0, 0, -1, -1], np.int32), 2))
    training = ncf.Training(shape, 3, 4, 0.01)
    item_steps, layer_steps = ncf.train_clients(
        users, vectors, layers, listing, numbers, 1, training, draws.key("o")
    )
    assert np.sign(item_steps[:, place]).tolist() == [1, 1, -1, -1] * 2
    assert (users[:, place] == 1).all()
    assert (layer_steps[:, place] == 0).all()


@pytest.mark.parametrize("variant", ["gmf", "mlp", "neumf"])
def test_a_newcomers_vector_leaves_the_factor_of_biases_alone(variant: str) -> None:
    """Of items that differ in nothing but their biases, those with larger ones come first."""
    shape = ncf.Shape(variant, 4, DENSE[0], has_biases=True)
    user, vectors, layers = network(shape)
    bias = shape.num_products - 1
    vectors[50:] = vectors[50]
    vectors[50:, bias] = np.linspace(-3, 3, NUM_ITEMS - 50)
    scores = ncf.NcfModel(user[None], vectors, layers, shape).fold_in(np.array([1, 2, 3], np.int32), None)
    np.testing.assert_allclose(np.diff(scores[50:]), 6 / (NUM_ITEMS - 51), rtol=1e-2)
