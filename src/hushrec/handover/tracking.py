"""Trackers of experiments: MLflow, TensorBoard, Weights & Biases, Trackio, behind one interface.

A tracker is told the settings, then every round, then what came out; a run that goes on goes on there, too. All
that it is told comes from `hushrec.handover.public`: nothing of one person, and no name of a file. Stores are
local; only an address that was given is called.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import msgspec

from hushrec.audit.kept import KeptAudit, read_audit
from hushrec.choices import TrackerName
from hushrec.errors import HushrecError, MissingExtraError, how_to_install, option
from hushrec.files import write_private_file
from hushrec.handover.public import (
    BYTES_SENT,
    Told,
    public_data,
    public_leakage,
    public_results,
    public_round,
    public_settings,
)
from hushrec.runs.record import Run
from hushrec.runs.watching import FoldProgress

_log = logging.getLogger("hushrec")

FILE = "tracked.json"  # in a run's folder: which run it is at each tracker
PROJECT = "hushrec"
Ending = Literal["done", "failed", "interrupted"]
Asked = str | Sequence[str] | Mapping[str, str | Path]


class Tracker(Protocol):
    """One store of runs. What a method raises is what its package raises: `Following` puts it plainly."""

    place: str  # where the store is, for people

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """Open a run, or go on with a known one; its id comes back."""
        ...

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        """What is known after a round of a fold; `order` counts the rounds of all folds."""
        ...

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """What came out; the store is as it should be when this returns."""
        ...


class KnownRounds:
    """Which rounds a store has of a run that goes on: what was told before a kill is not told again."""

    def __init__(self, last_of: Callable[[str], int | None] | None = None) -> None:
        """`last_of` looks up the last step of a metric; None: the run is new."""
        self._last_of = last_of
        self._lasts: dict[str, int | None] = {}

    def has(self, step: int, values: Mapping[str, float]) -> bool:
        """Whether this was told before. Each fold has a course of its own."""
        if self._last_of is None:
            return False
        course = next(name for name in values if name.endswith(BYTES_SENT))  # is told of every round
        if course not in self._lasts:
            self._lasts[course] = self._last_of(course)
        last = self._lasts[course]
        return last is not None and step <= last


# The module of each, and the class in it that takes a place.
_HOMES: dict[str, tuple[str, str]] = {
    "mlflow": ("hushrec.handover.to_mlflow", "MLflow"),
    "tensorboard": ("hushrec.handover.to_tensorboard", "TensorBoard"),
    "wandb": ("hushrec.handover.to_wandb", "WeightsAndBiases"),
    "trackio": ("hushrec.handover.to_trackio", "Trackio"),
}


@dataclass(frozen=True)
class Wanted:
    """A tracker that was asked for, and where its store is to be; None: where it usually is."""

    name: str  # a `TrackerName`
    place: str | None = None


def parse_trackers(asked: Asked | None) -> list[Wanted]:
    """The trackers of `mlflow`, of `tensorboard=runs/board`, of several, or of a dict of places."""
    if asked is None:
        return []
    if isinstance(asked, Mapping):
        pairs = [(name, str(place) or None) for name, place in asked.items()]
    else:
        words = [asked] if isinstance(asked, str) else list(asked)
        pairs = [(name, place or None) for name, _, place in (str(word).partition("=") for word in words)]
    known = get_args(TrackerName)
    for name, _ in pairs:
        if name not in known:
            raise HushrecError(f"{option('track', name)} is unknown; choose from {', '.join(known)}")
    if len({name for name, _ in pairs}) < len(pairs):
        raise HushrecError(f"{option('track')} names a tracker twice; leave one out")
    return [Wanted(name, place) for name, place in pairs]


def _opened(wanted: Wanted) -> Tracker:
    module, kind = _HOMES[wanted.name]
    try:
        found: Tracker = getattr(import_module(module), kind)(wanted.place)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != wanted.name:
            raise
        raise MissingExtraError(
            f"{option('track', wanted.name)} needs the package {wanted.name}; install it with: "
            f"{how_to_install(wanted.name)}"
        ) from None
    return found


class Following:
    """Trackers that follow one run. Without any, all this does nothing.

    One that refuses the run at its start ends it; one that fails later is left out, after a warning.
    """

    def __init__(
        self, asked: Asked | None, folder: Path | None = None, warn: Callable[[str], None] = _log.warning
    ) -> None:
        """Refuse what is unknown or not installed, before anything is trained."""
        self._trackers = {wanted.name: _opened(wanted) for wanted in parse_trackers(asked)}
        self._folder, self._warn = folder, warn
        self._is_open = self._has_begun = False

    def places(self) -> dict[str, str]:
        """Where each tracker's store is."""
        return {name: one.place for name, one in self._trackers.items()}

    def begin(self, planned: Run) -> None:
        """Tell the settings; where the folder says that a tracker knows the run, it goes on there."""
        if not self._trackers:
            return
        known = _known(self._folder)
        settings, name = public_settings(planned), f"{planned.system} on {public_data(planned)}"
        ids = dict(known)
        for tracker_name, tracker in list(self._trackers.items()):
            found = known.get(tracker_name, {})
            own = found.get("id") if found.get("place") == tracker.place else None
            told = self._plainly(tracker_name, tracker.begin, own, name, settings)
            if told is not None:
                ids[tracker_name] = {"id": told, "place": tracker.place}
        if self._folder is not None:
            write_private_file(self._folder / FILE, msgspec.json.format(msgspec.json.encode(ids), indent=1))
        self._is_open = self._has_begun = True

    def on_round(self, now: FoldProgress) -> None:
        """Tell what is known after a round."""
        values = public_round(now) if self._trackers else {}
        for name, tracker in list(self._trackers.items()):
            order = (now.fold - 1) * now.num_rounds + now.round_number
            self._plainly(name, tracker.tell, now.round_number, values, order)

    def end(self, done: Run | None, ending: Ending = "done") -> None:
        """Tell what came out, and close; None: nothing did."""
        if not self._is_open:
            return
        self._is_open = False
        if ending == "failed" and self._folder is not None:  # with other settings it is another run
            (self._folder / FILE).unlink(missing_ok=True)
        audit = None if self._folder is None or done is None else read_audit(self._folder)
        values, digests = ({}, {}) if done is None else public_results(done, audit)
        for name, tracker in list(self._trackers.items()):
            self._plainly(name, tracker.end, values, digests, ending)

    def _plainly(self, name: str, call: Callable[..., Any], *values: Any) -> Any:
        """What a package raises of its own, in one line.

        At the start, a store that cannot be written is bad input; later it is no reason to lose a run.
        """
        try:
            return call(*values)
        except Exception as error:
            where = self._trackers[name].place
            if self._has_begun:
                del self._trackers[name]
                self._warn(f"{name} in {where} failed ({_words_of(error)}); it is told nothing more of this run")
                return None
            if isinstance(error, HushrecError):
                raise
            raise HushrecError(
                f"{name} refused to keep the run in {where} ({_words_of(error)}); choose another place"
            ) from None


def _words_of(error: Exception) -> str:
    return " ".join(f"{error}".split())[:200] or type(error).__name__


def _known(folder: Path | None) -> dict[str, dict[str, str]]:
    """Which run a folder's is at each tracker."""
    if folder is None or not (folder / FILE).exists():
        return {}
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, dict[str, str]])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise HushrecError(f"{folder / FILE} is damaged; delete it, and the run is tracked anew") from None


def tracked_in(folder: Path) -> list[str]:
    """The trackers that a run's folder names, and where; nobody is asked."""
    return [f"{name} in {found.get('place', '')}" for name, found in _known(folder).items() if name in _HOMES]


def tell_leakage(folder: Path, audit: KeptAudit) -> Iterable[str]:
    """Tell the trackers of a run what attacks on it found; of each, what came of it.

    A store that is gone ends nothing: the audit is kept in the folder already.
    """
    for name, found in _known(folder).items():
        if name not in _HOMES:
            continue
        try:
            tracker = _opened(Wanted(name, found["place"]))
            tracker.begin(found["id"], "", {})
            tracker.end(public_leakage(audit), {}, "done")
        except MissingExtraError:
            yield f"{name} is not installed here, and was not told"
        except Exception as error:  # a package's own, too
            yield f"{name} was not told what attacks read ({_words_of(error)})"
        else:
            yield f"{name} was told what attacks read, in {tracker.place}"
