# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Predictions of NeuCF: of pairs, of all items, and as inner products of what each side computes alone.

With the quadratic activation act(x) = A x^2 + B x + C, with h = W_u u_h and q = W_v v_h + c:
o_h . act(h + q) = o_h . (A h^2 + B h) + (2 A o_h q) . h + o_h . (A q^2 + B q + C).

Symbols: as in `hushrec.models.neucf`; W_u, W_v = the columns of W for users and items.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.evaluation.formula import Clipped, Formula
from hushrec.kernels.rows import dot, load, multiply, store, width_of
from hushrec.models.neucf import (
    OFFSET,
    SLOPE,
    SQUARE,
    Activation,
    Layers,
    Vectors,
    activate,
    by_inputs,
    dense,
    views,
)
from hushrec.models.newcomers import FrozenNetwork, Wishes, newcomer_vector, usual_of
from hushrec.protocol import Numbers

_BLOCK_ITEMS = 512  # what stays in the second cache


@numba.njit(nogil=True, cache=True)
def _predict(width, user_vectors, item_vectors, layers, users, items, is_quadratic, out):
    num_factors, weight = len(width), by_inputs(width, layers)
    bias = load(layers, 2 * num_factors, width)
    product_output = load(layers, 2 * num_factors + 1, width)
    hidden_output = load(layers, 2 * num_factors + 2, width)
    hidden, slopes = np.empty(num_factors, np.float32), np.empty(num_factors, np.float32)
    for row in range(users.size):
        user, item = np.int64(users[row]), np.int64(items[row])
        inner = dense(width, item_vectors, item, weight, num_factors) + bias
        store(hidden, 0, dense(width, user_vectors, user, weight, 0) + inner)
        activate(hidden, slopes, is_quadratic)
        product = multiply(load(user_vectors, 2 * user, width), load(item_vectors, 2 * item, width))
        out[row] = dot(product_output, product) + dot(hidden_output, load(hidden, 0, width))


def predict(
    user_vectors: Vectors,
    item_vectors: Vectors,
    layers: Layers,
    users: Numbers,
    items: Numbers,
    activation: Activation,
) -> NDArray[np.float32]:
    """Predictions of pairs."""
    out = np.empty(len(users), np.float32)
    width = width_of(user_vectors.shape[1] // 2)
    _predict(width, user_vectors, item_vectors, layers, users, items, activation == "quadratic", out)
    return out


@numba.njit(nogil=True, cache=True)
def _score(products, weighted, hidden, inner, output, is_quadratic, out):
    """Items are columns of `products` (v_g) and `inner` (their part of W [u; v] + c), a row per factor."""
    zero, num_factors = np.float32(0.0), len(output)
    for first in range(0, out.shape[1], _BLOCK_ITEMS):
        last = min(first + _BLOCK_ITEMS, out.shape[1])
        for row in range(len(out)):
            scores = out[row, first:last]
            scores[:] = zero
            for factor in range(num_factors):
                ours, share, weight = hidden[row, factor], weighted[row, factor], output[factor]
                product, theirs = products[factor, first:last], inner[factor, first:last]
                if is_quadratic:
                    for place in range(scores.size):
                        number = ours + theirs[place]
                        act = (SQUARE * number + SLOPE) * number + OFFSET
                        scores[place] += share * product[place] + weight * act
                else:
                    for place in range(scores.size):
                        number = ours + theirs[place]
                        act = max(number, zero)
                        scores[place] += share * product[place] + weight * act


def score(
    user_vectors: Vectors, item_vectors: Vectors, layers: Layers, activation: Activation
) -> NDArray[np.float32]:
    """Predictions of all items, a row per user."""
    num_factors = user_vectors.shape[1] // 2
    parts = views(layers, num_factors)
    products = np.ascontiguousarray(item_vectors[:, :num_factors].T)
    inner = parts.item_weight @ item_vectors[:, num_factors:].T + parts.bias[:, None]
    weighted = user_vectors[:, :num_factors] * parts.product_output
    hidden = user_vectors[:, num_factors:] @ parts.user_weight.T
    out = np.empty((len(user_vectors), len(item_vectors)), np.float32)
    _score(products, weighted, hidden, inner, parts.hidden_output, activation == "quadratic", out)
    return out


def user_products(user_vectors: Vectors, layers: Layers) -> NDArray[np.float32]:
    """A user's side: (users, 2 * num_factors + 1). Times an item's side, plus its offset, it is the prediction."""
    num_factors = user_vectors.shape[1] // 2
    parts = views(layers, num_factors)
    hidden = user_vectors[:, num_factors:] @ parts.user_weight.T
    own = ((SQUARE * hidden + SLOPE) * hidden) @ parts.hidden_output
    return np.concatenate([user_vectors[:, :num_factors], hidden, own[:, None]], axis=1)


def item_products(item_vectors: Vectors, layers: Layers) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """An item's side: (items, 2 * num_factors + 1), and an offset per item."""
    num_factors = item_vectors.shape[1] // 2
    parts = views(layers, num_factors)
    inner = item_vectors[:, num_factors:] @ parts.item_weight.T + parts.bias
    offsets = ((SQUARE * inner + SLOPE) * inner + OFFSET) @ parts.hidden_output
    products = item_vectors[:, :num_factors] * parts.product_output
    crossed = 2 * SQUARE * parts.hidden_output * inner
    return np.concatenate([products, crossed, np.ones((len(inner), 1), np.float32)], axis=1), offsets


def newcomer_of(
    user_vectors: Vectors,
    rated: Vectors,
    layers: Layers,
    ratings: NDArray[np.float32],
    activation: Activation,
    rating_range: tuple[float, float] | None,
) -> Vectors:
    """The vector of a newcomer who gave these ratings to items with the vectors `rated`: (1, 2 * num_factors).

    It is one of the usual users' vectors, as far as the ratings do not speak against it. They are taken to be
    true to a quarter of their range.
    """
    num_factors = user_vectors.shape[1] // 2
    parts, known = views(layers, num_factors), rated.astype(np.float64)
    output = parts.hidden_output.astype(np.float64)[:, None], np.zeros(1)
    network = FrozenNetwork(
        known[:, :num_factors] * parts.product_output,
        known[:, num_factors:] @ parts.item_weight.T + parts.bias,
        parts.user_weight.T.astype(np.float64),
        [output],
        (float(SQUARE), float(SLOPE), float(OFFSET)) if activation == "quadratic" else None,
    )
    low, high = rating_range or (0.0, 4.0)
    weights = np.full(len(ratings), (4 / (high - low)) ** 2 if high > low else 1.0)
    wishes = Wishes(ratings.astype(np.float64), weights)
    return newcomer_vector(network, wishes, usual_of(user_vectors), "square").astype(np.float32)[None]


@dataclass(frozen=True)
class NeuCFModel:
    """Vectors and layers, ready to predict and to rank."""

    user_vectors: Vectors
    item_vectors: Vectors
    layers: Layers
    activation: Activation
    rating_range: tuple[float, float] | None

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Predictions of pairs, clipped to the range of ratings."""
        out = predict(self.user_vectors, self.item_vectors, self.layers, users, items, self.activation)
        return out if self.rating_range is None else np.clip(out, *self.rating_range)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Predictions of all items, not clipped, so that ties are rare."""
        return score(self.user_vectors[users], self.item_vectors, self.layers, self.activation)

    def vectors_of_items(self) -> NDArray[np.float32]:
        """Both parts of each item's vector, of products and of dense layers."""
        return self.item_vectors

    def formula(self) -> Formula:
        """Weighed products, and a dense layer."""
        num_factors = self.item_vectors.shape[1] // 2
        parts = views(self.layers, num_factors)
        first = np.concatenate([parts.user_weight.T, parts.item_weight.T]), parts.bias
        last = parts.hidden_output[:, None], np.zeros(1, np.float32)
        bend = (float(SQUARE), float(SLOPE), float(OFFSET)) if self.activation == "quadratic" else None
        clipped = () if self.rating_range is None else (Clipped(*self.rating_range),)
        return Formula(
            self.user_vectors, self.item_vectors, num_factors, product_weights=parts.product_output,
            layers=(first, last), bend=bend, predicted=clipped,
        )  # fmt: skip

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer: the vector of least loss, with all else as it is."""
        rated, limits = self.item_vectors[items], self.rating_range
        vector = newcomer_of(self.user_vectors, rated, self.layers, ratings, self.activation, limits)
        scores: NDArray[np.float32] = score(vector, self.item_vectors, self.layers, self.activation)[0]
        return scores
