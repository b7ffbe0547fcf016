"""`python -m benchmarks.stream_scale`: the cost of an interaction as the stream grows, from 10^4 to 10^7.

The report claims a cost that is linear in interactions (Sec. 5.3). The streams are synthetic: users, items and
flags at random, 100 interactions per user, 3,706 items of 18 owners, 1.65 owners per item as in ML-1M. CPU
seconds are this machine's. `--most 1e6` stops earlier; `--encryption none` leaves it out.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushrec.data import OwnerRows
from hushrec.draws import Draws
from hushrec.protocol import Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
NUM_ITEMS, NUM_OWNERS, SECOND_OWNER, PER_USER = 3706, 18, 0.65, 100
ROUND_EVENTS = 100_000


class Cost(NamedTuple):
    """What a stream cost."""

    num_interactions: int
    num_deliveries: int
    cpu_seconds: float

    @property
    def microseconds(self) -> float:
        """Of an interaction."""
        return 1e6 * self.cpu_seconds / self.num_interactions


def stream(num_interactions: int) -> OwnerRows:
    """A stream in the order of time, made in one pass."""
    rng = Draws(0).generator("stream")
    num_users = max(num_interactions // PER_USER, 1)
    first = rng.permutation(NUM_ITEMS) % NUM_OWNERS
    second = (first + rng.integers(1, NUM_OWNERS, NUM_ITEMS)) % NUM_OWNERS
    has_second = rng.random(NUM_ITEMS) < SECOND_OWNER
    owners = np.append(first, second[has_second])
    items = np.append(np.arange(NUM_ITEMS), np.flatnonzero(has_second))
    order = np.lexsort((items, owners))
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=NUM_OWNERS))])
    return OwnerRows(
        tuple(f"owner{number:02}" for number in range(NUM_OWNERS)), starts, items[order].astype(np.int32), True,
        rng.integers(0, num_users, num_interactions, dtype=np.int32),
        rng.integers(0, NUM_ITEMS, num_interactions, dtype=np.int32),
        rng.random(num_interactions, dtype=np.float32) < 0.6, num_users,
    )  # fmt: skip


def cost(num_interactions: int, encryption: str) -> Cost:
    """Learn from a stream once."""
    system, draws = SYSTEMS["drift"], Draws(0)
    parts = -(-num_interactions // ROUND_EVENTS)
    config = system.configure({"epochs": 1, "parts": parts, "encryption": encryption})
    parties = system.enrol(
        np.arange(NUM_OWNERS + 1, dtype=np.int32), stream(num_interactions), NUM_ITEMS, config, draws
    )
    runtime = InProcess(system, config, draws, parties, Transcript(), RuntimeOptions(threads=1))
    start = time.process_time()
    state = system.start(NUM_OWNERS + 1, NUM_ITEMS, config, draws)
    for round_number in range(1, parts + 1):
        state = runtime.run_round(state, round_number)
    seconds = time.process_time() - start
    runtime.close()
    return Cost(num_interactions, int(sum(owner.last[0] for owner in parties.owners)), seconds)


def plot(costs: list[Cost], path: Path) -> None:
    """Two pictures: seconds over interactions, and microseconds of one."""
    import matplotlib  # of the extra `report`

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = [found.num_interactions for found in costs]
    figure, (total, each) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    total.loglog(sizes, [found.cpu_seconds for found in costs], "o-", label="measured")
    last = costs[-1]
    linear = [last.cpu_seconds * size / last.num_interactions for size in sizes]
    total.loglog(sizes, linear, "--", color="grey", label="linear")
    total.set(xlabel="interactions", ylabel="CPU seconds")
    total.legend()
    each.semilogx(sizes, [found.microseconds for found in costs], "o-")
    each.set(xlabel="interactions", ylabel="CPU microseconds per interaction")
    each.set_ylim(0, 1.2 * max(found.microseconds for found in costs))
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print a table, draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=SIZES[-1], help="the longest stream")
    parser.add_argument("--encryption", choices=("aes-gcm", "none"), default="aes-gcm")
    parser.add_argument("--out", type=Path, default=Path("stream_scale.png"))
    chosen = parser.parse_args()
    cost(SIZES[0], chosen.encryption)  # compile, or load what was compiled
    print(f"encryption {chosen.encryption}, {NUM_ITEMS:,} items, {NUM_OWNERS} owners, {PER_USER} per user")
    print("interactions  deliveries  CPU s  microseconds per interaction  per delivery")
    costs = []
    for size in (size for size in SIZES if size <= chosen.most):
        found = cost(size, chosen.encryption)
        costs.append(found)
        print(
            f"{size:12,}  {found.num_deliveries:10,}  {found.cpu_seconds:5.1f}  {found.microseconds:28.2f}"
            f"  {1e6 * found.cpu_seconds / found.num_deliveries:12.2f}",
            flush=True,
        )
    if len(costs) > 1:
        sizes, seconds = (np.log([entry[place] for entry in costs]) for place in (0, 2))
        print(f"CPU seconds grow as interactions^{np.polyfit(sizes, seconds, 1)[0]:.3f}")
    plot(costs, chosen.out)
    print(f"drawn in {chosen.out}")


if __name__ == "__main__":
    main()
