"""Lists of FedRec++ with a ranking loss beside BPR-MF of `implicit` and popularity, on one split, in one run.

`python -m benchmarks.ranking [DATA ...]`, default ml-100k; needs `pip install implicit`. The settings of
`implicit` are the best of a small search on a validation part of the training data; ours are the defaults.
"""

import sys
import time
from collections.abc import Callable
from hashlib import sha256
from itertools import product

import numpy as np

import hushrec
from hushrec.data import Interactions, random_share
from hushrec.evaluation.ranking import ranking_metrics
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job

Score = Callable[[np.ndarray], np.ndarray]
SEARCH = tuple(product((32, 64), (0.001, 0.003, 0.01), (0.003, 0.01, 0.03), (100, 200)))


def popularity(train: Interactions) -> Score:
    """Everybody gets what most have."""
    counts = np.bincount(train.items, minlength=train.num_items).astype(np.float32)
    return lambda users: np.tile(counts, (len(users), 1))


def bpr_of_implicit(
    train: Interactions, factors: int, learning_rate: float, regularization: float, iterations: int
) -> Score:
    """BPR-MF, centralised."""
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix

    ones = np.ones(len(train.users), np.float32)
    table = csr_matrix((ones, (train.users, train.items)), shape=(train.num_users, train.num_items))
    model = BayesianPersonalizedRanking(
        factors=factors, learning_rate=learning_rate, regularization=regularization, iterations=iterations,
        random_state=0, num_threads=1,
    )  # fmt: skip
    model.fit(table, show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def ours(train: Interactions, **settings: object) -> tuple[Score, str]:
    """The defaults; and the digest of V."""
    system = SYSTEMS["fedrec-bpr"]
    config = system.configure(settings)
    progress = run_job(job_for(system, config, 0, train), RuntimeOptions(threads=1))
    model = system.result.whole(progress.state, progress.private, config, None)
    return model.score, hash_of(progress.state.item_factors)


def hash_of(array: np.ndarray) -> str:
    """A short digest."""
    return sha256(array.tobytes()).hexdigest()[:16]


def measured(score: Score, train: Interactions, test: Interactions) -> tuple[float, float, int]:
    """NDCG@10, HR@10, and how many items are in the lists of all users."""
    metrics = ranking_metrics(score, train.by_user(), test.by_user(), (10,))
    users = np.arange(train.num_users, dtype=np.int32)
    shown = set[int]()
    for some in np.array_split(users, max(len(users) // 500, 1)):
        scores = score(some).astype(np.float32)
        rows = train.by_user()
        for place, user in enumerate(some.tolist()):
            scores[place, rows.items[rows.starts[user] : rows.starts[user + 1]]] = -np.inf
        shown.update(np.argpartition(-scores, 10, axis=1)[:, :10].ravel().tolist())
    return metrics["NDCG@10"], metrics["HR@10"], len(shown)


def main(name: str) -> None:
    """Print the table of one dataset."""
    split = random_share(hushrec.load(name).as_implicit(), 0.2, 0)
    inner = random_share(split.train, 0.2, 0)
    found = {
        values: measured(bpr_of_implicit(inner.train, *values), inner.train, inner.test)[0] for values in SEARCH
    }
    chosen = max(found, key=lambda values: found[values])
    print(f"{name}: 80:20 at random, all items ranked; implicit's settings by validation: {chosen}")
    models: dict[str, Callable[[], tuple[Score, str]]] = {
        "popularity": lambda: (popularity(split.train), ""),
        "BPR-MF of implicit": lambda: (bpr_of_implicit(split.train, *chosen), ""),
        "fedrec-bpr, rho 0": lambda: ours(split.train, rho=0, denoisers=0),
        "fedrec-bpr, rho 3": lambda: ours(split.train, rho=3, denoisers=1),
        "the same, 5 denoisers": lambda: ours(split.train, rho=3, denoisers=5),
        "rho 0, secure sums": lambda: ours(split.train, rho=0, denoisers=0, secure_sums=True),
    }
    print(f"{'':24}NDCG@10   HR@10  items  seconds  model")
    for label, build in models.items():
        before = time.process_time()
        score, digest = build()
        seconds = time.process_time() - before
        ndcg, hits, items = measured(score, split.train, split.test)
        print(f"{label:24}{ndcg:7.4f} {hits:7.4f} {items:6} {seconds:8.1f}  {digest}", flush=True)


if __name__ == "__main__":
    for dataset in sys.argv[1:] or ["ml-100k"]:
        main(dataset)
