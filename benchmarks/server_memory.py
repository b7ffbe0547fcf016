"""Peak memory of a deployment's server beside the sizes of what it is sent.

`python -m benchmarks.server_memory --data ml-1m --nodes 5 --rounds 12` runs FedRec++ on loopback and reads, from
/proc, how much memory the server's part of the job had when its first node was asked (its programs alone), at the
end of each round, and at most. Beside it: the bytes of each message in a round, and the share of one node.
"""

import argparse
import secrets
import tempfile
import threading
import time
from pathlib import Path

import psutil

from hushrec.data import k_folds, load
from hushrec.data.holdings.node_files import catalogue_of
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, place_order
from hushrec.deploy.processes import Kept
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.settings import build, to_dict

MB = 1e6


def memory_of(pid: int, what: str) -> float:
    """Of a process, in MB: `VmRSS` (now) or `VmHWM` (at most, since it began)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(f"{what}:"))


def job_process(server: Kept) -> int | None:
    """The process of the server's part of a job: the largest that the server started."""
    if server.process is None:
        return None
    children = psutil.Process(server.process.pid).children(recursive=True)
    jobs = [child for child in children if any("runner_process" in word for word in child.cmdline())]
    return max(jobs, key=lambda child: child.memory_info().rss).pid if jobs else None


class Watch(threading.Thread):
    """Looks at the server's part of a job until it has ended."""

    def __init__(self, server: Kept, run: Path) -> None:
        super().__init__(daemon=True)
        self._server, self._run, self.ended = server, run, threading.Event()
        self.at_first, self.at_most, self.cpu_seconds = 0.0, 0.0, 0.0
        self.after_round: dict[int, float] = {}

    def run(self) -> None:
        """Look, some twenty times a second."""
        while not self.ended.wait(0.05):
            try:
                pid = job_process(self._server)
                if pid is None or (report := read_report(self._run)) is None:
                    continue
                now, self.at_most = memory_of(pid, "VmRSS"), max(self.at_most, memory_of(pid, "VmHWM"))
                times = psutil.Process(pid).cpu_times()
                self.cpu_seconds = times.user + times.system
                self.at_first = self.at_first or now
                if report.round_number:
                    self.after_round.setdefault(report.round_number, self.at_most)
            except (OSError, psutil.Error, StopIteration):  # it has just ended
                continue


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="fedrec++")
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--relay", choices=["direct", "onion"], default="direct")
    asked = parser.parse_args()
    system = SYSTEMS[asked.system]
    split = next(iter(k_folds(load(asked.data), 5, 0)))
    config = build(system.config, {"num_rounds": asked.rounds})
    with tempfile.TemporaryDirectory(prefix="hushrec-memory-", dir="/var/tmp") as temporary:
        folder = Path(temporary) / "federation"
        federation, nodes = prepare(folder, "nvflare", system, asked.nodes, split, seed=0)
        order = Order(
            secrets.token_hex(16), "memory", asked.system, to_dict(config), 0, True, asked.data,
            rating_range=split.train.rating_range, relay=asked.relay, timeout_seconds=300.0,
        )  # fmt: skip
        run = place_order(folder, order, catalogue_of(split.train), resume=False)
        started = time.monotonic()
        with running(folder, federation, print) as kept:
            watch = Watch(kept["server"], run)
            watch.start()
            engine = engine_named("nvflare")
            terms = Terms(asked.nodes)
            Supervisor(run, nodes, lambda: engine.session(folder, 20.0), terms, print, lambda _report: None).run()
            watch.ended.set()
            watch.join()
        fold = read_run(run).folds[0]
    print(f"{asked.system} on {asked.data}, {asked.nodes} nodes, {asked.rounds} rounds, relay {asked.relay}")
    for message in fold.messages:
        each, way = message.bytes / max(fold.num_rounds, 1) / MB, f"{message.sender} to {message.receiver}"
        if message.bytes:
            print(f"  {message.type:18} {way:20} {each:9.2f} MB a round, {each / asked.nodes:8.2f} MB a node")
    print(f"  the server's programs alone {watch.at_first:8.1f} MB")
    for number in sorted({1, 2, asked.rounds} & set(watch.after_round)):
        print(f"  at most until round {number:<7} {watch.after_round[number]:8.1f} MB")
    print(f"  at most                     {watch.at_most:8.1f} MB, {watch.at_most - watch.at_first:.1f} MB more")
    print(f"  {time.monotonic() - started:.0f} s, {watch.cpu_seconds:.0f} s of the server's CPU")
    print(f"  model {fold.model_sha256[:16]}")


if __name__ == "__main__":
    main()
