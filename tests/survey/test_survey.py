"""Comparisons of systems on tiny made-up data: rows, resuming, faults, and what is said of them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS, system_named
from hushrec.settings import switches_of
from hushrec.survey import costs
from hushrec.survey.bench import Bench, Order
from hushrec.survey.looking import with_fewer_users
from hushrec.survey.record import FILE, Leak, Look, Row, Survey, read_survey_of
from hushrec.survey.study import Wanted, survey, systems_named

DATA = "synthetic:users=40,items=30,ratings=600"


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load(DATA)


def unheard(_done: int, _all: int, _last: str) -> None:
    pass


def made(bench: Bench, *systems: str) -> Survey:
    return survey(Wanted(bench, systems), None, False, unheard)


# --- What systems declare ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_declared_repairs_are_settings_that_change_something(name: str) -> None:
    system = system_named(name)
    for values in system.about.repairs:
        assert system.configure(values) != system.configure({})
        for preset in system.about.presets:
            system.configure({"preset": preset, **values})
    if system.about.stand_in:
        assert system.configure(system.about.stand_in) != system.configure({})
    assert not (system.about.hands_over_data and system.about.repairs)


# --- Rows --------------------------------------------------------------------------------------------------------


def test_rows_of_a_system_with_a_repair(data: Interactions) -> None:
    """A curious server reads FedRec's uploads, of secure sums what few tell; a lying one reads whom it likes."""
    published, repaired = made(Bench(data, audit_rounds=2), "fedrec").rows
    assert (published.switches, repaired.switches) == ("", "--rho 0 --secure-sums")
    assert published.server.best is not None
    assert published.server.best.score > 0.95
    assert published.leakage == pytest.approx(1, abs=0.1)
    assert repaired.server.num_attacks > 5
    assert repaired.server.best is not None
    assert repaired.server.best.attack == "counts of one round", "40 people hide little in a sum"
    assert repaired.server.best.advantage < 0.25
    assert repaired.active.best is not None
    assert repaired.active.best.attack == "sum without one", "a lying server names who is lost"
    assert repaired.active.best.score == 1
    assert repaired.up_bytes > published.up_bytes
    assert repaired.cpu_seconds > 5 * published.cpu_seconds, "masks are made for this, not only counted"
    assert repaired.num_rounds == published.num_rounds, "what was chosen for the published settings is kept"
    assert (published.server.num_rounds, published.server.num_users) == (2, 40)


def test_one_of_two_denoisers_reads_nothing_and_both_read_all(data: Interactions) -> None:
    published, repaired = made(Bench(data, audit_rounds=2), "fedrec++").rows
    assert (published.others.advantage, published.together.advantage) == (1, 1)
    assert (repaired.others.advantage, repaired.together.advantage) == (0, 1)
    assert published.model_sha256 == repaired.model_sha256
    assert published.accuracy == repaired.accuracy


def test_a_server_that_has_all_rows_is_not_audited(data: Interactions) -> None:
    (row,) = made(Bench(data), "pmf").rows
    assert row.has_all_rows
    assert row.leakage == 1
    assert row.server == Look(0)


def test_what_is_over_budget_is_said(data: Interactions) -> None:
    (row,) = made(Bench(data, budget_seconds=1e-9), "average").rows
    assert row.accuracy is not None
    (row, _) = made(Bench(data, budget_seconds=1e-9), "sdcf").rows
    assert row.num_rounds == 1
    assert "trained for 1 of" in " ".join(row.left_out)
    assert "the audit ended after 1 of 5 rounds" in " ".join(row.left_out)


def test_what_cannot_be_measured_says_why(data: Interactions) -> None:
    implicit = data.as_implicit()
    rows = made(Bench(implicit), "fedrec", "average").rows
    assert all("rating" in row.fault for row in (rows[0], rows[2]))
    assert rows[1].fault == "as with the published settings"
    assert all(row.accuracy is None for row in rows)


def test_known_rows_are_not_made_again(data: Interactions) -> None:
    known = Row("fedrec", "FedRec", "", {"num_rounds": 3}, metric="RMSE", accuracy=9.0)
    told: list[Row] = []
    order = Order("fedrec", (known,))

    def on_row(_number: int, row: Row) -> bool:
        told.append(row)
        return False

    Bench(data, audit_rounds=1).make(order, on_row)
    (row,) = told
    assert row.switches
    assert row.num_rounds == 3, "as the published settings were chosen"


def test_two_processes_find_the_same_as_one(data: Interactions) -> None:
    bench, systems = Bench(data, audit_rounds=1), ("sdcf", "average")
    both = survey(Wanted(bench, systems, num_jobs=2), None, False, unheard)
    for one, other in zip(made(bench, *systems).rows, both.rows, strict=True):
        assert replace(one, cpu_seconds=0, spent_seconds=0) == replace(other, cpu_seconds=0, spent_seconds=0)


def test_fewer_users_keep_all_of_their_rows(data: Interactions) -> None:
    few = with_fewer_users(data, 7, seed=3)
    assert few.num_users == len(np.unique(few.users)) == 7
    assert few.num_items == data.num_items
    for number, name in enumerate(few.user_ids):
        whole = data.items[data.users == data.user_number(name)]
        assert sorted(few.items[few.users == number]) == sorted(whole)
    assert with_fewer_users(data, 1000, seed=3) is data


# --- Folders -----------------------------------------------------------------------------------------------------


def test_resumed_after_a_kill(tmp_path: Path) -> None:
    """What was kept before a kill -9 is kept to the last digit; the rest is made."""
    folder = tmp_path / "compared"
    words = ["compare", "--data", DATA, "--systems", "average,sdcf,pmf", "--audit-rounds", "1", "--jobs", "1"]
    code = "from hushrec.cli.app import main; main()"
    command = [sys.executable, "-c", code, *words, "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and not ((folder / FILE).exists() and read_survey_of(folder).rows):
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = read_survey_of(folder).rows
    assert 1 <= len(before) < 4
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "add --resume" in refused.stderr
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, check=True)
    after = read_survey_of(folder).rows
    assert all(row in after for row in before)
    said = json.loads(done.stdout)
    assert [row["system"] for row in said["rows"]] == ["pmf", "sdcf", "sdcf", "average"]


def test_another_comparison_is_refused(data: Interactions, tmp_path: Path) -> None:
    survey(Wanted(Bench(data), ("average",)), tmp_path / "a", False, unheard)
    with pytest.raises(HushrecError, match="with seed 0, not 1; choose another --out"):
        survey(Wanted(Bench(data, seed=1), ("average",)), tmp_path / "a", True, unheard)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "photo.jpg").touch()
    with pytest.raises(HushrecError, match="not a comparison"):
        survey(Wanted(Bench(data), ("average",)), tmp_path / "b", True, unheard)
    (tmp_path / "a" / FILE).write_text("{")
    with pytest.raises(HushrecError, match="is damaged"):
        survey(Wanted(Bench(data), ("average",)), tmp_path / "a", True, unheard)


def test_systems_by_name() -> None:
    assert systems_named(None) == tuple(SYSTEMS)
    assert systems_named("fcf, pmf") == ("pmf", "fcf")
    with pytest.raises(HushrecError, match="no system 'fedrek'; choose from pmf, fedrec"):
        systems_named("pmf,fedrek")


# --- Costs -------------------------------------------------------------------------------------------------------


def _row(switches: str = "", **values: object) -> Row:
    leak = Leak("listed items", "server", "F1", 1.0, 0.5, 1.0)
    told = {"metric": "RMSE", "accuracy": 0.9, "up_bytes": 10.0, "cpu_seconds": 0.001, "server": Look(1, leak)}
    return Row("fedrec", "FedRec", switches, **{**told, **values})  # type: ignore[arg-type]


def test_what_a_switch_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        _row(),
        _row("--rho 0 --secure-sums", accuracy=0.91, up_bytes=105.0, cpu_seconds=0.0015, server=Look(1)),
    ]
    kept = Survey("shop", "abc", 1, 1, 1, 0, "2026-01-02", "0", "", 200, rows=rows)
    monkeypatch.setattr(costs, "measured_surveys", lambda: {"abc": kept})
    expected = (
        " (with --rho 0 --secure-sums on shop: RMSE 0.9000 to 0.9100, upload x10, CPU x1.5, leakage 1.00 to 0.00; "
        "measured 2026-01-02)"
    )
    assert costs.cost_of("fedrec", "--secure-sums", "abc") == expected
    assert costs.cost_of("fedrec", "--shares 2", "abc") == ""
    assert costs.cost_of("fcf", "--secure-sums", "abc") == ""
    assert costs.cost_of("fedrec", "--secure-sums", "other data") == ""


def test_a_switch_is_found_as_a_whole() -> None:
    assert costs.has_switch(_row("--shares 2 --denoisers 2"), "--shares 2")
    assert not costs.has_switch(_row("--shares 20"), "--shares 2")
    assert not costs.has_switch(_row("--secure-sums-too"), "--secure-sums")
    assert not costs.has_switch(_row(""), "--secure-sums")


def test_switches_as_typed() -> None:
    assert switches_of({"biases": False, "filling": "hybrid"}) == "--no-biases --filling hybrid"
