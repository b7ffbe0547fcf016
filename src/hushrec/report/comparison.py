"""Runs side by side, a row for each: accuracy, bytes, CPU time, and which of them end with the same model."""

from collections.abc import Sequence
from typing import Any

from hushrec.report.findings import same_as
from hushrec.report.tables import cpu_seconds, labels, up_and_down
from hushrec.runs.record import Run


def comparison_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What `compare --json` prints of each run; the names are a contract."""
    names, same = labels(runs), same_as(runs)
    rows = []
    for run, name, others in zip(runs, names, same, strict=True):
        up, down = up_and_down(run)
        rows.append(
            {
                "label": name,
                "system": run.system,
                "data": run.data,
                "folds": len(run.folds),
                "mean": run.mean,
                "std": run.std,
                **({"lists": run.lists} if run.lists else {}),
                **({"baselines": run.baselines} if run.baselines else {}),
                "up_bytes_per_client_round": up,
                "down_bytes_per_client_round": down,
                "cpu_seconds": cpu_seconds(run)[0],
                "same_model_as": [names[other] for other in others],
            }
        )
    return rows
