# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Bayesian personalised ranking: the maths of FedRec++ with a ranking loss.

A client ranks each of its items i above an item j that it does not have. The loss of such a pair is
-ln sigma(x_ij) with x_ij = U_u (V_i - V_j). The last column of V is the items' bias; the last number of U_u is 1
and stays so.

U_u is the minimum of that loss over the client's pairs, divided by `negatives`, plus lambda / 2 |U_u|^2, where the
biases are left out of x_ij: else pairs that popularity explains would teach U_u nothing, and whoever has popular
items only would get a list of popular items only. It is convex, so a client needs no memory: it solves for U_u
anew with every V that it gets, by a fixed number of accelerated gradient steps from zero (Nesterov 1983). Their
size is 1 / L, where L = lambda + the sum of |V_i - V_j|^2 / (4 negatives) over the pairs bounds the curvature, so
they cannot diverge. Newcomers do the same. The gradients of V are those of x_ij with the biases.

Who has much of the catalogue, say half of it, leaves little unrated, and much of that was only not met yet: a
vector that ranks it last learns the wrong thing by heart. So lambda can grow with what a client has, to
lambda (1 + crowding r^2), where r is the number of its items over that of all others.

Symbols: U_u = user_factors[u], V_i = item_factors[i], I_u = a client's items, c_ij = sigma(-x_ij),
lambda = regularization.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, Key, uniform_rows
from hushrec.errors import HushrecError
from hushrec.evaluation.formula import Formula
from hushrec.kernels.adam import adam
from hushrec.kernels.rows import dot, load, multiply, store, width_of, zeros
from hushrec.models.bpr_virtual import REAL, VIRTUAL, draw_negatives, draw_virtual, step_weights
from hushrec.protocol import kept

Factors = NDArray[np.float32]


class Pairing(NamedTuple):
    """How clients make up pairs, and how they solve for U_u."""

    negatives: int  # per item of the client
    rho: int  # virtual pairs per real one
    num_looks: int  # unrated items that a client looks at for each virtual one: see `bpr_virtual`
    num_steps: int
    regularization: np.float32
    crowding: np.float32 = np.float32(0.0)  # how much more of it, the more of all items a client has


class Sizes(NamedTuple):
    """How many items of each kind clients list."""

    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    virtual_positives: NDArray[np.int64]
    virtual_negatives: NDArray[np.int64]

    def total(self) -> NDArray[np.int64]:
        """All that each client lists."""
        return self.positives + self.negatives + self.virtual_positives + self.virtual_negatives


def sizes_of(num_positives: NDArray[np.int64], negatives: int, rho: int, num_items: int) -> Sizes:
    """How much each client lists; who has no item, or all of them, lists nothing.

    Real negatives are at most half of the unrated items, so that something is left for virtual pairs. Where too
    little is left for rho of these per real pair, what is left is shared out in the proportion of real ones, and a
    negative that would be in no pair is left out.
    """
    num_unrated = num_items - num_positives
    num_negatives = np.minimum(negatives * num_positives, (num_unrated + 1) // 2)
    own = np.where(num_negatives > 0, num_positives, 0)
    both, left = np.maximum(own + num_negatives, 1), num_unrated - num_negatives
    has_room = rho * both <= left
    virtual = np.where(has_room, rho * own, left * own // both)
    virtual_negatives = np.where(has_room, rho * num_negatives, np.minimum(left - virtual, negatives * virtual))
    is_paired = (virtual > 0) & (virtual_negatives > 0) & (rho > 0)
    return Sizes(own, num_negatives, np.where(is_paired, virtual, 0), np.where(is_paired, virtual_negatives, 0))


@dataclass
class RankingClients:
    """Private state of clients that hold items: what never leaves them."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending within a client
    num_items: int  # of the whole catalogue
    user_factors: Factors = kept(result=True)  # as solved last; zero before, but for the 1 at the end
    item_factors: Factors = kept()  # as sent at the end of a run; zero before

    @classmethod
    def enrol(
        cls, starts: NDArray[np.int64], items: NDArray[np.int32], num_items: int, num_factors: int
    ) -> "RankingClients":
        """Clients at the start of a run."""
        user_factors = np.zeros((len(starts) - 1, num_factors + 1), np.float32)
        user_factors[:, -1] = 1.0
        return cls(starts, items, num_items, user_factors, np.zeros((num_items, num_factors + 1), np.float32))

    def num_positives(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """Items of each client."""
        numbers: NDArray[np.int64] = np.diff(self.starts)[rows]
        return numbers

    def check_fit(self, item_factors: Factors) -> None:
        """Refuse a V of another catalogue or another length of vectors: kernels do not look."""
        if item_factors.shape != self.item_factors.shape:
            raise HushrecError(
                f"V has the shape {item_factors.shape} and clients expect {self.item_factors.shape}; send that"
            )


def initial_item_factors(num_items: int, num_factors: int, scale: float, draws: Draws) -> Factors:
    """Uniform in (-scale, scale), independently per coordinate; biases are zero."""
    items = np.arange(num_items, dtype=np.int32)
    vectors = uniform_rows(draws.key("item-factors"), items, num_factors, -scale, scale)
    return np.hstack([vectors, np.zeros((num_items, 1), np.float32)])


def adam_step(
    item_factors: Factors,
    means: Factors,
    squares: Factors,
    gradient: NDArray[np.float64],
    learning_rate: float,
    bias_pace: float,  # how much faster the last column goes
    num_steps: int,
) -> tuple[Factors, Factors, Factors]:
    """V, and Adam's means and squares, after step number `num_steps`."""
    after = item_factors.copy(), gradient.astype(np.float32), means.copy(), squares.copy()
    for columns, pace in ((np.s_[:, :-1], 1.0), (np.s_[:, -1:], bias_pace)):
        parts = [array[columns].flatten() for array in after]
        adam(parts[0], parts[1], parts[2], parts[3], learning_rate * pace, num_steps)
        for array, part in zip(after, parts, strict=True):
            array[columns] = part.reshape(len(array), -1)
    return after[0], after[2], after[3]


# --- Pairs -------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True, inline="always")
def _slope(margin):
    """How much a pair still pulls: c = sigma(-x)."""
    return np.float32(1.0) / (np.float32(1.0) + np.exp(margin))


@numba.njit(nogil=True, cache=True)
def _solve(width, differences, num_pairs, pairing, strength, path):
    """U_u without its last number, by accelerated gradient steps from zero, and their size.

    `strength` is the client's lambda; `path` gets where the gradient of each step is taken.
    """
    share = np.float32(1.0) / np.float32(pairing.negatives)
    squares = np.float32(0.0)
    for place in range(num_pairs):
        difference = load(differences, place, width)
        squares += dot(difference, difference)
    step = np.float32(1.0) / (strength + np.float32(0.25) * share * squares)
    vector, ahead = zeros(width), zeros(width)
    momentum = 1.0
    for number in range(pairing.num_steps):
        store(path, number, ahead)
        total = zeros(width)
        for place in range(num_pairs):
            difference = load(differences, place, width)
            total = total + _slope(dot(ahead, difference)) * difference
        moved = ahead - step * (strength * ahead - share * total)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = moved + np.float32((momentum - 1.0) / following) * (moved - vector)
        vector, momentum = moved, following
    return vector, step


@numba.njit(nogil=True, cache=True)
def _add_slopes(width, vector, item_factors, positives, negatives, per_positive, slopes):
    """The gradient's factor of every item of these pairs: positives are pulled up, negatives pushed down."""
    share = np.float32(1.0) / np.float32(per_positive)
    for place in range(positives.size * per_positive):
        item, other = np.int64(positives[place // per_positive]), np.int64(negatives[place % negatives.size])
        margin = dot(vector, load(item_factors, item, width)) - dot(vector, load(item_factors, other, width))
        slope = share * _slope(margin)
        slopes[item] -= slope
        slopes[other] += slope


@numba.njit(nogil=True, cache=True)
def _solve_client(width, own, negatives, item_factors, fixed, differences, pairing, path):
    """Take the differences of a client's pairs without the biases; solve for its vector; step size, lambda."""
    last, others = load(fixed, 0, width), load(fixed, 1, width)
    for place in range(own.size * pairing.negatives):
        item, other = np.int64(own[place // pairing.negatives]), np.int64(negatives[place % negatives.size])
        difference = load(item_factors, item, width) - load(item_factors, other, width)
        store(differences, place, multiply(others, difference))
    share = np.float32(own.size) / np.float32(len(item_factors) - own.size)
    strength = pairing.regularization * (np.float32(1.0) + pairing.crowding * share * share)
    vector, step = _solve(width, differences, own.size * pairing.negatives, pairing, strength, path)
    return last + vector, step, strength


@numba.njit(nogil=True, cache=True)
def _write_rows(width, vector, items, kinds, slopes, first, out, num_noise):
    """List items in ascending order, each with its gradient; those of virtual ones are the noise as well."""
    listed, gradients, noise_items, noise = out
    items.sort()
    for place in range(items.size):
        item = items[place]
        listed[first + place] = item
        gradient = slopes[item] * vector
        store(gradients, first + place, gradient)
        if kinds[item] == VIRTUAL:
            noise_items[num_noise] = item
            store(noise, num_noise, gradient)
            num_noise += 1
        kinds[item], slopes[item] = 0, np.float32(0.0)
    return num_noise


@numba.njit(nogil=True, cache=True)
def _train(width, clients, rows, numbers, sizes, item_factors, keys, round_number, pairing, user_factors, out):
    starts, items = clients
    num_own, num_negatives, num_virtual, num_virtual_negatives = sizes
    kinds = np.zeros(len(item_factors), np.int8)
    slopes = np.zeros(len(item_factors), np.float32)
    differences = np.empty((max(num_own.max() * pairing.negatives, 1), len(width)), np.float32)
    path = np.empty((pairing.num_steps, len(width)), np.float32)
    fixed = np.zeros((2, len(width)), np.float32)
    fixed[0, -1], fixed[1, :-1] = 1.0, 1.0  # (0, ..., 0, 1) and (1, ..., 1, 0)
    first, num_noise = 0, 0
    for client in range(rows.size):
        if num_own[client] == 0:
            continue
        own = items[starts[rows[client]] : starts[rows[client] + 1]]
        listed = np.empty(
            num_own[client] + num_negatives[client] + num_virtual[client] + num_virtual_negatives[client], np.int64
        )
        listed[: own.size] = own
        kinds[own] = REAL
        ends = own.size + num_negatives[client], listed.size - num_virtual_negatives[client]
        negatives, virtual, others = listed[own.size : ends[0]], listed[ends[0] : ends[1]], listed[ends[1] :]
        draw_negatives((keys[0], numbers[client], round_number), kinds, negatives, negatives.size)
        vector, step, strength = _solve_client(
            width, own, negatives, item_factors, fixed, differences, pairing, path
        )
        store(user_factors, rows[client], vector)
        _add_slopes(width, vector, item_factors, own, negatives, pairing.negatives, slopes)
        if virtual.size:
            weights = step_weights(step, strength, 1.0 / pairing.negatives, pairing.num_steps)
            solved = own, negatives, vector, differences, path, weights
            drawn, how = (keys[1], numbers[client], round_number), (pairing.num_looks, pairing.negatives)
            draw_virtual(width, drawn, solved, item_factors, fixed, kinds, how, virtual, others)
            _add_slopes(width, vector, item_factors, virtual, others, pairing.negatives, slopes)
        num_noise = _write_rows(width, vector, listed, kinds, slopes, first, out, num_noise)
        first += listed.size


class Keys(NamedTuple):
    """Of what clients draw."""

    negatives: Key
    virtual: Key


def keys_of(draws: Draws) -> Keys:
    """The keys of a run."""
    return Keys(draws.key("negatives"), draws.key("virtual-items"))


class PairGradients(NamedTuple):
    """Gradients of V per client of a cohort, and those of virtual pairs once more."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending, so that the order tells nothing
    gradients: Factors
    noise_starts: NDArray[np.int64]
    noise_items: NDArray[np.int32]
    noise: Factors

    def is_real(self, num_items: int) -> NDArray[np.bool_]:
        """Of each listed item, whether it is of a real pair."""
        listed, noise = (
            np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * num_items + items
            for starts, items in ((self.starts, self.items), (self.noise_starts, self.noise_items))
        )
        is_real = np.ones(len(listed), np.bool_)
        is_real[np.searchsorted(listed, noise)] = False
        return is_real


def counted(trained: PairGradients) -> PairGradients:
    """The same lists with -1 in the bias's place of what is pulled up, and zeros else: sums are counts.

    What is pulled up has a gradient below zero there.
    """

    def ones(gradients: Factors) -> Factors:
        rows = np.zeros_like(gradients)
        rows[:, -1] = np.where(gradients[:, -1] < 0, -1, 0)
        return rows

    return trained._replace(gradients=ones(trained.gradients), noise=ones(trained.noise))


def train_clients(
    clients: RankingClients,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    item_factors: Factors,
    pairing: Pairing,
    keys: Keys,
    round_number: int,
) -> PairGradients:
    """Solve for U_u of the clients in `rows`, which they keep, and return the gradients of V.

    Real negatives do not depend on rho, and virtual pairs change neither U_u nor a row of a real one.
    """
    clients.check_fit(item_factors)
    num_factors = item_factors.shape[1]
    sizes = sizes_of(clients.num_positives(rows), pairing.negatives, pairing.rho, clients.num_items)
    starts = np.concatenate([[0], np.cumsum(sizes.total())])
    noise_starts = np.concatenate([[0], np.cumsum(sizes.virtual_positives + sizes.virtual_negatives)])
    out = (
        np.empty(starts[-1], np.int32),
        np.empty((starts[-1], num_factors), np.float32),
        np.empty(noise_starts[-1], np.int32),
        np.empty((noise_starts[-1], num_factors), np.float32),
    )
    held, width = (clients.starts, clients.items), width_of(num_factors)
    drawn = tuple(keys), round_number, pairing
    _train(width, held, rows, numbers, tuple(sizes), item_factors, *drawn, clients.user_factors, out)
    return PairGradients(starts, out[0], out[1], noise_starts, out[2], out[3])


@dataclass(frozen=True)
class RankingModel:
    """Vectors of users and items, ready to rank; a newcomer's vector is solved for."""

    user_factors: Factors
    item_factors: Factors
    pairing: Pairing  # of newcomers

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> Factors:
        """U_u V_i."""
        scores: Factors = np.einsum("nf,nf->n", self.user_factors[users], self.item_factors[items])
        return scores

    def score(self, users: NDArray[np.int32]) -> Factors:
        """U_u V_i of all items."""
        scores: Factors = self.user_factors[users] @ self.item_factors.T
        return scores

    def narrowed(self, items: NDArray[np.int32]) -> "RankingModel":
        """The same with these items alone."""
        return replace(self, item_factors=self.item_factors[items])

    def vectors_of_items(self) -> Factors:
        """Without the biases, which say how popular an item is and not what it is like."""
        return self.item_factors[:, :-1]

    def formula(self) -> Formula:
        """U_u V_i; users' vectors end with a 1 where those of items have the bias."""
        return Formula(self.user_factors, self.item_factors, self.item_factors.shape[1])

    def fold_in(self, items: NDArray[np.int32], _ratings: object) -> Factors:
        """Scores of all items for a newcomer with these, who solves for its vector as clients do."""
        num_items, num_factors = self.item_factors.shape
        starts, row = np.array([0, len(items)]), np.zeros(1, np.int64)
        newcomer = RankingClients.enrol(starts, items, num_items, num_factors - 1)
        keys = keys_of(Draws(0))
        train_clients(newcomer, row, np.zeros(1, np.int32), self.item_factors, self.pairing, keys, 0)
        scores: Factors = newcomer.user_factors[0] @ self.item_factors.T
        return scores
