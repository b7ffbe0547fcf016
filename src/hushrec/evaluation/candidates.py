"""Which items can be listed: one rule for what is measured and for what is shown.

An item is a candidate if at least `min_raters` users have it in the training data. What hardly anybody rated has a
vector that is hardly trained, and its scores are noise. With 0, as in most papers, every item is a candidate.
"""

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.errors import HushrecError, option


def num_raters(train: Interactions) -> NDArray[np.int64]:
    """How many users have each item in training."""
    return np.bincount(train.items, minlength=train.num_items)


def candidates(train: Interactions, min_raters: int) -> NDArray[np.bool_] | None:
    """Whether each item can be listed; None: every item can."""
    return None if min_raters < 1 else candidates_by(num_raters(train), min_raters)


def candidates_by(counts: NDArray[np.int64], min_raters: int) -> NDArray[np.bool_] | None:
    """The same by the number of raters of each item. A server without data has no such numbers: every item can."""
    if min_raters < 1 or not counts.any():
        return None
    is_candidate: NDArray[np.bool_] = counts >= min_raters
    if not is_candidate.any():
        raise HushrecError(f"no item has {min_raters} raters; use fewer, as in {option('min_raters', 0)}")
    return is_candidate


def usable_min_raters(usual: int, train: Interactions, length: int) -> int:
    """The usual number, or 1 where fewer items than a list is long have so many raters.

    Where even that leaves somebody nothing new to list, as on a node with a single user, it is 0.
    """
    counts = num_raters(train)
    if usual < 1 or np.count_nonzero(counts >= usual) >= length:
        return usual
    most_seen = int(np.diff(train.by_user().starts).max(initial=0))
    return 1 if np.count_nonzero(counts) > most_seen else 0
