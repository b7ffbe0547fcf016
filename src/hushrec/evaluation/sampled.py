"""HR@K and NDCG@K among sampled negatives: only to stand beside papers that published these.

Sampled metrics are not full ones. The test item competes with `num_negatives` drawn items instead of the whole
catalogue, so the values are far higher, and they are inconsistent with full ones: the better of two systems in
full rankings can be the worse one here, not only by chance but in expectation (Krichene, Rendle: On Sampled
Metrics for Item Recommendation, KDD 2020). The fewer negatives, the more all of them measure the same, the area
under the ROC curve. Do not choose settings or compare systems by them; use `ranking_metrics`. A value can be set
beside a published one only if the data, the split and the number of negatives are the same.

For a user whose one test item has rank r among itself and the drawn items:

    HR@K   = 1 if r <= K, else 0
    NDCG@K = 1 / log2(r + 1) if r <= K, else 0
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation.ranking import Rows, check_split, evaluated_users, scores_of, take_rows
from hushrec.evaluation.scoring import ScoreUsers
from hushrec.evaluation.top_k import NO_ITEM, top_k


def sampled_metrics(
    score_users: ScoreUsers,
    train: Rows,
    test: Rows,
    draws: Draws,
    cutoffs: Sequence[int] = (10,),
    num_negatives: int = 99,
    block_size: int = 512,
) -> dict[str, float]:
    """Means over the users with a test item, by names such as "sampled NDCG@10".

    Arguments as in `sampled_per_user`. Mind the module's docstring: these are no substitute for full metrics.
    """
    per_user = sampled_per_user(score_users, train, test, draws, cutoffs, num_negatives, block_size)
    return {name: float(values.mean()) for name, values in per_user.items()}


def sampled_per_user(
    score_users: ScoreUsers,
    train: Rows,
    test: Rows,
    draws: Draws,
    cutoffs: Sequence[int] = (10,),
    num_negatives: int = 99,
    block_size: int = 512,
) -> dict[str, NDArray[np.float64]]:
    """One value per metric and user with a test item, in the order of `evaluated_users(test)`.

    `test` has one item of a user, or none (`leave_one_out`); `score_users` and `block_size` are those of
    `ranking_per_user`. The negatives are those of `drawn_negatives`. Of equal scores the lower item number ranks
    first, as in full rankings: a model that gives the same score to all items is measured by their numbers.
    """
    if len(cutoffs) == 0 or min(cutoffs) < 1:
        raise HushrecError(f"cutoffs are {tuple(cutoffs)}; give one or more positive numbers, such as (10,)")
    if block_size < 1:
        raise HushrecError(f"block_size is {block_size}; score at least 1 user at a time")
    check_split(train, test)
    _check_leave_one_out(test)
    users = evaluated_users(test)
    if len(users) == 0:
        raise HushrecError("no user has a test item; split with leave_one_out")
    num_needed = 1 + int(max(rows.items.max(initial=-1) for rows in (train, test)))
    ranks = np.empty(len(users), np.int64)
    for first in range(0, len(users), block_size):
        block = users[first : first + block_size]
        negatives = drawn_negatives(block, train, test, num_negatives, draws)
        wanted = test.items[test.starts[block]]
        ranks[first : first + len(block)] = _ranks(scores_of(score_users, block, num_needed), wanted, negatives)
    gains = 1 / np.log2(ranks + 1)
    values = {}
    for cutoff in cutoffs:
        is_hit = ranks <= cutoff
        values[f"sampled HR@{cutoff}"] = is_hit.astype(np.float64)
        values[f"sampled NDCG@{cutoff}"] = np.where(is_hit, gains, 0.0)
    return values


def drawn_negatives(
    users: NDArray[np.int32], train: Rows, test: Rows, num_negatives: int, draws: Draws
) -> NDArray[np.int32]:
    """Items that a user has neither in train nor in test, (users, num_negatives), uniform without repeats.

    Only items that somebody has are drawn: papers number the items of their data, not of a catalogue. A draw is
    keyed by the user, so it is the same whichever model is measured and whoever else is. A user with fewer such
    items gets all of them; then the row ends in NO_ITEM.
    """
    if num_negatives < 1:
        raise HushrecError(f"num_negatives is {num_negatives}; draw at least 1, or use ranking_metrics")
    candidates = np.union1d(train.items, test.items)
    starts, items = take_rows(train, users)
    test_starts, test_items = take_rows(test, users)
    # A user's test items go behind its training items; `top_k` takes them in any order.
    known = np.insert(items, np.repeat(starts[1:], np.diff(test_starts)), test_items)
    # The items with the highest of independent uniform numbers are a uniform sample.
    numbers = uniform_rows(draws.key("sampled-negatives"), users, int(candidates[-1]) + 1, 0.0, 1.0)
    excluded = np.searchsorted(candidates, known).astype(np.int32)
    places, _ = top_k(numbers[:, candidates], num_negatives, ((starts + test_starts).astype(np.int64), excluded))
    return np.where(places == NO_ITEM, NO_ITEM, candidates[places]).astype(np.int32)


def _ranks(
    scores: NDArray[np.floating], wanted: NDArray[np.int32], negatives: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Rank of each row's wanted item among itself and the row's negatives, from 1."""
    is_drawn = negatives != NO_ITEM
    own = np.take_along_axis(scores, wanted[:, None].astype(np.int64), axis=1)
    others = np.take_along_axis(scores, np.where(is_drawn, negatives, wanted[:, None]).astype(np.int64), axis=1)
    if np.isnan(own).any() or np.isnan(others).any():
        raise DivergedError("a score is not a number; check the model (did training diverge?)")
    is_ahead = (others > own) | ((others == own) & (negatives < wanted[:, None]))
    ranks: NDArray[np.int64] = 1 + np.count_nonzero(is_ahead & is_drawn, axis=1)
    return ranks


def _check_leave_one_out(test: Rows) -> None:
    lengths = np.diff(test.starts)
    if lengths.max(initial=0) > 1:
        user = int(np.argmax(lengths))
        raise HushrecError(
            f"user {user} has {lengths[user]} test items; sampled metrics need one, split with leave_one_out"
        )
