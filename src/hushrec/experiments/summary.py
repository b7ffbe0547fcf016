"""All tables of one dataset in one record: numbers, claims and what is missing, with the date.

A record of each dataset comes with hushrec (`measured/*.json`). Pages of the docs are made from it, and it tells
how long a row takes before the row is run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from hushrec.experiments.claims import Answer, lossless_pairs, verdicts
from hushrec.experiments.published import Row, Table
from hushrec.experiments.reproduction import Cell, Reproduced

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class RowRecord:
    """One row with one preset."""

    where: str
    label: str
    preset: str
    cells: list[Cell] = field(default_factory=list)
    cpu_seconds: float = 0.0
    missing: str = ""
    remark: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The label, with the preset if there are several."""
        return f"{self.label}, {self.preset}" if self.preset else self.label


@dataclass(frozen=True)
class ClaimRecord:
    """One claim on one dataset and split, with one preset."""

    text: str
    where: str
    preset: str
    answer: Answer
    held: list[str]  # measures by which it is true
    failed: dict[str, list[float]]  # measures by which it is not: what the rows have
    folds: dict[str, tuple[int, int]]  # by measure: folds and seeds on which it is true, and all
    why: str = ""  # our reason, if it does not hold


@dataclass(frozen=True)
class TableRecord:
    """One table, as far as it is about the dataset."""

    system: str
    name: str
    title: str
    paper: str
    kind: str
    rows: list[RowRecord]
    claims: list[ClaimRecord]
    bits: dict[str, bool] = field(default_factory=dict)  # rows that must be the same, and whether they are
    measured: str = ""  # the date, if it was taken from a record of an earlier day


@dataclass(frozen=True)
class Summary:
    """All tables of one dataset."""

    data: str
    date: str
    version: str
    tables: list[TableRecord]
    cpu_seconds: float = 0.0  # of all runs; one that several tables share counts once
    num_deviations: int = 0  # departures from the papers that the code of these systems marks
    options: str = ""  # of the command, if not all systems, folds or the usual seed

    def counts(self) -> dict[str, int]:
        """Cells, claims and rows, by what became of them."""
        rows = [row for table in self.tables for row in table.rows]
        cells = [cell for row in rows for cell in row.cells]
        with_spread = [cell for cell in cells if cell.is_within is not None]
        without = [cell for cell in cells if cell.published is not None and cell.is_within is None]
        answers = Counter(claim.answer for table in self.tables for claim in table.claims)
        missing = Counter("not run yet" if row.missing == NOT_RUN else "missing" for row in rows if row.missing)
        return {
            "rows": len(rows),
            "rows with numbers": sum(bool(row.cells) for row in rows),
            "rows not run yet": missing["not run yet"],
            "rows without a number": missing["missing"],
            "cells": len(cells),
            "cells with a published spread or unit": len(with_spread),
            "of these within it": sum(cell.is_within is True for cell in with_spread),
            "cells published without a spread": len(without),
            "of these within 10%": sum(cell.is_near is True for cell in without),
            "claims": sum(answers.values()),
            "claims that hold": answers["yes"],
            "claims that hold in part": answers["in part"],
            "claims that do not hold": answers["no"],
            "departures from the papers, marked in the code": self.num_deviations,
        }


def record_of(system: str, table: Table, done: Sequence[Reproduced]) -> TableRecord:
    """What is kept of a table."""
    return TableRecord(
        system, table.name, table.title, table.paper, table.kind,
        [_row_record(entry) for entry in done],
        [
            ClaimRecord(
                found.claim.text, found.where, found.preset, found.answer,
                [name for name, held in found.measures.items() if held.is_true],
                {name: held.values for name, held in found.measures.items() if not held.is_true},
                {name: held.num_folds for name, held in found.measures.items() if held.num_folds},
                "" if found.answer == "yes" else found.claim.why,
            )
            for found in verdicts(table, done)
        ],
        {
            f"{other.row.where}: {other.row.label} and {reference.row.label}": is_equal
            for reference, other, is_equal in (lossless_pairs(done) if table.kind == "accuracy" else ())
        },
    )  # fmt: skip


def _row_record(entry: Reproduced) -> RowRecord:
    row = entry.row
    return RowRecord(
        row.where, row.label, entry.preset, entry.cells, entry.cpu_seconds, entry.missing, entry.remark, row.note
    )


def to_json(summary: Summary) -> bytes:
    """The record as it is kept and printed, with its counts, and what is within a spread."""
    said: dict[str, Any] = asdict(summary)
    for table, kept in zip(said["tables"], summary.tables, strict=True):
        for row, kept_row in zip(table["rows"], kept.rows, strict=True):
            for cell, kept_cell in zip(row["cells"], kept_row.cells, strict=True):
                cell |= {"within": kept_cell.is_within, "near": kept_cell.is_near}
    return msgspec.json.encode({"counts": summary.counts(), **said})


@cache
def measured_summaries() -> dict[str, Summary]:
    """The records that come with hushrec, by dataset."""
    folder = files("hushrec.experiments").joinpath("measured")
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else ():
        if entry.name.endswith(".json"):
            summary = msgspec.json.decode(entry.read_bytes(), type=Summary)
            found[summary.data] = summary
    return found


def taken_from_record(data: str, wanted: Mapping[tuple[str, str], Table]) -> dict[tuple[str, str], TableRecord]:
    """Of these tables, those that hushrec's own record has whole, with the date when they were measured."""
    summary = measured_summaries().get(data)
    if summary is None or summary.options:
        return {}
    return {
        key: replace(kept, measured=kept.measured or summary.date)
        for kept in summary.tables
        if (key := (kept.system, kept.name)) in wanted and _is_whole(data, kept, wanted[key])
    }


def rows_of_record(kept: TableRecord, table: Table) -> list[Reproduced]:
    """The rows of a record as if they had been run, but without the runs."""
    rows = {(row.where, row.label): row for row in table.rows}
    return [
        Reproduced(rows[one.where, one.label], one.cells, [], one.preset, one.missing, one.remark)
        for one in kept.rows
    ]


def _is_whole(data: str, kept: TableRecord, table: Table) -> bool:
    """Whether no row of the table, as it is now, is left to run."""
    left_out = table.ratio.baseline if table.ratio else None
    rows = {(row.where, row.label) for row in table.rows if row.data == data and row.label != left_out}
    is_run = all(row.missing != NOT_RUN for row in kept.rows)
    return is_run and rows == {(row.where, row.label) for row in kept.rows}


def usual_seconds(system: str, table: Table, row: Row, preset: str) -> float | None:
    """The CPU time that a row took when it was measured; None: it never was."""
    summary = measured_summaries().get(row.data)
    for kept in summary.tables if summary else ():
        if (kept.system, kept.name) == (system, table.name):
            for entry in kept.rows:
                if (entry.where, entry.label, entry.preset) == (row.where, row.label, preset) and entry.cells:
                    return entry.cpu_seconds
    return None
