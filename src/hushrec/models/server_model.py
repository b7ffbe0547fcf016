"""A server's model: NeuMF, NGCF or LightGCN, trained on scored pairs of users and items.

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering (WWW 2017); Wang, He, Wang, Feng, Chua: Neural
Graph Collaborative Filtering (SIGIR 2019); He, Deng, Wang, Li, Zhang, Wang: LightGCN (SIGIR 2020).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.formula import Formula, Sigmoid
from hushrec.kernels.adam import adam
from hushrec.kernels.sigmoids import sigmoids
from hushrec.models.network_newcomers import NetworkNewcomers
from hushrec.models.networks import Batch, Head, HeadName, ModelName, Shape, build_network
from hushrec.models.networks_graph import Graph, normalised_graph
from hushrec.protocol import Numbers

Sizes = tuple[int, int]  # number of users, number of items
Offsets = NDArray[np.float32]  # of each item's logit, which are not trained: where the model starts


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which network, and how it is trained."""

    model: ModelName
    num_factors: int = 32
    start_scale: float = 1.0  # of NeuMF's vectors before training: their standard deviation
    layers: tuple[int, ...] = (32, 16)  # dense layers behind the user's and the item's vector
    num_graph_layers: int = 3
    message_dropout: float = 0.1  # of NGCF
    head: HeadName = "mlp"  # how LightGCN scores a pair: the authors' code, or its paper
    epochs: int
    batch_size: int
    learning_rate: float
    loss: Literal["sum", "mean"]  # over a batch

    def shape(self, sizes: Sizes) -> Shape:
        """The network for so many users and items. NeuMF has dense layers, NGCF the inner product."""
        heads: dict[ModelName, HeadName] = {"neumf": "mlp", "ngcf": "product", "lightgcn": self.head}
        head = heads[self.model]
        return Shape(self.model, head, *sizes, self.num_factors, self.layers, self.num_graph_layers)


@dataclass(frozen=True)
class Learned:
    """The whole model and Adam's state, as flat arrays of the same length."""

    parameters: NDArray[np.float32]
    means: NDArray[np.float32]
    squares: NDArray[np.float32]
    num_steps: NDArray[np.int64]  # 0-d


@dataclass(frozen=True)
class Pairs:
    """Scored pairs: samples to train on, or the weighted edges of a graph."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.users)

    def check_fit(self, sizes: Sizes) -> None:
        """Refuse what is outside of the tables: kernels do not look."""
        if not len(self.users) == len(self.items) == len(self.labels):
            raise HushrecError("users, items and labels of pairs differ in number; give one of each per pair")
        for numbers, size, what in zip((self.users, self.items), sizes, ("user", "item"), strict=True):
            if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < size:
                raise HushrecError(f"a pair has a {what} outside of 0..{size - 1}; number them from 0")
        if not np.isfinite(self.labels).all():
            raise HushrecError("a pair has a score that is not a finite number; leave it out")


def initial(settings: ModelSettings, num_users: int, num_items: int, draws: Draws) -> Learned:
    """Before training. Vectors: NeuMF's N(0, s^2), LightGCN's N(0, .1^2), NGCF's uniform as by Glorot and Bengio.

    s is `start_scale`. Weights of NGCF's messages are drawn like its vectors, those of dense layers within
    1 / sqrt(inputs).
    """
    shape = settings.shape((num_users, num_items))
    parameters = np.zeros(shape.num_weights(), np.float32)
    views = shape.views(parameters)
    for part, rows in (("users", slice(0, num_users)), ("items", slice(num_users, None))):
        vectors, generator = views["vectors"][rows], draws.generator(f"server-model-{part}")
        if settings.model == "ngcf":
            _fill_uniform(vectors, np.sqrt(6 / sum(vectors.shape)), generator)
        else:
            generator.standard_normal(out=vectors, dtype=np.float32)
            vectors *= settings.start_scale if settings.model == "neumf" else 0.1
    for name, block in views.items():
        kind, generator = name.split("-"), draws.generator(f"server-model-{name}")
        if kind[0] == "message":
            num_inputs = settings.num_factors if kind[2] == "weight" else 1
            _fill_uniform(block, np.sqrt(6 / (num_inputs + settings.num_factors)), generator)
        elif kind[0] == "dense":
            num_inputs = len(views[f"dense-{kind[1]}-weight"])
            _fill_uniform(block, 1 / np.sqrt(num_inputs), generator)
    return Learned(parameters, np.zeros_like(parameters), np.zeros_like(parameters), np.array(0, np.int64))


def _fill_uniform(block: NDArray[np.float32], bound: float, generator: np.random.Generator) -> None:
    block[:] = generator.uniform(-bound, bound, block.shape)


def train(
    learned: Learned,
    settings: ModelSettings,
    sizes: Sizes,
    samples: Pairs,
    graph: Pairs | None,
    round_number: int,
    draws: Draws,
    offsets: Offsets | None = None,
) -> Learned:
    """The model after `epochs` over the samples: binary cross-entropy with soft labels, Adam.

    `graph` holds the edges that NGCF and LightGCN pass messages over; `offsets` are added to the logits.
    """
    samples.check_fit(sizes)
    offsets = np.zeros(sizes[1], np.float32) if offsets is None else offsets
    parameters, means, squares = learned.parameters.copy(), learned.means.copy(), learned.squares.copy()
    gradients = np.zeros_like(parameters)
    edges = _edges(settings, sizes, graph)
    network = build_network(settings.shape(sizes), parameters, gradients, edges, settings.message_dropout)
    dropout = np.random.SFC64(int(draws.generator("server-model-dropout", round_number).integers(2**63)))
    order_draws = draws.generator("server-model-order", round_number)
    num_steps = int(learned.num_steps)
    nodes, is_asked = samples.items + np.int32(sizes[0]), np.zeros(sum(sizes), np.bool_)
    for _ in range(settings.epochs):
        order = order_draws.permutation(len(samples))
        users, items, labels = samples.users[order], nodes[order], samples.labels[order]
        of_samples = offsets[samples.items[order]]
        for first in range(0, len(order), settings.batch_size):
            now = slice(first, first + settings.batch_size)
            batch = Batch(users[now], items[now], labels[now], of_samples[now])
            is_asked.fill(False)
            is_asked[batch.users] = is_asked[batch.items] = True
            asked = np.flatnonzero(is_asked)
            network.encoder.forward(asked, dropout)
            network.head.add_gradients(
                network.encoder, batch, 1 / len(batch.users) if settings.loss == "mean" else 1
            )
            network.encoder.backward(asked)
            num_steps += 1
            adam(parameters, gradients, means, squares, settings.learning_rate, num_steps)
    if not np.isfinite(parameters).all():
        raise HushrecError(
            f"round {round_number}: the server's model is not finite; "
            f"use a learning rate below {settings.learning_rate:g}"
        )
    return Learned(parameters, means, squares, np.array(num_steps, np.int64))


def _edges(settings: ModelSettings, sizes: Sizes, graph: Pairs | None) -> Graph | None:
    if settings.model == "neumf":
        return None
    if graph is None:
        raise HushrecError(f"{settings.model} passes messages over a graph; give its edges")
    graph.check_fit(sizes)
    return normalised_graph(graph.users, graph.items, graph.labels, sizes)


@dataclass(frozen=True)
class NetworkScorer:
    """A trained model, ready to score: sigmoids, in (0, 1). All nodes' outputs are computed once."""

    user_outputs: NDArray[np.float32]  # (users, layers * factors)
    item_outputs: NDArray[np.float32]
    head: Head
    newcomers: NetworkNewcomers
    offsets: Offsets

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs."""
        logits = self.head.pair_logits(self.user_outputs[users], self.item_outputs[items])
        logits += self.offsets[items]
        return sigmoids(logits, out=logits)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items, a row per user."""
        logits = self.head.logits(self.user_outputs[users], self.item_outputs)
        logits += self.offsets
        return sigmoids(logits, out=logits)

    def vectors_of_items(self) -> NDArray[np.float32]:
        """What the network makes of each item."""
        return self.item_outputs

    def formula(self) -> Formula:
        """What the graph makes of each node is in the vectors already; the head scores them."""
        layers, num_columns = self.head.layers(), self.item_outputs.shape[1]
        return Formula(
            self.user_outputs, self.item_outputs, 0 if layers else num_columns, item_offsets=self.offsets,
            layers=layers, ranked=(Sigmoid(),), predicted=(Sigmoid(),),
        )  # fmt: skip

    def fold_in(self, items: Numbers, _ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer with these items, whose vector has the least loss."""
        return sigmoids(self.head.logits(self.newcomers.outputs(items), self.item_outputs)[0] + self.offsets)


def scorer(
    learned: Learned,
    settings: ModelSettings,
    sizes: Sizes,
    graph: Pairs | None,
    num_negatives: int = 4,
    offsets: Offsets | None = None,
) -> NetworkScorer:
    """The model as it is, over the same graph that it was trained on.

    `num_negatives` says how much all other items count against one that a newcomer has.
    """
    shape, edges = settings.shape(sizes), _edges(settings, sizes, graph)
    network = build_network(shape, learned.parameters, np.zeros_like(learned.parameters), edges, 0.0)
    network.encoder.forward(np.arange(sum(sizes)), None)
    outputs = np.concatenate(list(network.encoder.outputs), axis=1)
    degrees = np.zeros(sizes[1])
    if graph is not None:
        degrees = np.maximum(np.bincount(graph.items, graph.labels, sizes[1]), 0)
    views, item_outputs = shape.views(learned.parameters), outputs[sizes[0] :]
    edges = edges if shape.num_graph_layers else None
    offsets = np.zeros(sizes[1], np.float32) if offsets is None else offsets
    newcomers = NetworkNewcomers(shape, views, item_outputs, edges, degrees, num_negatives, offsets)
    return NetworkScorer(outputs[: sizes[0]], item_outputs, network.head, newcomers, offsets)
