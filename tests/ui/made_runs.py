"""Folders of runs that nobody ran: many, and made at once."""

import math
import random
from pathlib import Path
from typing import Any

import msgspec

from hushrec.audit.kept import FILE, KeptAudit, KeptFinding

SYSTEMS = ("fedrec", "fedrec++", "fcf", "pmf")
NUM_ROUNDS = 50


def made_run(number: int) -> dict[str, Any]:
    """What a `run.json` holds, all of it from a number."""
    draw = random.Random(number)
    system = SYSTEMS[number % len(SYSTEMS)]
    rate, rho, factors = draw.choice([0.1, 0.2, 0.4, 0.8]), draw.choice([0, 1, 2, 3]), draw.choice([10, 20, 40])
    floor = 0.9 + 0.02 * rho + draw.random() * 0.05 + abs(math.log(rate / 0.4)) * 0.02
    rmse = [floor + 0.3 * math.exp(-rate * place / 5) for place in range(NUM_ROUNDS)]
    ndcg = [0.5 - 0.3 * (value - 0.85) for value in rmse]
    last = {"RMSE": rmse[-1], "MAE": rmse[-1] * 0.78, "NDCG@10": ndcg[-1]}
    sent = int(1e6 * (1 + rho) * factors * (1 + draw.random()))
    return {
        "system": system,
        "data": "ml-100k" if number % 3 else "ml-1m",
        "seed": number,
        "config": {"rho": rho, "num_factors": factors, "num_rounds": NUM_ROUNDS, "learning_rate": rate,
                   "biases": bool(number % 2)},
        "provenance": {
            "data_sha256": "0" * 64, "is_synthetic": False, "num_users": 943, "num_items": 1682,
            "num_ratings": 100_000, "rating_range": [1.0, 5.0], "split": "folds", "test_share": 0.2,
            "versions": {"python": "3.11.7"}, "machine": "Linux x86_64, 2 cores",
            "started": f"2026-{1 + number % 12:02}-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z",
        },
        "num_folds": 1,
        "folds": [
            {
                "fold": 1, "metrics": last, "model_sha256": f"{number:064x}", "clients_sha256": None,
                "cpu_seconds": 3.0, "wall_seconds": 2.0, "sent_bytes": {"client->server": sent},
                "num_rounds": NUM_ROUNDS, "num_train": 80_000, "num_test": 20_000, "num_cold": 3,
                "messages": [
                    {"type": "ItemGradients", "sender": "client", "receiver": "server", "messages": 943,
                     "rows": 80_000, "bytes": sent}
                ],
                "curve": {"RMSE": rmse, "NDCG@10": ndcg},
            }
        ],
        "command": f"hushrec run {system} --data ml-100k --rho {rho}",
    }  # fmt: skip


def make_runs(folder: Path, count: int, audited_every: int = 0) -> None:
    """So many runs below a folder, a hundred beside each other."""
    for number in range(count):
        run = folder / f"batch-{number // 100:03}" / f"run-{number:05}"
        run.mkdir(parents=True)
        (run / "run.json").write_bytes(msgspec.json.encode(made_run(number)))
        if audited_every and number % audited_every == 0:
            score = (number * 7919 % 1000) / 1000
            finding = KeptFinding("listed items", "server", "share found", score, 0.05, None, [score])
            (run / FILE).write_bytes(msgspec.json.encode(KeptAudit(5, "2026-11-18", [finding])))
