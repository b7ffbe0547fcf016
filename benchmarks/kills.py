"""Random kills: processes of a federation are killed while it trains; what comes out must not change.

`python -m benchmarks.kills --kills 20` runs FedRec++ on ML-100K on loopback again and again, and kills without
warning (SIGKILL) a node, a node's worker, the server or the server's worker at random moments. Where everybody
comes back, the model must equal that of `hushrec run`. In every fifth run a node does not come back: then it must
equal a run in one process in which its clients are lost from that round on.
"""

import argparse
import random
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from hushrec.data import Split, k_folds, load
from hushrec.data.holdings.node_files import catalogue_of
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, place_order
from hushrec.deploy.processes import Kept
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.protocol import Message, Numbers, result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.settings import build, to_dict

NUM_NODES = 3
KINDS = ("node", "node's worker", "server", "server's worker", "node and worker")


def expected(split: Split, config: Any, lost: Numbers, from_round: int) -> str:
    """The model of a run in one process in which these clients are lost from a round on."""

    def losses(round_number: int, _request: type[Message], to: Numbers) -> NDArray[np.bool_]:
        return np.isin(to, lost) & (round_number >= from_round)

    system = SYSTEMS["fedrec++"]
    progress = run_job(
        job_for(system, config, 0, split.train), RuntimeOptions(losses=losses if len(lost) else None)
    )
    return digest(result_arrays(progress.state))


def kill(kept: dict[str, Kept], kind: str, chance: random.Random) -> str:
    """Kill something without warning; says what."""
    name = "server" if kind.startswith("server") else chance.choice([name for name in kept if name != "server"])
    process = kept[name].process
    if process is None:
        return "nothing"
    children = psutil.Process(process.pid).children(recursive=True)
    victims = children if kind.endswith("'s worker") else [psutil.Process(process.pid)]
    if kind == "node and worker":
        victims = [*victims, *children]
    for victim in victims:
        victim.kill()
    return f"{kind} {name if name != 'server' else ''}".strip() + ("" if victims else " (none yet)")


def one_run(
    split: Split,
    config: Any,
    num_kills: int,
    is_for_good: bool,
    chance: random.Random,
    tell: Callable[[str], None],
) -> tuple[int, bool]:
    """How many kills hit, and whether the model is the right one."""
    with tempfile.TemporaryDirectory(prefix="hushrec-kills-") as temporary:
        folder = Path(temporary) / "federation"
        federation, nodes = prepare(folder, "nvflare", SYSTEMS["fedrec++"], NUM_NODES, split, seed=0)
        order = Order(
            secrets.token_hex(16), "kills", "fedrec++", to_dict(config), 0, True, "ml-100k",
            rating_range=split.train.rating_range, timeout_seconds=20.0,
        )  # fmt: skip
        run = place_order(folder, order, catalogue_of(split.train), resume=False)
        events: list[str] = []

        def note(text: str) -> None:
            events.append(text)
            tell(f"    {text}")

        hits = 0
        ended = threading.Event()
        with running(folder, federation, note) as kept:

            def strike() -> None:
                nonlocal hits
                moments = sorted(chance.randrange(1, config.num_rounds - 1) for _ in range(num_kills))
                for moment in moments:
                    while (report := read_report(run)) is None or report.round_number < moment:
                        if ended.wait(0.02):
                            return
                    ended.wait(chance.random() * 0.5)
                    last = is_for_good and moment == moments[-1]
                    if last:
                        name = chance.choice(nodes)
                        gone = kept.pop(name)
                        gone.stop()
                        what = f"{name} for good"
                    else:
                        what = kill(kept, chance.choice(KINDS), chance)
                    if "none yet" not in what and what != "nothing":
                        hits += 1
                    tell(f"  killed {what} in round {moment + 1}")
                    if not last:
                        ended.wait(15.0 * chance.random())

            striker = threading.Thread(target=strike, daemon=True)
            striker.start()
            terms = Terms(NUM_NODES - is_for_good, patience_seconds=25.0 if is_for_good else 90.0)
            engine = engine_named("nvflare")
            Supervisor(run, nodes, lambda: engine.session(folder, 20.0), terms, note, lambda _report: None).run()
            ended.set()
            striker.join()
        lost, from_round = np.empty(0, np.int32), 0
        for event in events:
            if match := re.fullmatch(r"going on without (\S+) from round (\d+) on", event):
                numbers = folder / "shares" / match[1] / "numbers.tsv"
                lost = np.array([int(line.split("\t")[1]) for line in numbers.read_text().splitlines()], np.int32)
                from_round = int(match[2])
                break
        return hits, read_run(run).folds[0].model_sha256 == expected(split, config, lost, from_round)


def main() -> None:
    """Kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    split = next(iter(k_folds(load("ml-100k"), 5, 0)))
    config = build(SYSTEMS["fedrec++"].config, {"num_rounds": asked.rounds})
    started, hits, runs, right = time.monotonic(), 0, 0, 0
    while hits < asked.kills:
        runs += 1
        is_for_good = runs % 5 == 0
        print(f"run {runs}{' (a node is lost for good)' if is_for_good else ''}", flush=True)
        hit, is_right = one_run(split, config, 4, is_for_good, chance, lambda text: print(text, flush=True))
        hits, right = hits + hit, right + is_right
        print(f"  {'right' if is_right else 'WRONG'} digest, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{hits} kills in {runs} runs: {right} right digests, {runs - right} wrong")
    if right < runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
