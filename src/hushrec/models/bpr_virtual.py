# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Virtual pairs that look like real ones, for a server that knows how U_u was made.

A client's U_u is a sum over its real pairs: each step of the solver adds c_ij (V_i - V_j) of every pair, c_ij
taken where the solver stood, so U_u is the sum of e_ij = w_ij (V_i - V_j), where w_ij adds up what all steps made
of c_ij. Whoever has U_u can ask which pairs add up to it. So virtual pairs are chosen one after the other such
that, with those before, they add up to what as many real pairs do: then rho + 1 sets of pairs give the same U_u,
and to take an equal share of all pairs does too. A virtual positive also scores like the item that it stands for.

How close they come is a matter of how many items a client looks at, and costs the model nothing: noise is taken
out whatever it is. Who has few items has few choices, and is hidden less.

Symbols: U_u = a row of user_factors, V = item_factors, c_ij = sigma(-x_ij), missing = what virtual pairs lack.
"""

import numba
import numpy as np

from hushrec.draws import BLOCK_WORDS, chacha_block
from hushrec.kernels.rows import dot, load, multiply, zeros

REAL, VIRTUAL = 1, 2  # what a listed item is

# What a score that is off by one counts, in squared lengths of a pair's e: of a positive, of a negative.
_POSITIVE_SCORE, _NEGATIVE_SCORE = np.float32(3.0), np.float32(0.1)


@numba.njit(nogil=True, cache=True)
def _draw(stream, words, drawn, count):
    """The next number below `count` of a stream; `stream` counts the words that were used."""
    key, party, round_number = drawn
    place = stream[0] % BLOCK_WORDS
    if place == 0:
        chacha_block(key, party, round_number, stream[0] // BLOCK_WORDS, words)
    stream[0] += 1
    return np.int64((np.uint64(words[place]) * np.uint64(count)) >> np.uint64(32))


@numba.njit(nogil=True, cache=True)
def draw_negatives(drawn, kinds, out, num_drawn):
    """So many items without a part; they are real negatives now."""
    words, stream = np.empty(BLOCK_WORDS, np.uint32), np.zeros(1, np.int64)
    for place in range(num_drawn):
        item = _draw(stream, words, drawn, kinds.size)
        while kinds[item] != 0:
            item = _draw(stream, words, drawn, kinds.size)
        kinds[item] = REAL
        out[place] = item


@numba.njit(nogil=True, cache=True)
def step_weights(step, regularization, share, num_steps):
    """How much of what each accelerated step adds is left at the end: w_ij without c_ij."""
    vector, ahead = np.zeros(num_steps), np.zeros(num_steps)
    momentum = 1.0
    for number in range(num_steps):
        moved = (1.0 - step * regularization) * ahead
        moved[number] += step * share
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = moved + (momentum - 1.0) / following * (moved - vector)
        vector, momentum = moved, following
    return vector.astype(np.float32)


@numba.njit(nogil=True, cache=True)
def _weight(width, difference, path, weights):
    """w_ij of a pair."""
    total = np.float32(0.0)
    for number in range(weights.size):
        total += weights[number] / (np.float32(1.0) + np.exp(dot(load(path, number, width), difference)))
    return total


@numba.njit(nogil=True, cache=True)
def _real_pairs(width, differences, path, weights, pair_weights):
    """Set w_ij of the real pairs; return the mean squared length of e_ij."""
    total = np.float32(0.0)
    for place in range(pair_weights.size):
        difference = load(differences, place, width)
        weight = _weight(width, difference, path, weights)
        pair_weights[place] = weight
        total += weight * weight * dot(difference, difference)
    return total / np.float32(max(pair_weights.size, 1))


@numba.njit(nogil=True, cache=True)
def _take_nearest(width, stream, words, drawn, num_looks, free, num_free, item_factors, views, wanted, factors):
    """Of so many drawn items take that with the least |wanted - factor V_i|^2 + score_matters * (score away)^2."""
    vector, others, score = views
    factor, score_matters = factors
    chosen, least = -1, np.float32(np.inf)
    for _ in range(num_looks):
        place = _draw(stream, words, drawn, num_free)
        row = load(item_factors, np.int64(free[place]), width)
        lacking = wanted - factor * multiply(others, row)
        off = dot(vector, row) - score
        away = dot(lacking, lacking) + score_matters * off * off
        if chosen < 0 or away < least:
            chosen, least = place, away
    item = free[chosen]
    free[chosen] = free[num_free - 1]
    return item


@numba.njit(nogil=True, cache=True)
def draw_virtual(width, drawn, client, item_factors, fixed, kinds, how, virtual, virtual_negatives):
    """Choose virtual positives and their negatives; where these are too few, several pairs have the same one."""
    own, negatives, vector, differences, path, weights = client
    num_looks, per_positive = how
    others, free, num_free = load(fixed, 1, width), np.flatnonzero(kinds == 0), np.sum(kinds == 0)
    stream, words = np.zeros(1, np.int64), np.empty(BLOCK_WORDS, np.uint32)
    pair_weights = np.empty(own.size * per_positive, np.float32)
    squared = _real_pairs(width, differences, path, weights, pair_weights)
    missing = zeros(width)
    for place in range(virtual.size):
        first = place % own.size * per_positive
        real = load(item_factors, np.int64(own[place % own.size]), width)
        weight = np.sum(pair_weights[first : first + per_positive])
        views, wanted = (vector, others, dot(vector, real)), missing + weight * multiply(others, real)
        factors = weight, _POSITIVE_SCORE * squared
        item = _take_nearest(
            width, stream, words, drawn, num_looks, free, num_free, item_factors, views, wanted, factors
        )
        num_free -= 1
        kinds[item] = VIRTUAL
        virtual[place] = item
        mine = multiply(others, load(item_factors, np.int64(item), width))
        for number in range(per_positive):
            pair, weight = place * per_positive + number, pair_weights[first + number]
            missing = missing + weight * load(differences, first + number, width)
            if pair < virtual_negatives.size:
                real = load(item_factors, np.int64(negatives[(first + number) % negatives.size]), width)
                views, wanted = (vector, others, dot(vector, real)), weight * mine - missing
                factors = weight, _NEGATIVE_SCORE * squared
                other = _take_nearest(
                    width, stream, words, drawn, num_looks, free, num_free, item_factors, views, wanted, factors
                )
                num_free -= 1
                kinds[other] = VIRTUAL
                virtual_negatives[pair] = other
            other = virtual_negatives[pair % virtual_negatives.size]
            difference = mine - multiply(others, load(item_factors, np.int64(other), width))
            missing = missing - _weight(width, difference, path, weights) * difference
