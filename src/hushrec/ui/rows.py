"""What the index keeps of a run: one row, read from its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hushrec.audit import kept as audits
from hushrec.errors import HushrecError
from hushrec.runs.following import Followed
from hushrec.runs.record import ROUNDS, Run, read_run
from hushrec.ui.asking import storable

WATCHED = ("run.json", ROUNDS, audits.FILE)  # the files that a row comes from
COLUMNS = (
    "id", "mark", "name", "system", "data", "seed", "state", "started", "folds", "num_folds", "rounds", "bytes",
    "seconds", "leakage", "parties", "fault", "config", "last", "best",
)  # fmt: skip


def is_better_low(metric: str) -> bool:
    """Whether a smaller value of a metric is the better one.

    >>> is_better_low("cold RMSE"), is_better_low("MAP@10"), is_better_low("test loss")
    (True, False, True)
    """
    return any(word in ("RMSE", "MAE", "loss", "bytes", "seconds", "leakage") for word in metric.split())


def row_of(runs_folder: Path, run_id: str, mark: str) -> tuple[Any, ...]:
    """What the index keeps of a run; of one that cannot be read, why: it keeps no other from being listed."""
    folder = runs_folder / run_id
    name = run_id.rpartition("/")[2]
    try:
        for one in WATCHED:
            if (folder / one).exists() and not (folder / one).is_file():  # a pipe would be waited for
                raise HushrecError(f"{name}/{one} is no file; delete the folder and run again")
        return _row_of(folder, run_id, name, mark)
    except (HushrecError, OSError) as error:
        fault = str(error).replace(str(folder), name)
    except Exception as error:
        fault = f"{name} holds what no run has ({type(error).__name__}); delete its folder and run again"
    return (run_id, mark, name, "", "", None, "unreadable", None, *[None] * 7, fault, "{}", "{}", "{}")


def _row_of(folder: Path, run_id: str, name: str, mark: str) -> tuple[Any, ...]:
    run = read_run(folder)
    followed = None if run.is_done else Followed(folder)
    if followed:
        followed.look()
    return (
        run_id, mark, name, run.system, run.data, storable(run.seed), _state(run, followed),
        run.provenance.started, len(run.folds), storable(run.num_folds), storable(_rounds(run, followed)),
        storable(_bytes(run, followed)), _seconds(run, followed),
        leakage_of(folder), run.num_parties, "", _json(_plain(run.config)), _json(last_of(run, followed)),
        _json(best_of(run, followed)),
    )  # fmt: skip


def _state(run: Run, followed: Followed | None) -> str:
    if followed and followed.is_running:
        return "running"
    return "done" if run.is_done else "stopped"


def _rounds(run: Run, followed: Followed | None) -> int:
    if run.folds:
        return max(fold.num_rounds for fold in run.folds)
    return followed.rounds[-1].round_number if followed and followed.rounds else 0


def _bytes(run: Run, followed: Followed | None) -> int | None:
    """Of the first fold: all folds send about as much."""
    if run.folds:
        return sum(run.folds[0].sent_bytes.values())
    if followed and followed.rounds:
        return sum(sum(one.sent_bytes.values()) for one in followed.rounds if one.fold == 1)
    return None


def _seconds(run: Run, followed: Followed | None) -> float | None:
    if run.folds:
        return sum(fold.wall_seconds for fold in run.folds)
    return followed.rounds[-1].seconds if followed and followed.rounds else None


def leakage_of(folder: Path) -> float | None:
    """How far the strongest attack is from a blind guess (0) towards knowing all (1); None: nobody audited it."""
    try:
        audit = audits.read_audit(folder)
    except HushrecError:
        return None
    if audit is None:
        return None
    return max((one.advantage for one in audit.findings if one.is_above_chance), default=0.0)


def last_of(run: Run, followed: Followed | None) -> dict[str, float]:
    """The last value of each metric: means over folds, or what was told last of a run that goes on."""
    if run.folds:
        return run.mean
    told = [one.metrics for one in followed.rounds if one.metrics] if followed else []
    return {name: value for name, value in told[-1].items() if value is not None} if told else {}


def best_of(run: Run, followed: Followed | None) -> dict[str, float]:
    """The best value of each metric over the rounds: means over folds of the best of each."""
    curves = [fold.curve for fold in run.folds] or [_curve(followed)]
    found = dict(last_of(run, followed))
    for name in curves[0]:
        values = [curve[name] for curve in curves if curve.get(name)]
        pick = min if is_better_low(name) else max
        found[name] = sum(pick(one) for one in values) / len(values)
    return found


def _curve(followed: Followed | None) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in followed.rounds if followed else ():
        for name, value in one.metrics.items():
            if value is not None and one.fold == 1:
                found.setdefault(name, []).append(value)
    return found


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as single values: lists as they are typed."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in config.items()
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
