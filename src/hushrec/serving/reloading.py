"""A newer run is taken up while the old one is served: when a signal says so, or when its files have changed."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hushrec.errors import HushrecError
from hushrec.serving.gate import now, place_of
from hushrec.serving.metrics import Meter

WATCH_SECONDS = 1.0

Mark = tuple[tuple[int, ...], ...]


def mark_of(folder: Path, fold: int | None) -> Mark:
    """What tells one state of a run's files from another, also if the folder is a link that moves."""
    names = ("run.json", f"fold-{fold or 1}/state.npz", f"fold-{fold or 1}/train.npz")
    return tuple(_identity(folder / name) for name in names)


def _identity(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class Reloader:
    """A thread that loads a run again; who asks meanwhile is served by the one before."""

    def __init__(
        self,
        take_up: Callable[[], str],  # load the run and serve it from now on; returns what it is
        meter: Meter,
        log: Callable[[bytes], None],
        taken: Mark = (),  # of what is served now
        mark: Callable[[], Mark] | None = None,  # of what is there; None: only a signal makes it load
    ) -> None:
        self._take_up, self._meter, self._log = take_up, meter, log
        self._taken = self._last_seen = taken
        self._mark = mark
        self._asked, self._ends = threading.Event(), False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Reloader":
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End; a load under way is not waited for."""
        self._ends = True
        self._asked.set()

    def ask(self) -> None:
        """Load the run again, soon."""
        self._asked.set()

    def _run(self) -> None:
        while True:
            is_asked = self._asked.wait(WATCH_SECONDS if self._mark else None)
            self._asked.clear()
            if self._ends:
                return
            if self._has_settled() or is_asked:
                self._reload()

    def _has_settled(self) -> bool:
        """Whether the files differ from those that were loaded, and stayed the same since the last look."""
        if self._mark is None:
            return False
        seen, before = self._mark(), self._last_seen
        self._last_seen = seen
        return seen == before != self._taken

    def _reload(self) -> None:
        """Take up what is there now; if it cannot be loaded, the model before stays. A line of log says which."""
        if self._mark is not None:
            self._taken = self._mark()
        try:
            told, level = f"now serves {self._take_up()}", "INFO"
        except HushrecError as error:
            told, level = f"the newer run is not taken up, the one before stays: {error}", "ERROR"
        except Exception as bug:  # a damaged file can fail in any way
            told, level = f"the newer run is not taken up, the one before stays: {place_of(bug)}", "ERROR"
        self._meter.count_reload("taken" if level == "INFO" else "refused")
        self._log(msgspec.json.encode({"time": now(), "level": level, "message": told}))


def reload_on_signal(reloader: Reloader, is_terminal_gone: Callable[[], bool]) -> None:
    """Load again on SIGHUP, where there is such a signal; it still ends a server whose terminal was closed."""
    if not hasattr(signal, "SIGHUP"):
        return

    def on_signal(_number: int, _frame: object) -> None:
        if is_terminal_gone():
            signal.raise_signal(signal.SIGTERM)
        else:
            reloader.ask()

    signal.signal(signal.SIGHUP, on_signal)
