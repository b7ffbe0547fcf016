# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Matrix factorisation by stochastic gradient Langevin dynamics (SGLD), as SDCF's clients train it.

Symbols: as in `pmf`; Lambda = precisions, the diagonal of the prior's precision.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block, normal_pair
from hushrec.kernels.rows import dot, load, multiply, store, width_of, zeros
from hushrec.models.pmf import ClientGradients
from hushrec.models.rating_clients import Factors, RatingClients
from hushrec.privacy.filling import Listing


class LangevinStep(NamedTuple):
    """How clients train in one round."""

    learning_rate: np.float32
    noise_deviation: np.float32  # of each coordinate: sqrt(gamma) as published
    precisions: NDArray[np.float32]  # (1, factors)
    key: Key
    round_number: int


@numba.njit(nogil=True, cache=True)
def _noise(key, party, round_number, block, deviation, words, out):
    """Fill `out[0]` with normal noise from the blocks that begin at `block`; return the next block."""
    for factor in range(0, out.shape[1], 2):
        word = factor % BLOCK_WORDS
        if word == 0:
            chacha_block(key, party, round_number, block, words)
            block += 1
        one, other = normal_pair(words[word], words[word + 1])
        out[0, factor] = deviation * one
        if factor + 1 < out.shape[1]:
            out[0, factor + 1] = deviation * other
    return block


@numba.njit(nogil=True, cache=True)
def _train(width, rated, rows, numbers, user_factors, previous, item_factors, listing, step, out):
    starts, items, ratings = rated
    learning_rate, deviation, precisions, key, round_number = step
    gradients, noise_starts, noise_items, noise = out
    listed_starts, listed_items, rated_place = listing
    words = np.empty(BLOCK_WORDS, np.uint32)
    picks = np.empty(BLOCK_WORDS, np.uint32)
    langevin = np.empty((1, len(width)), np.float32)
    longest = 0
    for client in range(rows.size):
        longest = max(longest, starts[rows[client] + 1] - starts[rows[client]])
    errors = np.empty(longest, np.float32)
    precision = load(precisions, 0, width)
    num_noise = 0
    for client in range(rows.size):
        row, party = rows[client], numbers[client]
        first, num_rated = starts[row], starts[row + 1] - starts[row]
        start = load(user_factors, row, width)
        store(previous, row, start)
        total = zeros(width)
        for rank in range(num_rated):
            item = load(item_factors, np.int64(items[first + rank]), width)
            errors[rank] = dot(start, item) - ratings[first + rank]
            total = total + errors[rank] * item
        block = _noise(key, party, round_number, 0, deviation, words, langevin)
        move = learning_rate * (total + multiply(precision, start)) - load(langevin, 0, width)
        if num_rated > 0:
            store(user_factors, row, start - move)
        for place in range(listed_starts[client], listed_starts[client + 1]):
            rank = rated_place[place]
            if rank < 0:
                # The error of an unrated item is one of the client's own errors, drawn at random.
                chacha_block(key, party, round_number, block, picks)
                block += 1
                rank = np.int64((np.uint64(picks[0]) * np.uint64(num_rated)) >> np.uint64(32))
            error = errors[rank] if num_rated > 0 else np.float32(0.0)
            block = _noise(key, party, round_number, block, deviation, words, langevin)
            item = load(item_factors, np.int64(listed_items[place]), width)
            # Eq. 10
            gradient = learning_rate * (error * start + multiply(precision, item)) - load(langevin, 0, width)
            store(gradients, place, gradient)
            if rated_place[place] < 0:
                noise_items[num_noise] = listed_items[place]
                store(noise, num_noise, gradient)
                num_noise += 1
        noise_starts[client + 1] = num_noise


def train_clients(
    clients: RatingClients,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    item_factors: Factors,
    listing: Listing,
    step: LangevinStep,
) -> ClientGradients:
    """Update U_u of the clients in `rows` in place and return the gradients of V, learning rate inside."""
    clients.check_fit(item_factors)
    num_factors = item_factors.shape[1]
    num_noise = int(np.count_nonzero(listing.rated_place < 0))
    out = ClientGradients(
        np.empty((len(listing.items), num_factors), np.float32),
        np.zeros(len(rows) + 1, np.int64),
        np.empty(num_noise, np.int32),
        np.empty((num_noise, num_factors), np.float32),
    )
    rated = (clients.starts, clients.items, clients.ratings)
    vectors = (clients.user_factors, clients.previous_user_factors)
    _train(width_of(num_factors), rated, rows, numbers, *vectors, item_factors, listing, step, out)
    return out
