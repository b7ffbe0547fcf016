"""Random kills: processes of a federation are killed while it trains; what comes out must not change.

`python -m benchmarks.kills --kills 100` runs three federations on ML-100K on loopback, in turns, again and
again: FedRec with secure sums, FedRec++ whose denoisers get shares (`shares=2`), DRIFT with its owners. At
random moments it kills without warning (SIGKILL) a node, a node's worker, both, the server, the server's
worker, an owner, or a node with denoisers. Where everybody comes back, the model must equal that of `hushrec
run`. With `--lose`, in every fifth run a node of FedRec++ does not come back: then it must equal a run in one
process in which its clients are lost from that round on.
"""

import argparse
import random
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from hushrec.data import Split, load
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, place_order
from hushrec.deploy.processes import Kept
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.protocol import AnySystem, Message, Numbers, result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.settings import to_dict

NUM_NODES = 3
KINDS = ("node", "node's worker", "node and worker", "server", "server's worker", "keeper and worker")
FEDERATIONS: dict[str, dict[str, Any]] = {
    "fedrec": {"rho": 0, "secure_sums": True},
    "fedrec++": {"shares": 2, "denoisers": 5},
    "drift": {"epochs": 1, "theta": 5},
}


@dataclass(frozen=True)
class Planned:
    """One federation, and what it must come to."""

    system: AnySystem
    config: Any
    split: Split
    right: str
    denoisers: Numbers

    @classmethod
    def of(cls, name: str, num_rounds: int) -> "Planned":
        """With as many rounds, or parts of an epoch."""
        system = SYSTEMS[name]
        length = {"parts": num_rounds} if name == "drift" else {"num_rounds": num_rounds}
        config = system.configure(FEDERATIONS[name] | length)
        split = next(iter(splits_for(system, load("ml-100k"), settings_for(system))))
        state = run_job(job_for(system, config, 0, split.train), RuntimeOptions()).state
        nobody = np.empty(0, np.int32)
        return cls(system, config, split, digest(result_arrays(state)), getattr(state, "denoisers", nobody))

    def without(self, lost: Numbers, from_round: int) -> str:
        """The model of a run in one process in which these clients are lost from a round on."""

        def losses(round_number: int, _request: type[Message], to: Numbers) -> NDArray[np.bool_]:
            return np.isin(to, lost) & (round_number >= from_round)

        progress = run_job(job_for(self.system, self.config, 0, self.split.train), RuntimeOptions(losses=losses))
        return digest(result_arrays(progress.state))

    def keepers(self, folder: Path, nodes: list[str]) -> list[str]:
        """Nodes with denoisers, or with owners."""
        if self.system.name == "drift":
            return [name for name in nodes if name != "users"]
        return [name for name in nodes if np.isin(_numbers(folder, name), self.denoisers).any()] or nodes


def _numbers(folder: Path, name: str) -> Numbers:
    lines = (folder / "shares" / name / "numbers.tsv").read_text().splitlines()
    return np.array([int(line.split("\t")[1]) for line in lines], np.int32)


def kill(kept: dict[str, Kept], kind: str, keepers: list[str], chance: random.Random) -> str:
    """Kill something without warning; says what. A keeper is a node with denoisers or owners."""
    those = keepers if kind.startswith("keeper") else [name for name in kept if name != "server"]
    name = "server" if kind.startswith("server") else chance.choice(those)
    process = kept[name].process
    if process is None:
        return "nothing"
    children = psutil.Process(process.pid).children(recursive=True)
    victims = children if kind.endswith("'s worker") else [psutil.Process(process.pid)]
    if kind.endswith("and worker"):
        victims = [*victims, *children]
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    return f"{kind} {name if name != 'server' else ''}".strip() + ("" if victims else " (none yet)")


def one_run(
    planned: Planned,
    num_kills: int,
    is_for_good: bool,
    chance: random.Random,
    tell: Callable[[str], None],
) -> tuple[int, bool]:
    """How many kills hit, and whether the model is the right one."""
    with tempfile.TemporaryDirectory(prefix="hushrec-kills-") as temporary:
        folder = Path(temporary) / "federation"
        system, train = planned.system, planned.split.train
        federation, nodes = prepare(folder, "nvflare", system, NUM_NODES, planned.split, seed=0)
        order = Order(
            secrets.token_hex(16), "kills", system.name, to_dict(planned.config), 0, True, "ml-100k",
            rating_range=train.rating_range, timeout_seconds=120.0,
        )  # fmt: skip
        run = place_order(folder, order, system.holders.catalogue(train), resume=False)
        keepers, num_rounds = planned.keepers(folder, nodes), planned.config.num_rounds
        events: list[str] = []

        def note(text: str) -> None:
            events.append(text)
            tell(f"    {text}")

        hits = 0
        ended = threading.Event()
        with running(folder, federation, note) as kept:

            def strike() -> None:
                nonlocal hits
                moments = sorted(chance.randrange(0, num_rounds - 1) for _ in range(num_kills))
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
                        what = kill(kept, chance.choice(KINDS), keepers, chance)
                    if "none yet" not in what and what != "nothing":
                        hits += 1
                    tell(f"  killed {what} in round {moment + 1}")
                    if not last:
                        ended.wait(10.0 * chance.random())

            striker = threading.Thread(target=strike, daemon=True)
            striker.start()
            terms = Terms(len(nodes) - is_for_good, patience_seconds=25.0 if is_for_good else 90.0)
            engine = engine_named("nvflare")
            Supervisor(run, nodes, lambda: engine.session(folder, 20.0), terms, note, lambda _report: None).run()
            ended.set()
            striker.join()
        right = planned.right
        for event in events:
            if match := re.fullmatch(r"going on without (\S+) from round (\d+) on", event):
                right = planned.without(_numbers(folder, match[1]), int(match[2]))
                break
        return hits, read_run(run).folds[0].model_sha256 == right


def main() -> None:
    """Kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--each", type=int, default=5, help="kills in one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--systems", nargs="*", default=list(FEDERATIONS))
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no other run after so many")
    parser.add_argument("--lose", action="store_true", help="lose a node for good in every fifth run of FedRec++")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    planned = [Planned.of(name, asked.rounds) for name in asked.systems]
    started, hits, runs, right = time.monotonic(), 0, 0, 0
    while hits < asked.kills and time.monotonic() - started < 60 * asked.minutes:
        turn = planned[runs % len(planned)]
        runs += 1
        is_for_good = asked.lose and turn.system.name == "fedrec++" and runs % 5 == 0
        print(f"run {runs}, {turn.system.name}{', a node is lost for good' if is_for_good else ''}", flush=True)
        hit, is_right = one_run(turn, asked.each, is_for_good, chance, lambda text: print(text, flush=True))
        hits, right = hits + hit, right + is_right
        print(
            f"  {'right' if is_right else 'WRONG'} digest, {hit} kills, {time.monotonic() - started:.0f} s",
            flush=True,
        )
    print(f"{hits} kills in {runs} runs: {right} right digests, {runs - right} wrong")
    if right < runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
