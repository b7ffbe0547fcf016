"""Runs that the page starts: each a process of its own, in its own session, which does not end with the page.

Of each there is a file that says how it was started and which process it is, and a log of what it said, both in
the folder of the page's own files. So another server finds them again.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hushrec.errors import HushrecError
from hushrec.files import make_private_folder, write_private_file
from hushrec.runs.following import ProcessNumber, process_mark

_LOG_BYTES = 65_536  # that are shown of a log, its end
_MOST_AT_ONCE = 16  # runs that were started here and go on


class Commands(Protocol):
    """What the command line knows of `hushrec run`."""

    def systems(self) -> Sequence[Mapping[str, Any]]:
        """Name and title of each system."""
        ...

    def form(self, system: str) -> Sequence[Mapping[str, Any]]:
        """The options of a system: name, flag, kind, default, choices, help, part."""
        ...

    def words(self, system: str, values: Mapping[str, Any]) -> list[str]:
        """Options and values as they are typed; one that does not exist is refused."""
        ...

    def check(self, words: Sequence[str]) -> None:
        """Refuse what the command line would refuse at once, in its words."""
        ...

    def again(self, command: str) -> list[str]:
        """The words of a command that stands in a run's folder, which may be anybody's."""
        ...


class Started(msgspec.Struct, frozen=True):
    """How a run was started: a file of the page."""

    run_id: str
    words: list[str]  # after `hushrec`
    process: ProcessNumber
    mark: str
    time: float
    values: dict[str, Any] = {}  # what the form had, to fill it again


@dataclass(frozen=True)
class JobState:
    """What a job is at."""

    is_running: bool
    log: str
    started: Started


class Jobs:
    """Starts, stops and resumes runs."""

    def __init__(self, runs_folder: Path, state: Path, commands: Commands | None) -> None:
        self._runs_folder, self._folder = runs_folder, state / "jobs"
        self.commands = commands
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    # --- Starting --------------------------------------------------------------------------------------------

    def start(self, system: str, values: Mapping[str, Any], name: str) -> str:
        """Start a run in a new folder of this name, or of one that says what it is; its id."""
        commands = self._commands()
        words = ["run", system, *commands.words(system, values)]
        run_id = self._new_id(name, system, str(values.get("data", "")))
        commands.check(words)
        self._begin(run_id, words, ["--out", str(self._runs_folder / run_id)], dict(values))
        return run_id

    def resume(self, run_id: str, command: str) -> None:
        """Go on with a run: as the page started it, or as its folder says that it is made."""
        commands, known = self._commands(), self._read(run_id)
        words = commands.again(command) if known is None else known.words
        commands.check(words)
        if known is not None and self._is_running(known):
            raise HushrecError("this run goes on already; stop it first")
        options = ["--out", str(self._runs_folder / run_id), "--resume"]
        self._begin(run_id, words, options, {} if known is None else known.values)

    def _commands(self) -> Commands:
        if self.commands is None:
            raise HushrecError("no run can be started here; use the command line: hushrec run --help")
        return self.commands

    def _begin(self, run_id: str, words: list[str], options: list[str], values: dict[str, Any]) -> None:
        if sum(self._is_running(one) for one in self._all()) >= _MOST_AT_ONCE:
            raise HushrecError(f"{_MOST_AT_ONCE} runs go on that were started here; stop one, or wait")
        make_private_folder(self._folder)
        log = os.open(self._log(run_id), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(log, f"$ hushrec {shlex.join([*words, *options])}\n".encode())
            process = subprocess.Popen(
                [sys.executable, "-m", "hushrec", *words, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
            )
        finally:
            os.close(log)
        self._children[process.pid] = process
        started = Started(run_id, words, process.pid, process_mark(process.pid), time.time(), values)
        write_private_file(self._file(run_id), msgspec.json.encode(started))

    def _new_id(self, name: str, system: str, data: str) -> str:
        """A name that no folder has."""
        if name:
            if not re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,99}", name):
                raise HushrecError("a name has letters, digits and any of . _ + -; choose another")
            if (self._runs_folder / name).exists():
                raise HushrecError(f"{name} is there already; choose another name")
            return name
        stem = re.sub(r"[^A-Za-z0-9_+]+", "-", f"{system}-{Path(data).stem or 'run'}").strip("-")[:60]
        number = 1
        while (self._runs_folder / f"{stem}-{number}").exists() or self._file(f"{stem}-{number}").exists():
            number += 1
        return f"{stem}-{number}"

    # --- Stopping --------------------------------------------------------------------------------------------

    def stop(self, process: int, mark: str) -> None:
        """Ask a run to end and keep what it has, as Ctrl-C does."""
        if process_mark(process) != mark:
            raise HushrecError("this run has ended already")
        try:
            os.kill(process, signal.SIGINT)
        except ProcessLookupError:
            raise HushrecError("this run has ended already") from None
        except PermissionError:
            raise HushrecError("this run is somebody else's; ask its owner to stop it") from None

    # --- Looking ---------------------------------------------------------------------------------------------

    def state(self, run_id: str) -> JobState | None:
        """What a run is at that was started here; None: it was not."""
        started = self._read(run_id)
        if started is None:
            return None
        return JobState(self._is_running(started), self._log_end(run_id), started)

    def waiting(self) -> list[Started]:
        """Those that go on and whose folders need not be runs yet, or that ended before they were."""
        return [one for one in self._all() if not (self._runs_folder / one.run_id / "run.json").exists()]

    def forget(self, run_id: str) -> None:
        """Forget a run that ended before it was one."""
        started = self._read(run_id)
        if started is not None and self._is_running(started):
            raise HushrecError("this run goes on; stop it first")
        self._file(run_id).unlink(missing_ok=True)
        self._log(run_id).unlink(missing_ok=True)

    def _is_running(self, started: Started) -> bool:
        child = self._children.get(started.process)
        if child is not None:
            if child.poll() is None:
                return True
            del self._children[started.process]
            return False
        return bool(started.mark) and process_mark(started.process) == started.mark

    def _all(self) -> list[Started]:
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Started))
        return found

    def _read(self, run_id: str) -> Started | None:
        try:
            return msgspec.json.decode(self._file(run_id).read_bytes(), type=Started)
        except (OSError, msgspec.MsgspecError):
            return None

    def _log_end(self, run_id: str) -> str:
        try:
            with self._log(run_id).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _file(self, run_id: str) -> Path:
        return self._folder / f"{_key(run_id)}.json"

    def _log(self, run_id: str) -> Path:
        return self._folder / f"{_key(run_id)}.log"


def _key(run_id: str) -> str:
    """A file's name for a run."""
    return sha256(run_id.encode()).hexdigest()[:24]
