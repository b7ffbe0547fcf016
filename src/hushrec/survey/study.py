"""A comparison of systems on one dataset, row by row, kept in a folder from which it goes on."""

import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from hushrec.errors import HushrecError, option
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.record import alone_in
from hushrec.settings import switches_of
from hushrec.survey.bench import Bench, Order
from hushrec.survey.record import FILE, Row, Survey, measured_surveys, read_survey, write_survey
from hushrec.tuning.bench import Outcome
from hushrec.tuning.workers import one_by_one, side_by_side

OnRow = Callable[[int, int, str], None]  # rows that are done, rows in all, and the last one's name
_USUAL_SECONDS = 30.0  # of a row that nobody has measured


@dataclass(frozen=True)
class Wanted:
    """What is compared, and how."""

    bench: Bench
    systems: tuple[str, ...]
    num_jobs: int = 1

    @property
    def keys(self) -> list[tuple[str, str]]:
        """What the rows are of, in the order of the table."""
        return [
            (name, switches_of(values))
            for name in self.systems
            for values in ({}, *system_named(name).about.repairs)
        ]


def systems_named(text: str | None) -> tuple[str, ...]:
    """The systems of a list with commas, in the order of the registry; None: all."""
    if text is None:
        return tuple(SYSTEMS)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SYSTEMS:
            raise HushrecError(f"{option('systems', text)}: no system {name!r}; choose from {', '.join(SYSTEMS)}")
    return tuple(name for name in SYSTEMS if name in names)


def survey(wanted: Wanted, folder: Path | None, resume: bool, on_row: OnRow) -> Survey:
    """Make the rows that are missing. With a folder, each is kept as soon as it is there."""
    planned = _planned(wanted)
    kept = _opened(folder, resume, planned) if folder else planned
    with _alone(folder):
        desk = _Desk(kept, wanted, folder, on_row)
        desk.tell("")
        if wanted.num_jobs == 1:
            one_by_one(wanted.bench, desk)
        else:
            side_by_side(wanted.bench, desk, wanted.num_jobs)
    return desk.survey.in_order(wanted.keys)


def _alone(folder: Path | None) -> AbstractContextManager[None]:
    return alone_in(folder) if folder else nullcontext()


def _planned(wanted: Wanted) -> Survey:
    """A comparison before its first row."""
    bench = wanted.bench
    data = bench.data
    return Survey(
        data.name, data.sha256, data.num_users, data.num_items, len(data), bench.seed,
        datetime.now(UTC).date().isoformat(), version("hushrec"),
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        bench.audit_users, data.is_synthetic,
    )  # fmt: skip


def _opened(folder: Path, resume: bool, planned: Survey) -> Survey:
    """What a folder has of the same comparison."""
    if not (folder / FILE).exists():
        if folder.exists() and any(path.name != ".lock" for path in folder.iterdir()):
            raise HushrecError(f"{folder} holds something that is not a comparison; choose an empty or new --out")
        write_survey(folder, planned)
        return planned
    if not resume:
        raise HushrecError(
            f"{folder} holds a comparison already; add --resume to go on with it, or choose another --out"
        )
    kept = read_survey(folder / FILE)
    for name in ("data", "data_sha256", "seed", "audit_users", "version"):
        before, now = getattr(kept, name), getattr(planned, name)
        if before != now:
            raise HushrecError(
                f"{folder} holds a comparison with {name} {before}, not {now}; choose another --out"
            )
    return kept


class _Desk:
    """Gives out systems, the longest first, and takes in their rows: the only one that writes."""

    def __init__(self, kept: Survey, wanted: Wanted, folder: Path | None, on_row: OnRow) -> None:
        self.survey, self._wanted, self._folder, self._on_row = kept, wanted, folder, on_row
        done = {row.key for row in kept.rows}
        left = dict.fromkeys(system for system, switches in wanted.keys if (system, switches) not in done)
        self._left = sorted(left, key=_usual_seconds)
        self._given: dict[int, str] = {}

    def next(self) -> tuple[int, Order] | None:
        """The next system."""
        if not self._left:
            return None
        name, number = self._left.pop(), len(self._given)
        self._given[number] = name
        return number, Order(name, tuple(self.survey.of_system(name)))

    def on_point(self, _number: int, _place: int, value: Row) -> bool:
        """Take in a row."""
        self._keep(value)
        return False

    def on_done(self, number: int, outcome: Outcome) -> None:
        """Note what was not measured, if a process ended in the midst of a system."""
        if not outcome.fault:
            return
        name = self._given[number]
        known = {row.key for row in self.survey.rows}
        for key in self._wanted.keys:
            if key[0] == name and key not in known:
                title = system_named(name).about.title.partition(":")[0]
                self._keep(Row(name, title, key[1], fault=outcome.fault))

    def _keep(self, row: Row) -> None:
        self.survey = self.survey.with_row(row)
        if self._folder:
            write_survey(self._folder, self.survey)
        self.tell(row.name)

    def tell(self, last: str) -> None:
        """Say how far it is."""
        keys = self._wanted.keys
        done = {row.key for row in self.survey.rows}
        self._on_row(sum(key in done for key in keys), len(keys), last)


def _usual_seconds(system: str) -> float:
    """What the rows of a system took when they were measured."""
    kept = [row for survey in measured_surveys().values() for row in survey.of_system(system)]
    return sum(row.spent_seconds for row in kept) or _USUAL_SECONDS
