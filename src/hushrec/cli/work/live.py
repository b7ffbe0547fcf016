"""Learning from events as they come, and recommending after each: `hushrec run drift --live -`."""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from hushrec.cli.console import note
from hushrec.cli.live import LiveOptions
from hushrec.data import owned
from hushrec.data.holdings.node_files import read_held_items
from hushrec.data.holdings.owners import owners_of
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem, result_arrays
from hushrec.report.numbers import format_count
from hushrec.runtime.checkpoint import digest
from hushrec.runtime.lines import Lines, Place, followed, standard_input
from hushrec.systems.drift.live import EVERYTHING, Live
from hushrec.systems.drift.live_folder import keep, open_folder
from hushrec.systems.drift.live_lines import Event, parse

_STANDARD_INPUT = "-"
_NOTE_SECONDS = 5.0
_MOST_AT_ONCE = 1024  # events between two looks at whether to stop
_KEEP_SECONDS = 30.0  # after which the state is kept, if a line came
_MOST_TOLD = 10  # bad lines that are told one by one
_DEFAULTS = {"window": 1, "recommended": 5, "epochs": 1, "parts": 1}

_encode = msgspec.json.Encoder().encode


def run_live(system: AnySystem, values: dict[str, Any], options: LiveOptions) -> None:
    """Learn from each event as it comes, and tell what to recommend after it."""
    for name in ("epochs", "parts"):
        if name in values:
            raise HushrecError(f"a live stream has no {name}; leave --{name} out")
    usual = {name: value for name, value in _DEFAULTS.items() if hasattr(system.config, name)}
    live = _start(system, system.configure({**usual, **values}), options)
    out, seed = options.out, options.seed
    with open_folder(out, live, seed, options.resume) if out else nullcontext(), _Stop() as stop:
        if live.place.num_lines:
            note(f"going on; lines taken in before: {live.place.num_lines:,}")
        if options.live == _STANDARD_INPUT:
            lines = standard_input(sys.stdin.buffer, live.place, stop.is_asked)
        else:
            path = Path(options.live).expanduser()
            lines = followed(path, live.place, options.until_end, stop.is_asked, _is_whole)
        keep_now = (lambda: keep(out, live, seed)) if out else None
        feed = _Feed(live, stop, options.strict, options.keep_every, keep_now)
        feed.take(lines)
        feed.end()
        if stop.unsaid is not None:
            raise stop.unsaid


def _is_whole(number: int, line: bytes) -> bool:
    """Whether a last line without an end says something."""
    try:
        parse(line)
    except HushrecError:
        if line.strip():
            note(f"line {number}, the last one, is not whole; it is left for later")
        return False
    return True


def _start(system: AnySystem, config: Any, options: LiveOptions) -> Live:
    """Before the first event: with the items, titles and owners of a dataset or of a file, or with none."""
    deal, seed = options.owners, options.seed
    if deal and not config.plan.has_owners:
        raise HushrecError(f"--owners {deal}: {system.name} knows no owners of items; leave it out")
    if not options.source.data:
        return Live(system, config, seed, _holdings(deal) if deal else None, clock=time.process_time)
    data = options.source.load()
    if deal:
        data = owned(data, deal, seed)
        if not deal.isdigit():  # a single owner dealt by number does hold everything
            _check_names(deal, owners_of(data).names)
    return Live.of(system, config, seed, data, time.process_time)


def _holdings(deal: str) -> dict[str, list[str]]:
    """The items of each owner in a file with lines of item, tab, owner."""
    ways = "without --data give a file with lines of item, tab, owner"
    found: dict[str, list[str]] = {}
    for _, item, owner in read_held_items(Path(deal).expanduser(), f"--owners {deal}: no readable file; {ways}"):
        found.setdefault(owner, []).append(item)
    _check_names(deal, found)
    return dict(sorted(found.items()))


def _check_names(deal: str, names: Collection[str]) -> None:
    if EVERYTHING in names:
        raise HushrecError(
            f"--owners {deal}: {EVERYTHING!r} is the owner of what nobody else holds; give the owner another name"
        )


class _Stop:
    """Ctrl-C and SIGTERM end a live run between two batches, with all that was learned; a second one at once."""

    def __init__(self) -> None:
        self.unsaid: OSError | None = None  # why nothing can be told any more
        self._is_asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_asked:
            raise KeyboardInterrupt
        self._is_asked = True

    def is_asked(self) -> bool:
        """Whether the run is to end: a signal came, or nothing can be told any more."""
        return self._is_asked or self.unsaid is not None


class _Feed:
    """Brings lines to a live system, in whole windows, and tells what comes of it."""

    def __init__(
        self, live: Live, stop: _Stop, strict: bool, keep_every: int, keep_now: Callable[[], None] | None
    ) -> None:
        """`keep_now`: writes where the run is; None if nothing is kept."""
        self._live, self._stop, self._strict, self._keep = live, stop, strict, keep_now
        self._window = live.config.plan.window
        self._keep_every, self._kept, self._kept_at, self._keep_takes = keep_every, live.place, 0.0, 0.0
        self._waiting: list[tuple[Place, Event]] = []
        self._num_bad, self._num_first, self._num_noted = 0, live.history.size, live.history.size
        self._started = self._noted = time.monotonic()

    def take(self, lines: Iterator[Lines]) -> None:
        """Take in all lines, until the end or until it is asked to stop."""
        for found in lines:
            for place, line in found:
                self._take_line(place, line)
            self._learn(len(self._waiting) // self._window * self._window)
            if found and not self._waiting:
                self._live.place = found[-1][0]
            self._keep_if_due()
            self._note_progress()
        if self._keep is None:  # else a window that is not full waits for more lines, after --resume
            self._learn(len(self._waiting))

    def _take_line(self, place: Place, line: bytes) -> None:
        if not line.strip():
            return
        try:
            said = parse(line)
        except HushrecError as error:
            self._leave_out(place, error)
            return
        if isinstance(said, Event):
            self._waiting.append((place, said))
            return
        self._learn(len(self._waiting))
        if self._waiting:  # it was asked to stop
            return
        try:
            self._live.change(said)
        except HushrecError as error:
            self._leave_out(place, error)
        self._live.place = place

    def _leave_out(self, place: Place, error: HushrecError) -> None:
        if self._strict:
            self._learn(len(self._waiting) // self._window * self._window)
            self.end()
            raise HushrecError(f"line {place.num_lines}: {error}")
        self._num_bad += 1
        if self._num_bad <= _MOST_TOLD:
            note(f"line {place.num_lines} is left out: {error}")
        if self._num_bad == _MOST_TOLD:
            note("more lines that are left out are only counted")

    def _learn(self, num_events: int) -> None:
        """Learn from the first events that wait, in steps, between which it can be stopped and kept."""
        step = max(min(self._keep_every, _MOST_AT_ONCE) // self._window, 1) * self._window
        for first in range(0, num_events, step):
            if self._stop.is_asked():
                num_events = first
                break
            part = self._waiting[first : min(first + step, num_events)]
            self._live.learn([event for _, event in part], self._tell)
            self._live.place = part[-1][0]
            self._keep_if_due()
        del self._waiting[:num_events]

    def _keep_if_due(self) -> None:
        """After so many events, or after a while; but not if to keep it would take a tenth of the time."""
        if self._keep is None:
            return
        num_new, now = self._live.place.num_lines - self._kept.num_lines, time.monotonic()
        is_due = num_new >= self._keep_every or (num_new and now - self._kept_at >= _KEEP_SECONDS)
        if is_due and now - self._kept_at >= 10 * self._keep_takes:
            self._keep()
            self._kept, self._kept_at = self._live.place, time.monotonic()
            self._keep_takes = self._kept_at - now

    def _tell(self, user: str, items: list[str]) -> None:
        try:
            sys.stdout.buffer.write(_encode({"user": user, "items": items}) + b"\n")
            sys.stdout.buffer.flush()
        except OSError as error:  # nobody reads, or a disk is full: what was learned is kept first
            self._stop.unsaid = error

    def _note_progress(self) -> None:
        now, size = time.monotonic(), self._live.history.size
        if now - self._noted >= _NOTE_SECONDS and size > self._num_noted:
            self._noted, self._num_noted = now, size
            note(self._so_far())

    def _so_far(self) -> str:
        live = self._live
        num_events = live.history.size - self._num_first
        rate = num_events / max(time.monotonic() - self._started, 1e-9)
        return (
            f"events: {num_events:,}, {format_count(rate)} per second; users: {len(live.users.texts):,}; "
            f"items: {len(live.held):,}; owners: {live.num_owners:,}"
        )

    def end(self) -> None:
        """Keep the last state; say what came of it all."""
        if self._keep is not None:
            self._keep()
        live = self._live
        if isinstance(self._stop.unsaid, BrokenPipeError):
            note("nobody reads standard output any more; the run ends")
        note(f"{self._so_far()}; lines taken in: {live.place.num_lines:,}")
        if self._num_bad:
            note(f"lines left out: {self._num_bad:,}")
        if live.num_unheld:
            note(f"events about items that nobody held, so that nobody learned from them: {live.num_unheld:,}")
        if self._waiting:
            more = "" if self._keep is None else "; they are taken in with --resume (a pipe sends them again)"
            note(f"events not learned from yet: {len(self._waiting):,}{more}")
        note(f"model digest {digest(result_arrays(live.state))[:16]}: the same in two runs that learned the same")
        if self._num_bad and live.history.size == self._num_first:
            raise HushrecError(
                f"every line was refused, {self._num_bad:,} of them; see docs/live.md for what a line is"
            )
