"""What a federation engine must offer: kits, processes, jobs. One module per engine implements it."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from hushrec.choices import EngineName
from hushrec.deploy.certificates import Authority, PrivateKey


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

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> Authority:
        """Make the kits: `folder/server`, `folder/<node>` for each node, and what the operator needs.

        Every node's kit has `startup/rootCA.pem`, `startup/client.crt` and `startup/client.key`. The
        authority that signed them is returned and not kept.
        """
        ...

    def new_key(self) -> PrivateKey:
        """A new key of a kind that the engine can use, for a node that wants to join."""
        ...

    def fill_kit(self, kit: Path, name: str, host: str, port: int) -> None:
        """Put the engine's own files into the kit of a node that joins, and leave its key alone."""
        ...

    def admit(self, folder: Path, name: str, certificate: bytes) -> None:
        """Have the server know a node that joined, also while it runs."""
        ...

    def dismiss(self, folder: Path, name: str) -> None:
        """Have the server forget a node whose certificate was revoked."""
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
