"""FedRec++ as one bare loop: no messages, no transcript, no exact sums. The floor that the engine is held to.

It draws virtual items, trains, and adds gradients and noise to float32 totals as it goes, with the same row
arithmetic as the engine, on one thread.
"""

import numba
import numpy as np

from hushrec.draws import BLOCK_WORDS, chacha_block
from hushrec.kernels.bits import bit_of, lowest_bit
from hushrec.kernels.rows import dot, load, store, width_of, zeros
from hushrec.models.pmf import _gram


@numba.njit(nogil=True, cache=True)
def _draw(rated, drawn, num_virtual, num_unrated, num_items, key, client, round_number, words, out):
    """Virtual items of one client, ascending; returns their number."""
    is_left_out = 2 * num_virtual > num_unrated
    left = num_unrated - num_virtual if is_left_out else num_virtual
    counter, used = 0, BLOCK_WORDS
    while left > 0:
        if used == BLOCK_WORDS:
            chacha_block(key, client, round_number, counter, words)
            counter, used = counter + 1, 0
        item = (np.uint64(words[used]) * np.uint64(num_items)) >> np.uint64(32)
        used += 1
        word, bit = item >> np.uint64(6), bit_of(item)
        if (rated[word] | drawn[word]) & bit == 0:
            drawn[word] |= bit
            left -= 1
    place = 0
    for word in range(rated.size):
        virtual = ~(drawn[word] | rated[word]) if is_left_out else drawn[word]
        if is_left_out and word == rated.size - 1:
            virtual &= ~np.uint64(0) >> np.uint64((64 - num_items) & 63)
        while virtual != 0:
            out[place] = 64 * word + np.int64(lowest_bit(virtual))
            virtual &= virtual - np.uint64(1)
            place += 1
    return place


@numba.njit(nogil=True, cache=True)
def bare_round(
    width,
    starts,
    items,
    ratings,
    users,
    items_factors,
    rho,
    rates,
    local_steps,
    key,
    round_number,
    totals,
    counts,
    noise,
    noise_counts,
):
    """One round; `users` is updated in place, `totals` less `noise` is the sum of the gradients."""
    learning_rate, regularization = rates
    num_items = counts.size
    rated = np.zeros((num_items + 63) // 64, np.uint64)
    drawn = np.zeros((num_items + 63) // 64, np.uint64)
    words = np.empty(BLOCK_WORDS, np.uint32)
    virtual = np.empty(num_items, np.int64)
    mine = np.empty((num_items, len(width)), np.float32)
    gram = np.empty((len(width), len(width)), np.float32)
    scratch = np.empty((1, len(width)), np.float32)
    for client in range(starts.size - 1):
        first, num_rated = starts[client], starts[client + 1] - starts[client]
        rated[:] = 0
        drawn[:] = 0
        start, total, weighted, mean = load(users, client, width), zeros(width), zeros(width), np.float32(0.0)
        for rank in range(num_rated):
            item_number, rating = np.int64(items[first + rank]), ratings[first + rank]
            rated[item_number >> 6] |= bit_of(item_number)
            item = load(items_factors, item_number, width)
            store(mine, rank, item)
            error = dot(start, item) - rating
            mean += rating
            total = total + error * item
            weighted = weighted + rating * item
            store(totals, item_number, load(totals, item_number, width) + (error * start + regularization * item))
            counts[item_number] += 1
        share = np.float32(1.0) / np.float32(max(num_rated, 1))
        moved = start - learning_rate * (share * total + regularization * start)
        store(users, client, moved)
        probe, offset = start, mean * share
        if local_steps > 1:
            local = moved
            _gram(width, mine, num_rated, gram)
            for _ in range(local_steps - 1):
                store(scratch, 0, local)
                step = zeros(width)
                for factor in range(len(width)):
                    step = step + scratch[0, factor] * load(gram, factor, width)
                local = local - learning_rate * (share * (step - weighted) + regularization * local)
            probe, offset = start - local, np.float32(0.0)
        num_virtual = min(rho * num_rated, num_items - num_rated)
        num_unrated = num_items - num_rated
        _draw(rated, drawn, num_virtual, num_unrated, num_items, key, client, round_number, words, virtual)
        for place in range(num_virtual):
            item_number = virtual[place]
            item = load(items_factors, item_number, width)
            gradient = (dot(probe, item) - offset) * start + regularization * item
            store(totals, item_number, load(totals, item_number, width) + gradient)
            store(noise, item_number, load(noise, item_number, width) + gradient)
            counts[item_number] += 1
            noise_counts[item_number] += 1


def bare_run(rows, item_factors, user_factors, config, key, num_rounds):
    """Rounds 1..num_rounds from these factors; returns (user_factors, item_factors)."""
    users, factors = user_factors.copy(), item_factors.copy()
    totals, noise = np.empty_like(factors), np.empty_like(factors)
    counts, noise_counts = np.empty(len(factors), np.int64), np.empty(len(factors), np.int64)
    for round_number in range(1, num_rounds + 1):
        for array in (totals, noise, counts, noise_counts):
            array[:] = 0
        step = config.step(round_number)
        local_steps = step.local_steps if round_number - 1 > config.predict_after else 0
        bare_round(
            width_of(factors.shape[1]), rows.starts, rows.items, rows.ratings, users, factors, config.rho,
            (step.learning_rate, step.regularization), local_steps, key, round_number,
            totals, counts, noise, noise_counts,
        )  # fmt: skip
        raters = np.maximum(counts - noise_counts, 1)[:, None]
        factors = (factors - step.learning_rate * (totals - noise) / raters).astype(np.float32)
    return users, factors
