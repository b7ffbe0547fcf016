"""Owners that are killed while they learn: nothing may be lost, nothing counted twice.

`python -m benchmarks.owner_kills --kills 20` runs DRIFT on ML-100K on loopback, three nodes of owners and one of
users, and kills (SIGKILL) an owner's worker, which has the store open, or its whole node, at random moments of an
epoch. The model must equal that of `hushrec run drift`, and owners must have accepted every interaction once.
"""

import argparse
import random
import secrets
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from hushrec.data import Split, load
from hushrec.data.holdings.node_files import catalogue_of
from hushrec.data.holdings.owners import owners_of
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, place_order
from hushrec.deploy.processes import Kept
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.protocol import result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs.record import FoldResult, read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.settings import to_dict

SYSTEM, NUM_NODES, USERS = SYSTEMS["drift"], 3, "users"


def kill(kept: Kept, with_node: bool) -> bool:
    """Kill an owner's worker, perhaps with its node, without warning; whether there was one."""
    if kept.process is None:
        return False
    node = psutil.Process(kept.process.pid)
    workers = node.children(recursive=True)
    for victim in [*workers, node] if with_node else workers:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    return bool(workers)


def strike(
    kept: dict[str, Kept], run: Path, moments: list[int], chance: random.Random, ended: threading.Event
) -> int:
    """Kill an owner's process in each of these rounds; how many kills hit."""
    hits = 0
    for moment in moments:
        while (report := read_report(run)) is None or report.status != "running" or report.round_number < moment:
            if ended.wait(0.02):
                return hits
        ended.wait(chance.random())
        name = chance.choice([name for name in kept if name not in ("server", USERS)])
        with_node = chance.random() < 0.3
        while not kill(kept[name], with_node):
            if ended.wait(0.02):
                return hits
        hits += 1
        print(
            f"  killed {name}{' and its worker' if with_node else chr(39) + 's worker'} in round {moment + 1}",
            flush=True,
        )
        ended.wait(0.5)
    return hits


def killed_run(
    split: Split, config: object, moments: list[int], chance: random.Random
) -> tuple[int, int, FoldResult]:
    """A deployed run under fire: kills that hit, attempts, result."""
    with tempfile.TemporaryDirectory(prefix="hushrec-owner-kills-") as temporary:
        folder = Path(temporary) / "federation"
        federation, nodes = prepare(folder, "nvflare", SYSTEM, NUM_NODES, split, seed=0)
        order = Order(
            secrets.token_hex(16), "kills", SYSTEM.name, to_dict(config), 0, True, "ml-100k",
            rating_range=split.train.rating_range, timeout_seconds=20.0,
        )  # fmt: skip
        run, ended, hits = (
            place_order(folder, order, catalogue_of(split.train), resume=False),
            threading.Event(),
            [0],
        )
        with running(folder, federation, lambda text: print(f"    {text}", flush=True)) as kept:
            striker = threading.Thread(
                target=lambda: hits.append(strike(kept, run, moments, chance, ended)), daemon=True
            )
            striker.start()
            engine = engine_named("nvflare")
            Supervisor(
                run, nodes, lambda: engine.session(folder, 20.0), Terms(len(nodes), patience_seconds=90.0),
                lambda text: print(f"    {text}", flush=True), lambda _report: None,
            ).run()  # fmt: skip
            ended.set()
            striker.join()
        report = read_report(run)
        assert report is not None
        return hits[-1], report.attempt, read_run(run).folds[0]


def main() -> None:
    """Kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--parts", type=int, default=40, help="rounds that the epoch is cut into")
    parser.add_argument("--theta", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    split = next(splits_for(SYSTEM, load("ml-100k"), settings_for(SYSTEM)))
    config = SYSTEM.configure({"epochs": 1, "parts": asked.parts, "theta": asked.theta})
    progress = run_job(job_for(SYSTEM, config, 0, split.train), RuntimeOptions())
    right = digest(result_arrays(progress.state))
    deliveries = int(np.diff(owners_of(split.train).starts)[split.train.items].sum())
    moments = sorted(chance.sample(range(asked.parts), asked.kills))
    started = time.monotonic()
    hits, attempts, fold = killed_run(split, config, moments, chance)
    accepted = int(fold.facts["interactions accepted"])
    print(f"{hits} kills, {attempts} attempts, {time.monotonic() - started:.0f} s")
    print(f"digest {'equal to' if fold.model_sha256 == right else 'OTHER THAN'} the uninterrupted one")
    print(f"{accepted:,} interactions accepted of {deliveries:,} delivered; counts {fold.facts}")
    if fold.model_sha256 != right or accepted != deliveries or hits < asked.kills:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
