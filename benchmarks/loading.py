"""Five million rows: `pyarrow.csv.read_csv`, `hushrec data describe` and `hushrec run --rounds 1`, side by side.

    python -m benchmarks.loading [--rows 5000000] [--repeats 3]

Each is a process of its own; the best of some repeats, taken in turns, counts. Beside whole commands, which also
start Python and import, the reading alone is measured: `hushrec.load` against `read_csv`.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

COMMANDS = {
    "pyarrow.csv.read_csv, alone": "read_csv",
    "hushrec.load, alone": "load",
    "pyarrow.csv.read_csv, with import": "read_csv_process",
    "hushrec data describe": "describe",
    "hushrec run fedrec --rounds 1, to its first round": "first_round",
    "hushrec run fedrec --rounds 1, all": "run",
}
_INSIDE = ("read_csv", "load")


def make_file(path: Path, num_rows: int) -> None:
    """Ratings in random order, each pair once, long-tailed, with times; always the same."""
    from hushrec.data import synthetic

    data = synthetic(num_rows // 83, 20_000, num_rows, seed=1)
    assert data.ratings is not None
    generator = np.random.default_rng(1)
    rows = generator.permutation(len(data))
    columns = {
        "userId": data.user_ids[data.users[rows]] + 1,
        "movieId": data.item_ids[data.items[rows]] * 7 + 3,
        "rating": np.round(data.ratings[rows] * 2) / 2,
        "timestamp": generator.integers(800_000_000, 1_700_000_000, len(data)),
    }
    pa_csv.write_csv(pa.table(columns), path)


def child(what: str, path: Path) -> None:
    """Do one thing and print its seconds and peak memory."""
    if what == "load":
        from hushrec import load

        small = path.with_name("small.csv")
        load(small)  # loads what is compiled
    cpu, wall = (0.0, 0.0) if what not in _INSIDE else (time.process_time(), time.perf_counter())
    started = time.perf_counter()
    if what.startswith("read_csv"):
        pa_csv.read_csv(path)
    elif what == "load":
        load(path)
    else:
        _command(what, path)
    wall = time.perf_counter() - (wall or started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": wall, "peak": peak}))


def _command(what: str, path: Path) -> None:
    from contextlib import redirect_stdout
    from io import StringIO

    from hushrec.cli.app import main

    if what == "first_round":
        _stop_at_first_round()
    verb = ["data", "describe", str(path)] if what == "describe" else ["run", "fedrec", "--data", str(path)]
    sys.argv = ["hushrec", *verb, *(["--rounds", "1"] if what != "describe" else [])]
    ended_by: BaseException | None = None
    with redirect_stdout(StringIO()):
        try:
            main()
        except (SystemExit, _FirstRoundError) as error:
            ended_by = error
    if isinstance(ended_by, _FirstRoundError) != (what == "first_round") or getattr(ended_by, "code", None):
        raise RuntimeError(f"{what} ended by {ended_by!r}")


class _FirstRoundError(BaseException):
    """The first round would begin now."""


def _stop_at_first_round() -> None:
    from hushrec.runtime.in_process import InProcess

    def run_round(*_given: object) -> None:
        raise _FirstRoundError

    InProcess.run_round = run_round  # type: ignore[assignment]


def measured(what: str, path: Path) -> dict[str, float]:
    """What a process of its own says."""
    command = [sys.executable, "-m", "benchmarks.loading", "--child", what, "--file", str(path)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    if what not in _INSIDE:
        found["wall"] = time.perf_counter() - started
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", default="")
    parser.add_argument("--file", type=Path)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        make_file(path, given.rows)
        with path.open() as file:
            path.with_name("small.csv").write_text("".join(next(file) for _ in range(min(1000, given.rows))))
        print(f"{given.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB, best of {given.repeats}")
        found: dict[str, list[dict[str, float]]] = {what: [] for what in COMMANDS.values()}
        for _ in range(given.repeats):
            for what in found:
                found[what].append(measured(what, path))
        base = min(one["cpu"] for one in found["read_csv"]), min(one["wall"] for one in found["read_csv"])
        print(f"{'':52}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}{'CPU x':>7}{'wall x':>7}")
        for name, what in COMMANDS.items():
            cpu, wall = min(one["cpu"] for one in found[what]), min(one["wall"] for one in found[what])
            peak = max(one["peak"] for one in found[what]) / 1e6
            print(f"{name:52}{cpu:8.2f}{wall:8.2f}{peak:9.0f}{cpu / base[0]:7.2f}{wall / base[1]:7.2f}")


if __name__ == "__main__":
    main()
