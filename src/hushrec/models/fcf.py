# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Collaborative filtering of implicit feedback: the maths of FCF.

The loss is J = sum_u,i c_ui (p_ui - x_u v_i)^2 + lambda (sum_u |x_u|^2 + sum_i |v_i|^2), where p_ui is 1 for a
positive of u and 0 otherwise, and c_ui = 1 + alpha p_ui.

Symbols: x_u = user_factors[u], v_i = item_factors[i], alpha = confidence, lambda = regularization.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.evaluation.formula import Formula
from hushrec.kernels.cholesky import solve
from hushrec.kernels.rows import dot, load, store, width_of
from hushrec.protocol import kept

Factors = NDArray[np.float32]
Squares = NDArray[np.float64]


class Weights(NamedTuple):
    """How much positives count, and how much the size of the vectors."""

    confidence: float
    regularization: float


@dataclass
class PositiveClients:
    """Private state of clients that hold positives and a vector: what never leaves them."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending within a client
    num_items: int  # of the whole catalogue
    user_factors: Factors = kept(result=True)  # as solved last; zero before
    item_factors: Factors = kept()  # as sent at the end of a run; zero before
    _common: "tuple[Factors, Squares] | None" = None  # V^T V of the V that came last

    def common_for(self, item_factors: Factors) -> Squares:
        """V^T V, computed once for all cohorts that get the same V."""
        known = self._common
        if known is None or known[0] is not item_factors:
            known = self._common = item_factors, square(item_factors)
        return known[1]

    def check_fit(self, item_factors: Factors) -> None:
        """Refuse a V of another catalogue or another length of vectors: kernels do not look."""
        if item_factors.shape != self.item_factors.shape:
            raise HushrecError(
                f"V has the shape {item_factors.shape} and clients expect {self.item_factors.shape}; send that"
            )


def initial_item_factors(num_items: int, num_factors: int, scale: float, draws: Draws) -> Factors:
    """Uniform in (-scale, scale), independently per coordinate."""
    items = np.arange(num_items, dtype=np.int32)
    return uniform_rows(draws.key("item-factors"), items, num_factors, -scale, scale)


@numba.njit(nogil=True, cache=True)
def _add_square(item_factors, item, weight, out):
    """Add weight v_i v_i^T."""
    num_factors = item_factors.shape[1]
    for row in range(num_factors):
        scaled = weight * np.float64(item_factors[item, row])
        for column in range(num_factors):
            out[row, column] += scaled * np.float64(item_factors[item, column])


@numba.njit(nogil=True, cache=True)
def _square(item_factors, out):
    for item in range(len(item_factors)):
        _add_square(item_factors, item, 1.0, out)


def square(item_factors: Factors) -> Squares:
    """V^T V, which all clients need: compute it once for all of them."""
    out = np.zeros((item_factors.shape[1], item_factors.shape[1]))
    _square(item_factors, out)
    return out


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _solve_users(positives, rows, item_factors, common, weights, offsets, pull, out):
    starts, items = positives
    confidence, regularization = weights
    num_factors = item_factors.shape[1]
    matrix = np.empty((num_factors, num_factors))
    vector = np.empty(num_factors)
    for client in range(rows.size):
        matrix[:] = common
        vector[:] = -pull
        for place in range(starts[rows[client]], starts[rows[client] + 1]):
            _add_square(item_factors, items[place], confidence, matrix)
            wanted = 1.0 + confidence * (1.0 - np.float64(offsets[items[place]]))
            for factor in range(num_factors):
                vector[factor] += wanted * np.float64(item_factors[items[place], factor])
        for factor in range(num_factors):
            matrix[factor, factor] += regularization
        solve(matrix, vector)
        for factor in range(num_factors):
            out[client, factor] = vector[factor]


def solve_users(
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    rows: NDArray[np.int64],
    item_factors: Factors,
    common: Squares,  # V^T V
    weights: Weights,
    offsets: Factors | None = None,  # o_i: what is predicted before any vector is looked at; None: 0
) -> Factors:
    """x_u = (V^T C_u V + lambda I)^-1 V^T C_u (p_u - o) of the users in `rows`.

    V^T C_u (p_u - o) is the sum of (1 + alpha (1 - o_i)) v_i over positives, less V^T o.
    """
    out = np.empty((len(rows), item_factors.shape[1]), np.float32)
    offsets = np.zeros(len(item_factors), np.float32) if offsets is None else offsets
    pull = item_factors.T.astype(np.float64) @ offsets.astype(np.float64)
    _solve_users((starts, items), rows, item_factors, common, weights, offsets, pull, out)
    return out


@numba.njit(nogil=True, cache=True)
def _gradients(width, positives, rows, user_factors, item_factors, confidence, out):
    starts, items = positives
    two = np.float32(2.0)
    of_positive = np.float32(-2.0) * (np.float32(1.0) + confidence)
    num_items = len(item_factors)
    for client in range(rows.size):
        vector, base = load(user_factors, client, width), client * num_items
        for item in range(num_items):
            store(out, base + item, (two * dot(vector, load(item_factors, item, width))) * vector)
        for place in range(starts[rows[client]], starts[rows[client] + 1]):
            item = np.int64(items[place])
            error = np.float32(1.0) - dot(vector, load(item_factors, item, width))
            store(out, base + item, (of_positive * error) * vector)


def item_gradients(
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    rows: NDArray[np.int64],
    user_factors: Factors,  # of the users in `rows`
    item_factors: Factors,
    weights: Weights,
) -> Factors:
    """-2 c_ui (p_ui - x_u v_i) x_u of all items, one table under the other: (users * items, factors)."""
    num_items, num_factors = item_factors.shape
    out = np.empty((len(rows) * num_items, num_factors), np.float32)
    positives = (starts, items)
    confidence = np.float32(weights.confidence)
    _gradients(width_of(num_factors), positives, rows, user_factors, item_factors, confidence, out)
    return out


def own_rows(clients: PositiveClients, rows: NDArray[np.int64], shape: tuple[int, ...]) -> Factors:
    """Tables as of gradients that only count: a 1 in the first column of each client's positives, else zeros."""
    tables = np.zeros((len(rows), *shape), np.float32)
    for place, row in enumerate(rows.tolist()):
        tables[place, clients.items[clients.starts[row] : clients.starts[row + 1]], 0] = 1
    return tables.reshape(-1, shape[1])


@dataclass(frozen=True)
class PositiveModel:
    """Vectors of users and items, ready to rank; a newcomer's vector is solved for."""

    user_factors: Factors
    item_factors: Factors
    newcomer_weights: Callable[[int, int], Weights]  # (positives of a newcomer, items of the catalogue)
    offsets: Factors | None = None  # of each item's score

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> Factors:
        """x_u v_i, with the offset of i."""
        scores: Factors = np.einsum("nf,nf->n", self.user_factors[users], self.item_factors[items])
        return scores if self.offsets is None else scores + self.offsets[items]

    def score(self, users: NDArray[np.int32]) -> Factors:
        """The same of all items."""
        return self._scores(self.user_factors[users])

    def _scores(self, user_factors: Factors) -> Factors:
        scores: Factors = user_factors @ self.item_factors.T
        return scores if self.offsets is None else scores + self.offsets

    def narrowed(self, items: NDArray[np.int32]) -> "PositiveModel":
        """The same with these items alone."""
        offsets = None if self.offsets is None else self.offsets[items]
        return replace(self, item_factors=self.item_factors[items], offsets=offsets)

    def vectors_of_items(self) -> Factors:
        """A vector per item."""
        return self.item_factors

    def formula(self) -> Formula:
        """x_u v_i, with the offset of i."""
        return Formula(self.user_factors, self.item_factors, self.item_factors.shape[1], item_offsets=self.offsets)

    def fold_in(self, items: NDArray[np.int32], _ratings: object) -> Factors:
        """Scores of all items for a newcomer with these positives."""
        starts, row = np.array([0, len(items)]), np.zeros(1, np.int64)
        weights = self.newcomer_weights(len(items), len(self.item_factors))
        common = square(self.item_factors)
        return self._scores(solve_users(starts, items, row, self.item_factors, common, weights, self.offsets)[0])
