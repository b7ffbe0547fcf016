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
    place, end = starts[node], starts[node + 1]
    while place + 1 < end:
        even = even + weights[place] * load(vectors, np.int64(columns[place]), width)
        odd = odd + weights[place + 1] * load(vectors, np.int64(columns[place + 1]), width)
        place += 2
    if place < end:
        even = even + weights[place] * load(vectors, np.int64(columns[place]), width)
    return even + odd


@numba.njit(nogil=True, cache=True)
def _propagate(width, graph, vectors, added, scale, out):
    for node in range(len(added)):
        store(out, node, scale * (load(added, node, width) + neighbours_sum(width, graph, vectors, node)))


def propagate(graph: Graph, vectors: Vectors, added: Vectors, out: Vectors, scale: float = 1.0) -> None:
    """Compute out = scale (added + A vectors); `out` may be `added`, not `vectors`."""
    _propagate(width_of(vectors.shape[1]), graph, vectors, added, np.float32(scale), out)
