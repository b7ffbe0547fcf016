# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""NeuCF: a product branch and a dense branch side by side, for ratings; gradients by hand in compiled kernels.

prediction = o_g . (u_g * v_g) + o_h . act(W [u_h; v_h] + c), with u = [u_g, u_h] and v = [v_g, v_h].

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering (WWW 2017), with the sizes and the loss (squared
error, no sigmoid) that FedCORE's authors chose. Every sum has one fixed order, so no number depends on threads.

Symbols: u, v = a row of `user_vectors` and of `item_vectors`, 2 * num_factors long. `layers` is one flat array: W
(num_factors rows of 2 * num_factors: those of u_h first), c (num_factors), o_g, o_h (num_factors each). Seen as
rows of num_factors numbers, which is how kernels read it, W is rows 0.., its row j in two halves.
"""

from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, chacha_block, normal_pair
from hushrec.kernels.rows import dot, load, multiply, store, width_of, zeros
from hushrec.protocol import Numbers

Vectors = NDArray[np.float32]  # of users or items: (rows, 2 * num_factors)
Layers = NDArray[np.float32]  # flat
Activation = Literal["relu", "quadratic"]

# The quadratic act(x) = SQUARE x^2 + SLOPE x + OFFSET can be computed under encryption. Its coefficients were
# chosen on held-out training ratings of ML-100K: with larger ones, as in x^2/8 + x/2 + 1/4, training diverges.
SQUARE, SLOPE, OFFSET = np.float32(0.125), np.float32(0.125), np.float32(0.125)


def num_weights(num_factors: int) -> int:
    """How many numbers the flat array `layers` has."""
    return (2 * num_factors + 3) * num_factors


class LayerViews(NamedTuple):
    """The parts of `layers`, as views."""

    user_weight: NDArray[np.float32]  # W's columns of u_h: (num_factors, num_factors)
    item_weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    product_output: NDArray[np.float32]  # o_g
    hidden_output: NDArray[np.float32]  # o_h


def views(layers: Layers, num_factors: int) -> LayerViews:
    """The parts of the flat array `layers`, as views."""
    rows = layers.reshape(-1, num_factors)
    bias, product_output, hidden_output = rows[2 * num_factors :]
    return LayerViews(
        rows[0 : 2 * num_factors : 2], rows[1 : 2 * num_factors : 2], bias, product_output, hidden_output
    )


# --- Start -------------------------------------------------------------------------------------------------


def initial_layers(num_factors: int, generator: np.random.Generator) -> Layers:
    """Normal with the variance 2 / outputs of He et al. (ICCV 2015): 2 / num_factors in W, 2 in o; c is zero."""
    layers = generator.standard_normal(num_weights(num_factors), np.float32)
    parts = views(layers, num_factors)
    scale = np.float32(np.sqrt(2 / num_factors))
    for part in (parts.user_weight, parts.item_weight):
        part *= scale
    for part in (parts.product_output, parts.hidden_output):
        part *= np.float32(np.sqrt(2))
    parts.bias[:] = 0
    return layers


@numba.njit(nogil=True, cache=True)
def _normal_rows(key, parties, scale, out):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for row in range(parties.size):
        for column in range(0, out.shape[1], 2):
            place = column % BLOCK_WORDS
            if place == 0:
                chacha_block(key, parties[row], 0, column // BLOCK_WORDS, words)
            one, other = normal_pair(words[place], words[place + 1])
            out[row, column] = scale * one
            out[row, column + 1] = scale * other


def initial_vectors(purpose: str, numbers: Numbers, num_factors: int, num_rows: int, draws: Draws) -> Vectors:
    """The rows `numbers` of a table of `num_rows` vectors: normal with the variance 2 / num_rows.

    So does PyTorch's kaiming_normal_(mode="fan_out"), which takes the rows of a table for a layer's outputs. A row
    is the same whoever draws it with the same seed and the same `num_rows`.
    """
    out = np.empty((len(numbers), 2 * num_factors), np.float32)
    _normal_rows(draws.key(purpose), numbers, np.float32(np.sqrt(2 / num_rows)), out)
    return out


# --- Gradients ---------------------------------------------------------------------------------------------


class Gradients(NamedTuple):
    """Gradients of a batch's mean squared error; a row per rating, also where users or items repeat."""

    user_rows: Vectors
    item_rows: Vectors
    layers: Layers

    @classmethod
    def empty(cls, batch_size: int, num_factors: int) -> "Gradients":
        """Room for the gradients of a batch."""
        user_rows, item_rows = np.empty((2, batch_size, 2 * num_factors), np.float32)
        return cls(user_rows, item_rows, np.empty(num_weights(num_factors), np.float32))


@numba.njit(nogil=True, cache=True)
def by_inputs(width, layers):
    """W transposed: a row per input, u_h first."""
    num_factors = len(width)
    out = np.empty((2 * num_factors, num_factors), np.float32)
    for output in range(num_factors):
        for place in range(2 * num_factors):
            out[place, output] = layers[output * 2 * num_factors + place]
    return out


@numba.njit(nogil=True, cache=True, inline="always")
def dense(width, vectors, row, weight, first):
    """The dense half of a vector times rows first.. of W transposed."""
    even, odd = zeros(width), zeros(width)
    # Unsigned, so that no place counts from the end.
    at, half, one = np.uint64(row), np.uint64(len(width)), np.uint64(1)
    place = np.uint64(0)
    while place + one < half:
        even = even + vectors[at, half + place] * load(weight, first + np.int64(place), width)
        odd = odd + vectors[at, half + place + one] * load(weight, first + np.int64(place) + 1, width)
        place += one + one
    if place < half:
        even = even + vectors[at, half + place] * load(weight, first + np.int64(place), width)
    return even + odd


@numba.njit(nogil=True, cache=True, inline="always")
def activate(hidden, slopes, is_quadratic):
    """act(x) in place of x, and its derivative."""
    zero, one = np.float32(0.0), np.float32(1.0)
    if is_quadratic:
        for place in range(hidden.size):
            number = hidden[place]
            hidden[place] = (SQUARE * number + SLOPE) * number + OFFSET
            slopes[place] = (SQUARE + SQUARE) * number + SLOPE
    else:
        for place in range(hidden.size):
            number = hidden[place]
            hidden[place] = number if number > zero else zero
            slopes[place] = one if number > zero else zero


@numba.njit(nogil=True, cache=True)
def _fill_gradients(width, user_vectors, item_vectors, layers, users, items, ratings, is_quadratic, out):
    user_rows, item_rows, by_layers = out
    num_factors = len(width)
    weight = by_inputs(width, layers)
    by_layers[:] = np.float32(0.0)
    bias = load(layers, 2 * num_factors, width)
    product_output = load(layers, 2 * num_factors + 1, width)
    hidden_output = load(layers, 2 * num_factors + 2, width)
    by_bias, by_product, by_hidden = zeros(width), zeros(width), zeros(width)
    hidden, slopes = np.empty(num_factors, np.float32), np.empty(num_factors, np.float32)
    scale, loss = np.float32(2.0 / users.size), 0.0
    for row in range(users.size):
        user, item = np.int64(users[row]), np.int64(items[row])
        user_product, item_product = load(user_vectors, 2 * user, width), load(item_vectors, 2 * item, width)
        user_dense, item_dense = load(user_vectors, 2 * user + 1, width), load(item_vectors, 2 * item + 1, width)
        inner = dense(width, item_vectors, item, weight, num_factors) + bias
        store(hidden, 0, dense(width, user_vectors, user, weight, 0) + inner)
        activate(hidden, slopes, is_quadratic)
        activated, product = load(hidden, 0, width), multiply(user_product, item_product)
        error = dot(product_output, product) + dot(hidden_output, activated) - ratings[row]
        loss += np.float64(error) * np.float64(error)
        step = scale * error
        by_product = by_product + step * product
        by_hidden = by_hidden + step * activated
        store(user_rows, 2 * row, step * multiply(product_output, item_product))
        store(item_rows, 2 * row, step * multiply(product_output, user_product))
        by_inner = step * multiply(hidden_output, load(slopes, 0, width))
        by_bias = by_bias + by_inner
        store(slopes, 0, by_inner)
        by_user, by_item = zeros(width), zeros(width)
        for output in range(num_factors):
            one = slopes[output]
            by_user = by_user + one * load(layers, 2 * output, width)
            by_item = by_item + one * load(layers, 2 * output + 1, width)
            store(by_layers, 2 * output, load(by_layers, 2 * output, width) + one * user_dense)
            store(by_layers, 2 * output + 1, load(by_layers, 2 * output + 1, width) + one * item_dense)
        store(user_rows, 2 * row + 1, by_user)
        store(item_rows, 2 * row + 1, by_item)
    store(by_layers, 2 * num_factors, by_bias)
    store(by_layers, 2 * num_factors + 1, by_product)
    store(by_layers, 2 * num_factors + 2, by_hidden)
    return loss / users.size


def batch_gradients(
    user_vectors: Vectors,
    item_vectors: Vectors,
    layers: Layers,
    users: Numbers,
    items: Numbers,
    ratings: NDArray[np.float32],
    activation: Activation,
    out: Gradients,
) -> float:
    """Fill `out`, which has a row per rating, and return the mean squared error of the batch.

    Users and items must be rows of the tables: kernels do not look.
    """
    width, batch = width_of(user_vectors.shape[1] // 2), (users, items, ratings, activation == "quadratic")
    return float(_fill_gradients(width, user_vectors, item_vectors, layers, *batch, out))


# --- Training in one place ---------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True, inline="always")
def _descend(width, vectors, numbers, learning_rate, rows):
    for place in range(numbers.size):
        for half in range(2):
            number, row = 2 * np.int64(numbers[place]) + half, 2 * place + half
            store(vectors, number, load(vectors, number, width) - learning_rate * load(rows, row, width))


@numba.njit(nogil=True, cache=True)
def _train_epoch(width, tables, rated, order, batch_size, learning_rate, is_quadratic, out):
    user_vectors, item_vectors, layers = tables
    users, items = np.empty(batch_size, np.int32), np.empty(batch_size, np.int32)
    ratings = np.empty(batch_size, np.float32)
    for first in range(0, order.size - batch_size + 1, batch_size):
        for place in range(batch_size):
            chosen = order[first + place]
            users[place], items[place], ratings[place] = rated[0][chosen], rated[1][chosen], rated[2][chosen]
        _fill_gradients(width, user_vectors, item_vectors, layers, users, items, ratings, is_quadratic, out)
        _descend(width, user_vectors, users, learning_rate, out[0])
        _descend(width, item_vectors, items, learning_rate, out[1])
        for place in range(layers.size):
            layers[place] -= learning_rate * out[2][place]


def train_epoch(
    tables: tuple[Vectors, Vectors, Layers],
    rated: tuple[Numbers, Numbers, NDArray[np.float32]],
    order: NDArray[np.int64],
    batch_size: int,
    learning_rate: float,
    activation: Activation,
) -> None:
    """Steps of gradient descent in place, one per whole batch of users, items and ratings in this order."""
    num_factors = tables[0].shape[1] // 2
    settings = (batch_size, np.float32(learning_rate), activation == "quadratic")
    out = Gradients.empty(batch_size, num_factors)
    _train_epoch(width_of(num_factors), tables, rated, order, *settings, out)
