"""NeuMF, NGCF and LightGCN: from node vectors to scores of pairs, and the gradient of a batch's loss.

A network is an encoder, which makes each node's outputs from all nodes' vectors, and a head, which scores a pair
of nodes by their outputs. Both read weights and add to gradients in views of one flat array each.

Symbols: E = vectors (users first, then items), A = graph, W = weight, b = bias.
"""

from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.models.networks_graph import Graph, Nodes, Vectors, propagate, spread, sum_layers, sum_layers_back
from hushrec.models.networks_layers import (
    Drops,
    MessageLayer,
    add_outer,
    add_product_gradients,
    add_rows,
    affine,
    affine_of_sums,
    loss_slopes,
)

ModelName = Literal["neumf", "ngcf", "lightgcn"]
HeadName = Literal["mlp", "product"]
Views = dict[str, Vectors]  # of a flat array, by the block's name


class Shape(NamedTuple):
    """What decides which weights a network has."""

    model: ModelName
    head: HeadName
    num_users: int
    num_items: int
    num_factors: int
    layers: tuple[int, ...]
    num_graph_layers: int

    @property
    def num_nodes(self) -> int:
        """Users and items."""
        return self.num_users + self.num_items

    def blocks(self) -> dict[str, tuple[int, int]]:
        """Every block of weights, in the order of the flat array."""
        blocks = {"vectors": (self.num_nodes, self.num_factors)}
        if self.model == "ngcf":
            for layer in range(self.num_graph_layers):
                blocks[f"message-{layer}-weight"] = (2 * self.num_factors, self.num_factors)
                blocks[f"message-{layer}-bias"] = (2, self.num_factors)
        if self.head == "mlp":
            for layer, (num_inputs, num_outputs) in enumerate(pairwise((2 * self.num_factors, *self.layers, 1))):
                blocks[f"dense-{layer}-weight"] = (num_inputs, num_outputs)
                blocks[f"dense-{layer}-bias"] = (1, num_outputs)
        return blocks

    def views(self, flat: NDArray[np.float32]) -> Views:
        """The blocks of a flat array."""
        views, start = {}, 0
        for name, (num_rows, num_columns) in self.blocks().items():
            end = start + num_rows * num_columns
            views[name] = flat[start:end].reshape(num_rows, num_columns)
            start = end
        return views

    def num_weights(self) -> int:
        """Length of the flat array."""
        return sum(num_rows * num_columns for num_rows, num_columns in self.blocks().values())


class Batch(NamedTuple):
    """Samples as pairs of nodes."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]  # as nodes: after all users
    labels: NDArray[np.float32]
    offsets: NDArray[np.float32]  # of the logits, which are not trained


# --- Encoders ----------------------------------------------------------------------------------------------


class Encoder(Protocol):
    """Makes outputs from E. `outputs` and `gradients` by them have the shape (layers, nodes, factors)."""

    outputs: Vectors
    gradients: Vectors  # a head adds to them

    def forward(self, nodes: Nodes, dropout: np.random.SFC64 | None) -> None:
        """Fill the `outputs` of these nodes; with dropout while training."""
        ...

    def backward(self, nodes: Nodes) -> None:
        """From the `gradients` of these nodes, which are zero afterwards, to those by the weights."""
        ...


class Lookup:
    """NeuMF's: a node's output is its vector."""

    def __init__(self, weights: Views, gradients: Views) -> None:
        self.outputs, self.gradients = weights["vectors"][None], gradients["vectors"][None]

    def forward(self, nodes: Nodes, dropout: np.random.SFC64 | None) -> None:
        """Nothing to do: `outputs` are the vectors."""

    def backward(self, nodes: Nodes) -> None:
        """Nothing to do: `gradients` are those by the vectors."""


class LightPropagation:
    """LightGCN's: the mean of E, A E, A^2 E, ..., summed as E + A (E + A (E + A E))."""

    def __init__(self, weights: Views, gradients: Views, graph: Graph, num_layers: int) -> None:
        self._vectors, self._by_vectors = weights["vectors"], gradients["vectors"]
        self._graph, self._num_layers = graph, num_layers
        self._everyone = np.arange(len(self._vectors))
        self.outputs, self.gradients = (np.zeros((1, *self._vectors.shape), np.float32) for _ in range(2))
        self._sums = np.empty((2, *self._vectors.shape), np.float32)

    def forward(self, nodes: Nodes, dropout: np.random.SFC64 | None) -> None:
        """Sum from the inside; the outermost sum of these nodes only."""
        sum_layers(
            self._graph, self._vectors, self._everyone, nodes, self._num_layers, self._sums, self.outputs[0]
        )

    def backward(self, nodes: Nodes) -> None:
        """The same sum of the gradients, as A is symmetric; the innermost from these nodes only."""
        sum_layers_back(
            self._graph, self.gradients[0], self._everyone, nodes, self._num_layers, self._sums, self._by_vectors
        )


class MessagePassing:
    """NGCF's: E, then the messages of each layer with rows of length 1."""

    def __init__(
        self, weights: Views, gradients: Views, graph: Graph, num_layers: int, dropout_share: float
    ) -> None:
        self._weights, self._by_weights, self._graph = weights, gradients, graph
        self._dropout_share = dropout_share
        num_nodes, num_factors = weights["vectors"].shape
        self._layers = [MessageLayer(num_nodes, num_factors) for _ in range(num_layers)]
        self._everyone = np.arange(num_nodes)
        self.outputs, self.gradients = (
            np.zeros((num_layers + 1, num_nodes, num_factors), np.float32) for _ in range(2)
        )
        self._by_messages = np.empty((2, num_nodes, num_factors), np.float32)
        self._no_words = np.zeros(num_nodes * num_factors, np.uint16)

    def forward(self, nodes: Nodes, dropout: np.random.SFC64 | None) -> None:
        """Layer by layer, the last one for these nodes. What goes on is not stretched to length 1."""
        self.outputs[0] = self._weights["vectors"]
        for number, layer in enumerate(self._layers):
            own, asked = self._inputs(number), self._asked(number, nodes)
            weight, bias = self._weights[f"message-{number}-weight"], self._weights[f"message-{number}-bias"]
            drops = self._drops(len(asked) * own.shape[1], dropout)
            bias = bias.sum(axis=0, keepdims=True)
            layer.forward(self._graph, own, asked, weight, bias, drops, self.outputs[number + 1])

    def _inputs(self, number: int) -> Vectors:
        return self._layers[number - 1].messages if number else self.outputs[0]

    def _asked(self, number: int, nodes: Nodes) -> Nodes:
        return nodes if number == len(self._layers) - 1 else self._everyone

    def _drops(self, num_words: int, dropout: np.random.SFC64 | None) -> Drops:
        # DEVIATION: the authors' code drops messages while scoring too, by accident; here only while training.
        if dropout is None or self._dropout_share == 0:
            return self._no_words, 0.0
        return dropout.random_raw(-(-num_words // 4)).view(np.uint16), self._dropout_share

    def backward(self, nodes: Nodes) -> None:
        """From the last layer to the first."""
        by_messages, by_own = self._by_messages
        self._by_messages.fill(0)
        for number in reversed(range(len(self._layers))):
            layer, own, asked = self._layers[number], self._inputs(number), self._asked(number, nodes)
            names = f"message-{number}-weight", f"message-{number}-bias"
            by_weight, by_bias = (self._by_weights[name] for name in names)
            given, out = (by_messages, self.gradients[number + 1]), (by_own, by_weight, by_bias)
            layer.backward(own, asked, self._weights[names[0]], self.outputs[number + 1], given, out)
            if asked is nodes:
                spread(self._graph, layer.by_side, nodes, by_own)
            else:
                propagate(self._graph, layer.by_side, by_own, asked, by_own)
            by_messages, by_own = by_own, by_messages
        self._by_weights["vectors"] += by_messages
        add_rows(nodes, self.gradients[0][nodes], self._by_weights["vectors"])
        for by_outputs in self.gradients:
            by_outputs[nodes] = 0


# --- Heads -------------------------------------------------------------------------------------------------


class Head(Protocol):
    """Scores pairs of nodes by the outputs of an encoder."""

    def add_gradients(self, encoder: Encoder, batch: Batch, scale: float) -> None:
        """Add the gradient of scale times the batch's summed loss."""
        ...

    def logits(self, users: Vectors, items: Vectors) -> Vectors:
        """Logits of each user with each item, from their outputs: (users, items)."""
        ...

    def pair_logits(self, users: Vectors, items: Vectors) -> Vectors:
        """Logits of pairs, from the outputs of user and item, row by row."""
        ...

    def layers(self) -> tuple[tuple[Vectors, Vectors], ...]:
        """Matrix and biases of each dense layer; none: inner products are the logits."""
        ...


class ProductHead:
    """The inner product of outputs, summed over layers."""

    def add_gradients(self, encoder: Encoder, batch: Batch, scale: float) -> None:
        """Add the gradients of both outputs, in one pass over the batch."""
        add_product_gradients(encoder.outputs, *batch, scale, encoder.gradients)

    def logits(self, users: Vectors, items: Vectors) -> Vectors:
        """Inner products of each user with each item."""
        return users @ items.T

    def pair_logits(self, users: Vectors, items: Vectors) -> Vectors:
        """Inner products of pairs."""
        logits: Vectors = np.einsum("pf,pf->p", users, items)
        return logits

    def layers(self) -> tuple[tuple[Vectors, Vectors], ...]:
        """None."""
        return ()


class DenseHead:
    """Dense layers with relu over the user's and the item's output side by side."""

    _BLOCK_PAIRS = 1 << 13  # whose hidden layers stay in cache

    def __init__(self, weights: Views, gradients: Views, num_layers: int) -> None:
        def layers(views: Views) -> list[tuple[Vectors, Vectors]]:
            return [(views[f"dense-{layer}-weight"], views[f"dense-{layer}-bias"]) for layer in range(num_layers)]

        self._layers, self._by_layers = layers(weights), layers(gradients)

    def add_gradients(self, encoder: Encoder, batch: Batch, scale: float) -> None:
        """Forward and back through the layers."""
        outputs = encoder.outputs[0]
        inputs = self._inputs(outputs[batch.users], outputs[batch.items])
        slopes = affine(inputs[-1], *self._layers[-1])
        slopes[:, 0] += batch.offsets
        loss_slopes(slopes, batch.labels, np.float32(scale))
        for (weight, _), (by_weight, by_bias), given in zip(
            reversed(self._layers), reversed(self._by_layers), reversed(inputs), strict=True
        ):
            add_outer(given, slopes, by_weight)
            by_bias += slopes.sum(axis=0)
            slopes = affine(slopes, np.ascontiguousarray(weight.T), np.zeros((1, len(weight)), np.float32))
            if given is not inputs[0]:
                slopes *= given > 0
        num_factors = outputs.shape[1]
        add_rows(batch.users, np.ascontiguousarray(slopes[:, :num_factors]), encoder.gradients[0])
        add_rows(batch.items, np.ascontiguousarray(slopes[:, num_factors:]), encoder.gradients[0])

    def _inputs(self, users: Vectors, items: Vectors) -> list[Vectors]:
        """What goes into each layer, from the first to the last."""
        inputs = [np.concatenate([users, items], axis=1)]
        for weight, bias in self._layers[:-1]:
            hidden = affine(inputs[-1], weight, bias)
            inputs.append(np.maximum(hidden, 0, out=hidden))
        return inputs

    def layers(self) -> tuple[tuple[Vectors, Vectors], ...]:
        """All of them, the first one over both outputs."""
        return tuple((weight, bias[0]) for weight, bias in self._layers)

    def pair_logits(self, users: Vectors, items: Vectors) -> Vectors:
        """The last layer's output for pairs."""
        return affine(self._inputs(users, items)[-1], *self._layers[-1])[:, 0]

    def logits(self, users: Vectors, items: Vectors) -> Vectors:
        """Users in blocks. The first layer is a sum of a user's part and an item's, so each is computed once."""
        (weight, bias), *others = self._layers
        num_factors = users.shape[1]
        by_user = affine(users, weight[:num_factors], bias)
        by_item = affine(items, weight[num_factors:], np.zeros_like(bias))
        out = np.empty((len(users), len(items)), np.float32)
        block = max(1, self._BLOCK_PAIRS // max(len(items), 1))
        for first in range(0, len(users), block):
            hidden = affine_of_sums(by_user[first : first + block], by_item, *others[0])
            for weight, bias in others[1:]:
                hidden = affine(np.maximum(hidden, 0, out=hidden), weight, bias)
            out[first : first + block] = hidden.reshape(-1, len(items))
        return out


# --- Networks ----------------------------------------------------------------------------------------------


class Network(NamedTuple):
    """An encoder and a head over the same weights."""

    encoder: Encoder
    head: Head


def build_network(
    shape: Shape, weights: NDArray[np.float32], gradients: NDArray[np.float32], graph: Graph | None, dropout: float
) -> Network:
    """The network over flat weights, with buffers to train it; what trains it changes `gradients` in place."""
    views, by_views = shape.views(weights), shape.views(gradients)
    head: Head = DenseHead(views, by_views, len(shape.layers) + 1) if shape.head == "mlp" else ProductHead()
    if shape.model == "neumf" or graph is None or shape.num_graph_layers == 0:
        return Network(Lookup(views, by_views), head)
    if shape.model == "ngcf":
        return Network(MessagePassing(views, by_views, graph, shape.num_graph_layers, dropout), head)
    return Network(LightPropagation(views, by_views, graph, shape.num_graph_layers), head)
