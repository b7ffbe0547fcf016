# mypy: allow-untyped-defs, allow-untyped-calls
"""Score difference (DRIFT, Sec. 4.1): who interacted with an item, from how scores move after an update.

The orchestrator knows the vectors v_u and psi_i that it sent, and gets the gradient g_i of each item of a group:
the sum of c_u v_u over the users whose blocks hold the item, and of as many ridges. c_u < 0 moves the item up, so
the interaction was positive. The report's way: the user of the group whose score of the item moved most. A better
one: the fewest users whose vectors make up the gradient; they fit but for rounding, whoever else is there.

Within a request an owner learns from group after group. The orchestrator can follow: it has all that this needs.

Symbols: v = user_factors, psi = item_factors.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.request_watching import Guesses
from hushrec.audit.attacks.requests import Asked

Floats = NDArray[np.float64]

_FITS = 1e-8  # the share of a gradient's squared length that rounding may leave over
_MOST = 8  # users of one item that are looked for


class Moved(NamedTuple):
    """Requests with vectors as they were when each group was learned from, and the gradients."""

    asked: Asked
    vectors: Floats
    gradients: Floats
    learning_rate: float
    regularization: float


def follow(
    asked: Asked,
    vectors: NDArray[np.floating],
    gradients: NDArray[np.floating],
    learning_rate: float,
    regularization: float,
) -> Moved:
    """Move vectors from group to group of a request, as the owner did. Both settings are known to all."""
    local, moves = vectors.astype(np.float64), gradients.astype(np.float64)
    order = np.lexsort((asked.numbers, asked.is_item, asked.requests))
    is_same = np.ones(len(order), np.bool_)
    for column in (asked.numbers, asked.is_item, asked.requests):
        is_same[1:] &= column[order][1:] == column[order][:-1]
    _follow(order, is_same, local, moves, learning_rate)
    return Moved(asked, local, moves, learning_rate, regularization)


@numba.njit(nogil=True, cache=True)
def _follow(order, is_same, local, moves, rate):
    for place in range(1, order.size):
        if is_same[place]:
            row, before = order[place], order[place - 1]
            for factor in range(local.shape[1]):
                local[row, factor] = local[before, factor] - rate * moves[before, factor]


def guess_by_scores(moved: Moved) -> Guesses:
    """For each item of a group, the user whose score of it moved most; up is positive."""
    asked = moved.asked
    users, is_up = _largest_change(
        asked.group_starts, asked.num_users, moved.vectors, moved.gradients, moved.learning_rate
    )
    items = np.flatnonzero(asked.is_item)
    return Guesses(asked.owners[items], asked.numbers[users[items]], asked.numbers[items], is_up[items])


@numba.njit(nogil=True, cache=True)
def _largest_change(starts, num_users, vectors, moves, rate):
    users, is_up = np.empty(vectors.shape[0], np.int64), np.empty(vectors.shape[0], np.bool_)
    for group in range(num_users.size):
        first_item = starts[group] + num_users[group]
        for item in range(first_item, starts[group + 1]):
            largest = -1.0
            for user in range(starts[group], first_item):
                change = 0.0
                for factor in range(vectors.shape[1]):
                    before = vectors[user, factor] * vectors[item, factor]
                    moved_user = vectors[user, factor] - rate * moves[user, factor]
                    change += moved_user * (vectors[item, factor] - rate * moves[item, factor]) - before
                if abs(change) > largest:
                    largest = abs(change)
                    users[item], is_up[item] = user, change > 0
    return users, is_up


def guess_by_directions(moved: Moved) -> Guesses:
    """For each item of a group, the fewest users whose vectors make up its gradient. Weights below 0: positive."""
    asked = moved.asked
    users, weights = _best_fits(
        asked.group_starts, asked.num_users, moved.vectors, moved.gradients, moved.regularization
    )
    items, choice = np.nonzero(users >= 0)
    return Guesses(
        asked.owners[items], asked.numbers[users[items, choice]], asked.numbers[items], weights[items, choice] < 0
    )


@numba.njit(nogil=True, cache=True)
def _best_fits(starts, num_users, vectors, moves, ridge):
    users = np.full((vectors.shape[0], _MOST), -1, np.int64)
    weights = np.zeros((vectors.shape[0], _MOST))
    for group in range(num_users.size):
        first, first_item = starts[group], starts[group] + num_users[group]
        own = vectors[first:first_item]
        for item in range(first_item, starts[group + 1]):
            chosen, num_chosen = _fewest(own, moves[item], ridge * vectors[item])
            some = own[chosen[:num_chosen]]
            along = some @ (moves[item] - num_chosen * ridge * vectors[item])
            if num_chosen > 1:
                along = np.linalg.solve(some @ some.T, along)
            for place in range(num_chosen):
                users[item, place], weights[item, place] = first + chosen[place], along[place]
    return users, weights


@numba.njit(nogil=True, cache=True)
def _fewest(own, gradient, ridge):
    """The users that make up a gradient, and how many; if there are none, the one closest to it."""
    chosen, num_chosen = _grown(own, gradient, ridge, -1)
    if num_chosen:
        return chosen, num_chosen
    for start in range(own.shape[0]):  # the closest one may have had no part in it
        others, num_others = _grown(own, gradient, ridge, start)
        if num_others and (num_others < num_chosen or not num_chosen):
            chosen, num_chosen = others, num_others
    return chosen, max(num_chosen, 1)


@numba.njit(nogil=True, cache=True)
def _grown(own, gradient, ridge, start):
    """Users, first `start`, if it is one, then each time the one who explains most; 0, if something is left."""
    left, rest, rest_ridge = own.copy(), gradient.copy(), ridge.copy()
    chosen, size = np.zeros(_MOST, np.int64), np.dot(gradient, gradient)
    for place in range(min(_MOST, own.shape[0], max(own.shape[1] - 1, 1))):
        target, best = rest - (place + 1) * rest_ridge, -1.0
        for user in range(own.shape[0]):
            length = np.dot(left[user], left[user])
            if length > _FITS * np.dot(own[user], own[user]) and (place or start < 0 or user == start):
                fit = np.dot(left[user], target) ** 2 / length
                if fit > best:
                    best, chosen[place] = fit, user
        if best < 0:
            break
        if np.dot(target, target) - best <= _FITS * size:
            return chosen, place + 1
        axis = left[chosen[place]] / np.sqrt(np.dot(left[chosen[place]], left[chosen[place]]))
        for user in range(own.shape[0]):
            left[user] -= np.dot(left[user], axis) * axis
        rest -= np.dot(rest, axis) * axis
        rest_ridge -= np.dot(rest_ridge, axis) * axis
    return chosen, 0
