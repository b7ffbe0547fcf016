"""Popularity as a start: the bias of an item before anything is learned.

Of N people, n_i have item i. If everybody took items at random, a pair of an item i that somebody has and an item
j that the same person has not would be as likely as p_i (1 - p_j), with p_i = n_i / N. Then biases that rank such
pairs best (the least of -ln sigma(b_i - b_j)) and those that tell what is taken from what is not (the least
cross-entropy, up to a constant) are both the log odds, ln p_i / (1 - p_i). So a model that starts with them and
with vectors near zero starts as popularity, and has only to learn who differs.
"""

import numpy as np
from numpy.typing import NDArray

_ADDED = 0.5  # to both counts, so that odds are neither zero nor infinite


def log_odds(counts: NDArray[np.float64], num_people: float) -> NDArray[np.float32]:
    """Of having each item, with half a person more on either side.

    >>> log_odds(np.array([0.0, 2.0, 4.0]), 4).tolist() == [-2.1972246170043945, 0.0, 2.1972246170043945]
    True
    """
    odds = (counts + _ADDED) / (num_people - counts + _ADDED)
    return np.log(odds).astype(np.float32)


def sample_log_odds(counts: NDArray[np.float64], num_people: float, odds: float) -> NDArray[np.float32]:
    """The same of a sample of each item, where those who have it are drawn more or less often than others.

    `odds`: how many samples say "has it" for one that does not. An item that as many people have as the mean item
    gets just these odds.
    """
    mean = log_odds(counts.mean(keepdims=True), num_people)
    offsets: NDArray[np.float32] = log_odds(counts, num_people) - mean + np.float32(np.log(odds))
    return offsets


def weighted_shares(counts: NDArray[np.float64], num_people: float, weight: float) -> NDArray[np.float32]:
    """The share of people who have each item, where one who has it weighs so much more than one who has not.

    That is the number of least squared error: 1 is to be told of those who have it, and 0 of others.

    >>> weighted_shares(np.array([0.0, 1.0, 4.0]), 4, 3.0).tolist()
    [0.0, 0.5, 1.0]
    """
    return (weight * counts / (weight * counts + num_people - counts)).astype(np.float32)
