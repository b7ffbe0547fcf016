"""Newcomers: what they may bring, and which scores are fit to be shown to them.

One place for the command line, Python and HTTP. Errors here are public: they tell nothing of what was brought.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions
from hushrec.data.interactions import RatingRange
from hushrec.errors import PublicError
from hushrec.protocol import Numbers, Scorer


def checked_ratings(train: Interactions, ratings: ArrayLike | None, num_items: int) -> NDArray[np.float32]:
    """A newcomer's ratings as its model takes them: on the scale of the data that it was trained on.

    None says that all items are liked, or were taken. Where feedback is implicit, ratings do not matter.
    """
    if train.rating_range is None:
        return np.ones(num_items, np.float32)
    is_good_or_bad = train.signed_from is not None
    if ratings is None:
        if not is_good_or_bad and train.rating_range != (0.0, 1.0):
            raise PublicError("this model learns from ratings; give one per item")
        return np.ones(num_items, np.float32)
    try:
        given = np.ravel(np.asarray(ratings, np.float64))
    except (TypeError, ValueError):
        raise PublicError("a rating is not a number; give one number per item") from None
    if len(given) != num_items:
        raise PublicError(f"{num_items} items and {len(given)} ratings; give one rating per item")
    low, high = train.rating_range if train.signed_from is None else train.signed_from[:2]
    if not ((given >= low) & (given <= high)).all():  # also if it is not a number
        raise PublicError(
            f"a rating is outside of {low:g} to {high:g}, the scale of this model; give ratings on it"
        )
    if train.signed_from is not None:
        return (given >= train.signed_from[2]).astype(np.float32)
    return given.astype(np.float32)


def check_items(numbers: Numbers) -> None:
    """Refuse nothing at all, and items that come twice."""
    if not len(numbers):
        raise PublicError("a newcomer without ratings cannot be told anything; give at least one")
    if len(np.unique(numbers)) < len(numbers):
        raise PublicError("an item is listed twice; give each item once")


def newcomer_scores(
    scorer: Scorer, items: Numbers, ratings: NDArray[np.float32], scale: RatingRange
) -> NDArray[np.float32]:
    """Scores of all items; minus infinity for items that are unknown there. Refused where they say nothing.

    `scale` is the range of ratings, where scores are ratings.
    """
    with np.errstate(all="ignore"):  # what overflows is refused
        scores = scorer.fold_in(items, ratings)
    own = scores[scores != -np.inf]  # a partner has no scores of others' items
    if not len(own) or not np.isfinite(own).all():
        raise PublicError("these ratings give scores that are not finite; give ratings like those of training")
    if len(own) > 1 and own.min() == own.max():
        raise PublicError(
            "this model scores all items alike after these ratings, so it ranks none; rate other items"
        )
    check_plausible(scores[items], scale)
    return scores


def shown_scores(scores: NDArray[np.float32], scale: RatingRange) -> NDArray[np.float32]:
    """Scores of a list, best first, as they are shown: within the scale. Refused where the best is far off it."""
    check_plausible(scores[:1], scale)
    return scores if scale is None else np.clip(scores, *scale)


def check_plausible(scores: NDArray[np.float32], scale: RatingRange) -> None:
    """Refuse scores that are off the scale of ratings by more than its length."""
    if scale is None:
        return
    low, high = scale
    known = scores[scores != -np.inf]
    if not ((known >= 2 * low - high) & (known <= 2 * high - low)).all():
        raise PublicError(
            f"this model gives scores far outside of {low:g} to {high:g} after these ratings; rate more items"
        )
