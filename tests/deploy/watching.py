"""Whoever watches over a run, with a false clock and a false engine, and the real driver if wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from deploy.federation import Fate, Federation, Leg, ServerKilled, Wire, quick
from hushrec.deploy.driver import Report, drive
from hushrec.deploy.engines import JobState
from hushrec.deploy.orders import Attempt
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.errors import HushrecError

NODES = ["node-1", "node-2", "node-3"]


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


Job = Callable[["Engine", Attempt, Sequence[str]], JobState]


@dataclass
class Engine:
    """An engine of functions: what a job does, who is connected when, whether the server answers."""

    folder: Path
    clock: Clock
    job: Job
    connected_at: Callable[[float], set[str]] = lambda _seconds: set(NODES)
    answers_at: Callable[[float], bool] = lambda _seconds: True
    attempts: list[Attempt] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    sessions: int = 0
    closed: int = 0
    states: dict[str, JobState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = self.clock.now

    def check(self) -> None:
        if not self.answers_at(self.clock.now - self.started):
            raise HushrecError("the server cannot be reached")

    def connect(self) -> "Engine":
        self.check()
        self.sessions += 1
        return self

    def connected(self) -> set[str]:
        self.check()
        return self.connected_at(self.clock.now - self.started)

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        self.check()
        attempt = msgspec.json.decode(job, type=Attempt)
        self.attempts.append(attempt)
        name = f"job-{attempt.attempt}"
        self.states[name] = self.job(self, attempt, nodes)
        return name

    def state(self, job_id: str) -> JobState:
        self.check()
        if job_id not in self.states:
            raise HushrecError("no such job")
        return self.states[job_id]

    def abort(self, job_id: str) -> None:
        self.check()
        self.aborted.append(job_id)
        self.states[job_id] = JobState.FAILED

    def close(self) -> None:
        self.closed += 1

    def tell(self, attempt: int, status: Any, round_number: int, **values: Any) -> None:
        """What a job writes down for whoever watches."""
        report = Report(status, attempt, round_number, 5, **values)
        (self.folder / "progress.json").write_bytes(msgspec.json.encode(report))


def supervised(engine: Engine, **terms: Any) -> tuple[Supervisor, list[str], list[Report]]:
    told, watched = list[str](), list[Report]()
    known = Terms(**{"min_nodes": 3, "patience_seconds": 10.0, "stall_seconds": 100.0, **terms})
    watcher = Supervisor(engine.folder, NODES, engine.connect, known, told.append, watched.append)
    return watcher, told, watched


def driving(federation: Federation, mishap: Callable[[Leg], Fate | None]) -> Job:
    """A job that runs the driver at once, to the end or until the server is killed."""

    def job(_engine: Engine, attempt: Attempt, nodes: Sequence[str]) -> JobState:
        try:
            with quick():
                wire = Wire(federation, mishap)
                drive(wire, list(nodes), federation.folder, msgspec.json.encode(attempt))
        except ServerKilled:
            return JobState.FAILED
        return JobState.DONE

    return job
