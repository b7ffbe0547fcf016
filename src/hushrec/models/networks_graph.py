# mypy: allow-untyped-defs, allow-untyped-calls
"""The graph of users and items that NGCF and LightGCN send messages over, and its product with node vectors.

Symbols: A = D^-1/2 [[0, R], [R^T, 0]] D^-1/2, with R = the weights of the edges and D = the weighted degrees.
Nodes are numbered users first, then items.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hushrec.kernels.rows import load, store, width_of, zeros

Vectors = NDArray[np.float32]
Nodes = NDArray[np.int64]  # ascending


class Graph(NamedTuple):
    """A in compressed rows: node n has the neighbours `columns[starts[n]:starts[n + 1]]`. It is symmetric."""

    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]


def normalised_graph(
    users: NDArray[np.int32], items: NDArray[np.int32], weights: NDArray[np.float32], sizes: tuple[int, int]
) -> Graph:
    """A of weighted edges; weights of repeated pairs add up, a node without weight has no neighbours."""
    edges = sparse.coo_array((weights.astype(np.float64), (users, items)), shape=sizes).tocsr()
    by_user, by_item = (_inverse_root(edges.sum(axis=axis)) for axis in (1, 0))
    edges.data *= np.repeat(by_user, np.diff(edges.indptr)) * by_item[edges.indices]
    back = edges.T.tocsr()
    starts = np.concatenate([edges.indptr, back.indptr[1:] + edges.nnz])
    columns = np.concatenate([edges.indices + sizes[0], back.indices])
    values = np.concatenate([edges.data, back.data])
    return Graph(starts.astype(np.int32), columns.astype(np.int32), values.astype(np.float32))


def _inverse_root(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """D^-1/2; noise on the weights can make a sum negative, which counts as no edge."""
    has_edges = degrees > 0
    return np.where(has_edges, 1 / np.sqrt(np.where(has_edges, degrees, 1)), 0)


@numba.njit(nogil=True, cache=True, inline="always")
def neighbours_sum(width, graph, vectors, node):
    """Row `node` of A times the vectors. Two sums, as the processor can add both at a time."""
    starts, columns, weights = graph
    even, odd = zeros(width), zeros(width)
    # Unsigned, so that no place counts from the end.
    place, end, one = np.uint64(starts[node]), np.uint64(starts[node + 1]), np.uint64(1)
    while place + one < end:
        even = even + weights[place] * load(vectors, np.int64(columns[place]), width)
        odd = odd + weights[place + one] * load(vectors, np.int64(columns[place + one]), width)
        place += one + one
    if place < end:
        even = even + weights[place] * load(vectors, np.int64(columns[place]), width)
    return even + odd


@numba.njit(nogil=True, cache=True)
def _propagate(width, graph, vectors, added, nodes, scale, out):
    for node in nodes:
        store(out, node, scale * (load(added, node, width) + neighbours_sum(width, graph, vectors, node)))


def propagate(
    graph: Graph, vectors: Vectors, added: Vectors, nodes: Nodes, out: Vectors, scale: float = 1.0
) -> None:
    """Compute out = scale (added + A vectors) of some nodes; `out` may be `added`, not `vectors`."""
    _propagate(width_of(vectors.shape[1]), graph, vectors, added, nodes, np.float32(scale), out)


@numba.njit(nogil=True, cache=True)
def _spread(width, graph, rows, nodes, out):
    starts, columns, weights = graph
    for row in range(len(nodes)):
        vector = load(rows, row, width)
        for place in range(np.uint64(starts[nodes[row]]), np.uint64(starts[nodes[row] + 1])):
            neighbour = np.int64(columns[place])
            store(out, neighbour, load(out, neighbour, width) + weights[place] * vector)


def spread(graph: Graph, rows: Vectors, nodes: Nodes, out: Vectors) -> None:
    """Compute out += A vectors, where only these nodes' vectors, the first of `rows`, are not zero."""
    _spread(width_of(rows.shape[1]), graph, rows, nodes, out)
