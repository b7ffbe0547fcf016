"""What a federation engine must offer: kits, processes, jobs. One module per engine implements it."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

EngineName = Literal["nvflare", "flower"]


class JobState(StrEnum):
    """What an engine knows of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Session(Protocol):
    """The operator's connection to a running server."""

    def connected(self) -> set[str]:
        """Names of the nodes that the server can reach now."""
        ...

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        """Start a job on these nodes; returns its id. `job` comes out again at `driver.drive`."""
        ...

    def state(self, job_id: str) -> JobState:
        """How the job is doing."""
        ...

    def abort(self, job_id: str) -> None:
        """End the job, if it runs, and wait until it has ended."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Engine(Protocol):
    """An engine behind `hushrec deploy`. Its errors are HushrecErrors of one line."""

    @property
    def name(self) -> EngineName:
        """What it is called on the command line."""
        ...

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> None:
        """Make the kits: `folder/server`, `folder/<node>` for each node, and what the operator needs.

        Every node's kit has `startup/rootCA.pem`, `startup/client.crt` and `startup/client.key`.
        """
        ...

    def server_command(self, folder: Path) -> list[str]:
        """The command that runs the server in the foreground until it is told to end (SIGTERM)."""
        ...

    def node_command(self, kit: Path) -> list[str]:
        """The command that runs a node in the foreground until it is told to end (SIGTERM)."""
        ...

    def session(self, folder: Path, timeout_seconds: float) -> Session:
        """Connect to the server as its operator."""
        ...
