"""Quality of full rankings: every candidate that the user has not in training competes, none is sampled.

An item is a candidate if enough users have it in training (`candidates`); unless told, all items are. A relevant
item that is no candidate is never listed, so it counts as missed: it is in T.

For a user with relevant test items T, and hit(r) = 1 where the item at rank r is in T, else 0:

    Precision@K = sum of hit(r) over r <= K, / K
    Recall@K    = the same sum / |T|
    HR@K        = 1 if that sum is positive, else 0
    MRR@K       = 1 / rank of the first hit, 0 if there is none among the first K
    NDCG@K      = sum of hit(r) / log2(r + 1), / the same for a perfect ranking: min(|T|, K) hits first
    MAP@K       = sum of hit(r) * Precision@r over r <= K, / min(|T|, K)

MAP@K's denominator min(|T|, K) lets a perfect ranking reach 1 for every K. Elsewhere it is |T| (TREC's
map_cut, at most K / |T| for a user with more than K relevant items) or the number of hits (which rewards
a ranking for finding less). The first equals ours times min(|T|, K) / |T|. Some papers divide
Recall@K by min(|T|, K) as well; ours is the plain recall, as TREC's.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.errors import HushrecError
from hushrec.evaluation.scoring import ScoreUsers
from hushrec.evaluation.top_k import NO_ITEM, top_k

_BLOCK_SCORES = 1 << 22  # of a block of users: with these a processor's cache is full
_LEAST_BLOCK = 32  # users: fewer make a matrix product slow

# (row, item) as one sortable int64: item numbers are int32.
_ROW_STRIDE = np.int64(1) << 31


class Rows(Protocol):
    """Interactions, one row per user: row u is items[starts[u]:starts[u + 1]], ascending, none twice."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Shape (num_users + 1,)."""

    @property
    def items(self) -> NDArray[np.int32]:
        """Shape (num_interactions,)."""

    @property
    def ratings(self) -> NDArray[np.float32] | None:
        """Shape (num_interactions,), or None for implicit feedback."""


def ranking_metrics(
    score_users: ScoreUsers,
    train: Rows,
    test: Rows,
    cutoffs: Sequence[int] = (5, 10, 20),
    relevant_from: float | None = None,
    block_size: int | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> dict[str, float]:
    """Means over the evaluated users, by names such as "NDCG@10"; the module's docstring defines each.

    Arguments as in `ranking_per_user`; `evaluated_users` tells over whom the means go.
    """
    per_user = ranking_per_user(score_users, train, test, cutoffs, relevant_from, block_size, candidates)
    return {name: float(values.mean()) for name, values in per_user.items()}


def ranking_per_user(
    score_users: ScoreUsers,
    train: Rows,
    test: Rows,
    cutoffs: Sequence[int] = (5, 10, 20),
    relevant_from: float | None = None,
    block_size: int | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """One value per evaluated user and metric, in the order of `evaluated_users(test, relevant_from)`.

    `score_users(users)` returns (len(users), num_items), higher is better; it is called on at most
    `block_size` users at a time, which bounds memory at block_size * num_items scores (None: as many users as
    are fast). The size of the blocks changes no result as long as a user's scores do not depend on it. Of equal
    scores the lower item number ranks first. Test items rated `relevant_from` or more are relevant (None: all of
    them); the others compete as irrelevant. `candidates` tells of each item whether it can be listed (None: all
    can); with it, items of score minus infinity are not listed either: lists are those of `hushrec recommend`,
    and `score_users` may return columns of candidates alone (see `scores_among`).
    """
    if len(cutoffs) == 0 or min(cutoffs) < 1:
        raise HushrecError(f"cutoffs are {tuple(cutoffs)}; give one or more positive numbers, such as (5, 10)")
    if block_size is not None and block_size < 1:
        raise HushrecError(f"block_size is {block_size}; score at least 1 user at a time")
    check_split(train, test)
    users = evaluated_users(test, relevant_from)
    if len(users) == 0:
        raise HushrecError("no user has a relevant test item; lower relevant_from or enlarge the test set")
    starts, items = _relevant(test, relevant_from)
    num_relevant = np.diff(starts)[users]
    keys = _keys(num_relevant, items)
    hits = np.empty((len(users), max(cutoffs)), np.bool_)
    with threadpool_limits(1, user_api="blas"):  # threads for such narrow products only wait for each other
        for first, ranked in _ranked_blocks(
            score_users, users, train, test, hits.shape[1], block_size, candidates
        ):
            rows = np.arange(first, first + len(ranked))[:, None]
            hits[first : first + len(ranked)] = _contains(keys, rows * _ROW_STRIDE + ranked)
    return _values(hits, num_relevant, cutoffs)


def evaluated_users(test: Rows, relevant_from: float | None = None) -> NDArray[np.int32]:
    """Users with at least one relevant test item, ascending; all other users are left out of the means."""
    starts, _ = _relevant(test, relevant_from)
    return np.flatnonzero(np.diff(starts)).astype(np.int32)


def _relevant(test: Rows, relevant_from: float | None) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    if relevant_from is None:
        return test.starts, test.items
    if test.ratings is None:
        raise HushrecError("relevant_from needs ratings and the test set has none; leave relevant_from out")
    is_relevant = test.ratings >= relevant_from
    num_before = np.concatenate(([0], np.cumsum(is_relevant, dtype=np.int64)))
    return num_before[test.starts], test.items[is_relevant]


def _ranked_blocks(
    score_users: ScoreUsers,
    users: NDArray[np.int32],
    train: Rows,
    test: Rows,
    num_ranks: int,
    block_size: int | None,
    candidates: NDArray[np.bool_] | None,
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Position of each block's first user, and the best items of its users."""
    num_needed = 1 + int(max(rows.items.max(initial=-1) for rows in (train, test)))
    first = 0
    for block in blocks_of(users, num_needed, block_size):
        scores = scores_of(score_users, block, num_needed, candidates)
        items, best = top_k(scores, num_ranks, take_rows(train, block), candidates)
        yield first, items if candidates is None else np.where(np.isneginf(best), np.int32(NO_ITEM), items)
        first += len(block)


def blocks_of(
    users: NDArray[np.int32], num_items: int, block_size: int | None = None
) -> Iterator[NDArray[np.int32]]:
    """Users, so many at a time that their scores stay near the processor, unless told."""
    size = block_size or max(_LEAST_BLOCK, _BLOCK_SCORES // max(num_items, 1))
    for first in range(0, len(users), size):
        yield users[first : first + size]


def scores_of(
    score_users: ScoreUsers,
    users: NDArray[np.int32],
    num_needed: int,
    candidates: NDArray[np.bool_] | None = None,
) -> NDArray[np.floating]:
    """Scores of a block of users, with a column for each of so many items or more, or for each candidate."""
    scores = np.asarray(score_users(users))
    if candidates is not None and scores.shape == (len(users), np.count_nonzero(candidates)):
        return scores
    if scores.ndim != 2 or len(scores) != len(users) or scores.shape[1] < num_needed:
        raise HushrecError(
            f"score_users returned shape {scores.shape} for {len(users)} users; "
            f"return one row per user and one column per item, {num_needed} or more"
        )
    return scores


def _values(
    hits: NDArray[np.bool_], num_relevant: NDArray[np.int64], cutoffs: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """All metrics as running sums along the ranks, read off at each cutoff."""
    ranks = np.arange(1, hits.shape[1] + 1)
    discounts = 1 / np.log2(ranks + 1)
    num_hits = np.cumsum(hits, axis=1)
    gains = np.cumsum(hits * discounts, axis=1)
    ideal_gains = np.cumsum(discounts)
    precision_sums = np.cumsum(hits * (num_hits / ranks), axis=1)
    reciprocal_ranks = np.maximum.accumulate(hits / ranks, axis=1)
    values = {}
    for cutoff in cutoffs:
        last = cutoff - 1
        num_possible = np.minimum(num_relevant, cutoff)
        values[f"Precision@{cutoff}"] = num_hits[:, last] / cutoff
        values[f"Recall@{cutoff}"] = num_hits[:, last] / num_relevant
        values[f"HR@{cutoff}"] = (num_hits[:, last] > 0).astype(np.float64)
        values[f"MRR@{cutoff}"] = reciprocal_ranks[:, last].copy()
        values[f"NDCG@{cutoff}"] = gains[:, last] / ideal_gains[num_possible - 1]
        values[f"MAP@{cutoff}"] = precision_sums[:, last] / num_possible
    return values


def take_rows(rows: Rows, users: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The rows of these users: their starts and their items."""
    lengths = rows.starts[users + 1] - rows.starts[users]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    positions = np.arange(starts[-1]) + np.repeat(rows.starts[users] - starts[:-1], lengths)
    return starts, rows.items[positions]


def _keys(lengths: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.int64]:
    """Ascending, as rows and the items within them are."""
    keys: NDArray[np.int64] = np.repeat(np.arange(len(lengths)), lengths) * _ROW_STRIDE + items
    return keys


def _contains(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the wanted keys are among the ascending, non-empty keys."""
    positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: NDArray[np.bool_] = keys[positions] == wanted
    return found


def check_split(train: Rows, test: Rows) -> None:
    """Refuse rows that are out of order, or that share an interaction."""
    _check_rows(train, "train")
    _check_rows(test, "test")
    _check_disjoint(train, test)


def _check_rows(rows: Rows, name: str) -> None:
    starts, items = rows.starts, rows.items
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(items) or np.any(np.diff(starts) < 0):
        raise HushrecError(f"the starts of {name} must rise from 0 to its {len(items)} items")
    if len(items) and items.min() < 0:
        raise HushrecError(f"{name} has item {items.min()}; number items from 0")
    if np.any(np.diff(_keys(np.diff(starts), items)) <= 0):
        raise HushrecError(f"{name} has a user whose items are not ascending or repeat; sort and merge them")
    if rows.ratings is not None and (len(rows.ratings) != len(items) or not np.isfinite(rows.ratings).all()):
        raise HushrecError(f"{name} must have one finite rating for each of its {len(items)} items")


def _check_disjoint(train: Rows, test: Rows) -> None:
    if len(train.starts) != len(test.starts):
        raise HushrecError(
            f"train has {len(train.starts) - 1} users and test {len(test.starts) - 1}; "
            "give both a row for every user, empty where there is nothing"
        )
    if len(train.items) == 0:
        return
    test_keys = _keys(np.diff(test.starts), test.items)
    is_shared = _contains(_keys(np.diff(train.starts), train.items), test_keys)
    if is_shared.any():
        count = int(np.count_nonzero(is_shared))
        raise HushrecError(f"{count:,} of {len(test_keys):,} test rows are in train, too; split without overlap")
