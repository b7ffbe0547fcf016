"""What the page of audits asks for."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import hushrec
from hushrec.audit.kept import FILE, KeptAudit, KeptFinding, write_audit
from hushrec.privacy.ledger import epsilon_of_gaussian
from hushrec.registry import system_named
from hushrec.runs.record import read_run, write_run
from hushrec.survey.record import measured_surveys, write_survey
from hushrec.ui.audit import ledger_of
from hushrec.ui.rows import leakage_of

from .conftest import Ask

FINDINGS = [
    KeptFinding("ratings from one upload", "server", "share exact", 0.99, 0.34, (0.98, 1.0), [0.98, None, 1.0]),
    KeptFinding("of another package", "server", "F1", 0.4, 0.4, None, [0.4, 0.4, 0.4]),
]


@pytest.fixture
def audited(runs_folder: Path) -> Path:
    """A run of FedRec, audited."""
    folder = runs_folder / "deep" / "one"
    data = hushrec.load("synthetic:users=30,items=40,ratings=500")
    hushrec.FedRec(num_rounds=2, num_factors=4).fit(data).save(folder)
    write_audit(folder, KeptAudit(3, "2026-11-18", FINDINGS))
    return folder


def test_audited_runs_are_listed(ask: Ask, audited: Path) -> None:
    (found,) = ask("/api/audit/runs").json["runs"]
    assert found == {
        "id": "deep/one",
        "system": "fedrec",
        "data": "synthetic",
        "strongest": pytest.approx(0.65 / 0.66),
    }


def test_a_run_has_verdicts_curves_and_a_ledger(ask: Ask, audited: Path) -> None:
    found = ask("/api/audit/run?id=deep/one").json
    first, other = found["audit"]["findings"]
    assert first["curve"] == [pytest.approx(0.64 / 0.66), None, pytest.approx(1.0)]
    assert first["sentence"].startswith("Of a user's ratings in one upload, 99.0% are read exactly")
    assert "sentence" not in other
    assert other["advantage"] == 0
    assert (first["word"], other["word"]) == ("reads it", "learns nothing beyond chance")
    (line,) = found["audit"]["verdicts"]
    assert line.startswith("the server: reads every rating (ratings from one upload: share exact 0.990")
    assert "--secure-sums" in line
    assert found["ledger"] == {"told": {}, "total": None, "curve": []}


def test_what_the_interval_leaves_open_is_not_called_learned(ask: Ask, audited: Path) -> None:
    guess = KeptFinding("occupation inference", "server", "balanced accuracy", 0.5, 0.25, (0.2, 0.8), [0.5])
    sure = KeptFinding("listed items", "server", "F1", 2.0, 1.0, None, [])  # more than all is nothing to divide by
    write_audit(audited, KeptAudit(1, "2026-11-19", [guess, sure]))
    found = ask("/api/audit/run?id=deep/one").json["audit"]
    assert [one["word"] for one in found["findings"]] == ["learns nothing beyond chance"] * 2
    assert leakage_of(audited) == 0.0


def test_epsilon_grows_with_the_rounds_up_to_what_the_run_told(audited: Path) -> None:
    run = read_run(audited)
    values = {"rho": 0, "secure_sums": True, "epsilon_total": 8.0, "num_rounds": 4, "user_update": "rated"}
    config = system_named("fedrec").configure(values)
    told = {"epsilon of these together, delta 1e-05": 7.99, "rounds": 4.0}
    private = replace(run, config=vars(config), folds=[replace(run.folds[0], facts=told)])
    ledger = ledger_of(private)
    assert ledger["told"] == {"epsilon of these together, delta 1e-05": 7.99}
    curve = ledger["curve"]
    assert len(curve) == 4
    assert all(one < other for one, other in itertools.pairwise(curve))
    assert curve[-1] == pytest.approx(ledger["total"]["epsilon"])
    assert 7 < curve[-1] <= 8.001
    multiplier = system_named("fedrec").result.spends(None, config).multiplier
    assert curve[0] == pytest.approx(epsilon_of_gaussian(2 * multiplier, 1e-5))


def test_a_run_that_was_not_audited_says_how(ask: Ask, audited: Path) -> None:
    (audited / FILE).unlink()
    found = ask("/api/audit/run?id=deep/one").json
    assert found["audit"] is None
    assert found["command"] == f"hushrec audit {audited}"


def test_published_stands_beside_repaired(ask: Ask, runs_folder: Path) -> None:
    survey = next(iter(measured_surveys().values()))
    (runs_folder / "compared").mkdir()
    write_survey(runs_folder / "compared", replace(survey, data="mine"))
    (runs_folder / "broken").mkdir()
    (runs_folder / "broken" / "comparison.json").write_text("{")
    ours, mine = ask("/api/audit/comparisons").json["comparisons"]
    assert (ours["data"], mine["data"], mine["origin"]) == (survey.data, "mine", "compared")
    rows = {(row["system"], row["switches"]): row for row in ours["rows"]}
    published, repaired = rows["fedrec", ""], rows["fedrec", "--rho 0 --secure-sums"]
    assert published["leakage"] > repaired["leakage"]
    assert published["is_error"]
    assert repaired["change"].startswith("RMSE ")
    assert published["change"] == ""
    assert published["looks"]["server"]["attack"] == "ratings from one upload"


@pytest.mark.parametrize("run_id", ["none", "../x", "/etc", ".hushrec", ""])
def test_what_is_no_run_is_refused(ask: Ask, run_id: str) -> None:
    answer = ask(f"/api/audit/run?id={run_id}")
    assert answer.status == 404
    assert "\n" not in answer.json["detail"]


def test_a_damaged_audit_is_refused_in_a_line(ask: Ask, audited: Path) -> None:
    (audited / FILE).write_text("{")
    answer = ask("/api/audit/run?id=deep/one")
    assert answer.status == 422
    assert "audit the run again" in answer.json["detail"]


def test_a_changed_run_is_refused_in_a_line(ask: Ask, audited: Path) -> None:
    write_run(audited, replace(read_run(audited), system="nowhere"))
    answer = ask("/api/audit/run?id=deep/one")
    assert answer.status == 422
    assert "\n" not in answer.json["detail"]
