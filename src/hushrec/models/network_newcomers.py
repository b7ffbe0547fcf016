"""Newcomers of NeuMF, NGCF and LightGCN, with the network as it was trained.

A newcomer of NeuMF gets the vector of least loss (`hushrec.models.newcomers`). For NGCF and LightGCN it is one
more node of the graph, with the mean user's vector and edges to its items: its outputs come from what these items
send. That is computed once, without the newcomer; so nothing in the model changes.

Symbols: E, A, W, b = as in `hushrec.models.networks`; d_n = a node's weighted degree.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hushrec.models.networks import Shape, Views
from hushrec.models.networks_graph import Graph, Vectors
from hushrec.models.newcomers import FrozenNetwork, Reals, Usual, newcomer_vector, usual_of, wishes_of
from hushrec.protocol import Numbers

_LEAK, _SHORTEST = 0.2, 1e-12  # as in the layers of `hushrec.models.networks_layers`


@dataclass(frozen=True, eq=False)
class NetworkNewcomers:
    """What newcomers need of a trained network."""

    shape: Shape
    weights: Views
    graph: Graph | None
    item_degrees: Reals
    num_negatives: int  # per item of a newcomer, where a vector is sought

    def outputs(self, items: Numbers) -> Vectors:
        """A newcomer's outputs, as the network has them for users: (1, layers * factors)."""
        if self.graph is None:
            vector = self._sought(items)
        elif self.shape.model == "ngcf":
            vector = self._passed(items)
        else:
            vector = self._propagated(items)
        return vector.astype(np.float32)[None]

    # --- NeuMF ---

    @cached_property
    def _usual(self) -> Usual:
        return usual_of(self.weights["vectors"][: self.shape.num_users])

    @cached_property
    def _network(self) -> FrozenNetwork:
        num_factors, views = self.shape.num_factors, self.weights
        vectors = views["vectors"][self.shape.num_users :].astype(np.float64)
        if self.shape.head == "product":
            return FrozenNetwork(vectors, np.empty((0, 0)), np.empty((0, 0)), ())
        (first, bias), *others = (
            (views[f"dense-{layer}-weight"].astype(np.float64), views[f"dense-{layer}-bias"].astype(np.float64))
            for layer in range(len(self.shape.layers) + 1)
        )
        inner = vectors @ first[num_factors:] + bias
        return FrozenNetwork(np.empty((len(vectors), 0)), inner, first[:num_factors], others)

    def _sought(self, items: Numbers) -> Reals:
        wishes = wishes_of(items, self.shape.num_items, self.num_negatives)
        return newcomer_vector(self._network, wishes, self._usual, "logistic")

    # --- Graphs ---

    @cached_property
    def _adjacency(self) -> "sparse.csr_array":
        assert self.graph is not None
        starts, columns, weights = self.graph
        size = self.shape.num_nodes
        return sparse.csr_array((weights.astype(np.float64), columns, starts), shape=(size, size))

    @cached_property
    def _sent(self) -> list[Reals]:
        """What every item sends in each layer."""
        sent, vectors = [], self.weights["vectors"].astype(np.float64)
        for layer in range(self.shape.num_graph_layers):
            sent.append(vectors[self.shape.num_users :])
            sides = self._adjacency @ vectors
            vectors = self._messages(layer, vectors, sides) if self.shape.model == "ngcf" else sides
        return sent

    def _shares(self, items: Numbers) -> Reals:
        """The newcomer's row of A: 1 / sqrt(d_n d_i), with its own edge in both."""
        return 1 / np.sqrt(len(items) * (self.item_degrees[items] + 1))

    def _propagated(self, items: Numbers) -> Reals:
        """LightGCN: the mean over all layers."""
        shares = self._shares(items)
        layers = [self._usual.mean, *(shares @ sent[items] for sent in self._sent)]
        mean: Reals = np.mean(layers, axis=0)
        return mean

    def _passed(self, items: Numbers) -> Reals:
        """NGCF: the vector, and the messages of each layer with length 1."""
        shares, own = self._shares(items), self._usual.mean
        outputs = [own]
        for layer, sent in enumerate(self._sent):
            own = self._messages(layer, own, shares @ sent[items])
            outputs.append(own / max(float(np.linalg.norm(own)), _SHORTEST))
        return np.concatenate(outputs)

    def _messages(self, layer: int, own: Reals, sides: Reals) -> Reals:
        """Leaky relu of W_1 side + W_2 (own * side) + b."""
        weight, num_factors = self.weights[f"message-{layer}-weight"].astype(np.float64), self.shape.num_factors
        raw = sides @ weight[:num_factors] + (own * sides) @ weight[num_factors:]
        raw += self.weights[f"message-{layer}-bias"].astype(np.float64).sum(axis=0)
        messages: NDArray[np.float64] = np.where(raw > 0, raw, _LEAK * raw)
        return messages
