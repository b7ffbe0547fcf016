# mypy: allow-untyped-defs, allow-untyped-calls
"""Settings and initial values of clients' own models: every number is a keyed draw of its client.

Weights are one flat array per client. In order:
NeuMF and LightGCN: the user's vector; for each layer its matrix (inputs x outputs; of the first layer the user's
half, then the item's) and its biases; the output's weights and its bias.
NGCF: the user's vector; for each layer W1 (d x d), b1, W2 (d x d), b2.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, chacha_block, normal_pair
from hushrec.settings import check

ClientModel = Literal["neumf", "ngcf", "lightgcn"]


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """How a client's own model looks and how it is trained."""

    model: ClientModel
    num_factors: int
    layers: tuple[int, ...]  # of NeuMF and of LightGCN's head
    num_graph_layers: int  # of NGCF and LightGCN
    epochs: int
    batch_size: int
    learning_rate: float

    def __post_init__(self) -> None:
        check(self.num_factors >= 1, "num_factors must be at least 1")
        check(self.epochs >= 1 and self.batch_size >= 1, "epochs and batch_size must be at least 1")
        check(self.learning_rate > 0, "learning_rate must be above 0")
        if self.model != "ngcf":
            check(bool(self.layers) and min(self.layers) >= 1, "layers needs one size of at least 1 or more")
        if self.model != "neumf":
            check(self.num_graph_layers >= 1, "num_graph_layers must be at least 1")

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Length of an item's vector, then the outputs of each layer, for kernels."""
        if self.model == "ngcf":
            return np.full(self.num_graph_layers + 1, self.num_factors, np.int64)
        return np.array([self.num_factors, *self.layers], np.int64)

    @property
    def graph_layers(self) -> int:
        """Layers of the graph; NeuMF is LightGCN without any."""
        return 0 if self.model == "neumf" else self.num_graph_layers

    def item_bound(self, num_items: int) -> float:
        """Item vectors begin as N(0, bound^2) for a negative bound, else as U(-bound, bound)."""
        if self.model == "ngcf":
            return _xavier(num_items, self.num_factors)
        return -1.0 if self.model == "neumf" else -0.1

    def parts(self, num_items: int) -> list[tuple[int, float]]:
        """Size and bound of each part of the weights, in order."""
        size = self.num_factors
        if self.model == "ngcf":
            matrix, row = (size * size, _xavier(size, size)), (size, _xavier(1, size))
            return [row, *[matrix, row, matrix, row] * self.num_graph_layers]
        parts = [(size, self.item_bound(num_items))]
        for inputs, outputs in pairwise([2 * size, *self.layers, 1]):
            parts += [(inputs * outputs, inputs**-0.5), (outputs, inputs**-0.5)]
        return parts


def _xavier(num_rows: int, num_columns: int) -> float:
    return float((6 / (num_rows + num_columns)) ** 0.5)


@numba.njit(nogil=True, cache=True)
def _fill(words, first, size, bound, out, start):
    """Numbers from words: N(0, bound^2) for a negative bound, else U(-bound, bound). Returns the next word."""
    if bound < 0:
        for place in range(0, size, 2):
            one, other = normal_pair(words[first + place], words[first + place + 1])
            out[start + place] = -bound * one
            if place + 1 < size:
                out[start + place + 1] = -bound * other
    else:
        for place in range(size):
            # 23 bits and a half: strictly inside (0, 1), exact in float32.
            share = (np.float32(words[first + place] >> np.uint32(9)) + np.float32(0.5)) * np.float32(2.0**-23)
            out[start + place] = bound * (np.float32(2.0) * share - np.float32(1.0))
    return first + size + size % 2


@numba.njit(nogil=True, cache=True)
def _draw_words(key, party, round_number, words):
    for first in range(0, words.size, BLOCK_WORDS):
        chacha_block(key, party, round_number, first // BLOCK_WORDS, words[first:])


@numba.njit(nogil=True, cache=True)
def row_words(num_factors):
    """Room for the words of one item's vector."""
    return np.empty((num_factors + BLOCK_WORDS) // BLOCK_WORDS * BLOCK_WORDS, np.uint32)


@numba.njit(nogil=True, cache=True)
def initial_row(key, party, item, bound, words, out, start, num_factors):
    """The vector that a client's model begins with for an item, whenever it is needed."""
    _draw_words(key, party, item, words)
    _fill(words, 0, num_factors, bound, out, start)


@numba.njit(nogil=True, cache=True)
def _initial_weights(key, numbers, sizes, bounds, out):
    num_words = 0
    for part in range(sizes.size):
        num_words += sizes[part] + sizes[part] % 2
    words = np.empty((num_words + BLOCK_WORDS - 1) // BLOCK_WORDS * BLOCK_WORDS, np.uint32)
    for client in range(numbers.size):
        _draw_words(key, numbers[client], 0, words)
        word = start = 0
        for part in range(sizes.size):
            word = _fill(words, word, sizes[part], bounds[part], out[client], start)
            start += sizes[part]


def initial_weights(
    numbers: NDArray[np.int32], num_items: int, settings: LocalSettings, draws: Draws
) -> NDArray[np.float32]:
    """User vectors and layers of clients before any training, a row per client."""
    sizes, bounds = zip(*settings.parts(num_items), strict=True)
    out = np.empty((len(numbers), sum(sizes)), np.float32)
    key = draws.key("local-weights")
    _initial_weights(key, numbers, np.array(sizes, np.int64), np.array(bounds, np.float32), out)
    return out
