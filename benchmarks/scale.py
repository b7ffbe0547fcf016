"""Time per round and peak memory on synthetic data: both must grow in step with the ratings."""

import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

# The first two have the same items: a pair costs more where the table of items does not fit the cache.
SIZES = [(10_000, 20_000, 1_000_000), (100_000, 20_000, 10_000_000), (1_000_000, 50_000, 100_000_000)]
NUM_ROUNDS = 8


def measure(num_users: int, num_items: int, num_ratings: int) -> None:
    """Run FedRec++ with rho 3 in this process and print one JSON line."""
    from hushrec.data import synthetic
    from hushrec.registry import SYSTEMS
    from hushrec.runtime.in_process import RuntimeOptions
    from hushrec.runtime.training import job_for, run_job
    from hushrec.settings import build

    system = SYSTEMS["fedrec++"]
    small = job_for(system, build(system.config, {"num_rounds": 8}), 0, synthetic(50, 40, 500, seed=1))
    run_job(small, RuntimeOptions(threads=2))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of compiling
    program = peak_bytes()
    data = synthetic(num_users, num_items, num_ratings, seed=1)
    seconds: list[float] = []
    started = time.perf_counter()

    def on_round(_progress: object) -> None:
        seconds.append(time.perf_counter() - started - sum(seconds))

    job = job_for(system, build(system.config, {"num_rounds": NUM_ROUNDS}), 0, data)
    progress = run_job(job, RuntimeOptions(threads=2), on_round=on_round)
    model = progress.state.item_factors.nbytes + 2 * progress.private.user_factors.nbytes
    print(
        json.dumps(
            {
                "ratings": len(data),
                "seconds": float(np.median(seconds[-2:])),
                "peak": peak_bytes(),
                "program": program,
                "ratings_bytes": 12 * len(data),
                "model_bytes": model,
            }
        )
    )


def peak_bytes() -> int:
    """The most memory this process had since its peak was last forgotten (Linux only)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def main(sizes: list[tuple[int, int, int]]) -> None:
    """Measure each size in a process of its own, so that peaks do not mix."""
    print("FedRec++ rho 3 on synthetic data, two threads")
    print(
        "     users   items       ratings  s/round  ns/pair   peak GB  peak less program and model / ratings' size"
    )
    for num_users, num_items, num_ratings in sizes:
        command = [sys.executable, "-m", "benchmarks.scale", str(num_users), str(num_items), str(num_ratings)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{num_users:>10,}{num_items:>8,}{num_ratings:>14,}  failed: {done.stderr.strip()[-200:]}")
            continue
        found = json.loads(done.stdout)
        nanoseconds = found["seconds"] / (4 * found["ratings"]) * 1e9
        times = (found["peak"] - found["program"] - found["model_bytes"]) / found["ratings_bytes"]
        print(
            f"{num_users:>10,}{num_items:>8,}{found['ratings']:>14,}{found['seconds']:>9.2f}{nanoseconds:>9.0f}"
            f"{found['peak'] / 1e9:>10.2f}  {times:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(*(int(word) for word in sys.argv[1:]))
    else:
        main(SIZES)
