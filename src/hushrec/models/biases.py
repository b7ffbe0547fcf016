"""Biases beside factors: a rating is a level, what the user adds, what the item adds, and the product of factors.

With biases the last column of V is the item's bias with the level in it, and the last column of U the user's.
The user's bias never leaves its client; the item's is learned, uploaded, summed and denoised as factors are: its
gradient is that of a factor whose counterpart in U is 1.

Ratings are trained on in units of a quarter of their scale, counted from its middle, so that the same learning
rate suits any scale; that of 1 to 5 has units of 1.

Shrinkage: what n ratings say of an item or a user weighs n / (n + shrinkage). The rest is said by what all items
have in common, and that the server finds in V itself: the mean of the items' biases.

Symbols: as in `pmf`; n_i = |U_i| = how many clients rated item i, s = shrinkage.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hushrec.data.interactions import RatingRange
from hushrec.draws import Draws, uniform_rows
from hushrec.evaluation.formula import Eased, Scaled, Step
from hushrec.privacy.exact_sum import ExactSum

Factors = NDArray[np.float32]
FloatArray = NDArray[np.float64]

_START = 0.05  # how far from zero users' factors may begin; those of items begin at zero
_FIXED = 2.0**32  # a mean over items is taken in fixed point: the same bits in any order
_MARGIN = 1 / 40  # of the scale: where scores begin to be eased in


class Scale(NamedTuple):
    """How ratings are measured in training."""

    centre: float
    unit: float

    def to_units(self, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Ratings as they are trained on."""
        return ((ratings - self.centre) / self.unit).astype(np.float32)

    def to_ratings(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """What a model says, as ratings."""
        ratings = self.unit * values
        ratings += self.centre
        return ratings.astype(np.float32, copy=False)


def scale_of(rating_range: RatingRange) -> Scale:
    """The middle and a quarter of a range; ratings stay as they are if nobody knows theirs."""
    if rating_range is None or not rating_range[0] < rating_range[1]:
        return Scale(0.0 if rating_range is None else rating_range[0], 1.0)
    low, high = rating_range
    return Scale((low + high) / 2, (high - low) / 4)


def initial_users(
    numbers: NDArray[np.int32], num_ratings: NDArray[np.int64], num_factors: int, draws: Draws
) -> Factors:
    """Uniform factors and no bias; all zero for clients without ratings, to whom the items' biases say all."""
    users = np.zeros((len(numbers), num_factors + 1), np.float32)
    users[:, :-1] = uniform_rows(draws.key("user-factors"), numbers, num_factors, -_START, _START)
    users[num_ratings == 0] = 0
    return users


def initial_items(num_items: int, num_factors: int) -> Factors:
    """All zero: that users' factors differ is enough to begin with, and an item that nobody rates stays there."""
    return np.zeros((num_items, num_factors + 1), np.float32)


def moved_items(
    item_factors: Factors, total: ExactSum, learning_rate: float, shrinkage: float, has_biases: bool
) -> Factors:
    """V after the step of a round: of each item (the sum of its gradients + s (V_i - level)) / (n_i + s).

    The level is zero for factors and, for biases, what all items have in common. An item that nobody has rated yet
    has a bias of just that. The server learns nothing for it: it has V, the sums and the counts anyway.
    """
    if not total.counts.any():
        return item_factors
    shrinkage = total.steadied(shrinkage)
    if not shrinkage:
        gradients = total.mean()
    else:
        apart = item_factors.astype(np.float64)
        if has_biases:
            apart[:, -1] -= _level(apart[:, -1], total.counts, shrinkage)
        came = total.counts[:, None]
        gradients = np.where(came > 0, (total.to_float() + shrinkage * apart) / (came + shrinkage), 0.0)
    moved = item_factors - learning_rate * gradients
    if has_biases:
        is_unrated = (total.counts == 0) & ~moved[:, :-1].any(axis=1)
        moved[is_unrated, -1] = _level(moved[:, -1], total.counts, shrinkage)
    return moved.astype(np.float32)


def _level(biases: FloatArray, counts: NDArray[np.int64], shrinkage: float) -> float:
    """The mean of the rated items' biases, each weighed by how much of it was learned: n / (n + s)."""
    is_rated = counts > 0
    weights = counts[is_rated] / (counts[is_rated] + shrinkage)
    total = np.rint(_FIXED * weights * biases[is_rated]).astype(np.int64).sum()
    return float(total) / float(np.rint(_FIXED * weights).astype(np.int64).sum())


def newcomer(
    known: FloatArray, targets: FloatArray, penalty: float, bias_penalty: float | None = None
) -> FloatArray:
    """The vector that fits a newcomer's ratings by ridge regression: the sum of squared errors plus penalties.

    `known` has a row of V for each rating. With a penalty of biases, its last column is the items' biases, and the
    last number of the vector is the newcomer's own.
    """
    penalties = np.full(known.shape[1], penalty)
    if bias_penalty is not None:
        targets = targets - known[:, -1]
        known = np.column_stack([known[:, :-1], np.ones(len(known))])
        penalties[-1] = bias_penalty
    return np.asarray(np.linalg.solve(known.T @ known + np.diag(penalties), targets @ known))


def eased(scores: NDArray[np.float32], rating_range: RatingRange) -> NDArray[np.float32]:
    """Scores on the scale of ratings, in the same order: what is beyond an end is eased towards it."""
    own = np.zeros(1, np.float32)
    return _onto_scale(scores[None].copy(), own, Scale(0.0, 1.0), rating_range).reshape(scores.shape)


def as_ratings(
    scores: NDArray[np.float32], own: NDArray[np.float32], rating_range: RatingRange
) -> NDArray[np.float32]:
    """What a model says of each row's items, and adds to all of them, as ratings that are eased.

    Written into `scores`, if their memory is in one piece.
    """
    return _onto_scale(scores, own, scale_of(rating_range), rating_range)


def steps_to_ratings(rating_range: RatingRange) -> tuple[Step, ...]:
    """The steps that `as_ratings` takes."""
    low, high, margin = _eased_ends(rating_range)
    scaled = Scaled(scale_of(rating_range).unit, scale_of(rating_range).centre)
    return (scaled, Eased(low, high, margin)) if margin else (scaled,)


def _eased_ends(rating_range: RatingRange) -> tuple[float, float, float]:
    """Beyond which scores are eased, and how far they may still go."""
    if rating_range is None or not rating_range[0] < rating_range[1]:
        return -np.inf, np.inf, 0.0
    margin = (rating_range[1] - rating_range[0]) * _MARGIN
    return rating_range[0] + margin, rating_range[1] - margin, margin


def _onto_scale(
    scores: NDArray[np.float32], own: NDArray[np.float32], scale: Scale, rating_range: RatingRange
) -> NDArray[np.float32]:
    scores, (low, high, margin) = np.ascontiguousarray(scores), _eased_ends(rating_range)
    unit, centre, least, most = (np.float32(number) for number in (scale.unit, scale.centre, low, high))
    places, far = _clipped(scores, own, unit, centre, least, most)  # few are beyond an end, as a rule
    if len(far) and margin:
        below, above = np.maximum(low - far, 0) / margin, np.maximum(far - high, 0) / margin
        scores.reshape(-1)[places] += margin * (np.expm1(-below) - np.expm1(-above))
    return scores


@njit(nogil=True, cache=True)
def _clipped(
    scores: NDArray[np.float32],
    own: NDArray[np.float32],
    unit: np.float32,
    centre: np.float32,
    low: np.float32,
    high: np.float32,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Put scores onto the scale, between its ends, in place; where some were beyond, and how far.

    One pass over memory, and a second one only where there are such: all items of many users are scored.
    """
    num_beyond = 0
    for row in range(len(scores)):
        values, num_here = scores[row], 0
        for place in range(len(values)):
            value = unit * (values[place] + own[row])
            values[place] = value + centre
            num_here += (values[place] < low) | (values[place] > high)
        num_beyond += num_here
    places, far = np.empty(num_beyond, np.int64), np.empty(num_beyond, np.float32)
    if num_beyond:
        count, flat = 0, scores.reshape(-1)
        for place in range(len(flat)):
            value = flat[place]
            if value < low or value > high:
                places[count], far[count] = place, value
                flat[place] = low if value < low else high
                count += 1
    return places, far
