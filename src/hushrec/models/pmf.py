# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Probabilistic matrix factorisation: the maths that PMF, FedRec, FedRec++ and SDCF share.

Symbols: U_u = user_factors[u], V_i = item_factors[i], gamma = learning_rate, lambda = regularization,
e_ui = U_u V_i - r_ui (the papers' e with the sign of the gradient).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.kernels.rows import dot, load, store, width_of, zeros
from hushrec.privacy.filling import Listing
from hushrec.protocol import kept

Factors = NDArray[np.float32]


def initial_factors(purpose: str, numbers: NDArray[np.int32], num_factors: int, draws: Draws) -> Factors:
    """Uniform in (-0.005, 0.005), independently per coordinate."""
    return uniform_rows(draws.key(purpose), numbers, num_factors, -0.005, 0.005)


@dataclass
class RatingClients:
    """Private state of clients that hold ratings and a vector: what never leaves them.

    An update counts only if the driving side says so in its next request (`counted_round`). Until then the
    vector before it is kept, so a request can be repeated and an update that was left out is undone. Folders of
    runs that did not count updates say in which round the last one was; with all clients in all rounds, it is the
    same number.
    """

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending within a client
    ratings: NDArray[np.float32]
    num_items: int  # of the whole catalogue
    user_factors: Factors = kept(result=True)
    updated_round: NDArray[np.int32] = kept()  # of `user_factors`
    previous_user_factors: Factors = kept()
    previous_round: NDArray[np.int32] = kept()  # of `previous_user_factors`
    item_factors: Factors = kept()  # as sent at the end of a run; zero before
    num_updates: NDArray[np.int32] = kept(instead="updated_round")  # that counted, with the one of `user_factors`

    @classmethod
    def enrol(
        cls, numbers: NDArray[np.int32], rows: UserRows, num_items: int, num_factors: int, draws: Draws
    ) -> "RatingClients":
        """Clients at the start of a run; `numbers` says who they are in the whole federation."""
        assert rows.ratings is not None, "explicit feedback only"
        user_factors = initial_factors("user-factors", numbers, num_factors, draws)
        return cls.at_start(rows.starts, rows.items, rows.ratings, num_items, user_factors)

    @classmethod
    def at_start(
        cls,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        ratings: NDArray[np.float32],
        num_items: int,
        user_factors: Factors,
    ) -> "RatingClients":
        """Clients with these vectors before any update."""
        rounds = np.zeros(len(user_factors), np.int32)
        item_factors = np.zeros((num_items, user_factors.shape[1]), np.float32)
        previous = user_factors.copy(), rounds.copy()
        made = user_factors, rounds, *previous, item_factors, rounds.copy()
        return cls(starts, items, ratings, num_items, *made)

    def num_ratings(self) -> NDArray[np.int64]:
        """Ratings of each client."""
        return np.diff(self.starts)

    def check_fit(self, item_factors: Factors) -> None:
        """Refuse a V of another catalogue or another length of vectors: kernels do not look."""
        expected = (self.num_items, self.user_factors.shape[1])
        if item_factors.shape != expected:
            raise HushrecError(f"V has the shape {item_factors.shape} and clients expect {expected}; send that")

    def settle(self, rows: NDArray[np.int64], counted_round: NDArray[np.int32]) -> None:
        """Undo the last update of those clients for whom it did not count."""
        is_undone = self.updated_round[rows] != counted_round
        if not is_undone.any():
            return
        undone = rows[is_undone]
        if (self.previous_round[undone] != counted_round[is_undone]).any():
            raise HushrecError("a client holds the vectors of other rounds than were counted; enrol it anew")
        self.user_factors[undone] = self.previous_user_factors[undone]
        self.updated_round[undone] = self.previous_round[undone]
        self.num_updates[undone] -= 1

    def updated(self, rows: NDArray[np.int64], round_number: int) -> None:
        """Note that these clients made the update of a round."""
        self.previous_round[rows] = self.updated_round[rows]
        self.updated_round[rows] = round_number
        self.num_updates[rows] += 1

    def settled_factors(self, counted_round: NDArray[np.int32]) -> Factors:
        """Every client's vector with the updates that counted; changes nothing."""
        is_settled = self.updated_round == counted_round
        if is_settled.all():
            return self.user_factors
        return np.where(is_settled[:, None], self.user_factors, self.previous_user_factors)


class Step(NamedTuple):
    """How clients train in one round."""

    learning_rate: np.float32
    regularization: np.float32
    local_steps: int  # of U'; 0: virtual ratings are the client's mean rating
    learns_virtual: bool  # whether U_u learns from virtual ratings too
    is_sequential: bool  # whether V's gradients use the U_u of after its update
    predict_after: int = -1  # virtual ratings are the mean until a client has made more updates than this


class ClientGradients(NamedTuple):
    """Gradients of V per client of a cohort, and those of virtual items once more."""

    gradients: Factors  # parallel to the listing
    noise_starts: NDArray[np.int64]
    noise_items: NDArray[np.int32]
    noise: Factors


@numba.njit(nogil=True, cache=True)
def _gram(width, rows, num_rows, out):
    """The sum of the outer products of rows: with it, a gradient step costs the same for any number of rows."""
    for factor in range(0, len(width) - 1, 2):
        one, other = zeros(width), zeros(width)
        for place in range(num_rows):
            row = load(rows, place, width)
            one = one + rows[place, factor] * row
            other = other + rows[place, factor + 1] * row
        store(out, factor, one)
        store(out, factor + 1, other)
    if len(width) % 2 == 1:
        last = zeros(width)
        for place in range(num_rows):
            last = last + rows[place, len(width) - 1] * load(rows, place, width)
        store(out, len(width) - 1, last)


@numba.njit(nogil=True, cache=True)
def _local_vector(width, moved, rated_by, squares, step, gram, scratch):
    """U' (Eq. 7, T_local steps, of which `moved` is the first), and whether its predictions can be used."""
    mine, ratings, first, num_rated = rated_by
    share = np.float32(1.0) / np.float32(num_rated)
    weighted = zeros(width)
    for rank in range(num_rated):
        weighted = weighted + ratings[first + rank] * load(mine, rank, width)
    _gram(width, mine, num_rated, gram)
    local, total = moved, _times(width, gram, moved, scratch)
    for _ in range(step.local_steps - 1):
        gradient = share * (total - weighted) + step.regularization * local
        local = local - step.learning_rate * gradient
        total = _times(width, gram, local, scratch)
    # DEVIATION: where the local steps explode, the virtual ratings of this round are the client's mean.
    loss = dot(local, total) - np.float32(2.0) * dot(local, weighted) + squares
    return local, loss <= np.float32(100.0) * squares


@numba.njit(nogil=True, cache=True, inline="always")
def _times(width, matrix, row, scratch):
    """A matrix times a row."""
    store(scratch, 0, row)
    total = zeros(width)
    for factor in range(len(width)):
        total = total + scratch[0, factor] * load(matrix, factor, width)
    return total


@numba.njit(nogil=True, cache=True)
def _room(width, starts, rows):
    """Arrays to work in, with room for the client that has the most ratings."""
    longest = 0
    for client in range(rows.size):
        longest = max(longest, starts[rows[client] + 1] - starts[rows[client]])
    errors = np.empty(longest, np.float32)
    mine = np.empty((longest, len(width)), np.float32)
    gram = np.empty((len(width), len(width)), np.float32)
    scratch = np.empty((1, len(width)), np.float32)
    return errors, mine, gram, scratch


@numba.njit(nogil=True, cache=True)
def _train(width, rated, rows, user_factors, previous, num_updates, item_factors, listing, step, out):
    starts, items, ratings = rated
    learning_rate, regularization, local_steps, learns_virtual, is_sequential, predict_after = step
    gradients, _, noise_items, noise = out
    listed_starts, listed_items, rated_place = listing
    errors, mine, gram, scratch = _room(width, starts, rows)
    num_noise = np.uint64(0)
    one = np.float32(1.0)
    for client in range(rows.size):
        row = rows[client]
        first, num_rated = starts[row], starts[row + 1] - starts[row]
        start = load(user_factors, row, width)
        store(previous, row, start)
        if num_rated == 0:
            continue
        # Eq. 7: the gradient of U_u over the rated items
        total, mean_rating, squares = zeros(width), np.float32(0.0), np.float32(0.0)
        for rank in range(num_rated):
            item = load(item_factors, np.int64(items[first + rank]), width)
            store(mine, rank, item)
            error = dot(start, item) - ratings[first + rank]
            errors[rank] = error
            mean_rating += ratings[first + rank]
            squares += ratings[first + rank] * ratings[first + rank]
            total = total + error * item
        share = one / np.float32(num_rated)
        mean_rating *= share
        moved = start - learning_rate * (share * total + regularization * start)
        # Eq. 1: virtual ratings are the client's mean, or predictions of U', trained locally by Eq. 7.
        local, is_predicted = moved, local_steps > 0 and num_updates[row] > predict_after
        if is_predicted and local_steps > 1:
            rated_by = (mine, ratings, first, num_rated)
            local, is_predicted = _local_vector(width, moved, rated_by, squares, step, gram, scratch)
        # U_u V_i - U'_u V_i is computed as (U_u - U'_u) V_i
        offset = np.float32(0.0) if is_predicted else mean_rating
        if learns_virtual:
            probe = start - local if is_predicted else start
            for place in range(listed_starts[client], listed_starts[client + 1]):
                if rated_place[place] < 0:
                    item = load(item_factors, np.int64(listed_items[place]), width)
                    total = total + (dot(probe, item) - offset) * item
            share = one / np.float32(listed_starts[client + 1] - listed_starts[client])
            moved = start - learning_rate * (share * total + regularization * start)
        store(user_factors, row, moved)
        # Eq. 3: the gradients of V_i; Eq. 8: those of virtual items are the noise
        vector = moved if is_sequential else start
        if is_sequential:
            for rank in range(num_rated):
                errors[rank] = dot(vector, load(mine, rank, width)) - ratings[first + rank]
        probe = vector - local if is_predicted else vector
        # Unsigned places spare the check for indices from the end.
        for place in range(np.uint64(listed_starts[client]), np.uint64(listed_starts[client + 1])):
            item = load(item_factors, np.int64(listed_items[place]), width)
            # Without a branch on what cannot be guessed: a rated item's row of noise is overwritten by the next.
            rank = rated_place[place]
            error = dot(probe, item) - offset
            error = error if rank < 0 else errors[max(rank, 0)]
            gradient = error * vector + regularization * item
            store(gradients, place, gradient)
            noise_items[num_noise] = listed_items[place]
            store(noise, num_noise, gradient)
            num_noise += np.uint64(rank < 0)


def train_clients(
    clients: RatingClients, rows: NDArray[np.int64], item_factors: Factors, listing: Listing, step: Step
) -> ClientGradients:
    """Update U_u of the clients in `rows` in place (Eq. 7) and return the gradients of V (Eq. 3)."""
    clients.check_fit(item_factors)
    num_factors = item_factors.shape[1]
    num_listed = listing.starts[1:] - listing.starts[:-1]
    noise_starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(num_listed - (clients.starts[rows + 1] - clients.starts[rows]), out=noise_starts[1:])
    out = ClientGradients(
        np.empty((len(listing.items), num_factors), np.float32),
        noise_starts,
        np.empty(noise_starts[-1] + 1, np.int32),
        np.empty((noise_starts[-1] + 1, num_factors), np.float32),
    )
    rated = (clients.starts, clients.items, clients.ratings)
    vectors = (clients.user_factors, clients.previous_user_factors, clients.num_updates)
    _train(width_of(num_factors), rated, rows, *vectors, item_factors, listing, step, out)
    return out._replace(noise_items=out.noise_items[:-1], noise=out.noise[:-1])


@numba.njit(nogil=True, cache=True)
def _predict(width, user_factors, item_factors, users, items, out):
    for place in range(users.size):
        vector = load(user_factors, np.int64(users[place]), width)
        out[place] = dot(vector, load(item_factors, np.int64(items[place]), width))


@dataclass(frozen=True)
class FactorModel:
    """U and V, ready to predict and to rank."""

    user_factors: Factors
    item_factors: Factors
    rating_range: tuple[float, float] | None
    learning_rates: NDArray[np.float64]  # of all rounds, for newcomers
    regularization: float
    sums_gradients: bool = False  # whether a client's step sums over its ratings instead of averaging

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.float32]:
        """U_u V_i, clipped to the range of ratings."""
        out = np.empty(len(users), np.float32)
        _predict(width_of(self.item_factors.shape[1]), self.user_factors, self.item_factors, users, items, out)
        return out if self.rating_range is None else np.clip(out, *self.rating_range)

    def score(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """U_u V_i of all items, not clipped, so that ties are rare."""
        return self.user_factors[users] @ self.item_factors.T

    def vectors_of_items(self) -> NDArray[np.float32]:
        """V."""
        return self.item_factors

    def fold_in(self, items: NDArray[np.int32], ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer, who makes the steps of Eq. 7 that clients made, with the final V."""
        known = self.item_factors[items].astype(np.float64)
        vector = np.zeros(known.shape[1])
        share = 1.0 if self.sums_gradients else 1.0 / max(len(items), 1)
        for learning_rate in self.learning_rates:
            errors = known @ vector - ratings
            vector -= learning_rate * (share * (errors @ known) + self.regularization * vector)
        return (self.item_factors @ vector).astype(np.float32)
