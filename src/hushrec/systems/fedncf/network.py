# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Neural collaborative filtering that clients train in turn: the maths of FedNCF.

score = b + g . (u_g * v_g) + h . relu(... relu(W1 [u_h; v_h] + b1) ...), where u = [u_g, u_h] and v = [v_g, v_h].
GMF has the product branch only, MLP the dense one, NeuMF both.

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering (WWW 2017). A client is computed alone, so its
numbers do not depend on its cohort nor on threads.

With biases, v_g ends with the item's own bias; there u_g and g end with a 1 that is not trained.

Symbols: u, v = a row of `user_factors` and of `item_factors`. `layers` is one flat array: g; for each dense layer
its matrix (inputs x outputs; of the first layer the user's half, then the item's) and its biases; h; b.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, Key, shuffle, uniform_rows
from hushrec.errors import HushrecError
from hushrec.evaluation.formula import Formula, Sigmoid
from hushrec.kernels.adam import adam
from hushrec.kernels.sigmoids import sigmoids
from hushrec.models.client_mlp import (
    BLOCK,
    backward,
    backward_user,
    forward,
    gather,
    mlp_room,
    scatter,
    user_half,
)
from hushrec.models.client_products import sigmoid
from hushrec.privacy.filling import Listing, num_virtual_items
from hushrec.protocol import Numbers, kept
from hushrec.systems.fedncf.newcomers import newcomer_factors

Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Variant = Literal["gmf", "mlp", "neumf"]


@dataclass(frozen=True)
class Shape:
    """Which branches a network has, and how large they are."""

    variant: Variant
    num_factors: int  # of the product branch
    dense: tuple[int, ...]  # what goes into the first layer, half of it the user's; then the outputs of each layer
    has_biases: bool = False  # of items

    @property
    def num_products(self) -> int:
        """Length of u_g and v_g."""
        return (0 if self.variant == "mlp" else self.num_factors) + self.has_biases

    @property
    def has_dense(self) -> bool:
        """Whether there is a dense branch."""
        return self.variant != "gmf"

    @property
    def for_kernels(self) -> tuple[int, bool, Places, int]:
        """Length of u_g and v_g; whether there is a dense branch, length of u_h and v_h and outputs of layers; how
        much of u_g and g is trained.
        """
        sizes = np.array([self.dense[0] // 2, *self.dense[1:]], np.int64)
        return self.num_products, self.has_dense, sizes, self.num_products - self.has_biases

    @property
    def num_columns(self) -> int:
        """Length of u and v."""
        return self.num_products + (self.dense[0] // 2 if self.has_dense else 0)

    def parts(self) -> list[tuple[int, float]]:
        """Size of each part of `layers`, and the bound of its first values after Glorot and Bengio ("Xavier")."""
        num_last = self.num_products + (self.dense[-1] if self.has_dense else 0)
        output = (6 / (num_last + 1)) ** 0.5
        parts = [(self.num_products, output)]
        if self.has_dense:
            for inputs, outputs in pairwise(self.dense):
                parts += [(inputs * outputs, (6 / (inputs + outputs)) ** 0.5), (outputs, 0.0)]
            parts += [(self.dense[-1], output)]
        return [*parts, (1, 0.0)]

    @property
    def num_weights(self) -> int:
        """Length of `layers`."""
        return sum(size for size, _ in self.parts())


class Training(NamedTuple):
    """What a client trains in a round, and how."""

    shape: Shape
    epochs: int  # 0: nothing is learned, and what has a client as its own is counted
    batch_size: int
    learning_rate: float


@dataclass
class NcfClients:
    """Private state of clients: their positives and vectors, and what they were sent at the end of a run."""

    starts: Places
    items: Numbers  # ascending within a client
    num_items: int  # of the whole catalogue
    user_factors: Floats = kept(result=True)
    previous_user_factors: Floats = kept()  # before the last training, for a request that comes again
    trained_round: Numbers = kept()  # of that training
    layer_steps: Floats = kept()  # of that training, until they are asked for
    item_factors: Floats = kept()  # as sent at the end of a run; zero before
    layers: Floats = kept()  # as sent with them

    def num_samples(self, num_negatives: int) -> Places:
        """Positives and negatives of each client in a round."""
        num_positives = np.diff(self.starts)
        return num_positives + num_virtual_items(num_positives, num_negatives, self.num_items)

    def begin(self, rows: Places, round_number: int) -> None:
        """Keep the vectors of before this round, or go back to them if a request has come again."""
        is_again = self.trained_round[rows] == round_number
        again, anew = rows[is_again], rows[~is_again]
        self.user_factors[again] = self.previous_user_factors[again]
        self.previous_user_factors[anew] = self.user_factors[anew]
        self.trained_round[anew] = round_number

    def check_fit(self, item_factors: Floats, layers: Floats) -> None:
        """Refuse a model of another catalogue or of other sizes: kernels do not look."""
        if item_factors.shape != self.item_factors.shape or layers.shape != self.layers.shape:
            raise HushrecError(
                f"a model of shape {item_factors.shape} and {layers.size} weights came, clients expect "
                f"{self.item_factors.shape} and {self.layers.size}; use the server's settings"
            )


# --- Start -------------------------------------------------------------------------------------------------


def initial_layers(shape: Shape, draws: Draws) -> Floats:
    """Uniform matrices, no biases."""
    unit = uniform_rows(draws.key("layers"), np.zeros(1, np.int32), shape.num_weights, -1.0, 1.0)[0]
    sizes, bounds = zip(*shape.parts(), strict=True)
    layers: Floats = unit * np.repeat(np.array(bounds, np.float32), sizes)
    if shape.has_biases:
        layers[shape.num_products - 1] = 1
    return layers


def initial_factors(
    purpose: Literal["user-factors", "item-factors"], numbers: Numbers, num_rows: int, shape: Shape, draws: Draws
) -> Floats:
    """The rows `numbers` of a table of `num_rows` vectors, uniform after Glorot and Bengio; biases are zero."""
    bound = (6 / (num_rows + shape.num_columns)) ** 0.5
    rows: Floats = uniform_rows(draws.key(purpose), numbers, shape.num_columns, -bound, bound)
    if shape.has_biases:
        rows[:, shape.num_products - 1] = purpose == "user-factors"
    return rows


# --- Training ----------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _add_products(own, size, rows, slots, logits):
    """Add g . (u_g * v_g) of each sample."""
    for sample in range(slots.size):
        first, total = slots[sample] * size, logits[sample]
        for factor in range(size):
            total += own[size + factor] * own[factor] * rows[first + factor]
        logits[sample] = total


@numba.njit(nogil=True, cache=True)
def _backward_products(own, size, num_trained, rows, slots, errors, gradients, row_gradients):
    """From the errors to v_g, and to u_g and g as far as they are trained."""
    for sample in range(slots.size):
        first, error = slots[sample] * size, errors[sample]
        for factor in range(size):
            user, output, item = own[factor], own[size + factor], rows[first + factor]
            if factor < num_trained:
                gradients[factor] += error * output * item
                gradients[size + factor] += error * user * item
            row_gradients[first + factor] += error * output * user


@numba.njit(nogil=True, cache=True)
def _logits(own, shape, tables, slots, room):
    """Scores of a block of items, into the last array of the room; where h and the last outputs begin."""
    num_products, has_dense, sizes, _ = shape
    vectors, inputs, outputs, base, logits = room[0], room[1], room[2], room[4], room[7]
    weights, begin = own[2 * num_products :], (0, 0)
    if has_dense:
        gather(tables[1], slots, 0, np.float32(1.0), vectors[2], inputs)
        begin = forward(weights, sizes, base, inputs, slots.size, outputs, logits)
    else:
        logits[: slots.size] = weights[0]
    _add_products(own, num_products, tables[0], slots, logits)
    return begin


@numba.njit(nogil=True, cache=True)
def _prepare(own, shape, room):
    """What all samples of a client share: the user's half of layer 1."""
    num_products, has_dense, sizes, _ = shape
    if has_dense:
        weights = own[2 * num_products :]
        room[0][0, :] = weights[: sizes[0]]
        user_half(weights, room[0][0], sizes, room[4])


@numba.njit(nogil=True, cache=True)
def ncf_gradients(own, shape, tables, batch, room, out):
    """Add the gradients of the mean binary cross-entropy of one batch.

    `own` is u_g, g, u_h and the rest of `layers`; `tables` are v_g and v_h of the client's items, flat.
    """
    num_products, has_dense, sizes, num_trained = shape
    slots, labels = batch
    gradients, product_gradients, dense_gradients = out
    vectors, inputs, outputs, deltas, base_gradient, turned, errors = (
        room[0], room[1], room[2], room[3], room[5], room[6], room[7],
    )  # fmt: skip
    weights, by_weights = own[2 * num_products :], gradients[2 * num_products :]
    _prepare(own, shape, room)
    base_gradient[:] = 0
    vectors[3, :] = 0
    share = np.float32(1.0) / np.float32(slots.size)
    for begin in range(0, slots.size, BLOCK):
        part = slots[begin : begin + BLOCK]
        place, start = _logits(own, shape, tables, part, room)
        for sample in range(part.size):
            errors[sample] = share * (sigmoid(errors[sample]) - labels[begin + sample])
        _backward_products(own, num_products, num_trained, tables[0], part, errors, gradients, product_gradients)
        if has_dense:
            rest = (deltas, base_gradient, turned)
            backward(weights, sizes, place, start, inputs, part.size, outputs, errors, rest, by_weights)
            scatter(part, 0, np.float32(1.0), inputs, vectors[3], dense_gradients)
        else:
            by_weights[0] += np.sum(errors[: part.size])
    if has_dense:
        backward_user(weights, sizes, 0, 0, vectors, base_gradient, by_weights)


@numba.njit(nogil=True, cache=True)
def _compose(user, layers, num_products, num_dense, own):
    """u_g, g, u_h and the rest of `layers` in one array."""
    own[:num_products] = user[:num_products]
    own[num_products : 2 * num_products] = layers[:num_products]
    own[2 * num_products : 2 * num_products + num_dense] = user[num_products:]
    own[2 * num_products + num_dense :] = layers[num_products:]


@numba.njit(nogil=True, cache=True)
def _take(factors, items, num_products, tables):
    """v_g and v_h of the items."""
    num_dense = factors.shape[1] - num_products
    for slot in range(items.size):
        for factor in range(num_products):
            tables[0][slot * num_products + factor] = factors[items[slot], factor]
        for factor in range(num_dense):
            tables[1][slot * num_dense + factor] = factors[items[slot], num_products + factor]


@numba.njit(nogil=True, cache=True)
def _give(factors, items, num_products, tables, out):
    """How far v_g and v_h of the items have come."""
    num_dense = factors.shape[1] - num_products
    for slot in range(items.size):
        for factor in range(num_products):
            value = tables[0][slot * num_products + factor]
            out[slot, factor] = value - factors[items[slot], factor]
        for factor in range(num_dense):
            value = tables[1][slot * num_dense + factor]
            out[slot, num_products + factor] = value - factors[items[slot], num_products + factor]


@numba.njit(nogil=True, cache=True)
def _step(values, size, num_steps, learning_rate):
    """One step of Adam with the first `size` values."""
    adam(values[0, :size], values[3], values[1], values[2], learning_rate, num_steps)


@numba.njit(nogil=True, cache=True)
def _train(users, item_factors, layers, listing, numbers, order_of, shape, pace, steps):
    item_steps, layer_steps = steps
    starts, items, rated_place = listing
    key, round_number = order_of
    epochs, batch_size, learning_rate = pace
    num_products, _, sizes, _ = shape
    num_columns = item_factors.shape[1]
    num_dense = num_columns - num_products
    words, most = np.empty(BLOCK_WORDS, np.uint32), 0
    for client in range(numbers.size):
        most = max(most, starts[client + 1] - starts[client])
    order, room = np.empty(most, np.int32), mlp_room(sizes)
    slots, labels = np.empty(batch_size, np.int32), np.empty(batch_size, np.float32)
    # In each: the values, Adam's means and squares, the gradients.
    own = np.zeros((4, num_columns + layers.size), np.float32)
    products = np.zeros((4, most * num_products), np.float32)
    dense = np.zeros((4, most * num_dense), np.float32)
    gradients, tables = (own[3], products[3], dense[3]), (products[0], dense[0])
    for client in range(numbers.size):
        first, count = starts[client], starts[client + 1] - starts[client]
        listed = items[first : first + count]
        _compose(users[client], layers, num_products, num_dense, own[0])
        _take(item_factors, listed, num_products, tables)
        own[1:], products[1:], dense[1:] = 0, 0, 0
        num_steps = 0
        for epoch in range(epochs):
            shuffle(key, numbers[client], round_number, epoch, words, order, count)
            for begin in range(0, count, batch_size):
                length = min(batch_size, count - begin)
                for place in range(length):
                    slots[place] = order[begin + place]
                    labels[place] = np.float32(rated_place[first + order[begin + place]] >= 0)
                batch = (slots[:length], labels[:length])
                ncf_gradients(own[0], shape, tables, batch, room, gradients)
                num_steps += 1
                _step(own, own.shape[1], num_steps, learning_rate)
                _step(products, count * num_products, num_steps, learning_rate)
                _step(dense, count * num_dense, num_steps, learning_rate)
        users[client, :num_products] = own[0, :num_products]
        users[client, num_products:] = own[0, 2 * num_products : 2 * num_products + num_dense]
        _give(item_factors, listed, num_products, tables, item_steps[first : first + count])
        layer_steps[client, :num_products] = own[0, num_products : 2 * num_products] - layers[:num_products]
        layer_steps[client, num_products:] = own[0, 2 * num_products + num_dense :] - layers[num_products:]


def train_clients(
    user_factors: Floats,
    item_factors: Floats,
    layers: Floats,
    listing: Listing,
    numbers: Numbers,
    round_number: int,
    training: Training,
    order_key: Key,
) -> tuple[Floats, Floats]:
    """Train clients on what they list: binary cross-entropy, Adam from its start, in a random order per epoch.

    `user_factors`, a row per client, change in place. Returned is how far the vectors of the listed items have
    come and, a row per client, the layers. With no epochs nothing has come, and a bias says 1 of what is its own.
    """
    shape, *pace = training
    item_steps = np.empty((len(listing.items), shape.num_columns), np.float32)
    layer_steps = np.empty((len(numbers), shape.num_weights), np.float32)
    given = tuple(listing), numbers, (order_key, round_number), shape.for_kernels, tuple(pace)
    _train(user_factors, item_factors, layers, *given, (item_steps, layer_steps))
    if not training.epochs:
        item_steps[:, shape.num_products - 1] = listing.rated_place >= 0
    return item_steps, layer_steps


# --- Scores ------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _score(users, item_factors, layers, starts, items, shape, out):
    """Scores of the items listed for each user."""
    num_products, _, sizes, _ = shape
    num_items, num_columns = item_factors.shape
    num_dense = num_columns - num_products
    room, own = mlp_room(sizes), np.empty(num_columns + layers.size, np.float32)
    tables = (
        np.empty(num_items * num_products, np.float32),
        np.empty(num_items * num_dense, np.float32),
    )
    _take(item_factors, np.arange(num_items), num_products, tables)
    for user in range(len(users)):
        _compose(users[user], layers, num_products, num_dense, own)
        _prepare(own, shape, room)
        for begin in range(starts[user], starts[user + 1], BLOCK):
            part = items[begin : min(begin + BLOCK, starts[user + 1])]
            _logits(own, shape, tables, part, room)
            out[begin : begin + part.size] = room[7][: part.size]


@dataclass(frozen=True)
class NcfModel:
    """The network and every user's vector, ready to predict and to rank: by logits, which do not end at 1."""

    user_factors: Floats
    item_factors: Floats
    layers: Floats
    shape: Shape

    def predict(self, users: Numbers, items: Numbers) -> Floats:
        """Probabilities of (user, item) pairs."""
        return self.probabilities(self.score_listed(users, np.arange(len(users) + 1), items))

    def probabilities(self, scores: Floats) -> Floats:
        """What people are shown instead of logits: in single precision the best ones of many are 1."""
        shown: Floats = sigmoids(scores)
        return shown

    def score(self, users: Numbers) -> Floats:
        """Logits of all items, a row per user."""
        num_items = len(self.item_factors)
        every = np.tile(np.arange(num_items, dtype=np.int32), len(users))
        return self.score_listed(users, np.arange(len(users) + 1) * num_items, every).reshape(
            len(users), num_items
        )

    def vectors_of_items(self) -> Floats:
        """Both parts of each item's vector, of products and of dense layers."""
        return self.item_factors

    def formula(self) -> Formula:
        """Weighed products, and dense layers, whichever branches there are."""
        sizes = [size for size, _ in self.shape.parts()]
        weights, *blocks, level = np.split(self.layers, np.cumsum(sizes)[:-1])
        dense: list[tuple[Floats, Floats]] = []
        for place, (inputs, outputs) in enumerate(pairwise(self.shape.dense) if self.shape.has_dense else ()):
            dense.append((blocks[2 * place].reshape(inputs, outputs), blocks[2 * place + 1]))
        layers = (*dense, (blocks[-1][:, None], level)) if dense else ()
        return Formula(
            self.user_factors, self.item_factors, self.shape.num_products,
            item_offsets=None if layers else np.full(len(self.item_factors), level[0], np.float32),
            product_weights=weights, layers=layers, predicted=(Sigmoid(),),
        )  # fmt: skip

    def fold_in(self, items: Numbers, _ratings: Floats) -> Floats:
        """Logits of all items for a newcomer, whose vector has the least loss with all else as it is."""
        shape = self.shape
        dense = shape.dense if shape.has_dense else ()
        own = newcomer_factors(items, self.item_factors, self.layers, shape.num_products, dense, shape.has_biases)
        scores: Floats = replace(self, user_factors=own).score(np.zeros(1, np.int32))[0]
        return scores

    def score_listed(self, users: Numbers, starts: Places, items: Numbers) -> Floats:
        """Logits of the items listed for each user, one list after the other."""
        out = np.empty(len(items), np.float32)
        user_factors, shape = self.user_factors[users], self.shape.for_kernels
        _score(user_factors, self.item_factors, self.layers, starts, items, shape, out)
        return out
