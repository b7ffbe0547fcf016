# mypy: allow-untyped-defs, allow-untyped-calls
"""MetaMF's two halves: the network that generates a recommender per user, and the gradient of such a recommender.

A generated recommender is one flat row of float32: item vectors (num_items, num_factors), then the weights
(num_factors, width) and biases (width) of a hidden layer with ReLU, then the weights (width) and the bias (1) of
its output; width = num_factors // 4. The generating network is one flat array too, so that Adam and checkpoints
need no structure; `tensor_shapes` is its layout. Gradients of most item vectors are zero: the server's largest
layer, which makes the item vectors, only looks at the others. Only the server's half needs PyTorch; it is imported
there.

Symbols: E_u = item vectors of user u = left (num_items, item_memory) times right (item_memory, num_factors).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from hushrec.draws import BLOCK_WORDS, Draws, Key, chacha_block
from hushrec.errors import MissingExtraError, how_to_install
from hushrec.kernels.bits import bit_of
from hushrec.models.newcomers import newcomer_vector, usual_of, wishes_of
from hushrec.systems.metamf.newcomers import GeneratedLogits

if TYPE_CHECKING:
    import torch

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

    @property
    def width(self) -> int:
        """Hidden units of a generated recommender."""
        return max(self.num_factors // 4, 1)

    @property
    def num_vector_numbers(self) -> int:
        """How many numbers all item vectors of a user have."""
        return self.num_items * self.num_factors

    @property
    def num_generated(self) -> int:
        """How many numbers a generated recommender has."""
        return self.num_vector_numbers + (self.num_factors + 2) * self.width + 1


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


def load_torch() -> Any:
    """PyTorch with one thread, so that bits do not depend on the number of threads."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            f"MetaMF's server needs PyTorch; install it with: {how_to_install('neural')}"
        ) from None
    torch.set_num_threads(1)
    return torch


@dataclass(frozen=True)
class Generated:
    """Recommenders of some users, with what is needed to go back through the network."""

    sizes: Sizes
    parts: dict[str, Floats]  # of the network
    leaves: "dict[str, torch.Tensor]"  # all of them but `left`
    hidden: "torch.Tensor"  # (users, hidden), of the items' part
    right: "torch.Tensor"  # (users, item_memory, num_factors)
    layers: "torch.Tensor"  # (users, numbers of the two layers)
    left: Floats  # (users, num_items, item_memory)

    def recommenders(self) -> Floats:
        """One flat row per user."""
        torch, sizes = load_torch(), self.sizes
        rows = np.empty((len(self.left), sizes.num_generated), np.float32)
        vectors = rows[:, : sizes.num_vector_numbers].reshape(-1, sizes.num_items, sizes.num_factors)
        with torch.no_grad():
            torch.bmm(torch.from_numpy(self.left), self.right, out=torch.from_numpy(vectors))
        rows[:, sizes.num_vector_numbers :] = self.layers.detach().numpy()
        return rows

    def scores(self) -> Floats:
        """Probabilities of all items, a row per user; item vectors themselves are not made."""
        sizes, layers = self.sizes, self.layers.detach().numpy()
        first, bias, second, last = _split_layers(layers, sizes)
        mixed = self.right.detach().numpy() @ first  # (users, item_memory, width)
        hidden = self.left @ mixed
        hidden += bias[:, None, :]
        np.maximum(hidden, 0, out=hidden)
        raw = (hidden @ second[:, :, None])[:, :, 0] + last
        scores: Floats = expit(raw)
        return scores

    def gradient(self, uploads: "Uploads", out: Floats) -> None:
        """Of the network's parameters, flat, from the gradients of the generated recommenders."""
        torch = load_torch()
        out[:] = 0
        gradients = parts_of(out, self.sizes)
        hidden = self.hidden.detach().numpy()
        of_hidden, of_right = np.zeros_like(hidden), np.zeros(self.right.shape, np.float32)
        # By client within an item, so that sums do not depend on whose upload came first.
        order = np.lexsort((uploads.places, uploads.items))
        _left_gradients(
            (uploads.places[order], uploads.items[order], uploads.vectors[order]),
            (self.left, self.right.detach().numpy(), hidden, self.parts["left"]),
            (of_right, of_hidden, gradients["left"], gradients["left_bias"]),
        )
        outputs = [self.layers, self.right, self.hidden]
        given = [torch.from_numpy(array) for array in (uploads.layers, of_right, of_hidden)]
        of_leaves = torch.autograd.grad(outputs, list(self.leaves.values()), given)
        for name, found in zip(self.leaves, of_leaves, strict=True):
            gradients[name][:] = found.numpy()


def _split_layers(layers: Floats, sizes: Sizes) -> tuple[Floats, Floats, Floats, Floats]:
    first_size = sizes.num_factors * sizes.width
    first = layers[:, :first_size].reshape(-1, sizes.num_factors, sizes.width)
    bias, second = (layers[:, first_size + at * sizes.width :][:, : sizes.width] for at in (0, 1))
    return first, bias, second, layers[:, -1:]


def generate(parameters: Floats, sizes: Sizes, users: NDArray[np.int32]) -> Generated:
    """The recommenders of some users."""
    torch = load_torch()
    linear = torch.nn.functional.linear
    parts = parts_of(parameters, sizes)
    leaves = {
        name: torch.from_numpy(part).requires_grad_()
        for name, part in parts.items()
        if name not in ("left", "left_bias")
    }
    shared = leaves["users"][torch.from_numpy(users.astype(np.int64))] @ leaves["memory"]
    hidden = {
        part: torch.relu(linear(shared, leaves[f"{part}_hidden"], leaves[f"{part}_hidden_bias"]))
        for part in ("first", "second", "items")
    }
    layers = [linear(hidden[part], leaves[part], leaves[f"{part}_bias"]) for part in ("first", "second")]
    right = linear(hidden["items"], leaves["right"], leaves["right_bias"])
    with torch.no_grad():
        left = linear(hidden["items"], torch.from_numpy(parts["left"]), torch.from_numpy(parts["left_bias"]))
    return Generated(
        sizes,
        parts,
        leaves,
        hidden["items"],
        right.view(-1, sizes.item_memory, sizes.num_factors),
        torch.cat(layers, 1),
        left.numpy().reshape(-1, sizes.num_items, sizes.item_memory),
    )


class Uploads(NamedTuple):
    """Gradients of generated recommenders: item vectors that have one, and all layers."""

    places: NDArray[np.int64]  # of the user among those generated for
    items: NDArray[np.int64]
    vectors: Floats  # (pairs, num_factors)
    layers: Floats  # (users, numbers of the two layers); zero for those who did not answer


def uploads_of(batches: list[tuple[NDArray[np.int64], Floats]], num_users: int, sizes: Sizes) -> Uploads:
    """From places and flat gradients, a row per user."""
    layers = np.zeros((num_users, sizes.num_generated - sizes.num_vector_numbers), np.float32)
    found = []
    for places, rows in batches:
        vectors = rows[:, : sizes.num_vector_numbers].reshape(len(rows), sizes.num_items, sizes.num_factors)
        row, item = np.nonzero(vectors.any(axis=2))
        found.append((places[row], item, vectors[row, item]))
        layers[places] = rows[:, sizes.num_vector_numbers :]
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
        counter, used = 0, BLOCK_WORDS
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
                raw[:] = layers[:width]
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
        parts = parts_of(self.parameters, self.sizes)
        vector = newcomer_vector(
            GeneratedLogits(parts, self.sizes.item_memory), wishes_of(items, self.sizes.num_items, _NUM_NEGATIVES),
            usual_of(parts["users"]), "logistic",
        )  # fmt: skip
        parameters = self.parameters.copy()
        parts_of(parameters, self.sizes)["users"][0] = vector
        scores: Floats = generate(parameters, self.sizes, np.zeros(1, np.int32)).scores()[0]
        return scores

    def _blocks(self, users: NDArray[np.int32]) -> Iterator[tuple[int, Floats]]:
        size = max(1, _SCORED_BYTES // (4 * self.sizes.num_items * self.sizes.item_memory))
        for first in range(0, len(users), size):
            block = users[first : first + size]
            yield first, generate(self.parameters, self.sizes, block).scores()
