"""Published tables as data: what was run, and what the paper says came out."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from hushrec.data import Deal, SplitKind
from hushrec.errors import HushrecError
from hushrec.experiments.rounding import METRIC_DECIMALS
from hushrec.registry import system_named
from hushrec.runs.record import Run
from hushrec.runs.run_settings import NUM_FOLDS, settings_for
from hushrec.settings import to_dict

# accuracy, counts and communication have a published spread or unit; of the others only the order is claimed.
# A curve, a time or a cost is published in words or as a picture only.
Kind = Literal["accuracy", "counts", "communication", "ranking", "bytes", "attack", "curve", "time", "cost"]
Relation = Literal[
    "above", "below", "highest", "lowest", "close", "narrower", "times below", "identical", "at most", "at least"
]


_SPLIT_WORDS = {"latest": "by time", "random": "at random"}  # what a comparison of its own is called


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
    stop_by: str = ""  # the metric by which the number of rounds is chosen, on validation data
    series: str = ""  # of a figure: the line that the row is a point of
    x: float = 0.0  # and where on the axis
    is_compared: bool = False  # made by `Table.with_splits`: the split is one of several

    @property
    def where(self) -> str:
        """The dataset, with the split if rows are run with several: what rows are compared within."""
        return f"{self.data}, {_SPLIT_WORDS[self.split]}" if self.is_compared and self.split else self.data

    def settings(self, num_users: int) -> dict[str, Any]:
        """The row's settings for a dataset with so many users."""
        if self.denoiser_share is None:
            return self.config
        return self.config | {"denoisers": int(self.denoiser_share * num_users)}


@dataclass(frozen=True)
class Claim:
    """What a text says of its results, so that it can be held against ours.

    above, below: each row is above the next one, or below it. highest, lowest: the first row is above all others,
    or below them. close: the first is within `limit` of every other one, as a share of it. narrower: the first two
    are closer to each other than the last two. times below: every other one is at least `limit` times the first.
    identical: all rows end with the same bits. at most, at least: so is the metric of each row; in a table of
    times, a share of the time.
    """

    text: str
    relation: Relation
    metrics: list[str]
    rows: list[str] = field(default_factory=list)
    limit: float = 0.1
    why: str = ""  # our reason, told where it does not hold
    data: list[str] = field(default_factory=list)  # that the text speaks of; none: of all


@dataclass(frozen=True)
class Ratio:
    """A number made of two: what is lost of one metric for what is lost of another, against a row."""

    of: str
    to: str
    baseline: str  # the label of the row that has lost nothing


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
    splits: dict[str, list[SplitKind]] = field(default_factory=dict)  # by dataset, where rows are run with several
    x_label: str = ""  # of a figure: what its axis shows
    ratio: Ratio | None = None  # how the one metric of the table is made from two others

    def with_splits(self) -> "Table":
        """The table with a row for each split that the row is run with; all of one split follow each other."""
        rows: list[Row] = []
        for data in dict.fromkeys(row.data for row in self.rows):
            of_data, splits = [row for row in self.rows if row.data == data], self.splits.get(data)
            rows += [row for row in of_data if row.split or not splits]
            for split in splits or ():
                rows += [replace(row, split=split, is_compared=True) for row in of_data if not row.split]
        return replace(self, rows=rows)

    def decimals(self, metric: str) -> int:
        """How many decimals its numbers have."""
        if self.kind == "cost":
            return METRIC_DECIMALS if "@" in metric else 1 if metric in ("MB", "CPU s") else 0
        if self.kind == "communication" and metric.endswith(" MB"):
            return 2
        return {"communication": 0, "counts": 1, "bytes": 2}.get(self.kind, METRIC_DECIMALS)

    def unit(self, metric: str) -> float | None:
        """How far a count may be off, where the paper gives no spread; None: it is no count."""
        if self.kind not in ("counts", "communication"):
            return None
        return 0.01 if metric.endswith(" MB") else 1.0

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
            table = msgspec.toml.decode(entry.read_bytes(), type=Table).with_splits()
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
