# mypy: allow-untyped-defs, allow-untyped-calls
"""MetaMF's two halves: the network that generates a recommender per user, and the gradient of such a recommender.

A generated recommender is one flat row of float32: item vectors (num_items, num_factors), then the weights
(num_factors, width) and biases (width) of a hidden layer with ReLU, then the weights (width) and the bias (1) of
its output; width = num_factors // 4. The generating network is one flat array too, so that Adam and checkpoints
need no structure; `tensor_shapes` is its layout. Gradients of most item vectors are zero: the server's largest
layer, which makes the item vectors, only looks at the others.

Symbols: E_u = item vectors of user u = left (num_items, item_memory) times right (item_memory, num_factors).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, Key, chacha_block
from hushrec.kernels.bits import bit_of
from hushrec.kernels.sigmoids import sigmoids
from hushrec.models.newcomers import Usual, newcomer_vector, usual_of, wishes_of
from hushrec.systems.metamf.newcomers import GeneratedLogits

Floats = NDArray[np.float32]

_NUM_NEGATIVES = 4  # so many of all other items count against one that a newcomer has
_SCORED_BYTES = 64 << 20  # of item vectors at a time, when all items are scored


class Sizes(NamedTuple):
    """All sizes of the generating network and of the recommenders that it makes."""

    num_users: int
    num_items: int
    num_factors: int
    item_memory: int
    memory: int
    hidden: int
    has_offsets: bool = False  # of the items' logits, at the end of both; they are not trained

    @property
    def width(self) -> int:
        """Hidden units of a generated recommender."""
        return max(self.num_factors // 4, 1)

    @property
    def num_vector_numbers(self) -> int:
        """How many numbers all item vectors of a user have."""
        return self.num_items * self.num_factors

    @property
    def num_trained(self) -> int:
        """How many numbers a generated recommender has, but for offsets."""
        return self.num_vector_numbers + (self.num_factors + 2) * self.width + 1

    @property
    def num_generated(self) -> int:
        """How many numbers a generated recommender has."""
        return self.num_trained + (self.num_items if self.has_offsets else 0)


# --- The generating network --------------------------------------------------------------------------------


def tensor_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The layout of the generating network's parameters, in order."""
    outputs = {
        "first": (sizes.num_factors + 1) * sizes.width,
        "second": sizes.width + 1,
        "right": sizes.item_memory * sizes.num_factors,
        "left": sizes.item_memory * sizes.num_items,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "users": (sizes.num_users, sizes.num_factors),
        "memory": (sizes.num_factors, sizes.memory),
    }
    for part in ("first", "second", "items"):
        shapes[f"{part}_hidden"] = (sizes.hidden, sizes.memory)
        shapes[f"{part}_hidden_bias"] = (sizes.hidden,)
    for name, size in outputs.items():
        shapes[name] = (size, sizes.hidden)
        shapes[f"{name}_bias"] = (size,)
    if sizes.has_offsets:
        shapes["offsets"] = (sizes.num_items,)
    return shapes


def parts_of(flat: Floats, sizes: Sizes) -> dict[str, Floats]:
    """Views of a flat array, by name."""
    parts, start = {}, 0
    for name, shape in tensor_shapes(sizes).items():
        parts[name] = flat[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    return parts


def initial_parameters(sizes: Sizes, draws: Draws) -> Floats:
    """Normal numbers: users' vectors with variance 1, weights as Glorot and Bengio; biases are zero."""
    flat = np.zeros(sum(prod(shape) for shape in tensor_shapes(sizes).values()), np.float32)
    for name, part in parts_of(flat, sizes).items():
        if part.ndim == 2:
            deviation = 1.0 if name == "users" else (2.0 / sum(part.shape)) ** 0.5
            numbers = draws.generator(f"metamf-{name}").standard_normal(part.shape, np.float32)
            np.multiply(numbers, np.float32(deviation), out=part)
    return flat


@dataclass(frozen=True)
class Generated:
    """Recommenders of some users, with what is needed to go back through the network."""

    sizes: Sizes
    users: NDArray[np.int32]
    parts: dict[str, Floats]  # of the network
    shared: Floats  # (users, memory): what all parts start from
    hidden: dict[str, Floats]  # by part, (users, hidden)
    layers: Floats  # (users, numbers of the two layers)
    right: Floats  # (users, item_memory, num_factors)
    left: Floats  # (users, num_items, item_memory)

    def recommenders(self) -> Floats:
        """One flat row per user."""
        sizes = self.sizes
        rows = np.empty((len(self.left), sizes.num_generated), np.float32)
        vectors = rows[:, : sizes.num_vector_numbers].reshape(-1, sizes.num_items, sizes.num_factors)
        np.matmul(self.left, self.right, out=vectors)
        rows[:, sizes.num_vector_numbers : sizes.num_trained] = self.layers
        if sizes.has_offsets:
            rows[:, sizes.num_trained :] = self.parts["offsets"]
        return rows

    def scores(self) -> Floats:
        """Probabilities of all items, a row per user; item vectors themselves are not made."""
        first, bias, second, last = _split_layers(self.layers, self.sizes)
        hidden = self.left @ (self.right @ first)
        hidden += bias[:, None, :]
        np.maximum(hidden, 0, out=hidden)
        logits: Floats = (hidden @ second[:, :, None])[:, :, 0] + last
        if self.sizes.has_offsets:
            logits += self.parts["offsets"]
        return sigmoids(logits, out=logits)

    def gradient(self, uploads: "Uploads", out: Floats) -> None:
        """Of the network's parameters, flat, from the gradients of the generated recommenders."""
        out[:] = 0
        gradients, hidden = parts_of(out, self.sizes), self.hidden["items"]
        of_right, by_left = np.zeros_like(self.right), np.zeros_like(hidden)
        # By client within an item, so that sums do not depend on whose upload came first.
        order = np.lexsort((uploads.places, uploads.items))
        _left_gradients(
            (uploads.places[order], uploads.items[order], uploads.vectors[order]),
            (self.left, self.right, hidden, self.parts["left"]),
            (of_right, by_left, gradients["left"], gradients["left_bias"]),
        )
        first, second = np.split(uploads.layers, [len(self.parts["first"])], axis=1)
        of_hidden = {
            "first": self._back("first", self.hidden["first"], first, gradients),
            "second": self._back("second", self.hidden["second"], second, gradients),
            "items": self._back("right", hidden, of_right.reshape(len(hidden), -1), gradients) + by_left,
        }
        of_shared = np.zeros_like(self.shared)
        for part, slopes in of_hidden.items():
            slopes *= self.hidden[part] > 0
            of_shared += self._back(f"{part}_hidden", self.shared, slopes, gradients)
        np.matmul(self.parts["users"][self.users].T, of_shared, out=gradients["memory"])
        gradients["users"][self.users] = of_shared @ self.parts["memory"].T

    def _back(self, name: str, inputs: Floats, slopes: Floats, gradients: dict[str, Floats]) -> Floats:
        """Back through inputs weights^T + bias: the slopes by the inputs; weights and bias get their gradients."""
        np.matmul(slopes.T, inputs, out=gradients[name])
        np.sum(slopes, axis=0, out=gradients[f"{name}_bias"])
        return slopes @ self.parts[name]


def _split_layers(layers: Floats, sizes: Sizes) -> tuple[Floats, Floats, Floats, Floats]:
    first_size = sizes.num_factors * sizes.width
    first = layers[:, :first_size].reshape(-1, sizes.num_factors, sizes.width)
    bias, second = (layers[:, first_size + at * sizes.width :][:, : sizes.width] for at in (0, 1))
    return first, bias, second, layers[:, -1:]


def generate(parameters: Floats, sizes: Sizes, users: NDArray[np.int32]) -> Generated:
    """The recommenders of some users, none of them twice if a gradient is to follow."""
    parts = parts_of(parameters, sizes)

    def through(name: str, inputs: Floats) -> Floats:
        outputs = inputs @ parts[name].T
        outputs += parts[f"{name}_bias"]
        return outputs

    shared: Floats = parts["users"][users] @ parts["memory"]
    hidden = {part: np.maximum(through(f"{part}_hidden", shared), 0) for part in ("first", "second", "items")}
    layers = np.concatenate([through(part, hidden[part]) for part in ("first", "second")], axis=1)
    right = through("right", hidden["items"]).reshape(-1, sizes.item_memory, sizes.num_factors)
    left = through("left", hidden["items"]).reshape(-1, sizes.num_items, sizes.item_memory)
    return Generated(sizes, users, parts, shared, hidden, layers, right, left)


class Uploads(NamedTuple):
    """Gradients of generated recommenders: item vectors that have one, and all layers."""

    places: NDArray[np.int64]  # of the user among those generated for
    items: NDArray[np.int64]
    vectors: Floats  # (pairs, num_factors)
    layers: Floats  # (users, numbers of the two layers); zero for those who did not answer


def uploads_of(batches: list[tuple[NDArray[np.int64], Floats]], num_users: int, sizes: Sizes) -> Uploads:
    """From places and flat gradients, a row per user."""
    layers = np.zeros((num_users, sizes.num_trained - sizes.num_vector_numbers), np.float32)
    found = []
    for places, rows in batches:
        vectors = rows[:, : sizes.num_vector_numbers].reshape(len(rows), sizes.num_items, sizes.num_factors)
        row, item = np.nonzero(vectors.any(axis=2))
        found.append((places[row], item, vectors[row, item]))
        layers[places] = rows[:, sizes.num_vector_numbers : sizes.num_trained]
    place, item, vectors = (np.concatenate(column) for column in zip(*found, strict=True))
    return Uploads(place, item, vectors, layers)


@numba.njit(nogil=True, cache=True)
def _left_gradients(pairs, values, gradients):
    """Back through E_u = left right and left = hidden weights^T, for the items that have a gradient."""
    places, items, vectors = pairs
    left, right, hidden, weights = values
    of_right, of_hidden, of_weights, of_bias = gradients
    item_memory, num_factors = right.shape[1:]
    for pair in range(len(places)):
        place, item = places[pair], items[pair]
        for slot in range(item_memory):
            row = item * item_memory + slot
            gradient, share = np.float32(0), left[place, item, slot]
            for factor in range(num_factors):
                gradient += vectors[pair, factor] * right[place, slot, factor]
                of_right[place, slot, factor] += share * vectors[pair, factor]
            of_bias[row] += gradient
            for unit in range(hidden.shape[1]):
                of_weights[row, unit] += gradient * hidden[place, unit]
                of_hidden[place, unit] += gradient * weights[row, unit]


# --- The generated recommender, on the client --------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _client_gradients(held, rows, numbers, generated, shape, num_negatives, key, round_number, out):
    starts, items = held
    num_items, num_factors, width = shape
    words = np.empty(BLOCK_WORDS, np.uint32)
    owned = np.zeros((num_items + 63) // 64, np.uint64)
    raw, slope = np.empty(width, np.float32), np.empty(width, np.float32)
    first_end = num_items * num_factors + num_factors * width
    for client in range(rows.size):
        own, gradient = generated[client], out[client]
        vectors = own[: num_items * num_factors].reshape(num_items, num_factors)
        of_vectors = gradient[: num_items * num_factors].reshape(num_items, num_factors)
        first = own[num_items * num_factors : first_end].reshape(num_factors, width)
        of_first = gradient[num_items * num_factors : first_end].reshape(num_factors, width)
        layers, of_layers = own[first_end:], gradient[first_end:]
        begin, end = starts[rows[client]], starts[rows[client] + 1]
        owned[:] = 0
        for entry in range(begin, end):
            owned[items[entry] >> 6] |= bit_of(items[entry])
        drawn = 0 if end - begin == num_items else num_negatives
        share = np.float32(1.0 / max((end - begin) * (1 + drawn), 1))
        counter, used = np.int64(0), BLOCK_WORDS
        for entry in range(begin, end):
            for sample in range(1 + drawn):
                item, label = np.int64(items[entry]), np.float32(1)
                if sample > 0:
                    label = np.float32(0)
                    while owned[item >> 6] & bit_of(item) != 0:
                        if used == BLOCK_WORDS:
                            chacha_block(key, numbers[client], round_number, counter, words)
                            counter, used = counter + 1, 0
                        item = np.int64((np.uint64(words[used]) * np.uint64(num_items)) >> np.uint64(32))
                        used += 1
                total = layers[2 * width]
                if layers.size > 2 * width + 1:
                    total += layers[2 * width + 1 + item]
                for unit in range(width):
                    raw[unit] = layers[unit]
                for factor in range(num_factors):
                    for unit in range(width):
                        raw[unit] += vectors[item, factor] * first[factor, unit]
                for unit in range(width):
                    total += max(raw[unit], np.float32(0)) * layers[width + unit]
                error = share * (np.float32(1.0 / (1.0 + np.exp(-np.float64(total)))) - label)
                of_layers[2 * width] += error
                for unit in range(width):
                    is_on = raw[unit] > 0
                    slope[unit] = error * layers[width + unit] if is_on else np.float32(0)
                    of_layers[unit] += slope[unit]
                    of_layers[width + unit] += error * raw[unit] if is_on else np.float32(0)
                for factor in range(num_factors):
                    back = np.float32(0)
                    for unit in range(width):
                        back += first[factor, unit] * slope[unit]
                        of_first[factor, unit] += vectors[item, factor] * slope[unit]
                    of_vectors[item, factor] += back


class Positives(NamedTuple):
    """The items of each client, one slice each."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]


def client_gradients(
    held: Positives,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    generated: Floats,  # (clients, num_generated)
    sizes: Sizes,
    num_negatives: int,
    key: Key,
    round_number: int,
) -> Floats:
    """Gradient of each client's cross-entropy, a mean over its items and as many drawn ones as told for each."""
    out = np.zeros_like(generated)
    shape = (sizes.num_items, sizes.num_factors, sizes.width)
    _client_gradients(held, rows, numbers, generated, shape, num_negatives, key, round_number, out)
    return out


def own_items(held: Positives, rows: NDArray[np.int64], sizes: Sizes) -> Floats:
    """In place of gradients, where clients are counted: a 1 at the offsets of each client's items, else zeros."""
    out = np.zeros((len(rows), sizes.num_generated), np.float32)
    for place, row in enumerate(rows.tolist()):
        out[place, sizes.num_trained + held.items[held.starts[row] : held.starts[row + 1]]] = 1
    return out


# --- Ranking -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetaModel:
    """The generating network, ready to predict and to rank for the users that it knows."""

    parameters: Floats
    sizes: Sizes

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> Floats:
        """Probabilities of (user, item) pairs."""
        who, place = np.unique(users, return_inverse=True)
        out = np.empty(len(users), np.float32)
        for first, scores in self._blocks(who):
            is_here = (place >= first) & (place < first + len(scores))
            out[is_here] = scores[place[is_here] - first, items[is_here]]
        return out

    def score(self, users: NDArray[np.int32]) -> Floats:
        """Probabilities of all items, a row per user."""
        out = np.empty((len(users), self.sizes.num_items), np.float32)
        for first, scores in self._blocks(users):
            out[first : first + len(scores)] = scores
        return out

    def fold_in(self, items: NDArray[np.int32], _ratings: Floats) -> Floats:
        """Probabilities of all items for a newcomer, whose vector has the least loss with all else as it is."""
        wishes = wishes_of(items, self.sizes.num_items, _NUM_NEGATIVES)
        vector = newcomer_vector(self._logits, wishes, self._usual, "logistic")
        scores: Floats = sigmoids(self._logits(vector)[0]).astype(np.float32)
        return scores

    @cached_property
    def _logits(self) -> GeneratedLogits:
        return GeneratedLogits(parts_of(self.parameters, self.sizes), self.sizes.item_memory)

    @cached_property
    def _usual(self) -> Usual:
        return usual_of(parts_of(self.parameters, self.sizes)["users"])

    def _blocks(self, users: NDArray[np.int32]) -> Iterator[tuple[int, Floats]]:
        size = max(1, _SCORED_BYTES // (4 * self.sizes.num_items * self.sizes.item_memory))
        for first in range(0, len(users), size):
            block = users[first : first + size]
            yield first, generate(self.parameters, self.sizes, block).scores()
