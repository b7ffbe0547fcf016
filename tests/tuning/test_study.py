"""The search: its first trial is the default, nothing is lost, nothing is pickled, test rows are not looked at."""

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runs.suiting import plan_for
from hushrec.settings import Between
from hushrec.tuning import Tuned, prepared_search
from hushrec.tuning.bench import Attempt, Bench, OnPoint, Outcome
from hushrec.tuning.results import Row
from hushrec.tuning.spaces import Spaces
from hushrec.tuning.store import quiet
from hushrec.tuning.study import Search, search

DATA = "synthetic:users=60,items=40,ratings=900"
SPACES: Spaces = {"learning_rate": Between(0.01, 2.0, log=True), "num_rounds": Between(1, 12)}


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load(DATA)


@dataclass(frozen=True)
class Formula(Bench):
    """Trainings in no time: the nearer the rate to 0.3, the better; above 1 they diverge."""

    stop_at: int | None = None  # so many trials are made before somebody presses Ctrl-C

    def make(self, attempt: Attempt, on_point: OnPoint) -> Outcome:
        if self.stop_at is not None:
            MADE.append(1)
            if len(MADE) > self.stop_at:
                on_point(1, 5.0)
                raise KeyboardInterrupt
        rate = attempt.values.get("learning_rate", 0.8)
        if rate > 1:
            return Outcome({}, fault="the training diverges", is_diverged=True)
        values = [abs(rate - 0.3) + 1 / number for number in range(1, 8)]
        for number, value in enumerate(values, 1):
            if on_point(number, value):
                return Outcome({}, is_pruned=True)
        return Outcome({"RMSE": values[-1], "bytes": 100 * rate, "leakage": 0.5 - rate / 4}, 12)


MADE = list[int]()


def searched(
    data: Interactions,
    num_trials: int,
    folder: Path | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    measures: tuple[str, ...] = ("RMSE",),
    spaces: Spaces = SPACES,
) -> Tuned:
    MADE.clear()
    settings = settings_for(SYSTEMS["pmf"], measure="validation", data=data)
    bench = Formula("pmf", data, settings, measures, stop_at=stop_at)
    plan = plan_for(SYSTEMS["pmf"], {}, data.name)
    values = {choice.setting: choice.value for choice in plan.chosen}
    return search(Search(bench, values, spaces, num_trials), plan, folder, resume)


def told(tuned: Tuned) -> list[tuple[int, dict[str, object], str]]:
    return [(row.number, row.settings, row.state) for row in tuned.rows]


def test_the_default_is_the_first_trial_and_the_best_is_found(data: Interactions) -> None:
    tuned = searched(data, 30)
    config = plan_for(SYSTEMS["pmf"], {}, data.name).config
    assert tuned.default is not None
    assert tuned.default.settings["learning_rate"] == config.learning_rate
    assert len(tuned.rows) == 30
    assert abs(tuned.best_settings["learning_rate"] - 0.3) < 0.05
    assert tuned.best.config.learning_rate == tuned.best_settings["learning_rate"]
    assert {row.state for row in tuned.rows} == {"complete", "pruned", "failed"}
    assert {row.outcome.fault for row in tuned.rows if row.state == "failed"} == {"the training diverges"}


def test_an_interrupted_search_tries_the_same_as_one_that_is_not(data: Interactions, tmp_path: Path) -> None:
    whole = searched(data, 13)  # in memory; the last ones are not drawn at random any more
    with pytest.raises(KeyboardInterrupt):
        searched(data, 13, tmp_path / "cut", stop_at=11)
    assert told(searched(data, 12, tmp_path / "cut", resume=True)) == told(whole)[:12]
    assert told(searched(data, 13, tmp_path / "cut", resume=True)) == told(whole)
    assert told(searched(data, 4, tmp_path / "cut", resume=True)) == told(whole)[:4]


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("named", ["optuna.Study.ask", "optuna.Trial.suggest_float"])
def test_a_trial_whose_settings_were_half_drawn_goes_on(
    named: str, number: int, data: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = {"num_factors": Between(2, 9), "learning_rate": Between(0.1, 1.0), "num_rounds": Between(1, 4)}
    whole, folder = searched(data, 5, spaces=spaces), tmp_path / "cut"
    if number:
        searched(data, number, folder, spaces=spaces)

    def interrupted(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(named, interrupted)
        with pytest.raises(KeyboardInterrupt):
            searched(data, 5, folder, resume=bool(number), spaces=spaces)
    tuned = searched(data, 5, folder, resume=True, spaces=spaces)
    assert [row.number for row in tuned.rows] == [0, 1, 2, 3, 4]
    assert told(tuned)[:number] == told(whole)[:number]
    assert all(row.settings.keys() == spaces.keys() for row in tuned.rows)
    assert told(tuned)[0] == told(whole)[0]


KILLED = """
import os, signal
from pathlib import Path
import hushrec
import hushrec.tuning.bench
from hushrec.runs.run_settings import settings_for
from hushrec.tuning import prepared_search
made = []
def make(self, attempt, on_point):
    made.append(1)
    on_point(1, 1.0)
    if len(made) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return hushrec.tuning.bench.Outcome({"RMSE": attempt.values.get("learning_rate", 1.0)}, 1)
hushrec.tuning.bench.Bench.make = make
data = hushrec.load("synthetic:users=60,items=40,ratings=900")
settings = settings_for(hushrec.SYSTEMS["pmf"], measure="validation", data=data)
prepared_search("pmf", {}, data, settings, (), ["learning_rate"], 6, 1, True, Path("DIR"), False)
"""


def test_a_kill_loses_only_what_was_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tuned"
    done = subprocess.run([sys.executable, "-c", KILLED.replace("DIR", str(folder))], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()

    def make(_self: Bench, attempt: Attempt, _on_point: OnPoint) -> Outcome:
        return Outcome({"RMSE": attempt.values.get("learning_rate", 1.0)}, 1)

    monkeypatch.setattr(Bench, "make", make)
    data = hushrec.load(DATA)
    settings = settings_for(SYSTEMS["pmf"], measure="validation", data=data)
    numbers = list[int]()
    tuned = prepared_search(
        "pmf", {}, data, settings, (), ["learning_rate"], 6, 1, True, folder, True,
        lambda rows: numbers.append(len(rows)),
    )  # fmt: skip
    assert numbers == [3, 4, 5, 6]  # three were kept
    assert len(tuned.rows) == 6


def test_nothing_on_disk_is_pickled(data: Interactions, tmp_path: Path) -> None:
    searched(data, 3, tmp_path / "tuned")
    assert sorted(path.name for path in (tmp_path / "tuned").iterdir()) == [".lock", "study.db"]
    with closing(sqlite3.connect(tmp_path / "tuned" / "study.db")) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [cell for table in tables for row in base.execute(f"SELECT * FROM {table}") for cell in row]
    base.close()
    assert any("learning_rate" in str(cell) for cell in cells)
    assert not any(isinstance(cell, bytes) for cell in cells)


def test_folders_are_not_mixed(data: Interactions, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    searched(data, 2, folder)
    with pytest.raises(HushrecError, match="holds trials already; add resume=True to go on"):
        searched(data, 2, folder)
    with pytest.raises(HushrecError, match="holds trials with other measures; choose another out="):
        searched(data, 2, folder, resume=True, measures=("RMSE", "bytes"))
    other = {"learning_rate": Between(0.1, 2.0)}
    with pytest.raises(HushrecError, match="holds trials with other spaces"):
        searched(data, 2, folder, resume=True, spaces=other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(HushrecError, match="something else than trials"):
        searched(data, 2, tmp_path / "full")
    with pytest.raises(HushrecError, match="is a file; choose a folder"):
        searched(data, 2, tmp_path / "full" / "thesis.txt")
    with pytest.raises(HushrecError, match="cannot be made"):
        searched(data, 2, tmp_path / "full" / "thesis.txt" / "below")


def test_a_damaged_file_is_one_line(data: Interactions, tmp_path: Path) -> None:
    searched(data, 2, tmp_path / "tuned")
    (tmp_path / "tuned" / "study.db").write_bytes(b"no database at all" * 200)
    with pytest.raises(HushrecError, match="is damaged, or its disk is full"):
        searched(data, 2, tmp_path / "tuned", resume=True)


def test_if_nothing_can_be_measured_the_reason_is_told(data: Interactions) -> None:
    tuned = searched(data, 1, spaces={"learning_rate": Between(1.5, 2.0)})
    failed = replace(tuned, rows=(Row(0, {}, Outcome({}, fault="the training diverges", is_diverged=True)),))
    with pytest.raises(HushrecError, match="no trial could be measured; the last: the training diverges"):
        _ = failed.best_row


def test_absurd_numbers_are_refused(data: Interactions) -> None:
    bench = Bench("pmf", data, settings_for(SYSTEMS["pmf"], data=data), ("RMSE",))
    with pytest.raises(HushrecError, match="trials=0: one trial at least"):
        Search(bench, {}, SPACES, 0)
    with pytest.raises(HushrecError, match="jobs=0: choose 1 to 256"):
        Search(bench, {}, SPACES, 1, 0)


# --- Several measures --------------------------------------------------------------------------------------------


def brute_front(points: Sequence[tuple[float, ...]]) -> set[int]:
    """Places of the points of which no other is as small in all and smaller in one."""
    return {
        place
        for place, own in enumerate(points)
        if not any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in points)
    }


def test_the_front_is_what_nothing_beats() -> None:
    draws = np.random.default_rng(5)
    points = [tuple(row) for row in draws.integers(0, 6, (60, 3)).tolist()]
    rows = tuple(
        Row(number, {}, Outcome({"NDCG@10": -one, "bytes": two, "leakage": three}))
        for number, (one, two, three) in enumerate(points)
    )
    tuned = Tuned("fedrec-bpr", ("NDCG@10", "bytes", "leakage"), {}, rows)
    assert {row.number for row in tuned.front} == brute_front(points)
    assert tuned.best_row.measured["NDCG@10"] == max(row.measured["NDCG@10"] for row in rows)


def test_several_measures_give_up_nothing(data: Interactions) -> None:
    tuned = searched(data, 12, measures=("RMSE", "bytes", "leakage"))
    assert {row.state for row in tuned.rows} == {"complete", "failed"}
    assert len(tuned.front) > 1


# --- Real trainings ----------------------------------------------------------------------------------------------


def really(data: Interactions, num_jobs: int = 1, measures: Sequence[str] = (), **fixed: object) -> Tuned:
    values = {"preset": "paper", "num_factors": 5, **fixed}
    settings = settings_for(SYSTEMS["pmf"], measure="validation", data=data)
    over = ["learning_rate=0.1..1", "rounds=1..4"]
    return prepared_search("pmf", values, data, settings, measures, over, 3, num_jobs, True, None, False)


def test_test_rows_have_no_influence(data: Interactions) -> None:
    """Ratings of the first fold's test part are turned around: nothing changes. Those of another row do count."""
    system = SYSTEMS["pmf"]
    settings = settings_for(system, data=data)
    test = next(splits_for(system, data, settings, system.configure({}))).test
    pairs = set(zip(test.users.tolist(), test.items.tolist(), strict=True))
    is_test = np.array([pair in pairs for pair in zip(data.users.tolist(), data.items.tolist(), strict=True)])
    assert is_test.sum() == len(test)
    assert data.ratings is not None
    low, high = data.rating_range or (1.0, 5.0)
    turned = replace(data, ratings=np.where(is_test, low + high - data.ratings, data.ratings).astype(np.float32))
    trained = replace(data, ratings=np.where(is_test, data.ratings, low + high - data.ratings).astype(np.float32))

    def measured(rows: Interactions) -> list[dict[str, float]]:
        return [row.measured for row in really(rows).rows]

    first = measured(data)
    assert all(first)
    assert measured(turned) == first
    assert measured(trained) != first


def test_two_at_once_measure_what_one_does(data: Interactions) -> None:
    """Random trials, so that those at once do not depend on each other; bytes are those of the transcript."""
    one, two = really(data, 1, ["RMSE", "bytes"]), really(data, 2, ["RMSE", "bytes"])
    assert [row.measured for row in two.rows] == [row.measured for row in one.rows]
    assert all(row.measured["bytes"] > 0 for row in one.rows)


def test_refused_settings_end_the_search_and_leave_no_folder_behind(data: Interactions, tmp_path: Path) -> None:
    """Of the first trial: all others have the same fault."""
    settings = settings_for(SYSTEMS["fedrec++"], measure="validation", data=data)
    given = {"preset": "paper", "denoisers": 41, "num_rounds": 2}
    with pytest.raises(HushrecError, match="41 denoisers for 60 clients leave some denoiser alone"):
        prepared_search("fedrec++", given, data, settings, (), (), 3, 1, True, tmp_path / "tuned", False)
    assert not (tmp_path / "tuned" / "study.db").exists()


# --- From Python -------------------------------------------------------------------------------------------------

QUICK = ["learning_rate=0.1..1", "rounds=1..3"]


def test_a_frame_is_tuned_on_and_the_trials_are_a_frame(data: Interactions) -> None:
    frame = data.to_polars().rename({"user": "who", "item": "what"})
    columns = {"user": "who", "item": "what"}
    model = hushrec.PMF(preset="paper", num_factors=5, seed=2)
    tuned = hushrec.tune(model, frame, trials=3, over=QUICK, columns=columns, progress=False)
    again = hushrec.tune(model, data, trials=3, over=QUICK)
    assert [row.measured for row in tuned.rows] == [row.measured for row in again.rows]
    assert tuned.to_polars()["trial"].to_list() == tuned.to_pandas()["trial"].tolist() == [0, 1, 2]
    assert "<th>learning_rate</th>" in tuned._repr_html_()
    assert tuned.best.settings == {"preset": "paper", "num_factors": 5, **tuned.best_row.settings}
    assert tuned.best.seed == 2


def test_trials_are_counted_for_who_looks(data: Interactions, capsys: pytest.CaptureFixture[str]) -> None:
    hushrec.tune("pmf", data, trials=2, over=QUICK, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert "tune pmf" in told.err
    assert "trial 2/2" in told.err


def test_what_cannot_be_tuned_is_one_line(data: Interactions, tmp_path: Path) -> None:
    hushrec.tune("pmf", data, trials=1, over=QUICK, out=tmp_path)
    wrong = {
        "int cannot be tuned; give the name of a system, or an estimator": lambda: hushrec.tune(5, data),  # type: ignore[arg-type]
        "trials=0: one trial at least": lambda: hushrec.tune("pmf", data, trials=0),
        "over='rho': pmf has no such setting": lambda: hushrec.tune("pmf", data, over="rho"),
        "measure='NDCG@10': pmf is measured by": lambda: hushrec.tune("pmf", data, measure="NDCG@10"),
        "add resume=True to go on with them, or choose another out=": lambda: hushrec.tune(
            "pmf", data, trials=1, over=QUICK, out=tmp_path
        ),
    }
    for words, wish in wrong.items():
        with pytest.raises(HushrecError, match=words) as caught:
            wish()
        assert "--" not in str(caught.value)


def test_the_database_is_quiet_while_a_study_is_open(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It logs the traceback of a Ctrl-C that comes while it puts a connection back: nothing for a terminal."""
    database = logging.getLogger("sqlalchemy.pool.impl.NullPool")
    with quiet():
        database.error("Exception during reset or similar", exc_info=KeyboardInterrupt())
    assert (capsys.readouterr().err, caplog.records) == ("", [])
    database.error("as before")
    assert [record.message for record in caplog.records] == ["as before"]
