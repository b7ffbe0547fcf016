"""Newcomers of NeuMF, NGCF and LightGCN, with the network as it was trained.

A newcomer gets the vector of least loss (`hushrec.models.newcomers`). With NGCF and LightGCN it is one more node
of the graph, with edges to its items: its outputs come from its vector and from what these items send. That is
computed once, without the newcomer; so nothing in the model changes.

Symbols: E, A, W, b = as in `hushrec.models.networks`; d_n = a node's weighted degree; x = the newcomer's vector,
z = its outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from hushrec.models.networks import Shape, Views
from hushrec.models.networks_graph import Graph, Vectors, propagate
from hushrec.models.newcomers import FrozenNetwork, Reals, Slopes, Usual, newcomer_vector, usual_of, wishes_of
from hushrec.protocol import Numbers

_LEAK, _SHORTEST = 0.2, 1e-12  # as in the layers of `hushrec.models.networks_layers`


@dataclass(frozen=True, eq=False)
class NetworkNewcomers:
    """What newcomers need of a trained network."""

    shape: Shape
    weights: Views
    item_outputs: Vectors
    graph: Graph | None
    item_degrees: Reals
    num_negatives: int  # per item of a newcomer: how much all others count
    offsets: Vectors  # of each item's logit

    def outputs(self, items: Numbers) -> Vectors:
        """A newcomer's outputs, as the network has them for users: (1, layers * factors)."""
        wishes = wishes_of(items, self.shape.num_items, self.num_negatives)
        if self.graph is None:
            return newcomer_vector(self._network, wishes, self._usual, "logistic").astype(np.float32)[None]
        user_outputs = self._as_node(items)

        def logits(vector: Reals) -> tuple[Reals, Slopes]:
            outputs, by_vector = user_outputs(vector)
            said, slopes = self._network(outputs)
            return said, lambda: slopes() @ by_vector

        vector = newcomer_vector(logits, wishes, self._usual, "logistic")
        return user_outputs(vector)[0].astype(np.float32)[None]

    def _as_node(self, items: Numbers) -> Callable[[Reals], tuple[Reals, Reals]]:
        """From x to z, with its slopes."""
        shares = self._shares(items)
        sides = [shares @ sent[items] for sent in self._sent]
        return partial(self._passed if self.shape.model == "ngcf" else self._propagated, sides)

    @cached_property
    def _usual(self) -> Usual:
        return usual_of(self.weights["vectors"][: self.shape.num_users])

    @cached_property
    def _network(self) -> FrozenNetwork:
        num_factors, views, outputs = self.shape.num_factors, self.weights, self.item_outputs.astype(np.float64)
        if self.shape.head == "product":
            return FrozenNetwork(outputs, np.empty((0, 0)), np.empty((0, 0)), (), offsets=self.offsets)
        (first, bias), *others = (
            (views[f"dense-{layer}-weight"].astype(np.float64), views[f"dense-{layer}-bias"].astype(np.float64))
            for layer in range(len(self.shape.layers) + 1)
        )
        inner = outputs @ first[num_factors:] + bias
        nothing = np.empty((len(outputs), 0))
        return FrozenNetwork(nothing, inner, first[:num_factors], others, offsets=self.offsets)

    # --- Graphs ---

    @cached_property
    def _sent(self) -> list[Reals]:
        """What every item sends in each layer."""
        sent, vectors = [], self.weights["vectors"].astype(np.float64)
        for layer in range(self.shape.num_graph_layers):
            sent.append(vectors[self.shape.num_users :])
            sides = self._sides(vectors)
            vectors = self._messages(layer, vectors, sides)[0] if self.shape.model == "ngcf" else sides
        return sent

    def _sides(self, vectors: Reals) -> Reals:
        """What comes to every node, of these vectors: A times them."""
        assert self.graph is not None
        sides, everyone = np.zeros(vectors.shape, np.float32), np.arange(self.shape.num_nodes)
        propagate(self.graph, vectors.astype(np.float32), sides, everyone, sides)
        return sides.astype(np.float64)

    def _shares(self, items: Numbers) -> Reals:
        """The newcomer's row of A: 1 / sqrt(d_n d_i), with its own edge in both."""
        return 1 / np.sqrt(len(items) * (self.item_degrees[items] + 1))

    def _propagated(self, sides: list[Reals], vector: Reals) -> tuple[Reals, Reals]:
        """LightGCN: the mean over x and what came in each layer."""
        mean: Reals = np.mean([vector, *sides], axis=0)
        return mean, np.eye(len(vector)) / (len(sides) + 1)

    def _passed(self, sides: list[Reals], vector: Reals) -> tuple[Reals, Reals]:
        """NGCF: x, and the messages of each layer with length 1."""
        own, by_vector = vector, np.eye(len(vector))
        outputs, slopes = [own], [by_vector]
        for layer, side in enumerate(sides):
            own, kinks = self._messages(layer, own, side)
            weight = self.weights[f"message-{layer}-weight"][self.shape.num_factors :].astype(np.float64)
            by_vector = (weight.T * kinks[:, None] * side) @ by_vector
            length = max(float(np.linalg.norm(own)), _SHORTEST)
            unit = own / length
            outputs.append(unit)
            slopes.append((by_vector - np.outer(unit, unit @ by_vector)) / length)
        return np.concatenate(outputs), np.concatenate(slopes)

    def _messages(self, layer: int, own: Reals, sides: Reals) -> tuple[Reals, Reals]:
        """Leaky relu of W_1 side + W_2 (own * side) + b, and its slope at each number."""
        weight, num_factors = self.weights[f"message-{layer}-weight"].astype(np.float64), self.shape.num_factors
        raw = sides @ weight[:num_factors] + (own * sides) @ weight[num_factors:]
        raw += self.weights[f"message-{layer}-bias"].astype(np.float64).sum(axis=0)
        kinks = np.where(raw > 0, 1.0, _LEAK)
        return kinks * raw, kinks
