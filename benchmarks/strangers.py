"""Files of no paper, with defaults only: how well each system does, beside baselines that see all data.

`python -m benchmarks.strangers [--data anime-5k,jester-1] [--systems fedrec++,fedrec-bpr]` runs what a newcomer
would type, `hushrec run SYSTEM --data FILE --baselines`, and prints one table: the metric of the system, that of
the baseline that it must beat (biases for ratings, popularity for lists), and what was chosen. Options of `run`
may follow.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

DATASETS = ("jester-1", "book-crossing", "movietweetings-100k", "anime-5k", "netflix-1200")
SYSTEMS = ("fedrec++", "fedrec-bpr", "fcf", "fedncf")
_EXPLICIT = ("fedrec", "fedrec++", "sdcf", "pmf")


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
        raise SystemExit(f"{system} on {data}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcome(system: str, data: str, more: list[str]) -> Outcome:
    """A run, and the baseline that it is held against."""
    found = run(system, data, more)
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
    known, more = parser.parse_known_args()
    numbers = f"{'ours':>7} {'baseline':>10} {'':7} {'ratio':>6} {'CPU':>7}"
    print(f"{'data':20} {'system':11} {'metric':8} {numbers}  chosen")
    for data in known.data.split(","):
        for system in known.systems.split(","):
            one = outcome(system, data, [*more, *([] if system in _EXPLICIT else ["--at", "10"])])
            print(
                f"{one.data:20} {one.system:11} {one.metric:8} {one.ours:7.4f} {one.beside:>10} {one.theirs:7.4f} "
                f"{one.ratio:6.3f} {one.seconds:5.0f} s  {one.chosen}",
                flush=True,
            )


if __name__ == "__main__":
    main()
