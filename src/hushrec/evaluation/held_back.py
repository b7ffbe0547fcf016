"""Quality of the order of a user's own held-back items: nothing else competes. Only to stand beside papers.

DRIFT's report "will try to guess his 20% remaining interactions" (Sec. 6.1.2), and SAROS's code ranks these
alone. So the items of a list are few, and most of them are relevant: a random order scores high, and a model
can be a little better than that at best. Do not compare systems by it; use `ranking_metrics`.

For a user with n held-back items, T of them relevant, ranked by score, and hit(r) = 1 where the item at rank r is:

    held-back NDCG@K             = sum of hit(r) / log2(r + 1) over r <= K, / the same with a hit at every rank
    held-back NDCG@K (own ideal) = the same sum / that of the best order: min(|T|, K) hits first
    held-back MAP@K              = sum of hit(r) * Precision@r over r <= K, / min(|T|, K)

The first has the report's ideal (Sec. 6.1.1: "when all the items are pertinent"), which no order reaches for a
user with fewer than K relevant items.

DEVIATION: the report prints its gain as 2^(rel - 1), which would give an irrelevant item half of a relevant one's;
taken for 2^rel - 1, as is usual, it is hit(r). Its MAP leaves the average precision undefined.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation.ranking import Rows

ScorePairs = Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.floating]]


def held_back_names(cutoffs: Sequence[int]) -> tuple[str, ...]:
    """What is measured, longest lists first."""
    kinds = ("MAP@{}", "NDCG@{}", "NDCG@{} (own ideal)")
    return tuple(f"held-back {kind.format(k)}" for kind in kinds for k in sorted(cutoffs, reverse=True))


def held_back_metrics(
    score_pairs: ScorePairs, test: Rows, cutoffs: Sequence[int] = (10,), relevant_from: float | None = None
) -> dict[str, float]:
    """Means over the users with a relevant test item, by the names of `held_back_names`.

    `score_pairs(users, items)` gives a score for each pair, higher is better; of equal scores the lower item
    number ranks first. Test items rated `relevant_from` or more are relevant (None: all of them).
    """
    if len(cutoffs) == 0 or min(cutoffs) < 1:
        raise HushrecError(f"cutoffs are {tuple(cutoffs)}; give one or more positive numbers, such as (5, 10)")
    hits, num_relevant = _ranked_hits(score_pairs, test, max(cutoffs), relevant_from)
    has_relevant = num_relevant > 0
    if not has_relevant.any():
        raise HushrecError("no user has a relevant test item; lower relevant_from or enlarge the test set")
    hits, num_relevant = hits[has_relevant], num_relevant[has_relevant]
    ranks = np.arange(1, hits.shape[1] + 1)
    discounts = 1 / np.log2(ranks + 1)
    gains, ideal_gains = np.cumsum(hits * discounts, axis=1), np.cumsum(discounts)
    precision_sums = np.cumsum(hits * (np.cumsum(hits, axis=1) / ranks), axis=1)
    values = {}
    for cutoff in cutoffs:
        num_possible = np.minimum(num_relevant, cutoff)
        of_user = gains[:, cutoff - 1]
        values[f"held-back MAP@{cutoff}"] = precision_sums[:, cutoff - 1] / num_possible
        values[f"held-back NDCG@{cutoff}"] = of_user / ideal_gains[cutoff - 1]
        values[f"held-back NDCG@{cutoff} (own ideal)"] = of_user / ideal_gains[num_possible - 1]
    return {name: float(values[name].mean()) for name in held_back_names(cutoffs)}


def _ranked_hits(
    score_pairs: ScorePairs, test: Rows, num_ranks: int, relevant_from: float | None
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether the item at each rank of a user's list is relevant, and how many of all its items are."""
    lengths = np.diff(test.starts)
    users = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    is_relevant = np.ones(len(users), np.bool_)
    if relevant_from is not None:
        if test.ratings is None:
            raise HushrecError("relevant_from needs ratings and the test set has none; leave relevant_from out")
        is_relevant = test.ratings >= relevant_from
    scores = np.asarray(score_pairs(users, test.items))
    if np.isnan(scores).any():
        raise DivergedError("a score is not a number; check the model (did training diverge?)")
    order = np.lexsort((test.items, -scores, users))
    ranks = np.arange(len(users)) - np.repeat(test.starts[:-1], lengths)  # from 0
    hits = np.zeros((len(lengths), num_ranks), np.bool_)
    is_listed = ranks < num_ranks
    hits[users[is_listed], ranks[is_listed]] = is_relevant[order][is_listed]
    return hits, np.bincount(users[is_relevant], minlength=len(lengths))
