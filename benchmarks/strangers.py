"""Files of no paper, with defaults only: how well each system does, beside baselines that see all data.

`python -m benchmarks.strangers [--data anime-5k,jester-1] [--systems fedrec++,fedrec-bpr]` runs what a newcomer
would type, `hushrec run SYSTEM --data FILE --baselines`, and prints one table: the metric of the system, that of
the baseline that it must beat (biases for ratings, popularity for lists), and what was chosen. With `--people N`
as many are drawn of those with three rows or more, and the rest of the file is left out: some systems take hours
on all of them. What costs time and changes no number is left out: FedMF's encryption, and fedrec-bpr's virtual
pairs with those who take them out again. A run that fails has its error in the table, and the others go on.
Options of `run` may follow.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hushrec

DATASETS = ("jester-1", "book-crossing", "movietweetings-100k", "anime-5k", "netflix-1200")
SYSTEMS = (
    "fedrec++", "fedrec-bpr", "fcf", "fedmf", "fedncf", "ptf-fedrec", "metamf", "drift", "saros",
    "neumf", "ngcf", "lightgcn",
)  # fmt: skip
_EXPLICIT = ("fedrec", "fedrec++", "sdcf", "pmf")
# What changes no number, to the last bit: tests say so.
_QUICKER = {"fedmf": ["--encryption", "none"], "fedrec-bpr": ["--rho", "0", "--denoisers", "0"]}
_LEAST_ROWS = 3  # of those who are drawn


class RunFailedError(Exception):
    """What a run said last."""


@dataclass(frozen=True)
class Outcome:
    """One run."""

    data: str
    system: str
    metric: str
    ours: float
    beside: str
    theirs: float
    chosen: str
    seconds: float

    @property
    def ratio(self) -> float:
        """Ours over theirs; of errors, less is better."""
        return self.ours / self.theirs


def file_of(data: str, num_people: int, folder: Path) -> str:
    """The rows of so many people, drawn at random, as a file; with 0 the data as it is."""
    if not num_people:
        return data
    whole = hushrec.load(data)
    num_rows = np.bincount(whole.users, minlength=whole.num_users)
    able = np.flatnonzero(num_rows >= _LEAST_ROWS)
    drawn = np.random.default_rng(0).choice(able, min(num_people, len(able)), replace=False)
    rows = whole.select(np.isin(whole.users, drawn))
    columns = {"user": rows.users, "item": rows.items, "rating": rows.ratings, "timestamp": rows.timestamps}
    path = folder / f"{data}.parquet"
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path)
    return str(path)


def run(system: str, data: str, more: list[str]) -> dict[str, Any]:
    """What `hushrec run` prints as JSON."""
    command = [
        sys.executable,
        "-m",
        "hushrec.cli.app",
        "run",
        system,
        "--data",
        data,
        "--baselines",
        "--json",
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise RunFailedError(said[-1])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcome(system: str, data: str, file: str, more: list[str]) -> Outcome:
    """A run, and the baseline that it is held against."""
    found = run(system, file, more)
    metric, beside = ("RMSE", "biases") if system in _EXPLICIT else ("NDCG@10", "popularity")
    chosen = ", ".join(f"{one['setting']} {one['value']}" for one in found.get("chosen", []))
    seconds = sum(fold["cpu_seconds"] for fold in found["folds"])
    return Outcome(
        data, system, metric, found["mean"][metric], beside, found["baselines"][beside][metric], chosen, seconds
    )


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(DATASETS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--people", type=int, default=0, help="so many of each file; 0: all")
    known, more = parser.parse_known_args()
    numbers = f"{'ours':>7} {'baseline':>10} {'':7} {'ratio':>6} {'CPU':>7}"
    print(f"{'data':20} {'system':11} {'metric':8} {numbers}  chosen")
    with TemporaryDirectory() as folder:
        for data in known.data.split(","):
            file = file_of(data, known.people, Path(folder))
            for system in known.systems.split(","):
                options = [*more, *_QUICKER.get(system, []), *([] if system in _EXPLICIT else ["--at", "10"])]
                try:
                    _print(outcome(system, data, file, options))
                except RunFailedError as error:
                    print(f"{data:20} {system:11} {error}", flush=True)


def _print(one: Outcome) -> None:
    print(
        f"{one.data:20} {one.system:11} {one.metric:8} {one.ours:7.4f} {one.beside:>10} {one.theirs:7.4f} "
        f"{one.ratio:6.3f} {one.seconds:5.0f} s  {one.chosen}",
        flush=True,
    )


if __name__ == "__main__":
    main()
