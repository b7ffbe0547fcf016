"""`python -m benchmarks.newcomers SYSTEM [name=value ...]`: how good the lists of newcomers are, on ML-100K.

50 users are held out of training and come as newcomers with 80% of their items. NDCG@10 of the rest (of good
ratings, where there are ratings), beside that of popularity. And of every 13th user of the training: how much of
the ten best by its own vector is in the list that its ratings give a newcomer, and that another user's give.
"""

import sys
import time
from ast import literal_eval
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hushrec
from hushrec.data import Interactions
from hushrec.estimators import estimator_named
from hushrec.runs.newcomers import checked_ratings
from hushrec.runs.ranker import Ranker

LENGTH, NUM_HELD_OUT, GIVEN_SHARE, EVERY = 10, 50, 0.8, 13
DISCOUNTS = 1 / np.log2(np.arange(2, LENGTH + 2))

Scores = NDArray[np.float64]


class Found(NamedTuple):
    """What was measured."""

    newcomers: float  # NDCG@10
    popularity: float
    own: float  # share of the ten best
    other: float
    milliseconds: float  # of a newcomer's scores, median


def best(
    scores: NDArray[np.floating], is_candidate: NDArray[np.bool_], seen: NDArray[np.int32]
) -> NDArray[np.int64]:
    """The best items that may be listed."""
    scores = np.where(is_candidate, scores.astype(np.float64), -np.inf)
    scores[seen] = -np.inf
    return np.argsort(-scores, kind="stable")[:LENGTH]


def ndcg(listed: NDArray[np.int64], relevant: NDArray[np.int32]) -> float:
    """With the best list of so many relevant items as the ideal."""
    return float(np.isin(listed, relevant) @ DISCOUNTS / DISCOUNTS[: len(relevant)].sum())


def measure(ranker: Ranker, data: Interactions, held_out: NDArray[np.int64]) -> Found:
    """Newcomers and users of a fitted model."""
    train, popularity = ranker.train, ranker.num_raters.astype(np.float64)
    is_candidate = ranker.num_raters >= (10 if train.rating_range is not None else 1)
    gains, times = [], []
    for user in held_out.tolist():
        rows = np.random.default_rng(user).permutation(np.flatnonzero(data.users == user))
        given, kept = np.sort(rows[: int(GIVEN_SHARE * len(rows))]), rows[int(GIVEN_SHARE * len(rows)) :]
        ratings = data.ratings
        assert ratings is not None
        if train.rating_range is not None:
            kept = kept[ratings[kept] >= (4 if train.signed_from is None else train.signed_from[2])]
        if not len(kept):
            continue
        items, start = data.items[given], time.perf_counter()
        scores = ranker.scorer.fold_in(items, checked_ratings(train, ratings[given], len(given)))
        times.append(time.perf_counter() - start)
        lists = (best(one, is_candidate, items) for one in (scores, popularity))
        gains.append([ndcg(listed, data.items[kept]) for listed in lists])
    own, other = overlaps(ranker, is_candidate)
    return Found(*np.mean(gains, axis=0).tolist(), own, other, 1000 * float(np.median(times)))


def overlaps(ranker: Ranker, is_candidate: NDArray[np.bool_]) -> tuple[float, float]:
    """Lists of users by their own vectors, and as newcomers."""
    rows, trained, folded = ranker.train.by_user(), [], []
    for user in np.flatnonzero(np.diff(rows.starts))[::EVERY].tolist():
        own = slice(rows.starts[user], rows.starts[user + 1])
        items = rows.items[own]
        ratings = np.ones(len(items), np.float32) if rows.ratings is None else rows.ratings[own]
        trained.append(best(ranker.scorer.score(np.array([user], np.int32))[0], is_candidate, items))
        folded.append(best(ranker.scorer.fold_in(items, ratings), is_candidate, items))
    shares = [[len(np.intersect1d(one, two)) / LENGTH for two in folded] for one in trained]
    return float(np.mean(np.diag(shares))), float(np.mean(np.diag(np.roll(shares, 1, axis=1))))


def main() -> None:
    """Fit one system and print one line."""
    name, *values = sys.argv[1:]
    settings = {key: literal_eval(value) for key, _, value in (one.partition("=") for one in values)}
    data = hushrec.load("ml-100k")
    held_out = np.sort(np.random.default_rng(0).choice(data.num_users, NUM_HELD_OUT, replace=False))
    model = estimator_named(name)(**settings).fit(data.select(~np.isin(data.users, held_out)))
    found = measure(model.ranker(), data, held_out)
    print(
        f"{name} {' '.join(values)}: NDCG@10 of newcomers {found.newcomers:.3f}, "
        f"of popularity {found.popularity:.3f}; same best ten {found.own:.2f}, "
        f"of another user {found.other:.2f}; {found.milliseconds:.1f} ms"
    )


if __name__ == "__main__":
    main()
