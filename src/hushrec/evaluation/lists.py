"""What lists are like, whether or not they are right: how many items they show, how known these are, how alike.

Lists are those of `hushrec recommend`: the best k candidates that a user has not in training. Of n lists, where
c(i) is the number of lists that hold item i, and p(i) the share of users who have it in training:

    users            = how many have a training row
    lists            = n: one for each of them, or for some that were drawn
    distinct items   = how many items are in some list
    coverage         = that, as a share of all items of the data
    popularity       = mean of p(i) over all places of all lists
    novelty          = mean of -log2 p(i) over the same places, in bits: what half of the users have is 1 bit
    diversity        = 1 - the expected number of items that two users' lists share, / the mean length of a list
    diversity within = mean over lists of 1 - the mean cosine of two items of the list, by who has them in training
    most listed      = the largest c(i), / n

Two lists out of n, drawn without putting back, share sum of c(i) (c(i) - 1) / (n (n - 1)) items on average, so no
pair has to be looked at. Diversity is 0 where all lists are the same and 1 where no item is in two of them. What
nobody has counts in novelty as one that one user has. Diversity within lists is that of
`hushrec.evaluation.within_lists`; it is left out where no list has two items.

Lists are alike for most people if two of them share more than half of their items on average (a diversity below
0.5), or if one item is in more than three quarters of them. Lists of popular items alone are mostly not: a user's
own leaves out what he has, and these are the items that many have.
"""

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.evaluation.ranking import Rows, scores_of, take_rows
from hushrec.evaluation.scoring import ScoreUsers
from hushrec.evaluation.top_k import NO_ITEM, top_k
from hushrec.evaluation.within_lists import diversity_within

LEAST_DIVERSITY = 0.5
MOST_SHARED = 0.75
# With more scores than these, lists are made of drawn users only: seconds, whatever the catalogue.
MOST_SCORES = 10**9


def list_measures(
    score_users: ScoreUsers,
    train: Rows,
    num_items: int,
    length: int,
    draws: Draws,
    candidates: NDArray[np.bool_] | None = None,
    most_scores: int = MOST_SCORES,
    block_scores: int = 1 << 22,
) -> dict[str, float]:
    """The measures of the module's docstring, by their names, of the lists of all users with a training row.

    If these need more than `most_scores` scores, users are drawn, at least two; "lists" tells how many there are.
    `block_scores` bounds the memory; it changes no result.
    """
    having = np.flatnonzero(np.diff(train.starts)).astype(np.int32)
    if not len(having):
        raise HushrecError("no user has a training row, so there is nobody to make a list for")
    users = _drawn(having, max(2, most_scores // num_items), draws)
    lists = np.empty((len(users), length), np.int32)
    block_size = max(1, block_scores // num_items)
    with threadpool_limits(1, user_api="blas"):  # threads for such narrow products only wait for each other
        for first in range(0, len(users), block_size):
            block = users[first : first + block_size]
            scores = scores_of(score_users, block, num_items, candidates)
            items, best = top_k(scores, length, take_rows(train, block), candidates)
            lists[first : first + block_size] = np.where(np.isneginf(best), NO_ITEM, items)
    counts = np.bincount(lists[lists != NO_ITEM], minlength=num_items)
    if not counts.any():
        return {}
    shares = np.bincount(train.items, minlength=num_items) / len(having)
    measures = {"users": float(len(having)), **_measures(counts, len(users), shares, 1 / len(having))}
    within = diversity_within(lists, train, num_items)
    return measures if within is None else measures | {"diversity within": within}


def are_alike(measures: dict[str, float]) -> bool:
    """Whether lists are alike for most people."""
    return measures["lists"] > 1 and (
        measures["diversity"] < LEAST_DIVERSITY or measures["most listed"] > MOST_SHARED
    )


def _drawn(users: NDArray[np.int32], most: int, draws: Draws) -> NDArray[np.int32]:
    """All of them or, in their order, as many as may be; a draw is keyed by the user."""
    if len(users) <= most:
        return users
    numbers = uniform_rows(draws.key("listed-users"), users, 1, 0.0, 1.0)[:, 0]
    return users[np.sort(np.argsort(numbers, kind="stable")[:most])]


def _measures(
    counts: NDArray[np.int64], num_lists: int, shares: NDArray[np.float64], least_share: float
) -> dict[str, float]:
    num_places, num_distinct = int(counts.sum()), int(np.count_nonzero(counts))
    bits = -np.log2(np.maximum(shares, least_share))
    num_pairs = num_lists * (num_lists - 1)
    shared = float(counts @ (counts - 1)) / num_pairs if num_pairs else 0.0
    return {
        "lists": float(num_lists),
        "distinct items": float(num_distinct),
        "coverage": num_distinct / len(counts),
        "popularity": float(counts @ shares) / num_places,
        "novelty": float(counts @ bits) / num_places,
        "diversity": 1 - shared / (num_places / num_lists),
        "most listed": int(counts.max()) / num_lists,
    }
