# mypy: allow-untyped-defs, allow-untyped-calls
"""Gradient direction: who interacted with an item, from the vectors that its gradient is made of (DRIFT).

The orchestrator knows the vectors v_u and psi_i that it sent, and gets the gradient g_i of each item of a group:
the sum of c_u v_u over the users whose blocks hold the item, and of as many ridges. c_u < 0 moves the item up, so
the interaction was positive. The guess: the fewest users whose vectors make up the gradient; they fit but for
rounding, whoever else is in the group.

An item that does not move at all is in a block without a pair (Algorithm 2 read literally), which has positive
items only; its user does not move either, unless it has another block in the group. The guess: the only user of
the group who stays, if there is one and each user has one block, or the group has one user.

Symbols: v = user_factors, psi = item_factors.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.audit.interactions import Guesses, interacted
from hushrec.audit.requests import Floats, Moved, is_request, moved_by
from hushrec.audit.scoreboard import Attack, Own
from hushrec.audit.uploads import Pairs, paired
from hushrec.kernels.products import dot
from hushrec.protocol import Role, Seat, View

_FITS = 1e-8  # the share of a gradient's squared length that rounding may leave over
_MOST = 8  # users of one item that are looked for


class Read(NamedTuple):
    """What is read out of gradients: of the last round, and of all rounds so far."""

    now: Guesses
    positive: Pairs  # distinct users and items
    negative: Pairs


def read_gradients(before: Read | None, view: View, own: Own) -> Read:
    """The guesses of a round, added to those of the rounds before."""
    now = guess_by_directions(moved_by(view, own), own.settings.get("theta", 1))
    assert now.is_positive is not None
    pairs = paired(now.users, now.items)
    positive, negative = (before.positive, before.negative) if before else (pairs[:0], pairs[:0])
    is_positive = now.is_positive
    return Read(now, np.union1d(positive, pairs[is_positive]), np.union1d(negative, pairs[~is_positive]))


def guess_by_directions(moved: Moved, theta: int = 1) -> Guesses:
    """For each item of a group, the fewest users whose vectors make up its gradient. Weights below 0: positive."""
    asked = moved.asked
    users = _best_fits(
        asked.group_starts, asked.num_users, moved.vectors, moved.gradients, moved.regularization, theta
    )
    items, choice = np.nonzero(users >= 0)
    weights = _weights_of(moved, users)[items, choice]
    return Guesses(asked.owners[items], asked.numbers[users[items, choice]], asked.numbers[items], weights < 0)


def _weights_of(moved: Moved, users: NDArray[np.int64]) -> Floats:
    """c_u of the users of each item, by least squares; below 0 where the item does not move."""
    weights = np.full(users.shape, -1.0)
    num_users = (users >= 0).sum(axis=1) * moved.gradients.any(axis=1)
    for count in range(1, _MOST + 1):
        items = np.flatnonzero(num_users == count)
        vectors = moved.vectors[users[items, :count]]
        gradients = moved.gradients[items] - count * moved.regularization * moved.vectors[items]
        along = vectors @ gradients[:, :, None]
        if count > 1:  # of one user the sign is enough
            along = np.linalg.solve(vectors @ vectors.transpose(0, 2, 1), along).astype(np.float64)
        weights[items, :count] = along[:, :, 0]
    return weights


@numba.njit(nogil=True, cache=True)
def _best_fits(starts, num_users, vectors, moves, ridge, theta):
    users = np.full((vectors.shape[0], _MOST), -1, np.int64)
    for group in range(num_users.size):
        first, first_item = starts[group], starts[group] + num_users[group]
        own = vectors[first:first_item]
        for item in range(first_item, starts[group + 1]):
            if moves[item].any():
                chosen, num_chosen = _fewest(own, moves[item], ridge * vectors[item])
                users[item, :num_chosen] = first + chosen[:num_chosen]
            elif num_users[group] in (1, theta):
                users[item, 0] = _only_one_who_stays(moves, first, first_item)
    return users


@numba.njit(nogil=True, cache=True)
def _only_one_who_stays(moves, first, last):
    """The user of a group whose vector does not move, or its only user; -1, if that is not one."""
    found = first if last - first == 1 else -1
    for user in range(first, last):
        if not moves[user].any() and last - first > 1:
            if found >= 0:
                return -1
            found = user
    return found


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
    chosen, size = np.zeros(_MOST, np.int64), dot(gradient, gradient)
    for place in range(min(_MOST, own.shape[0], max(own.shape[1] - 1, 1))):
        target, best = rest - (place + 1) * rest_ridge, -1.0
        for user in range(own.shape[0]):
            length = dot(left[user], left[user])
            if length > _FITS * dot(own[user], own[user]) and (place or start < 0 or user == start):
                fit = dot(left[user], target) ** 2 / length
                if fit > best:
                    best, chosen[place] = fit, user
        if best < 0:
            break
        if dot(target, target) - best <= _FITS * size:
            return chosen, place + 1
        axis = left[chosen[place]] / np.sqrt(dot(left[chosen[place]], left[chosen[place]]))
        for user in range(own.shape[0]):
            left[user] -= dot(left[user], axis) * axis
        rest -= dot(rest, axis) * axis
        rest_ridge -= dot(rest_ridge, axis) * axis
    return chosen, 0


ATTACK = Attack(
    name="gradient direction",
    seats=(Seat(Role.ORCHESTRATOR),),
    guesses="who had an item, by vectors that fit its gradient",
    measure="precision",
    sentence="Taking the users whose vectors make up the gradient of an item is right for {score:.1%}; "
    "a blind guess for {chance:.1%}.",
    reads=is_request,
    look=read_gradients,
    judge=lambda read, truth: interacted(truth).judged(read.now),
    settings=("learning_rate", "regularization"),
    repairs=("--user-vectors users",),
)
