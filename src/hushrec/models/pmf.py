# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Probabilistic matrix factorisation: the maths that PMF, FedRec, FedRec++ and SDCF share.

Symbols: U_u = user_factors[u], V_i = item_factors[i], gamma = learning_rate, lambda = regularization,
e_ui = U_u V_i - r_ui (the papers' e with the sign of the gradient). With biases, e_ui = U_u V_i + b_u + b_i - r_ui
and b_u and b_i are the last columns of U and V (see `biases`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.evaluation.formula import Clipped, Formula, Scaled
from hushrec.kernels.rows import dot, load, store, width_of, zeros
from hushrec.models.biases import as_ratings, eased, newcomer, scale_of, steps_to_ratings
from hushrec.models.rating_clients import Factors, RatingClients
from hushrec.privacy.filling import Listing


class Step(NamedTuple):
    """How clients train in one round."""

    learning_rate: np.float32
    regularization: np.float32
    local_steps: int  # of U'; 0: virtual ratings are the client's mean rating
    learns_virtual: bool  # whether U_u learns from virtual ratings too
    is_sequential: bool  # whether V's gradients use the U_u of after its update
    predict_after: int = -1  # virtual ratings are the mean until a client has made more updates than this
    shrinkage: np.float32 = np.float32(0.0)  # how many ratings of nothing new each client learns from as well
    has_biases: bool = False  # whether the last column of U and V are biases


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


@numba.njit(nogil=True, cache=True, inline="always")
def _last(width, row, scratch):
    """The last number of a row."""
    store(scratch, 0, row)
    return scratch[0, len(width) - 1]


@numba.njit(nogil=True, cache=True, inline="always")
def _with_last(width, row, number, scratch):
    """A row with another last number."""
    store(scratch, 0, row)
    scratch[0, len(width) - 1] = number
    return load(scratch, 0, width)


@numba.njit(nogil=True, cache=True, inline="always")
def _parted(width, own, biased, scratch):
    """What a client multiplies V_i with, and the bias that it adds; without one if the token `biased` is empty."""
    if len(biased) > 0:
        return _with_last(width, own, np.float32(1.0), scratch), _last(width, own, scratch)
    return own, np.float32(0.0)


@numba.njit(nogil=True, cache=True, inline="always")
def _moved(width, biased, own, total, error_sum, num_errors, step, scratch):
    """U_u after a step of Eq. 7, given the sums of e_ui V_i and of e_ui, of which a bias has its gradient."""
    count = np.float32(num_errors)
    share = np.float32(1.0) / (count + step.shrinkage)
    pull = step.shrinkage * share
    gradient = share * total + (step.regularization * (count / (count + step.shrinkage)) + pull) * own
    if len(biased) > 0:
        bias = _last(width, own, scratch)
        gradient = _with_last(width, gradient, share * error_sum + pull * bias, scratch)
    return own - step.learning_rate * gradient


@numba.njit(nogil=True, cache=True)
def _local_vector(width, biased, moved, rated_by, squares, step, gram, scratch):
    """U' (Eq. 7, T_local steps, of which `moved` is the first), and whether its predictions can be used."""
    mine, ratings, first, num_rated = rated_by
    weighted, item_sum, rating_sum = zeros(width), zeros(width), np.float32(0.0)
    for rank in range(num_rated):
        item = load(mine, rank, width)
        weighted = weighted + ratings[first + rank] * item
        item_sum = item_sum + item
        rating_sum += ratings[first + rank]
    _gram(width, mine, num_rated, gram)
    local, count = moved, np.float32(num_rated)
    vector, bias = _parted(width, local, biased, scratch)
    total, error_sum = _times(width, gram, vector, scratch), np.float32(0.0)
    for number in range(step.local_steps):
        if len(biased) > 0:
            total = total + bias * item_sum
            error_sum = dot(vector, item_sum) + count * bias - rating_sum
        if number == step.local_steps - 1:
            break
        local = _moved(width, biased, local, total - weighted, error_sum, num_rated, step, scratch)
        vector, bias = _parted(width, local, biased, scratch)
        total = _times(width, gram, vector, scratch)
    # DEVIATION: where the local steps explode, the virtual ratings of this round are the client's mean.
    loss = dot(vector, total) - np.float32(2.0) * dot(vector, weighted) + squares
    loss += bias * (error_sum - rating_sum)
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
def _train(
    width, biased, rated, rows, user_factors, previous, num_updates, item_factors, listing, drawn, step, out
):
    starts, items, ratings = rated
    regularization, local_steps = step.regularization, step.local_steps
    gradients, _, noise_items, noise = out
    listed_starts, listed_items, rated_place = listing
    errors, mine, gram, scratch = _room(width, starts, rows)
    num_noise, last, is_drawn = np.uint64(0), np.uint64(len(width) - 1), drawn.size > 0
    for client in range(rows.size):
        row = rows[client]
        first, num_rated = starts[row], starts[row + 1] - starts[row]
        own = load(user_factors, row, width)
        store(previous, row, own)
        if num_rated == 0:
            continue
        start, bias = _parted(width, own, biased, scratch)
        # Eq. 7: the gradient of U_u over the rated items
        total, error_sum, mean_rating, squares = zeros(width), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for rank in range(num_rated):
            item = load(item_factors, np.int64(items[first + rank]), width)
            store(mine, rank, item)
            error = dot(start, item) - (ratings[first + rank] - bias)
            errors[rank] = error
            mean_rating += ratings[first + rank]
            squares += ratings[first + rank] * ratings[first + rank]
            error_sum += error
            total = total + error * item
        mean_rating *= np.float32(1.0) / np.float32(num_rated)
        moved = _moved(width, biased, own, total, error_sum, num_rated, step, scratch)
        # Eq. 1: virtual ratings are the client's mean, or predictions of U', trained locally by Eq. 7.
        local, is_predicted = moved, local_steps > 0 and num_updates[row] > step.predict_after
        if is_predicted and local_steps > 1:
            rated_by = (mine, ratings, first, num_rated)
            local, is_predicted = _local_vector(width, biased, moved, rated_by, squares, step, gram, scratch)
        # U_u V_i - U'_u V_i is computed as (U_u - U'_u) V_i
        local, local_bias = _parted(width, local, biased, scratch)
        offset = local_bias if is_predicted else mean_rating
        if step.learns_virtual:
            probe = start - local if is_predicted else start
            for place in range(listed_starts[client], listed_starts[client + 1]):
                if rated_place[place] < 0:
                    item = load(item_factors, np.int64(listed_items[place]), width)
                    error = dot(probe, item) - ((drawn[place] if is_drawn else offset) - bias)
                    error_sum += error
                    total = total + error * item
            num_listed = listed_starts[client + 1] - listed_starts[client]
            moved = _moved(width, biased, own, total, error_sum, num_listed, step, scratch)
        store(user_factors, row, moved)
        # Eq. 3: the gradients of V_i; Eq. 8: those of virtual items are the noise
        vector = start
        if step.is_sequential:
            vector, bias = _parted(width, moved, biased, scratch)
            for rank in range(num_rated):
                errors[rank] = dot(vector, load(mine, rank, width)) - (ratings[first + rank] - bias)
        probe = vector - local if is_predicted else vector
        offset -= bias
        # Unsigned places spare the check for indices from the end.
        for place in range(np.uint64(listed_starts[client]), np.uint64(listed_starts[client + 1])):
            item = load(item_factors, np.int64(listed_items[place]), width)
            # Without a branch on what cannot be guessed: a rated item's row of noise is overwritten by the next.
            rank = rated_place[place]
            error = dot(probe, item) - (drawn[place] - bias if is_drawn else offset)
            error = error if rank < 0 else errors[max(rank, 0)]
            gradient = error * vector + regularization * item
            store(gradients, place, gradient)
            noise_items[num_noise] = listed_items[place]
            store(noise, num_noise, gradient)
            if len(biased) > 0:  # which are no part of the norm
                gradients[place, last] = noise[num_noise, last] = error
            num_noise += np.uint64(rank < 0)


_NOT_DRAWN = np.empty(0, np.float32)


def train_clients(
    clients: RatingClients,
    rows: NDArray[np.int64],
    item_factors: Factors,
    listing: Listing,
    step: Step,
    drawn: NDArray[np.float32] = _NOT_DRAWN,
) -> ClientGradients:
    """Update U_u of the clients in `rows` in place (Eq. 7) and return the gradients of V (Eq. 3).

    `drawn`: virtual ratings, parallel to the listing; if none are drawn they are means or predictions, by `step`.
    """
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
    biased = width_of(int(step.has_biases))  # a token, too: kernels with and without biases are compiled apart
    _train(width_of(num_factors), biased, rated, rows, *vectors, item_factors, listing, drawn, step, out)
    return out._replace(noise_items=out.noise_items[:-1], noise=out.noise[:-1])


@numba.njit(nogil=True, cache=True)
def _predict(width, user_factors, item_factors, users, items, out):
    for place in range(users.size):
        vector = load(user_factors, np.int64(users[place]), width)
        out[place] = dot(vector, load(item_factors, np.int64(items[place]), width))


@dataclass(frozen=True)
class FactorModel:
    """U and V, ready to predict and to rank.

    With biases a rating is b_u + b_i + U_u V_i in units of the scale: an item that nobody rated is predicted by
    the user's own level (what all items have in common, and b_u), a user without ratings by the items' levels.
    Without biases, as published, neither is known, and products near zero are clipped to the end of the scale.
    """

    user_factors: Factors
    item_factors: Factors
    rating_range: tuple[float, float] | None
    learning_rates: NDArray[np.float64]  # of all rounds, for newcomers
    regularization: float
    sums_gradients: bool = False  # whether a client's step sums over its ratings instead of averaging
    has_biases: bool = False
    shrinkage: float = 0.0

    @cached_property
    def _vectors(self) -> Factors:
        """What V is multiplied with."""
        if not self.has_biases:
            return self.user_factors
        vectors = self.user_factors.copy()
        vectors[:, -1] = 1
        return vectors

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.float32]:
        """U_u V_i with biases, clipped to the range of ratings."""
        out = np.empty(len(users), np.float32)
        _predict(width_of(self.item_factors.shape[1]), self._vectors, self.item_factors, users, items, out)
        if self.has_biases:
            out = scale_of(self.rating_range).to_ratings(out + self.user_factors[users, -1])
        return out if self.rating_range is None else np.clip(out, *self.rating_range)

    def score(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """U_u V_i of all items, not clipped, so that ties are rare; with biases, eased onto the ratings' scale."""
        scores = self._vectors[users] @ self.item_factors.T
        if not self.has_biases:
            return scores
        return as_ratings(scores, self.user_factors[users, -1], self.rating_range)

    def narrowed(self, items: NDArray[np.int32]) -> "FactorModel":
        """The same with these items alone."""
        return replace(self, item_factors=self.item_factors[items])

    def vectors_of_items(self) -> NDArray[np.float32]:
        """V, without b_i."""
        return self.item_factors[:, :-1] if self.has_biases else self.item_factors

    def formula(self) -> Formula:
        """U_u V_i; with biases, on the ratings' scale."""
        limits, num_factors = self.rating_range, self.item_factors.shape[1]
        clipped = () if limits is None else (Clipped(*limits),)
        if not self.has_biases:
            return Formula(self.user_factors, self.item_factors, num_factors, predicted=clipped)
        own, scale = (self.user_factors, self.item_factors), scale_of(limits)
        return Formula(
            own[0][:, :-1], own[1][:, :-1], num_factors - 1, own[0][:, -1], own[1][:, -1],
            ranked=steps_to_ratings(limits), predicted=(Scaled(scale.unit, scale.centre), *clipped),
        )  # fmt: skip

    def fold_in(self, items: NDArray[np.int32], ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer, on the scale of ratings; its vector fits its ratings by Eq. 7.

        In closed form, with the final V and the weights that clients train with. A client makes a limited number
        of steps, which holds its vector back as a penalty does that weighs one over the sum of the learning rates.
        """
        every, count = self.item_factors.astype(np.float64), len(items)
        targets = scale_of(self.rating_range).to_units(ratings) if self.has_biases else ratings
        weight = 1 if self.sums_gradients else count
        held_back = (weight + self.shrinkage) / max(self.learning_rates.sum(), 1e-9)
        penalty = max(self.shrinkage + self.regularization * weight + held_back, 1e-9)
        bias_penalty = max(self.shrinkage, 1e-9) if self.has_biases else None
        vector = newcomer(every[items], targets.astype(np.float64), penalty, bias_penalty)
        if not self.has_biases:
            return eased((every @ vector).astype(np.float32), self.rating_range)
        scores = (every[:, :-1] @ vector[:-1] + every[:, -1] + vector[-1]).astype(np.float32)
        return as_ratings(scores[None], np.zeros(1, np.float32), self.rating_range).reshape(-1)
