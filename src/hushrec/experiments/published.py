"""Published tables as data: what was run, and what the paper says came out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from hushrec.data import Deal, SplitKind
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.runs.record import Run
from hushrec.runs.run_settings import NUM_FOLDS, settings_for
from hushrec.settings import to_dict

# accuracy, counts and communication have a published spread or unit; of the others only the order is claimed.
# Of a curve, a time or a cost there may be claims that compare rows.
Kind = Literal["accuracy", "counts", "communication", "ranking", "bytes", "attack", "curve", "time", "cost"]
Relation = Literal["above", "below", "close", "at most", "at least"]


METRIC_DECIMALS = 4


def is_met(ours: float, published: float, spread: float, decimals: int = METRIC_DECIMALS) -> bool:
    """Whether ours, as it is printed, lies within the spread of the published number.

    >>> is_met(0.94304, 0.9424, 0.0006), is_met(0.94306, 0.9424, 0.0006)
    (True, False)
    """
    return round(abs(round(ours, decimals) - published), decimals + 2) <= spread


@dataclass(frozen=True)
class Row:
    """One row of a published table."""

    label: str
    system: str
    data: str
    config: dict[str, Any]
    published: dict[str, list[float]] = field(default_factory=dict)  # metric: mean, and standard deviation
    note: str = ""
    split: SplitKind | None = None  # other than the system's usual one
    deal: Deal = field(default_factory=Deal)  # for the splits partners and pooled
    owners: str = ""  # of items, where it is not the usual
    passed_over: int = 0  # drawn for each item that a user took, where the data knows no others
    probes: list[str] = field(default_factory=list)  # what else is measured inside the run
    denoiser_share: float | None = None  # eta as a share of the clients, where the paper says n/4 or n/2

    def settings(self, num_users: int) -> dict[str, Any]:
        """The row's settings for a dataset with so many users."""
        if self.denoiser_share is None:
            return self.config
        return self.config | {"denoisers": int(self.denoiser_share * num_users)}


@dataclass(frozen=True)
class Claim:
    """What a text says of its results, so that it can be held against ours.

    Two rows are compared: the first is above, below or close to the second (within `limit` of it, as a share). Or
    a share of the time is at most or at least the limit.
    """

    text: str
    relation: Relation
    metrics: list[str]
    rows: list[str] = field(default_factory=list)
    limit: float = 0.1


@dataclass(frozen=True)
class Table:
    """A published table or figure."""

    name: str
    title: str
    paper: str
    kind: Kind  # what is measured, and what counts as agreement
    claim: str
    metrics: list[str]
    rows: list[Row]
    num_folds: int = NUM_FOLDS
    num_rounds: int | None = None  # fewer than the paper's where the numbers do not depend on them
    num_seeds: int = 1  # more than one where a number depends on whom chance makes a denoiser
    presets: list[str] = field(default_factory=list)  # of systems that have them: ours, once with each
    claims: list[Claim] = field(default_factory=list)

    def decimals(self, metric: str) -> int:
        """How many decimals its numbers have."""
        if self.kind == "cost":
            return METRIC_DECIMALS if "@" in metric else 1 if metric in ("MB", "CPU s") else 0
        return {"communication": 0, "counts": 1, "bytes": 2}.get(self.kind, METRIC_DECIMALS)

    def presets_of(self, row: Row) -> list[str]:
        """With which presets a row is run; an empty name stands for the row's settings alone."""
        has_them = set(self.presets) <= set(system_named(row.system).about.presets)
        return self.presets if self.presets and has_them and "preset" not in row.config else [""]


@cache
def tables() -> dict[tuple[str, str], Table]:
    """Every table that comes with hushrec, by system and name."""
    found = {}
    for entry in sorted(files("hushrec.experiments").iterdir(), key=lambda path: path.name):
        if entry.name.endswith(".toml"):
            table = msgspec.toml.decode(entry.read_bytes(), type=Table)
            found[entry.name.removesuffix(f"-{table.name}.toml"), table.name] = table
    return found


def table_named(system: str, name: str) -> Table:
    """The table of this system and name."""
    known = tables()
    if (system, name) not in known:
        names = [table for kind, table in known if kind == system]
        hint = f"choose from {', '.join(names)}" if names else "no table of it comes with hushrec"
        raise HushrecError(f"no table {name!r} of {system_named(system).name}; {hint}")
    return known[system, name]


@dataclass(frozen=True)
class Published:
    """What a paper says about a run."""

    table: str
    label: str
    values: dict[str, list[float]]  # metric: mean, and standard deviation


def published_for(run: Run) -> Published | None:
    """The published row with the same system, data and settings, if there is one and the test is its own."""
    made = run.provenance
    if made.measure != "test":
        return None
    for table, row in _accuracy_rows():
        split = row.split or settings_for(system_named(row.system)).split
        is_same = (row.system, row.data, split) == (run.system, run.data, made.split)
        if is_same and row.published and made.deal in (None, row.deal):
            config = system_named(row.system).configure(row.settings(run.provenance.num_users))
            if to_dict(config) == run.config:
                return Published(table.title, row.label, row.published)
    return None


def _accuracy_rows() -> Iterator[tuple[Table, Row]]:
    for table in tables().values():
        if table.kind == "accuracy":
            for row in table.rows:
                yield table, row
