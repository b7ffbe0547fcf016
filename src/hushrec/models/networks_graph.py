# mypy: allow-untyped-defs, allow-untyped-calls
"""The graph of users and items that NGCF and LightGCN send messages over, and its product with node vectors.

Symbols: A = D^-1/2 [[0, R], [R^T, 0]] D^-1/2, with R = the weights of the edges and D = the weighted degrees.
Nodes are numbered users first, then items.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.data.row_order import canonical_order, count_starts
from hushrec.kernels.rows import Width, load, store, width_of, zeros
from hushrec.kernels.sharing import Part, at_once, num_column_parts

Vectors = NDArray[np.float32]
Nodes = NDArray[np.int64]  # ascending

BLOCK_ROWS = 64  # what stays in the first cache


class Graph(NamedTuple):
    """A in compressed rows: node n has the neighbours `columns[starts[n]:starts[n + 1]]`. It is symmetric."""

    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]


def normalised_graph(
    users: NDArray[np.int32], items: NDArray[np.int32], weights: NDArray[np.float32], sizes: tuple[int, int]
) -> Graph:
    """A of weighted edges; weights of repeated pairs add up, a node without weight has no neighbours."""
    users, items, values = _each_pair_once(users, items, weights.astype(np.float64), sizes)
    by_user, by_item = (
        _inverse_root(np.bincount(ends, values, size).astype(np.float64))
        for ends, size in zip((users, items), sizes, strict=True)
    )
    values *= by_user[users] * by_item[items]
    back = canonical_order(items, users, sizes[1], sizes[0]).rows
    starts = [count_starts(users, sizes[0]), len(users) + count_starts(items, sizes[1])[1:]]
    return Graph(
        np.concatenate(starts).astype(np.int32),
        np.concatenate([items + np.int32(sizes[0]), users[back]]),
        np.concatenate([values, values[back]]).astype(np.float32),
    )


def _each_pair_once(
    users: NDArray[np.int32], items: NDArray[np.int32], weights: NDArray[np.float64], sizes: tuple[int, int]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Edges by user, then by item, those of the same pair added up."""
    order = canonical_order(users, items, *sizes).rows
    users, items = users[order], items[order]
    is_new = np.ones(len(users), np.bool_)
    is_new[1:] = (np.diff(users) != 0) | (np.diff(items) != 0)
    sums = np.zeros(np.count_nonzero(is_new))
    np.add.at(sums, np.cumsum(is_new) - 1, weights[order])
    return users[is_new], items[is_new], sums


def _inverse_root(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """D^-1/2; noise on the weights can make a sum negative, which counts as no edge."""
    has_edges = degrees > 0
    return np.where(has_edges, 1 / np.sqrt(np.where(has_edges, degrees, 1)), 0)


@numba.njit(nogil=True, cache=True)
def neighbours_sums(width, part, graph, vectors, nodes, out):
    """Rows `nodes` of A times a part of the vectors' columns, a block of them at a time: numba counts references.

    Two sums for each, as the processor can add both at a time.
    """
    starts, columns, weights = graph
    number, count = part
    for row in range(len(nodes)):
        even, odd = zeros(width), zeros(width)
        # Unsigned, so that no place counts from the end.
        place, end, one = np.uint64(starts[nodes[row]]), np.uint64(starts[nodes[row] + 1]), np.uint64(1)
        while place + one < end:
            even = even + weights[place] * load(vectors, np.int64(columns[place]) * count + number, width)
            odd = odd + weights[place + one] * load(
                vectors, np.int64(columns[place + one]) * count + number, width
            )
            place += one + one
        if place < end:
            even = even + weights[place] * load(vectors, np.int64(columns[place]) * count + number, width)
        store(out, row, even + odd)


@numba.njit(nogil=True, cache=True)
def _propagate(width, part, graph, vectors, added, nodes, scale, out):
    number, count = part
    sums = np.empty((BLOCK_ROWS, len(width)), np.float32)
    for first in range(0, len(nodes), BLOCK_ROWS):
        block = nodes[first : first + BLOCK_ROWS]
        neighbours_sums(width, part, graph, vectors, block, sums)
        for row in range(len(block)):
            place = block[row] * count + number
            store(out, place, scale * (load(added, place, width) + load(sums, row, width)))


def propagate(
    graph: Graph, vectors: Vectors, added: Vectors, nodes: Nodes, out: Vectors, scale: float = 1.0
) -> None:
    """Compute out = scale (added + A vectors) of some nodes; `out` may be `added`, not `vectors`."""

    def work(part: Part) -> None:
        width, (of_vectors, of_added, of_out) = _in_parts(part, vectors, added, out)
        _propagate(width, part, graph, of_vectors, of_added, nodes, np.float32(scale), of_out)

    at_once(work, _num_parts(graph, vectors))


def _num_parts(graph: Graph, vectors: Vectors, num_products: int = 1) -> int:
    return num_column_parts(vectors.shape[1], num_products * graph.weights.size * vectors.shape[1])


def _in_parts(part: Part, *arrays: Vectors) -> tuple[Width, list[Vectors]]:
    """The width of a part, and arrays whose rows are parts: part p of c of row r is row c r + p."""
    width = arrays[0].shape[-1] // part[1]
    return width_of(width), [array.reshape(*array.shape[:-2], -1, width) for array in arrays]


@numba.njit(nogil=True, cache=True, inline="always")
def _spread_row(part, graph, vector, node, width, out):
    starts, columns, weights = graph
    number, count = part
    for place in range(np.uint64(starts[node]), np.uint64(starts[node + 1])):
        row = np.int64(columns[place]) * count + number
        store(out, row, load(out, row, width) + weights[place] * vector)


@numba.njit(nogil=True, cache=True)
def _spread(width, part, graph, rows, nodes, out):
    number, count = part
    for row in range(len(nodes)):
        _spread_row(part, graph, load(rows, row * count + number, width), nodes[row], width, out)


def spread(graph: Graph, rows: Vectors, nodes: Nodes, out: Vectors) -> None:
    """Compute out += A vectors, where only these nodes' vectors, the first of `rows`, are not zero."""

    def work(part: Part) -> None:
        width, (of_rows, of_out) = _in_parts(part, rows, out)
        _spread(width, part, graph, of_rows, nodes, of_out)

    at_once(work, _num_parts(graph, rows))


# --- LightGCN's sum of all layers, forward and back: a part of the columns goes through all of it at once ---


@numba.njit(nogil=True, cache=True)
def _sum_layers(width, part, graph, vectors, everyone, nodes, num_layers, sums, out):
    last = vectors
    for layer in range(num_layers - 1):
        _propagate(width, part, graph, last, vectors, everyone, np.float32(1.0), sums[layer % 2])
        last = sums[layer % 2]
    _propagate(width, part, graph, last, vectors, nodes, np.float32(1.0 / (num_layers + 1)), out)


def sum_layers(
    graph: Graph, vectors: Vectors, everyone: Nodes, nodes: Nodes, num_layers: int, sums: Vectors, out: Vectors
) -> None:
    """The mean of E, A E, A^2 E, ... of some nodes; `sums` is room for two sums of everyone."""

    def work(part: Part) -> None:
        width, (of_vectors, of_sums, of_out) = _in_parts(part, vectors, sums, out)
        _sum_layers(width, part, graph, of_vectors, everyone, nodes, num_layers, of_sums, of_out)

    at_once(work, _num_parts(graph, vectors, num_layers))


@numba.njit(nogil=True, cache=True)
def _sum_layers_back(width, part, graph, start, everyone, nodes, num_layers, sums, by_vectors):
    number, count = part
    last, share = sums[0], np.float32(1.0 / (num_layers + 1))
    for node in nodes:
        store(start, node * count + number, share * load(start, node * count + number, width))
    for node in everyone:
        store(last, node * count + number, load(start, node * count + number, width))
    for node in nodes:
        _spread_row(part, graph, load(start, node * count + number, width), node, width, last)
    for layer in range(1, num_layers):
        _propagate(width, part, graph, last, start, everyone, np.float32(1.0), sums[layer % 2])
        last = sums[layer % 2]
    for node in everyone:
        row = node * count + number
        store(by_vectors, row, load(by_vectors, row, width) + load(last, row, width))
    for node in nodes:
        store(start, node * count + number, zeros(width))


def sum_layers_back(
    graph: Graph,
    start: Vectors,
    everyone: Nodes,
    nodes: Nodes,
    num_layers: int,
    sums: Vectors,
    by_vectors: Vectors,
) -> None:
    """Add the gradient by E to `by_vectors`. In `start` is that by the means of these nodes; it becomes zero."""

    def work(part: Part) -> None:
        width, (of_start, of_sums, of_vectors) = _in_parts(part, start, sums, by_vectors)
        _sum_layers_back(width, part, graph, of_start, everyone, nodes, num_layers, of_sums, of_vectors)

    at_once(work, _num_parts(graph, start, num_layers))
