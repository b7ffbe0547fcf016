"""The networks against dense computations in double precision, differentiated by PyTorch."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.kernels import sharing
from hushrec.models.networks import Batch, Network, Shape, build_network
from hushrec.models.networks_graph import Graph, normalised_graph, propagate, spread
from hushrec.models.server_model import ModelSettings, Pairs, initial, train

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

NUM_USERS, NUM_ITEMS, NUM_FACTORS = 7, 9, 6
CASES = [("neumf", "mlp"), ("ngcf", "product"), ("lightgcn", "mlp"), ("lightgcn", "product")]


def settings(model: str, head: str, **values: Any) -> ModelSettings:
    options = {"num_factors": NUM_FACTORS, "layers": (6, 3), "epochs": 1, "batch_size": 5, "learning_rate": 0.01}
    return ModelSettings(model=model, head=head, **{**options, "loss": "sum", **values})


def edges() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted edges, one of them given twice; the last user and the last item have none."""
    draws = np.random.default_rng(0)
    users = draws.integers(0, NUM_USERS - 1, 20).astype(np.int32)
    items = draws.integers(0, NUM_ITEMS - 1, 20).astype(np.int32)
    users[1], items[1] = users[0], items[0]
    return users, items, draws.uniform(0.1, 1, 20).astype(np.float32)


def dense_graph(weighted: tuple[np.ndarray, ...], sizes: tuple[int, int]) -> np.ndarray:
    """A by the formula, in double precision."""
    rated = np.zeros(sizes)
    for user, item, weight in zip(*weighted, strict=True):
        rated[user, item] += weight
    both = np.block([[np.zeros((sizes[0],) * 2), rated], [rated.T, np.zeros((sizes[1],) * 2)]])
    degrees = both.sum(axis=1)
    roots = np.array([degree**-0.5 if degree > 0 else 0.0 for degree in degrees])
    return roots[:, None] * both * roots


def graph() -> Graph:
    return normalised_graph(*edges(), (NUM_USERS, NUM_ITEMS))


DENSE = dense_graph(edges(), (NUM_USERS, NUM_ITEMS))


def batch() -> Batch:
    """Pairs with repeated users and items, among them those without edges."""
    users = np.array([0, 0, 3, NUM_USERS - 1, 5, 0, 2], np.int32)
    items = np.array([1, 4, 4, NUM_ITEMS - 1, 0, 1, 7], np.int32) + NUM_USERS
    offsets = np.array([-0.5, 1, 0, -2, 0.5, -0.5, 0.25], np.float32)
    return Batch(users, items, np.array([1, 0, 0.3, 0.9, 0, 1, 0.5], np.float32), offsets)


def network_of(
    model: str, head: str, dropout: float = 0.0, layers: tuple[int, ...] = (6, 3)
) -> tuple[Network, Shape, np.ndarray, np.ndarray]:
    """A network with initial weights (and vectors far from zero), and the flat arrays of weights and gradients."""
    chosen = settings(model, head, layers=layers)
    shape = chosen.shape((NUM_USERS, NUM_ITEMS))
    weights = initial(chosen, NUM_USERS, NUM_ITEMS, Draws(3)).parameters
    shape.views(weights)["vectors"][:] = np.random.default_rng(1).normal(size=(shape.num_nodes, NUM_FACTORS))
    gradients = np.zeros_like(weights)
    return build_network(shape, weights, gradients, graph(), dropout), shape, weights, gradients


def dense_outputs(
    shape: Shape, views: dict[str, Any], factors: list[np.ndarray] | None = None, graph: np.ndarray = DENSE
) -> list[Any]:
    """All layers' outputs, from the papers' formulas; `factors` are dropout's."""
    own, matrix = views["vectors"], torch.from_numpy(graph)
    if shape.model == "neumf":
        return [own]
    if shape.model == "lightgcn":
        powers = [torch.linalg.matrix_power(matrix, power) @ own for power in range(shape.num_graph_layers + 1)]
        return [sum(powers) / len(powers)]
    outputs = [own]
    for layer in range(shape.num_graph_layers):
        weight, bias = views[f"message-{layer}-weight"], views[f"message-{layer}-bias"]
        side = matrix @ own
        total = side @ weight[:NUM_FACTORS] + bias[0] + (own * side) @ weight[NUM_FACTORS:] + bias[1]
        own = torch.nn.functional.leaky_relu(total, 0.2)
        if factors is not None:
            own = own * torch.from_numpy(factors[layer])
        outputs.append(torch.nn.functional.normalize(own, dim=1))
    return outputs


def dense_logits(shape: Shape, views: dict[str, Any], outputs: list[Any], users: Any, items: Any) -> Any:
    if shape.head == "product":
        return sum((output[users] * output[items]).sum(1) for output in outputs)
    hidden = torch.cat([outputs[0][users], outputs[0][items]], 1)
    for layer in range(len(shape.layers) + 1):
        hidden = hidden @ views[f"dense-{layer}-weight"] + views[f"dense-{layer}-bias"]
        hidden = torch.relu(hidden) if layer < len(shape.layers) else hidden
    return hidden[:, 0]


def doubles(shape: Shape, weights: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """One flat leaf in double precision and its blocks."""
    leaf = torch.from_numpy(weights.astype(np.float64)).requires_grad_()
    views, start = {}, 0
    for name, (rows, columns) in shape.blocks().items():
        views[name] = leaf[start : start + rows * columns].reshape(rows, columns)
        start += rows * columns
    return leaf, views


def test_graph_equals_the_dense_formula() -> None:
    starts, columns, weights = graph()
    matrix = np.zeros((NUM_USERS + NUM_ITEMS,) * 2)
    for node in range(len(matrix)):
        mine = slice(starts[node], starts[node + 1])
        matrix[node, columns[mine]] = weights[mine]
    np.testing.assert_allclose(matrix, DENSE, rtol=1e-6)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_a_sum_of_weights_below_zero_counts_as_no_edge() -> None:
    users, items = np.array([0, 1], np.int32), np.array([0, 1], np.int32)
    weights = normalised_graph(users, items, np.array([-0.5, 0.25], np.float32), (2, 2)).weights
    assert sorted(weights.tolist()) == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("nodes", [[0], [0, 3, 9, 15], list(range(14))])
def test_spreading_some_rows_is_the_product_with_the_others_zero(nodes: list[int]) -> None:
    vectors = np.random.default_rng(0).normal(size=(NUM_USERS + NUM_ITEMS, NUM_FACTORS)).astype(np.float32)
    out = np.ones_like(vectors)
    spread(graph(), vectors[nodes], np.array(nodes), out)
    np.testing.assert_allclose(out, 1 + DENSE[:, nodes] @ vectors[nodes], rtol=1e-5, atol=1e-6)


def test_propagation_is_the_matrix_product() -> None:
    vectors = np.random.default_rng(0).normal(size=(2, NUM_USERS + NUM_ITEMS, NUM_FACTORS)).astype(np.float32)
    out = np.empty_like(vectors[0])
    propagate(graph(), vectors[0], vectors[1], np.arange(len(out)), out, 0.25)
    np.testing.assert_allclose(out, (vectors[1] + DENSE @ vectors[0]) / 4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "head"), CASES)
def test_outputs_equal_the_dense_formulas(model: str, head: str) -> None:
    network, shape, weights, _ = network_of(model, head)
    network.encoder.forward(np.arange(NUM_USERS + NUM_ITEMS), None)
    expected = dense_outputs(shape, doubles(shape, weights)[1])
    assert len(network.encoder.outputs) == len(expected)
    for ours, theirs in zip(network.encoder.outputs, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(("model", "head"), CASES)
def test_gradients_equal_autograd(model: str, head: str, dropout: float) -> None:
    """Of every weight, for the summed binary cross-entropy times 1/2; twice, to see that buffers are reset."""
    check_gradients(model, head, dropout, (6, 3))


@pytest.mark.parametrize("model", ["neumf", "lightgcn"])
@pytest.mark.parametrize("layers", [(5,), (12, 9, 7)])
def test_gradients_of_one_layer_and_of_three_equal_autograd(model: str, layers: tuple[int, ...]) -> None:
    check_gradients(model, "mlp", 0.0, layers)


def check_gradients(model: str, head: str, dropout: float, layers: tuple[int, ...]) -> None:
    network, shape, weights, gradients = network_of(model, head, dropout, layers)
    samples = batch()
    for seed in (1, 2):
        gradients.fill(0)
        nodes = np.unique(np.concatenate([samples.users, samples.items])).astype(np.int64)
        network.encoder.forward(nodes, np.random.SFC64(seed))
        network.head.add_gradients(network.encoder, samples, 0.5)
        network.encoder.backward(nodes)
        leaf, views = doubles(shape, weights)
        outputs = dense_outputs(shape, views, dropped(shape, dropout, seed, nodes) if model == "ngcf" else None)
        users, items = torch.from_numpy(samples.users).long(), torch.from_numpy(samples.items).long()
        logits = dense_logits(shape, views, outputs, users, items) + torch.from_numpy(samples.offsets)
        labels = torch.from_numpy(samples.labels).double()
        torch.nn.functional.binary_cross_entropy(torch.sigmoid(logits), labels, reduction="sum").mul(
            0.5
        ).backward()
        expected = leaf.grad.numpy()
        assert np.abs(expected).max() > 0.05
        np.testing.assert_allclose(gradients, expected, rtol=2e-4, atol=2e-6)


def dropped(shape: Shape, share: float, seed: int, nodes: np.ndarray) -> list[np.ndarray]:
    """What each layer's messages are multiplied with; in the last layer only for the nodes that are asked for."""
    bits, factors = np.random.SFC64(seed), []
    for layer in range(shape.num_graph_layers):
        rows = nodes if layer == shape.num_graph_layers - 1 else np.arange(shape.num_nodes)
        size = len(rows) * NUM_FACTORS
        drawn = bits.random_raw(-(-size // 4)).view(np.uint16)[:size].reshape(-1, NUM_FACTORS)
        factor = np.ones((shape.num_nodes, NUM_FACTORS))
        factor[rows] = np.where(drawn < round(share * 2**16), 0, 1 / (1 - share))
        factors.append(factor)
    return factors


def test_dropout_takes_its_share_and_keeps_the_mean() -> None:
    """3 layers of 1000 nodes and 6 factors at share 0.1: binomial |z| < 5, fixed seed, false-alarm rate 6e-7."""
    chosen = settings("ngcf", "product")
    shape = chosen.shape((400, 600))
    weights = initial(chosen, 400, 600, Draws(0)).parameters
    users, items = np.arange(400, dtype=np.int32), np.arange(400, dtype=np.int32)
    edges = normalised_graph(users, items, np.ones(400, np.float32), (400, 600))
    network = build_network(shape, weights, np.zeros_like(weights), edges, 0.1)
    network.encoder.forward(np.arange(1000), np.random.SFC64(0))
    messages = np.array([layer.messages for layer in network.encoder._layers])
    num_zero, size = int((messages == 0).sum()), messages.size
    assert abs(num_zero - 0.1 * size) < 5 * np.sqrt(0.09 * size)


@pytest.mark.parametrize("layers", [(5,), (6, 3), (12, 9, 7)])
@pytest.mark.parametrize(("model", "head"), CASES)
def test_logits_of_all_pairs_equal_the_dense_formulas(model: str, head: str, layers: tuple[int, ...]) -> None:
    network, shape, weights, _ = network_of(model, head, layers=layers)
    network.encoder.forward(np.arange(NUM_USERS + NUM_ITEMS), None)
    outputs = np.concatenate(list(network.encoder.outputs), axis=1)
    ours = network.head.logits(outputs[:NUM_USERS], outputs[NUM_USERS:])
    views = doubles(shape, weights)[1]
    users = torch.arange(NUM_USERS).repeat_interleave(NUM_ITEMS)
    items = NUM_USERS + torch.arange(NUM_ITEMS).repeat(NUM_USERS)
    expected = dense_logits(shape, views, dense_outputs(shape, views), users, items)
    np.testing.assert_allclose(ours.ravel(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_helpers", [1, 3])
@pytest.mark.parametrize(
    ("model", "num_factors"), [("lightgcn", 32), ("lightgcn", 24), ("ngcf", 32), ("ngcf", 17)]
)
def test_threads_that_share_a_batch_change_no_bit(
    model: str, num_factors: int, num_helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, sizes = np.random.default_rng(2), (150, 220)
    users, items = (draws.integers(0, size, 3000).astype(np.int32) for size in sizes)
    samples = Pairs(users, items, draws.uniform(0, 1, 3000).astype(np.float32))
    chosen = settings(model, "product", num_factors=num_factors, batch_size=700)
    alone = train(initial(chosen, *sizes, Draws(3)), chosen, sizes, samples, samples, 1, Draws(3))
    monkeypatch.setattr(sharing, "_MIN_WORK", 0)
    with ThreadPoolExecutor(num_helpers) as pool, sharing.lending(pool, num_helpers):
        shared = train(initial(chosen, *sizes, Draws(3)), chosen, sizes, samples, samples, 1, Draws(3))
    np.testing.assert_array_equal(alone.parameters, shared.parameters)
    assert not np.array_equal(alone.parameters, initial(chosen, *sizes, Draws(3)).parameters)
