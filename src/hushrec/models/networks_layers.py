# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Layers of the networks as compiled kernels: forward, and their gradients by hand. Rows are nodes or samples.

Each sum has one fixed order, so a number does not depend on threads.
"""

import math

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.kernels.rows import dot, load, multiply, store, width_of, zeros
from hushrec.kernels.sharing import WHOLE, Part, at_once, num_parts
from hushrec.models.networks_graph import BLOCK_ROWS, Graph, Nodes, Vectors, neighbours_sums

# Random words, one for each number of a message, and the share of numbers to drop.
Drops = tuple[NDArray[np.uint16], float]

_LEAK = np.float32(0.2)  # slope of NGCF's activation below 0
_SHORTEST = np.float32(1e-12)  # below it a vector is not stretched to length 1


@numba.njit(nogil=True, cache=True, inline="always")
def _times(width, row, inputs, weight, first, num_inputs):
    """inputs[row] times rows first.. of the weight."""
    even, odd = zeros(width), zeros(width)
    # Unsigned, so that no place counts from the end.
    at, place, end, one = np.uint64(row), np.uint64(0), np.uint64(num_inputs), np.uint64(1)
    while place + one < end:
        even = even + inputs[at, place] * load(weight, first + np.int64(place), width)
        odd = odd + inputs[at, place + one] * load(weight, first + np.int64(place) + 1, width)
        place += one + one
    if place < end:
        even = even + inputs[at, place] * load(weight, first + np.int64(place), width)
    return even + odd


@numba.njit(nogil=True, cache=True)
def _affine(width, inputs, weight, bias, out):
    num_inputs = inputs.shape[1]
    for row in range(len(inputs)):
        store(out, row, load(bias, 0, width) + _times(width, row, inputs, weight, 0, num_inputs))


def affine(inputs: Vectors, weight: Vectors, bias: Vectors) -> Vectors:
    """Compute inputs W + b."""
    out = np.empty((len(inputs), weight.shape[1]), np.float32)
    _affine(width_of(weight.shape[1]), inputs, weight, bias, out)
    return out


@numba.njit(nogil=True, cache=True)
def _affine_of_sums(width, left, right, weight, bias, out):
    num_inputs = right.shape[1]
    inputs = np.empty((1, num_inputs), np.float32)
    for row in range(len(left)):
        for other in range(len(right)):
            for place in range(num_inputs):
                inputs[0, place] = max(left[row, place] + right[other, place], np.float32(0.0))
            product = _times(width, 0, inputs, weight, 0, num_inputs)
            store(out, row * len(right) + other, load(bias, 0, width) + product)


def affine_of_sums(left: Vectors, right: Vectors, weight: Vectors, bias: Vectors) -> Vectors:
    """Compute relu(l + r) W + b for each row l of `left` with each row r of `right`."""
    out = np.empty((len(left) * len(right), weight.shape[1]), np.float32)
    _affine_of_sums(width_of(weight.shape[1]), left, right, weight, bias, out)
    return out


@numba.njit(nogil=True, cache=True)
def _add_outer(width, part, left, right, out):
    (number, count), (num_rows, num_columns) = part, left.shape
    for first in range(0, num_rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, num_rows)
        for column in range(2 * number, num_columns - 1, 2 * count):
            one, other = load(out, column, width), load(out, column + 1, width)
            for row in range(first, last):
                gradient = load(right, row, width)
                one = one + left[row, column] * gradient
                other = other + left[row, column + 1] * gradient
            store(out, column, one)
            store(out, column + 1, other)
        if num_columns % 2 == 1 and number == 0:
            one = load(out, num_columns - 1, width)
            for row in range(first, last):
                one = one + left[row, num_columns - 1] * load(right, row, width)
            store(out, num_columns - 1, one)


def add_outer(left: Vectors, right: Vectors, out: Vectors, part: Part = WHOLE) -> None:
    """Compute out += left^T right, or a part of its rows: the gradient of a weight whose inputs are `left`."""
    _add_outer(width_of(right.shape[1]), part, left, right, out)


# --- NGCF --------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _activate(numbers, words, dropout, factors):
    """Leaky relu and dropout; `factors` gets what each number was multiplied with."""
    threshold, kept = dropout
    for place in range(numbers.size):
        number = numbers[place]
        factor = kept if number > np.float32(0.0) else kept * _LEAK
        factor = factor if words[place] >= threshold else np.float32(0.0)
        factors[place] = factor
        numbers[place] = number * factor


@numba.njit(nogil=True, cache=True)
def _messages(width, part, graph, own, nodes, weight, bias, words, dropout, out):
    sides, products, messages, normals, lengths, factors = out
    (number, count), num_factors = part, len(width)
    for first in range(number * BLOCK_ROWS, len(nodes), count * BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, len(nodes))
        neighbours_sums(width, WHOLE, graph, own, nodes[first:last], sides[first:last])
        for row in range(first, last):
            store(products, row, multiply(load(own, nodes[row], width), load(sides, row, width)))
            from_sides = _times(width, row, sides, weight, 0, num_factors)
            from_products = _times(width, row, products, weight, num_factors, num_factors)
            store(messages, row, load(bias, 0, width) + from_sides + from_products)
        block = slice(first * num_factors, last * num_factors)
        _activate(messages.reshape(-1)[block], words[block], dropout, factors.reshape(-1)[block])
        for row in range(first, last):
            message = load(messages, row, width)
            lengths[row] = max(np.sqrt(dot(message, message)), _SHORTEST)
            store(normals, nodes[row], (np.float32(1.0) / lengths[row]) * message)


@numba.njit(nogil=True, cache=True)
def _messages_back(width, part, own, nodes, kept, transposed, gradients, out):
    sides, normals, lengths, factors = kept
    by_message, by_normal = gradients
    by_total, by_side, by_own = out
    (number, count), num_factors = part, len(width)
    for first in range(number * BLOCK_ROWS, len(nodes), count * BLOCK_ROWS):
        for row in range(first, min(first + BLOCK_ROWS, len(nodes))):
            node = nodes[row]
            normal, outer = load(normals, node, width), load(by_normal, node, width)
            if lengths[row] > _SHORTEST:
                outer = outer - dot(normal, outer) * normal
            inner = load(by_message, node, width) + (np.float32(1.0) / lengths[row]) * outer
            store(by_total, row, multiply(inner, load(factors, row, width)))
            product = _times(width, row, by_total, transposed, num_factors, num_factors)
            side = _times(width, row, by_total, transposed, 0, num_factors)
            store(by_side, row, side + multiply(product, load(own, node, width)))
            store(by_own, node, multiply(product, load(sides, row, width)))


@numba.njit(nogil=True, cache=True)
def _sum_rows(width, rows, out):
    total = zeros(width)
    for row in range(len(rows)):
        total = total + load(rows, row, width)
    store(out, 0, total)


class MessageLayer:
    """One layer of NGCF: leaky_relu(S W1 + (E * S) W2 + b) with S = A E, its dropout and its rows of length 1.

    It can be asked for some nodes only. Its own arrays then have a row for each of these; the first ones are used.
    """

    def __init__(self, num_nodes: int, num_factors: int) -> None:
        shape = (num_nodes, num_factors)
        self._sides, self._products, self.messages = (np.zeros(shape, np.float32) for _ in range(3))
        self._factors = np.empty(shape, np.float32)  # of a message's numbers: slope times dropout
        self._lengths = np.empty(num_nodes, np.float32)
        self._by_total, self.by_side = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def forward(
        self,
        graph: Graph,
        own: Vectors,
        nodes: Nodes,
        weight: Vectors,
        bias: Vectors,
        drops: Drops,
        normals: Vectors,
    ) -> None:
        """From all nodes' E to `messages` and `normals` of some."""
        words, dropout = drops
        limits = np.uint16(min(round(dropout * 2**16), 2**16 - 1)), np.float32(1 / (1 - dropout))
        out = (self._sides, self._products, self.messages, normals, self._lengths, self._factors)

        def work(part: Part) -> None:
            _messages(width_of(own.shape[1]), part, graph, own, nodes, weight, bias, words, limits, out)

        at_once(work, num_parts(len(nodes) * weight.size))

    def backward(
        self,
        own: Vectors,
        nodes: Nodes,
        weight: Vectors,
        normals: Vectors,
        by_outputs: tuple[Vectors, Vectors],
        out: tuple[Vectors, Vectors, Vectors],
    ) -> None:
        """From gradients by messages and normals to those by E (but for what S brings), by W and by both b.

        The gradient by E is set for these nodes, the others are added. That by S is left in `by_side`.
        """
        num_factors, (by_own, by_weight, by_bias) = own.shape[1], out
        transposed = np.ascontiguousarray(weight.reshape(2, num_factors, num_factors).transpose(0, 2, 1))
        transposed = transposed.reshape(weight.shape)
        kept, sums = (self._sides, normals, self._lengths, self._factors), np.empty((1, num_factors), np.float32)
        results, width = (self._by_total, self.by_side, by_own), width_of(num_factors)
        sides, products, by_total = (rows[: len(nodes)] for rows in (self._sides, self._products, self._by_total))

        def work(part: Part) -> None:
            _messages_back(width, part, own, nodes, kept, transposed, by_outputs, results)

        def add_products(part: Part) -> None:
            add_outer(sides, by_total, by_weight[:num_factors], part)
            add_outer(products, by_total, by_weight[num_factors:], part)

        count = num_parts(len(nodes) * weight.size)
        at_once(work, count)
        at_once(add_products, count)
        _sum_rows(width, by_total, sums)
        by_bias += sums


# --- Scores of pairs, and Adam -----------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True, inline="always")
def _loss_slope(logit, label):
    """The derivative of the binary cross-entropy with a soft label."""
    return np.float32(1.0 / (1.0 + math.exp(-logit))) - label


@numba.njit(nogil=True, cache=True)
def loss_slopes(logits, labels, scale):
    """The derivative of each sample's loss by its logit, in place of the logit."""
    for row in range(len(logits)):
        logits[row, 0] = scale * _loss_slope(logits[row, 0], labels[row])


@numba.njit(nogil=True, cache=True)
def _add_product_gradients(width, outputs, num_nodes, users, items, labels, offsets, scale, gradients):
    num_layers = len(outputs) // num_nodes
    for row in range(len(users)):
        logit = offsets[row]
        for layer in range(num_layers):
            user = load(outputs, layer * num_nodes + users[row], width)
            logit += dot(user, load(outputs, layer * num_nodes + items[row], width))
        slope = scale * _loss_slope(logit, labels[row])
        for layer in range(num_layers):
            user, item = layer * num_nodes + users[row], layer * num_nodes + items[row]
            by_user = load(gradients, user, width) + slope * load(outputs, item, width)
            by_item = load(gradients, item, width) + slope * load(outputs, user, width)
            store(gradients, user, by_user)
            store(gradients, item, by_item)


def add_product_gradients(
    outputs: Vectors,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    labels: NDArray[np.float32],
    offsets: NDArray[np.float32],
    scale: float,
    gradients: Vectors,
) -> None:
    """Add the gradient of the loss of products and offsets, by outputs of the shape (layers, nodes, factors)."""
    num_layers, num_nodes, num_factors = outputs.shape
    flat, by_flat = (one.reshape(num_layers * num_nodes, num_factors) for one in (outputs, gradients))
    _add_product_gradients(
        width_of(num_factors), flat, num_nodes, users, items, labels, offsets, np.float32(scale), by_flat
    )


@numba.njit(nogil=True, cache=True)
def _add_rows(width, numbers, rows, out):
    for place in range(len(numbers)):
        node = np.int64(numbers[place])
        store(out, node, load(out, node, width) + load(rows, place, width))


def add_rows(numbers: NDArray[np.int32] | Nodes, rows: Vectors, out: Vectors) -> None:
    """out[numbers] += rows, also where numbers repeat."""
    _add_rows(width_of(out.shape[1]), numbers, rows, out)
