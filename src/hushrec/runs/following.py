"""What a run tells while it goes on: `rounds.jsonl` in its folder, a line per round, for whoever looks on.

It holds nothing that `run.json` will not: metrics, bytes by message, seconds. Lines are only added. A run that
goes on from a checkpoint may tell a round again, and one that begins anew tells its first: a line replaces all
that was told of its fold from its round on, and all later folds. A line without an end is still being written.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from hushrec.runs.record import ROUNDS, Run
from hushrec.runs.watching import Ending, FoldProgress

# Of processes, 0 and below name many at once, to whom no signal of ours may go.
ProcessNumber = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A process that works on the run from now on."""

    time: float  # seconds since 1970
    process: ProcessNumber
    mark: str  # tells the process from a later one of the same number; "": not known here
    system: str
    num_folds: Count


class RoundTold(msgspec.Struct, frozen=True, tag="round"):
    """A round that is done."""

    time: float
    fold: Count
    round_number: Count
    num_rounds: Count
    seconds: float  # of the fold so far
    metrics: dict[str, float | None]  # empty where nothing was measured; None: not finite
    sent_bytes: dict[str, int]  # in this round, by type of message


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The process no longer works on the run."""

    time: float
    is_done: bool


Line = Begun | RoundTold | Ended
_lines = msgspec.json.Decoder(Line)


class Teller:
    """Adds lines to the file of a run's folder. What cannot be written is left out: no run fails for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ROUNDS
        self._is_whole = not _has_open_end(self._path)

    def tell(self, line: Line) -> None:
        """Add one line, which is seen at once."""
        data = msgspec.json.encode(line) + b"\n"
        with suppress(OSError):
            opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(opened, data if self._is_whole else b"\n" + data)
            finally:
                os.close(opened)
            self._is_whole = True

    def begin(self, planned: Run) -> None:
        """Add that this process works on the run."""
        process = os.getpid()
        self.tell(Begun(time.time(), process, process_mark(process), planned.system, planned.num_folds))

    def on_round(self, now: FoldProgress) -> None:
        """Add what a round came to."""
        metrics: dict[str, float | None] = dict(now.metrics) if now.is_measured else {}
        self.tell(
            RoundTold(
                time.time(),
                now.fold,
                now.round_number,
                now.num_rounds,
                now.seconds,
                metrics,
                dict(now.round_bytes),
            )
        )

    def end(self, done: Run | None, _ending: Ending = "done") -> None:
        """Add that it no longer does."""
        self.tell(Ended(time.time(), done is not None))


def process_mark(process: int) -> str:
    """When a process began, in ticks since the machine did; "" where that is not told."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_at_work(begun: Begun) -> bool:
    """Whether the process that began still runs."""
    try:
        os.kill(begun.process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return process_mark(begun.process) == begun.mark


def _has_open_end(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # it is not there, or empty
        return False


class Followed:
    """What a file has told so far; `look` reads what was added since."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ROUNDS
        self._offset = 0
        self.begun: Begun | None = None
        self.ended: Ended | None = None
        self.rounds: list[RoundTold] = []  # in order of folds and rounds

    @property
    def is_running(self) -> bool:
        """Whether a process works on the run now."""
        return self.begun is not None and self.ended is None and is_at_work(self.begun)

    def look(self) -> bool:
        """Read on; whether there was something new."""
        try:
            if not self._path.is_file():  # a pipe would be waited for
                return False
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:  # another file, of a run that began anew
                    self._offset, self.begun, self.ended, self.rounds = 0, None, None, []
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for text in whole.splitlines():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # of a process that was killed
                self._take(_lines.decode(text))
        return bool(whole)

    def _take(self, line: Line) -> None:
        if isinstance(line, Begun):
            self.begun, self.ended = line, None
        elif isinstance(line, Ended):
            self.ended = line
        else:
            place = line.fold, line.round_number
            while self.rounds and (self.rounds[-1].fold, self.rounds[-1].round_number) >= place:
                self.rounds.pop()
            self.rounds.append(line)
