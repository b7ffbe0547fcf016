"""The summary of a dataset: counts by hand, the page, and the records that come with hushrec."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hushrec.experiments import summary as records
from hushrec.experiments.published import Row, Table, tables
from hushrec.experiments.reproduction import Cell
from hushrec.experiments.summary import (
    NOT_RUN,
    ClaimRecord,
    RowRecord,
    Summary,
    TableRecord,
    measured_summaries,
    to_json,
    usual_seconds,
)
from hushrec.report import summary_page
from hushrec.report.summary_page import page, summary_lines

DOCS = Path(__file__).parents[2] / "docs" / "reproduced"


def small() -> Summary:
    """Two cells with a spread, one within; two without, one near; a row that was not run, one that cannot be."""
    rows = [
        RowRecord("here", "a", "", [Cell("MAE", 0.75, 0.0, 0.74, 0.02), Cell("RMSE", 0.9, 0.0, 0.8, 0.01)], 90.0),
        RowRecord("here", "b", "paper", [Cell("MAE", 0.75, 0.01, 0.7, None), Cell("RMSE", 1.0, 0.0, 0.5, None)]),
        RowRecord("here", "c", "", missing=NOT_RUN),
        RowRecord("here", "d", "", missing="needs the raw files", note="a | b"),
    ]
    claims = [
        ClaimRecord("good", "here", "", "yes", ["MAE"], {}, {}),
        ClaimRecord(
            "better", "here", "paper", "in part", ["MAE"], {"RMSE": [0.9, 1.0]}, {"RMSE": (1, 5)}, "a guess"
        ),
        ClaimRecord("best", "here", "", "no", [], {"MAE": [0.75, 0.75]}, {}),
    ]
    table = TableRecord(
        "pmf", "table1", "P, Table 1: all", "Nobody (2026)", "accuracy", rows, claims, {"a and b": True}
    )
    return Summary("here", "2026-01-02", "0.1", [table], 90.0, 7)


def test_counts_by_hand() -> None:
    assert small().counts() == {
        "rows": 4,
        "rows with numbers": 2,
        "rows not run yet": 1,
        "rows without a number": 1,
        "cells": 4,
        "cells with a published spread or unit": 2,
        "of these within it": 1,
        "cells published without a spread": 2,
        "of these within 10%": 1,
        "claims": 3,
        "claims that hold": 1,
        "claims that hold in part": 1,
        "claims that do not hold": 1,
        "departures from the papers, marked in the code": 7,
    }


def test_lines_name_what_fails_and_what_is_missing() -> None:
    lines = list(summary_lines(small()))
    assert lines[0] == "here, 2026-01-02, 90.0 s of CPU"
    place = lines.index("  P, Table 1: best")
    assert lines[place + 1] == "    here (MAE 0.7500, 0.7500)"
    place = lines.index("  P, Table 1: better")
    assert lines[place + 1] == "    here, paper (RMSE 0.9000, 1.0000, on 1 of 5 folds)"
    assert "    why: a guess" in lines
    assert "  P, Table 1, here, d: needs the raw files" in lines
    assert not any("good" in line for line in lines)


def test_the_page_shows_every_number_claim_and_gap() -> None:
    text = page(small())
    assert "| here | a | 0.7500 | 0.7400 ± 0.0200 | within | 0.9000 | 0.8000 ± 0.0100 | +0.1000 |" in text
    assert "| here | b, paper | 0.7500 ± 0.0100 | 0.7000 | near | 1.0000 | 0.5000 | +0.5000 |" in text
    assert "- **yes** · here: good\n" in text
    assert "- P, Table 1: better. Why: a guess.\n  - **in part** · here, paper (RMSE 0.9000" in text
    assert "a and b: identical to the last bit: yes" in text
    assert "- here, d: needs the raw files" in text
    assert "- note: a \\| b" in text


def test_the_page_says_which_table_is_older() -> None:
    table = small().tables[0]
    for measured, is_said in (("2025-12-31", True), ("2026-01-02", False), ("", False)):
        text = page(replace(small(), tables=[replace(table, measured=measured)]))
        assert ("Measured on 2025-12-31." in text) == is_said


def test_a_record_survives_its_file() -> None:
    assert msgspec.json.decode(to_json(small()), type=Summary) == small()


def test_a_row_says_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "measured_summaries", lambda: {"here": small()})
    table = Table("table1", "P", "Nobody (2026)", "accuracy", "so", ["MAE"], [])
    assert usual_seconds("pmf", table, Row("a", "pmf", "here", {}), "") == 90.0
    assert usual_seconds("pmf", table, Row("c", "pmf", "here", {}), "") is None, "it has no number"
    assert usual_seconds("pmf", table, Row("a", "pmf", "there", {}), "") is None
    assert usual_seconds("fcf", table, Row("a", "pmf", "here", {}), "") is None


def test_claims_about_a_system_are_those_of_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("a", "pmf", "here", {})
    known = {("pmf", "table1"): Table("table1", "P", "Nobody (2026)", "accuracy", "so", ["MAE"], [row])}
    monkeypatch.setattr(summary_page, "measured_summaries", lambda: {"here": small()})
    monkeypatch.setattr(summary_page, "tables", lambda: known)
    assert summary_page.claims_about(["pmf"]) == [
        ("yes", "P, Table 1: good", "here, 2026-01-02", ""),
        (
            "in part",
            "P, Table 1: better",
            "here, paper, 2026-01-02",
            "(RMSE 0.9000, 1.0000, on 1 of 5 folds) a guess",
        ),
        ("no", "P, Table 1: best", "here, 2026-01-02", "(MAE 0.7500, 0.7500)"),
    ]
    assert summary_page.claims_about(["fcf"]) == []


def test_a_record_of_ml_100k_comes_with_hushrec_and_covers_every_table() -> None:
    kept = {(table.system, table.name) for table in measured_summaries()["ml-100k"].tables}
    assert kept == {key for key, table in tables().items() if any(row.data == "ml-100k" for row in table.rows)}


@pytest.mark.parametrize("data", sorted(measured_summaries()))
def test_pages_of_the_docs_are_made_from_the_records(data: str) -> None:
    assert (DOCS / f"{data}.md").read_text(encoding="utf-8") == page(measured_summaries()[data], DOCS)


@pytest.mark.parametrize("data", sorted(measured_summaries()))
def test_records_are_about_rows_that_there_are(data: str) -> None:
    for kept in measured_summaries()[data].tables:
        table = tables()[kept.system, kept.name]
        labels = {(row.where, row.label) for row in table.rows}
        assert {(row.where, row.label) for row in kept.rows} <= labels
