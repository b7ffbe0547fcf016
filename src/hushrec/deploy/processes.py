"""Processes of an engine, kept alive: what dies is started again until it is told to end."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hushrec.errors import HushrecError

_STOP_SECONDS = 10.0
_LOOK_SECONDS = 3.0  # between two looks for a server that does not answer
_SAY_SECONDS = 60.0
_FASTEST_RESTART_SECONDS = 1.0
# Engines have many threads, and glibc a heap for each: two are enough, and they keep what a round needs again.
_LEAN = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}


def _dying_with_us(command: list[str]) -> list[str]:
    """Even if we are killed without a chance to clean up, nothing of ours stays behind (Linux)."""
    guard = shutil.which("setpriv")
    return [guard, "--pdeathsig", "TERM", "--", *command] if guard else command


def refuse_taken(port: int) -> None:
    """Refuse a port that somebody listens on: engines would share it, and each server get some of the nodes."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a dead process has left is no hindrance
        try:
            probe.bind(("", port))
        except OSError as error:
            raise HushrecError(
                f"port {port} of this machine cannot be used ({error.strerror}); end the process that has it, "
                "or make kits with another --port"
            ) from None


class WaitingForServer:
    """Says that a node waits, as long as nobody answers at the server's address."""

    def __init__(self, host: str, port: int, tell: Callable[[str], None]) -> None:
        self._host, self._port, self._tell = host, port, tell
        self._since = self._next = time.monotonic()
        self._told_at: float | None = None  # None: it answered, or was not looked for yet

    def look(self) -> None:
        """See whether the server answers, if it is time to; a line when that changes, and one a minute."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOK_SECONDS
        where = f"the server at {self._host}:{self._port}"
        try:
            socket.create_connection((self._host, self._port), timeout=1).close()
        except OSError as error:
            if self._told_at is None:
                self._since = self._told_at = now
                self._tell(f"{where} does not answer ({error.strerror or error}); waiting for it, until Ctrl-C")
            elif now - self._told_at >= _SAY_SECONDS:
                self._told_at = now
                self._tell(f"still waiting for {where}, for {round((now - self._since) / 60)} min")
            return
        if self._told_at is not None:
            self._told_at = None
            self._tell(f"{where} answers")
        self._next = now + _SAY_SECONDS


@dataclass
class Kept:
    """One process that is started again when it dies."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    tell: Callable[[str], None]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = field(default=0.0)

    def start(self) -> None:
        """Start it; its output goes to a log that only we can read."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.process = subprocess.Popen(
                _dying_with_us(self.command),
                env={**os.environ, **_LEAN, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
        finally:
            os.close(handle)
        self.started_at = time.monotonic()

    def keep(self) -> None:
        """Start it again if it has died."""
        if self.process is None or self.process.poll() is None:
            return
        if time.monotonic() - self.started_at < _FASTEST_RESTART_SECONDS:
            return
        self.tell(f"{self.name} ended with code {self.process.returncode}; starting it again")
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what it left behind
        self.start()

    def ask_to_end(self) -> None:
        """Tell it to end, and do not wait."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End it, gently first, with all that it started."""
        if self.process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, how)
            except ProcessLookupError:
                break
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        self.process = None
