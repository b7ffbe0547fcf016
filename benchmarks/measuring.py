"""What measuring lists costs: metrics of full rankings beside the matrix product that they cannot do without.

`python -m benchmarks.measuring [--data movietweetings-100k] [--min-raters 1] [--users 2000]` ranks for a model of
random vectors, 33 numbers long: with candidates scored alone and with all items scored. Beside it stand the
product of users and candidates alone, and NumPy's `argpartition` of all scores without any metric. Seconds are
CPU time, the least of three.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import hushrec
from hushrec.data import random_share
from hushrec.evaluation import evaluated_users, ranking_metrics
from hushrec.evaluation.candidates import candidates
from hushrec.evaluation.ranking import blocks_of
from hushrec.evaluation.scoring import scores_among
from hushrec.systems.drift.ranking_factors import RankingFactors

_LENGTH, _NUM_FACTORS = 10, 33


def seconds(work: Callable[[], object]) -> float:
    """The least of three."""
    found = []
    for _ in range(3):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return min(found)


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="movietweetings-100k")
    parser.add_argument("--min-raters", type=int, default=1)
    parser.add_argument("--users", type=int, default=2000)
    wished = parser.parse_args()
    split = random_share(hushrec.load(wished.data).as_implicit(), 0.2, 0)
    users = evaluated_users(split.test.by_user())[: wished.users]
    test = split.test.select(split.test.users <= users[-1])
    draws = np.random.default_rng(0)
    model = RankingFactors(
        draws.normal(size=(test.num_users, _NUM_FACTORS)).astype(np.float32),
        draws.normal(size=(test.num_items, _NUM_FACTORS)).astype(np.float32),
        0.1,
    )
    is_candidate = candidates(split.train, wished.min_raters)
    rows, narrow = (split.train.by_user(), test.by_user()), scores_among(model, is_candidate)

    def metrics(score: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
        return ranking_metrics(score, *rows, (_LENGTH,), candidates=is_candidate)

    def in_blocks(work: Callable[[np.ndarray], np.ndarray]) -> None:
        for block in blocks_of(users, test.num_items):
            work(block)

    ways = {
        "the product alone": lambda: in_blocks(narrow),
        "metrics, candidates scored": lambda: metrics(narrow),
        "metrics, all items scored": lambda: metrics(model.score),
        "NumPy's argpartition, no metric": lambda: in_blocks(
            lambda block: np.argpartition(-model.score(block), _LENGTH, axis=1)[:, :_LENGTH]
        ),
    }
    num_candidates = test.num_items if is_candidate is None else int(is_candidate.sum())
    print(f"{wished.data}: {len(users)} users, {test.num_items} items, {num_candidates} candidates")
    with threadpool_limits(1, user_api="blas"):
        assert metrics(narrow) == metrics(model.score)
        least = 0.0
        for name, work in ways.items():
            took = seconds(work)
            least = least or took
            print(f"{name:32} {took:8.3f} s {took / least:6.2f} times the product", flush=True)


if __name__ == "__main__":
    main()
