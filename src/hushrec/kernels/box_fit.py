# mypy: allow-untyped-defs, allow-untyped-calls
"""Least squares within bounds: how much of each row, from nothing to all of it, adds up to a target.

A target has few numbers and there are many rows, so the problem is solved in its dual, which has as few unknowns:
with y = (target - sum of z_i row_i) / weight, the best z_i is expected + row_i y, cut off at 0 and 1. What is left
is to find the y that agrees with itself, by Newton's method; a step is halved until the dual has grown.
"""

import numba
import numpy as np

from hushrec.kernels.cholesky import solve

_MOST_STEPS, _MOST_HALVINGS = 1000, 30
_CLOSE = 1e-10  # what may be missing, as a share of the target
_GROWTH = 1e-4  # of what a step promises, so much must come


@numba.njit(nogil=True, cache=True)
def _take(rows, target, expected, weight, multipliers, shares, missing):
    """Set how much of each row is taken and what is missing then; return the dual's value."""
    value = 0.0
    for factor in range(target.size):
        missing[factor] = target[factor] - weight * multipliers[factor]
        value += (target[factor] - 0.5 * weight * multipliers[factor]) * multipliers[factor]
    for place in range(shares.size):
        reach = 0.0
        for factor in range(target.size):
            reach += rows[place, factor] * multipliers[factor]
        share = min(max(expected + reach, 0.0), 1.0)
        shares[place] = share
        value += 0.5 * (share - expected) ** 2 - share * reach
        for factor in range(target.size):
            missing[factor] -= share * rows[place, factor]
    return value


@numba.njit(nogil=True, cache=True)
def _curvature(rows, shares, weight, matrix):
    """Set the lower half of: weight on the diagonal, plus the squares of the rows that are taken in part."""
    matrix[:] = 0.0
    for factor in range(len(matrix)):
        matrix[factor, factor] = weight
    for place in range(shares.size):
        if 0.0 < shares[place] < 1.0:
            for left in range(len(matrix)):
                for right in range(left + 1):
                    matrix[left, right] += rows[place, left] * rows[place, right]


@numba.njit(nogil=True, cache=True)
def box_fit(rows, target, expected, weight):
    """The z within 0 and 1 with the least |target - sum of z_i row_i|^2 + weight * sum of (z_i - expected)^2."""
    size = target.size
    multipliers, missing, tried = np.zeros(size), np.empty(size), np.empty(size)
    shares, matrix = np.empty(len(rows)), np.empty((size, size))
    close = _CLOSE * np.sqrt(np.sum(target * target))
    value = _take(rows, target, expected, weight, multipliers, shares, missing)
    for _ in range(_MOST_STEPS):
        if np.sqrt(np.sum(missing * missing)) <= close:
            break
        _curvature(rows, shares, weight, matrix)
        step = missing.copy()
        solve(matrix, step)
        length, promise = 1.0, np.sum(step * missing)
        for _ in range(_MOST_HALVINGS):
            tried[:] = multipliers + length * step
            reached = _take(rows, target, expected, weight, tried, shares, missing)
            if reached >= value + _GROWTH * length * promise:
                break
            length *= 0.5
        multipliers[:] = tried
        value = reached
    return shares
