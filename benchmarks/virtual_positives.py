"""Can a server tell FedNCF's virtual positives from real ones? `python -m benchmarks.virtual_positives`.

A run without noise has the same model, so the uploads of some clients are made with rho 3 after some of its
rounds: clients with 10 to 80 items, for whom the catalogue has room. Of each upload the server takes what moves
the client's way (`step_direction`), and orders it by what it knows of an item: its popularity, the length of its
step, the length of its vector, and where both lie. Printed is how often a real positive comes before a virtual one
(AUC, chance is .5): by each number alone, and by all of them, weighted by a logistic regression that was shown the
truth of other clients.
"""

import copy
import sys

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.step_direction import at_smaller_end
from hushrec.data import load, random_share
from hushrec.draws import Draws
from hushrec.protocol import Cohort
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job
from hushrec.systems.fedncf.clients import Sent, hide, learn
from hushrec.systems.fedncf.system import SYSTEM

ROUNDS, RHO, NUM_CLIENTS = (1, 20, 100), 3, 80
KNOWN = "popularity", "step", "vector", "step along", "vector along", "step with others", "vector with others"

Floats = NDArray[np.float64]


def auc(scores: Floats, is_real: NDArray[np.bool_]) -> float:
    """How often a real one has the higher score; ties count half."""
    real, virtual = scores[is_real][:, None], scores[~is_real]
    return float(((real > virtual) + 0.5 * (real == virtual)).mean())


def known(steps: Floats, vectors: Floats, popularity: Floats) -> Floats:
    """What the server knows of each item that moves the client's way, each number with mean 0 and variance 1."""
    own = at_smaller_end(steps)
    direction = steps[own].mean(axis=0)
    steps, vectors = steps[own], vectors[own]
    table = np.column_stack([
        np.log1p(popularity[own]), np.linalg.norm(steps, axis=1), np.linalg.norm(vectors, axis=1),
        steps @ direction / np.linalg.norm(steps, axis=1), vectors @ direction, steps @ direction,
        vectors @ vectors.mean(axis=0),
    ])  # fmt: skip
    return (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-12)


def regression(table: Floats, is_real: NDArray[np.bool_]) -> Floats:
    """The weights of a logistic regression, by Newton's method with a little ridge."""
    table = np.column_stack([table, np.ones(len(table))])
    weights = np.zeros(table.shape[1])
    for _ in range(30):
        shares = 1 / (1 + np.exp(-table @ weights))
        curvature = table.T @ ((shares * (1 - shares))[:, None] * table) + 1e-3 * np.eye(len(weights))
        weights += np.linalg.solve(curvature, table.T @ (is_real - shares))
    return weights[:-1]


def measure(job: Job, progress: Progress) -> None:
    """Print how alike uploads of the next round would be."""
    private, draws, config = copy.deepcopy(progress.private), Draws(job.seed), job.config
    num_positives = np.diff(private.starts)
    with_room = np.flatnonzero((num_positives >= 10) & (num_positives <= 80))
    rows = np.sort(np.random.default_rng(1).choice(with_room, NUM_CLIENTS, replace=False))
    cohort = Cohort(rows.astype(np.int32), rows, private, progress.round_number + 1)
    sent = Sent(progress.state.item_factors, progress.state.layers)
    real = learn(cohort, sent, config.num_negatives, config.training(cohort.round_number), draws)
    shown, _ = hide(cohort, sent, real, RHO, config.training(cohort.round_number), draws)
    popularity = np.bincount(job.train.items, minlength=job.train.num_items).astype(np.float64)
    tables, truths = [], []
    for place, row in enumerate(rows.tolist()):
        items, steps = (column.part(place, place + 1).values for column in (shown.items, shown.gradients))
        steps = steps.astype(np.float64)
        tables.append(known(steps, sent.item_factors[items].astype(np.float64), popularity[items]))
        own = private.items[private.starts[row] : private.starts[row + 1]]
        truths.append(np.isin(items[at_smaller_end(steps)], own))
    half = NUM_CLIENTS // 2
    weights = regression(np.vstack(tables[:half]), np.concatenate(truths[:half]))
    alone = np.mean(
        [[auc(column, own) for column in table.T] for table, own in zip(tables, truths, strict=True)], 0
    )
    joint = np.mean([auc(table @ weights, own) for table, own in zip(tables[half:], truths[half:], strict=True)])
    told = ", ".join(f"{name} {score:.2f}" for name, score in zip(KNOWN, alone, strict=True))
    share = np.mean([own.mean() for own in truths])
    print(
        f"{config.variant}, round {progress.round_number}: {share:.3f} are real; {told}; all {joint:.2f}",
        flush=True,
    )


def main(variants: list[str]) -> None:
    """Train on ML-100K, and measure on the way."""
    train = random_share(load("ml-100k"), 0.2, 0).train
    for variant in variants or ["neumf", "gmf", "mlp"]:
        config = SYSTEM.configure({"preset": "tuned", "variant": variant, "num_rounds": max(ROUNDS)})
        job = job_for(SYSTEM, config, 0, train)

        def on_round(progress: Progress, job: Job = job) -> None:
            if progress.round_number in ROUNDS:
                measure(job, progress)

        run_job(job, RuntimeOptions(threads=1), on_round=on_round)


if __name__ == "__main__":
    main(sys.argv[1:])
