"""Accuracy against epsilon per user, by the number of users: `python -m benchmarks.user_privacy [PICTURE]`.

FedRec with the preset `private`: noise is drawn for real, masks are counted. First fold, seed 0, delta 1e-6, one
thread. Beside it the same training without noise, the preset `general` without noise, a client's own mean, which
needs no federation, and the biases of a model with all ratings in one place. Prints rows as they are
measured and draws the picture. Takes some five minutes on one core, most of them to draw noise: 5, 67 and 30
million draws for a round of all clients.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.baselines.biases import Biases
from hushrec.data import Interactions, load, synthetic
from hushrec.evaluation.rating import rating_metrics
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions

DELTA = 1e-6
PICTURE = Path(__file__).parents[1] / "docs" / "user_privacy.png"
PLAIN_ROUNDS = 60


@dataclass(frozen=True)
class Crowd:
    """Users of some data, and the budgets to try."""

    name: str
    data: Interactions
    epsilons: tuple[float, ...]
    values: dict[str, Any] = field(default_factory=dict)  # beside the preset's


@dataclass(frozen=True)
class Row:
    """What was measured."""

    what: str
    epsilon: float | None
    rmse: float
    ndcg: float
    total: float | None = None  # of the ledger


def crowds() -> Iterator[Crowd]:
    """From the smallest on; `synthetic` are ratings of nobody. There all clients stay, and all are honest."""
    yield Crowd("ML-100K, 943 users", load("ml-100k"), (1, 2, 4, 8, 16))
    yield Crowd("ML-1M, 6,040 users", load("ml-1m"), (1, 2, 4, 8))
    few = {"secure_corrupted": 0.0, "secure_dropouts": 0.0}  # two neighbours each, and 8% less noise
    yield Crowd("synthetic, 100,000 users", synthetic(100_000, 100, 2_000_000), (0.5, 1, 4), few)


def trained(crowd: Crowd, what: str, epsilon: float | None, **values: Any) -> Row:
    """FedRec on the first fold."""
    system = SYSTEMS["fedrec"]
    # Masks are counted, so the graph of neighbours changes nothing; a sparse one takes less memory.
    config = system.configure({"secure_failure": 0.9, "delta": DELTA, **crowd.values, **values})
    settings = replace(settings_for(system), num_folds=1)
    done = run(system, config, crowd.data, settings, RuntimeOptions(threads=1)).folds[0]
    total = next((value for name, value in done.facts.items() if name.startswith("epsilon of these")), None)
    return Row(what, epsilon, done.metrics["RMSE"], done.metrics["NDCG@10"], total)


def baselines(crowd: Crowd) -> Iterator[Row]:
    """What is known without a federation, and with all ratings in one place."""
    system = SYSTEMS["fedrec"]
    split = next(splits_for(system, crowd.data, settings_for(system), system.configure({})))
    train, test = split.train, split.test
    assert train.ratings is not None
    assert test.ratings is not None
    mean = train.ratings.mean(dtype=np.float64)
    counts = np.bincount(train.users, minlength=train.num_users)
    own = np.bincount(train.users, train.ratings, train.num_users) / np.maximum(counts, 1)
    own[counts == 0] = mean
    guesses = {
        "mean of all ratings": np.full(len(test), mean),
        "each user's own mean": own[test.users],
        "biases, ratings in one place": Biases.fit(train).predict(test.users, test.items),
    }
    for what, predicted in guesses.items():
        yield Row(what, None, rating_metrics(predicted, test.ratings)["RMSE"], np.nan)


def measured(crowd: Crowd) -> Iterator[Row]:
    """All rows of a crowd."""
    yield from baselines(crowd)
    yield trained(crowd, "no noise, preset general", None, preset="general", rho=0, num_rounds=PLAIN_ROUNDS)
    yield trained(crowd, "no noise, preset private", None, preset="private")
    for epsilon in crowd.epsilons:
        yield trained(crowd, "noise", epsilon, preset="private", epsilon_total=float(epsilon))


def main(picture: Path) -> None:
    """Measure, print, draw."""
    found: dict[str, list[Row]] = {}
    for crowd in crowds():
        print(f"\n{crowd.name}: {crowd.data.num_items:,} items, {len(crowd.data):,} ratings", flush=True)
        print("| | epsilon | RMSE | NDCG@10 | ledger | CPU s |\n|---|---|---|---|---|---|", flush=True)
        start = time.process_time()
        for row in measured(crowd):
            found.setdefault(crowd.name, []).append(row)
            seconds, start = time.process_time() - start, time.process_time()
            epsilon, total = (f"{one:g}" if one is not None else "" for one in (row.epsilon, row.total))
            ndcg = "" if np.isnan(row.ndcg) else f"{row.ndcg:.4f}"
            print(f"| {row.what} | {epsilon} | {row.rmse:.4f} | {ndcg} | {total} | {seconds:.0f} |", flush=True)
        draw(found, picture)


def draw(found: dict[str, list[Row]], picture: Path) -> None:
    """A panel per crowd: RMSE by epsilon, with what there is without noise as lines."""
    import matplotlib  # of the extra `report`

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        1, len(found), figsize=(3.6 * len(found), 3.6), layout="constrained", squeeze=False
    )
    lines = {
        "each user's own mean": ("tab:red", ":"),
        "biases, ratings in one place": ("tab:green", "-."),
        "no noise, preset private": ("tab:blue", "--"),
        "no noise, preset general": ("black", "--"),
    }
    for panel, (name, rows) in zip(panels[0], found.items(), strict=True):
        noisy = [row for row in rows if row.epsilon is not None]
        panel.plot(
            [row.epsilon for row in noisy], [row.rmse for row in noisy], "o-", color="tab:blue", label="noise"
        )
        for row in rows:
            if row.what in lines:
                color, style = lines[row.what]
                panel.axhline(row.rmse, color=color, linestyle=style, linewidth=1, label=row.what)
        panel.set(title=name, xlabel="epsilon per user, whole run", xscale="log")
        panel.set_xticks([row.epsilon for row in noisy], [f"{row.epsilon:g}" for row in noisy])
        panel.minorticks_off()
    panels[0][0].set_ylabel("RMSE")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(picture, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
