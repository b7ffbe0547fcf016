# mypy: allow-untyped-defs, allow-untyped-calls
"""Fitting pairs: of what a ranking upload pulls up, the items whose pairs add up to the client's vector are its.

Where clients learn to rank pairs (FedRec++ with a ranking loss), every row of an upload is a multiple of the
client's vector U, whose last number is 1. A row of an item j that is pushed down ends with 1 / negatives times
sigma(-(x_i - x_j)), where x are scores and i is the item that it is paired with. The server has U and the V that
it sent, so this names i, and whatever is pulled up gets its pairs. Of each it takes D_i, the sum of
sigma(-x) (V_i - V_j) / negatives, without the biases. At the minimum over real pairs, lambda U is the sum of their
D_i. So the server asks how much of each D_i, from nothing to all of it, adds up to lambda U, while it expects one
of 1 + rho to be real.

Where there is no room for a negative of its own in each pair, pairs are not found. Then every row counts by
itself.
"""

import numba
import numpy as np

from hushrec.audit.attacks.pulled_up import Floats, Scored, Shown, has_gradients, judge, shown
from hushrec.audit.scoreboard import Attack, Own
from hushrec.kernels.box_fit import box_fit
from hushrec.protocol import Role, Seat, View

_WEIGHT = 1e-3  # of what is expected, beside what fits: a share of the mean square of a column


@numba.njit(nogil=True, cache=True)
def _mate(score, slope, share, ascending):
    """The place among scores of positives of the one whose pair with a negative has this slope."""
    wanted = score + np.log(share / slope - 1.0)
    place = np.searchsorted(ascending, wanted)
    if place == ascending.size or (place > 0 and wanted - ascending[place - 1] < ascending[place] - wanted):
        place -= 1
    return place


@numba.njit(nogil=True, cache=True)
def _paired_parts(slopes, vectors, scores, plain, share):
    """D of each positive, in the order of rows."""
    up = np.flatnonzero(slopes < 0)
    order = np.argsort(scores[up])
    ascending = scores[up[order]]
    parts = np.zeros((up.size, vectors.shape[1] - 1))
    for row in range(slopes.size):
        if 0 < slopes[row] < share:
            place = order[_mate(scores[row], slopes[row], share, ascending)]
            slope = share / (1.0 + np.exp(plain[up[place]] - plain[row]))
            for factor in range(parts.shape[1]):
                parts[place, factor] += slope * (vectors[up[place], factor] - vectors[row, factor])
    return parts


@numba.njit(nogil=True, cache=True)
def _single_parts(slopes, vectors):
    """What each row would add by itself: positives in the order of rows, then negatives."""
    rows = np.concatenate((np.flatnonzero(slopes < 0), np.flatnonzero(slopes > 0)))
    parts = np.empty((rows.size, vectors.shape[1] - 1))
    for place in range(rows.size):
        for factor in range(parts.shape[1]):
            parts[place, factor] = -slopes[rows[place]] * vectors[rows[place], factor]
    return parts


@numba.njit(nogil=True, cache=True)
def _fit(starts, items, slopes, users, vectors, negatives, expected, strength, out):
    """Set, for each row that is pulled up, how much of it fits its client's vector."""
    for client in range(starts.size - 1):
        first, last = starts[client], starts[client + 1]
        own, user = slopes[first:last], users[client]
        rows = vectors[items[first:last]]
        plain = np.zeros(own.size)
        for row in range(own.size):
            for factor in range(user.size - 1):
                plain[row] += rows[row, factor] * user[factor]
        up = np.flatnonzero(own < 0)
        if up.size == 0:
            continue
        if np.sum(own > 0) == negatives * up.size:
            parts = _paired_parts(own, rows, plain + rows[:, -1] * user[-1], plain, 1.0 / negatives)
        else:
            parts = _single_parts(own, rows)
        weight = _WEIGHT * np.sum(parts * parts) / parts.shape[1]
        if weight > 0.0:
            out[first + up] = box_fit(parts, strength * user[:-1], expected, weight)[: up.size]


def fitting(view: View, own: Own) -> Scored:
    """The items that each client pulls up, each with how much of its pairs fits the client's vector."""
    return Scored.of([one.pulled_up(_fits(one, own)) for one in shown(view)])


def _fits(one: Shown, own: Own) -> Floats:
    settings, out = own.settings, np.zeros(len(one.items))
    expected = 1.0 / (1.0 + settings["rho"])
    known = int(settings["negatives"]), expected, float(settings["regularization"])
    _fit(one.starts, one.items, one.slopes, one.users, one.vectors, *known, out)
    return out


ATTACK = Attack(
    name="fitting pairs",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those of one upload that explain the user's vector",
    measure="AUC",
    sentence="Of one of the user's own items and a virtual one that an upload pulls up as well, the own one "
    "explains the user's vector better in {score:.0%} of cases; blindly it would be {chance:.0%}.",
    reads=has_gradients,
    look=lambda _before, view, own: fitting(view, own),
    judge=judge,
    settings=("negatives", "looks", "regularization", "rho"),
)
