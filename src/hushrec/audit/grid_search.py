# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""The one number of a client that puts its ratings on the steps of a scale.

An upload has a row e_i U for each item. Its first direction d is that of U, so with a_i = e_i s and b_i = d V_i,
where s = |U| is unknown, the ratings are r_i = s b_i - a_i / s. With biases the errors are uploaded as they are,
and an offset c is unknown instead: r_i = x_i + c. Either way one right guess of one rating gives all the others,
and the right number is that which puts most of them on steps of the scale. Virtual ratings are on none, but for a
mean that happens to be.

Numbers of a client are slices of arrays, as in `Ragged`.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.kernels.products import dot

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]

_NUM_ANCHORS = 48  # items of which a rating is guessed: a quarter of them rated, all are missed once in a million
_NUM_PAIRS = 128  # of items whose ratings are guessed to be equal
_SURE = 0.8  # of what a client can have rated: so many on steps are no chance
_FEW = 8  # on steps: up to so many may be chance, so all numbers are tried
_CLOSE = 5e-4  # of a step: what is on it, before the number is refined
_BESIDE = 5e-3  # of a step: what is beside it, as virtual ratings that happen to be near are, and rated ones not
_CLOSEST = 1e-5  # of a step: numbers of 32 bits are no better than that
_WITHIN = 8.0  # times the median distance: what is on a step after that


class Grid(NamedTuple):
    """The steps of a rating scale."""

    low: float
    step: float
    count: int


class Fits(NamedTuple):
    """Of each client: the number that fits best, how many ratings it puts on steps, and what is on a step."""

    numbers: Floats  # s, or c with biases; 0 where nothing fits
    hits: NDArray[np.int64]
    close: Floats


@numba.njit(nogil=True, cache=True)
def _direction(rows, direction, along):
    """The first principal direction of rows that are nearly multiples of one, and their lengths along it."""
    num_rows, num_factors = rows.shape
    best, most = 0, -1.0
    for row in range(num_rows):
        square = dot(rows[row], rows[row])
        if square > most:
            best, most = row, square
    direction[:] = rows[best]
    for _ in range(6):
        size = np.sqrt(dot(direction, direction))
        if size == 0:
            return
        direction /= size
        for row in range(num_rows):
            along[row] = dot(rows[row], direction)
        direction[:] = 0
        for row in range(num_rows):
            for factor in range(num_factors):
                direction[factor] += along[row] * rows[row, factor]
    direction /= np.sqrt(dot(direction, direction))
    for row in range(num_rows):
        along[row] = dot(rows[row], direction)


@numba.njit(nogil=True, cache=True)
def _projected(starts, rows, vectors, along, products, unexplained):
    direction = np.empty(rows.shape[1])
    for client in range(len(starts) - 1):
        own = slice(starts[client], starts[client + 1])
        if own.start == own.stop:
            continue
        _direction(rows[own], direction, along[own])
        total, told = 0.0, 0.0
        for place in range(own.start, own.stop):
            products[place] = dot(vectors[place], direction)
            total += dot(rows[place], rows[place])
            told += along[place] ** 2
        unexplained[client] = 1 - told / total if total > 0 else 1.0


def projected(starts: Starts, rows: Floats, vectors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a and b of each row, and of each client which share of its rows is along no common direction."""
    along, products, unexplained = np.zeros(len(rows)), np.zeros(len(rows)), np.ones(len(starts) - 1)
    _projected(starts, np.ascontiguousarray(rows), np.ascontiguousarray(vectors), along, products, unexplained)
    return along, products, unexplained


@numba.njit(nogil=True, cache=True)
def _rating(along, product, number, has_offset):
    return product - along + number if has_offset else number * product - along / number


@numba.njit(nogil=True, cache=True)
def _slope(along, product, number, has_offset):
    return 1.0 if has_offset else product + along / number**2


@numba.njit(nogil=True, cache=True)
def _num_hits(along, products, has_offset, number, grid, most, on_level):
    """How many ratings are on steps, and their sum; without a step that too many are on or beside."""
    low, step, count = grid
    on_level[:] = 0
    for place in range(len(along)):
        height = (_rating(along[place], products[place], number, has_offset) - low) / step
        level = np.rint(height)
        away = np.abs(height - level)
        if -0.5 < height < count - 0.5 and away < _BESIDE:
            on_level[int(level), 0 if away < _CLOSE else 1] += 1
    hits, total = 0, 0.0
    for level in range(count):
        here = on_level[level, 0]
        if here <= most:
            here = max(here - on_level[level, 1], 0)
            hits += here
            total += here * level
    return hits, total


@numba.njit(nogil=True, cache=True)
def _candidates(along, product, rating, has_offset):
    """The numbers with which an item has this rating; 0 where there is none."""
    if has_offset:
        return rating - product + along, 0.0
    if product == 0:
        return -along / rating if rating != 0 else 0.0, 0.0
    inside = rating * rating + 4 * product * along
    if inside < 0:
        return 0.0, 0.0
    # Without the difference of numbers that are nearly equal.
    half = (rating + np.sqrt(inside)) / 2 if rating >= 0 else (rating - np.sqrt(inside)) / 2
    return half / product, -along / half if half != 0 else 0.0


@numba.njit(nogil=True, cache=True)
def _by_anchors(along, products, has_offset, expected, grid, most, on_level):
    """The number with the most hits; among equals the one with higher ratings, or the offset as expected.

    Of numbers that put an item of some on a step. A search for |U| ends at what must be right.
    """
    best, most_hits, best_rank = 0.0, 0, -np.inf
    stride = max(1, len(along) // _NUM_ANCHORS)
    for anchor in range(0, len(along), stride):
        for level in range(grid[2]):
            rating = grid[0] + grid[1] * level
            for number in _candidates(along[anchor], products[anchor], rating, has_offset):
                if number == 0 and not has_offset:
                    continue
                hits, total = _num_hits(along, products, has_offset, number, grid, most, on_level)
                rank = -np.abs(number - expected) if has_offset else total
                if hits > most_hits or (hits == most_hits and rank > best_rank):
                    best, most_hits, best_rank = number, hits, rank
                if has_offset:
                    break
        if not has_offset and most_hits > max(_SURE * most, _FEW):
            break
    return best, most_hits


@numba.njit(nogil=True, cache=True)
def _by_pairs(along, products, grid, most, on_level):
    """The same of |U|, of numbers that make two ratings equal, as those of virtual items are, if a mean."""
    best, most_hits = 0.0, 0
    for one in range(min(len(along), _NUM_PAIRS)):
        other = (one + len(along) // 2) % len(along)
        gap = products[one] - products[other]
        square = (along[one] - along[other]) / gap if gap != 0 else 0.0
        if square > 0:
            for number in (np.sqrt(square), -np.sqrt(square)):
                hits, _ = _num_hits(along, products, False, number, grid, most, on_level)
                if hits > most_hits:
                    best, most_hits = number, hits
    return best, most_hits


@numba.njit(nogil=True, cache=True)
def _refined(along, products, has_offset, number, grid, distances):
    """The number by least squares over what is on a step (Newton), and how far is still on it, in steps."""
    low, step, count = grid
    close = _CLOSE
    for _ in range(3):
        top, bottom, num_on = 0.0, 0.0, 0
        for place in range(len(along)):
            height = (_rating(along[place], products[place], number, has_offset) - low) / step
            away = height - np.rint(height)
            if -0.5 < height < count - 0.5 and np.abs(away) < close:
                slope = _slope(along[place], products[place], number, has_offset) / step
                top += away * slope
                bottom += slope * slope
                distances[num_on] = np.abs(away)
                num_on += 1
        if num_on == 0 or bottom == 0:
            return number, close
        number -= top / bottom
        close = min(_CLOSE, max(_CLOSEST, _WITHIN * np.median(distances[:num_on])))
    return number, close


@numba.njit(nogil=True, cache=True)
def _fit(starts, along, products, has_offset, expected, most, grid, numbers, hits, close):
    on_level = np.zeros((grid[2], 2), np.int64)
    for client in range(len(starts) - 1):
        own = slice(starts[client], starts[client + 1])
        args = along[own], products[own], has_offset
        number, num_hits = _by_anchors(*args, expected[client], grid, most[client], on_level)
        if not has_offset and num_hits <= max(_SURE * most[client], _FEW):
            other, more_hits = _by_pairs(along[own], products[own], grid, most[client], on_level)
            if more_hits > num_hits:
                number, num_hits = other, more_hits
        if num_hits > 0:
            distances = np.empty(own.stop - own.start)
            numbers[client], close[client] = _refined(*args, number, grid, distances)
            hits[client], _ = _num_hits(*args, numbers[client], grid, most[client], on_level)


def fit(
    starts: Starts, along: Floats, products: Floats, grid: Grid, most: Floats, expected: Floats | None
) -> Fits:
    """The best number of each client. With `expected`, of an offset; `most`: of its ratings on one step."""
    size = len(starts) - 1
    found = Fits(np.zeros(size), np.zeros(size, np.int64), np.full(size, _CLOSE))
    near = np.zeros(size) if expected is None else expected
    _fit(starts, along, products, expected is not None, near, most, grid, *found)
    return found


# --- A scale that nobody knows -----------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _num_together(values, close):
    """How many sorted values have two others as close as this."""
    count = 0
    for place in range(1, len(values) - 1):
        count += values[place + 1] - values[place - 1] < close
    return count


@numba.njit(nogil=True, cache=True)
def most_together(along, products, pairs):
    """The s with which most ratings are equal to others, of those that make a pair equal; 0: none."""
    best, most = 0.0, 0
    for one, other in pairs:
        gap = products[one] - products[other]
        square = (along[one] - along[other]) / gap if gap != 0 else 0.0
        if square <= 0:
            continue
        number = np.sqrt(square)
        values = np.sort(number * products - along / number)
        spread = values[-1] - values[0]
        count = _num_together(values, spread * 1e-4)
        if count > most:
            best, most = number, count
    return best
