import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from hushrec.errors import HushrecError
from hushrec.runs.following import Begun, RoundTold, Teller, process_mark
from hushrec.runs.record import read_run
from hushrec.ui.asking import Query
from hushrec.ui.index import RunIndex, run_folders
from hushrec.ui.rows import best_of, leakage_of

from .made_runs import NUM_ROUNDS, made_run, make_runs


@pytest.fixture
def index(runs_folder: Path) -> RunIndex:
    make_runs(runs_folder, 24, audited_every=6)
    found = RunIndex(runs_folder, runs_folder / ".hushrec")
    found.look()
    return found


def ids(index: RunIndex, filter: str = "", **others: object) -> list[str]:
    return [row["id"] for row in index.page(Query(filter, **others))["rows"]]  # type: ignore[arg-type]


def numbers(index: RunIndex, filter: str) -> set[int]:
    return {int(one[-5:]) for one in ids(index, filter)}


def test_it_knows_every_run_and_what_is_in_it(index: RunIndex) -> None:
    page = index.page(Query("run-00007"))
    (row,) = page["rows"]
    wanted = made_run(7)
    assert (row["system"], row["seed"], row["state"], row["rounds"]) == (wanted["system"], 7, "done", NUM_ROUNDS)
    assert json.loads(bytes(row["last"])) == wanted["folds"][0]["metrics"]
    assert row["bytes"] == wanted["folds"][0]["sent_bytes"]["client->server"]
    assert index.page(Query())["total"] == 24
    assert page["metrics"] == ["MAE", "NDCG@10", "RMSE"]


@pytest.mark.parametrize(
    ("filter", "is_wanted"),
    [
        ("rho=3", lambda run: run["config"]["rho"] == 3),
        (
            "factors>=20 system=fedrec",
            lambda run: run["config"]["num_factors"] >= 20 and run["system"] == "fedrec",
        ),
        ("biases=true", lambda run: run["config"]["biases"]),
        ("RMSE<1.0", lambda run: run["folds"][0]["metrics"]["RMSE"] < 1.0),
        ("ndcg@10>0.45", lambda run: run["folds"][0]["metrics"]["NDCG@10"] > 0.45),
        ("ml-1m", lambda run: run["data"] == "ml-1m"),
        (
            "data!=ml-1m learning-rate=0.4",
            lambda run: run["data"] != "ml-1m" and run["config"]["learning_rate"] == 0.4,
        ),
    ],
)
def test_filters_are_those_of_the_runs(index: RunIndex, filter: str, is_wanted: object) -> None:
    wanted = {number for number in range(24) if is_wanted(made_run(number))}  # type: ignore[operator]
    assert wanted
    assert wanted < set(range(24))
    assert numbers(index, filter) == wanted


@pytest.mark.parametrize("filter", ["nothing=3", "rho'; drop table runs; --=3", 'RM"SE<1'])
def test_a_name_that_no_run_has_is_refused(index: RunIndex, filter: str) -> None:
    with pytest.raises(HushrecError, match=r"no run has .*; use one of name, system"):
        ids(index, filter.replace(" ", "_"))
    assert len(ids(index)) == 24


@pytest.mark.parametrize("word", ["%", "_", "'", '"', "\\", "run'--"])
def test_a_word_is_only_a_word(index: RunIndex, word: str) -> None:
    assert ids(index, word) == []


def test_it_sorts_by_anything_and_pages(index: RunIndex) -> None:
    values = {number: made_run(number)["folds"][0]["metrics"]["RMSE"] for number in range(24)}
    wanted = sorted(values, key=lambda number: values[number])
    assert [int(one[-5:]) for one in ids(index, sort="RMSE", descending=False)] == wanted
    assert [int(one[-5:]) for one in ids(index, sort="RMSE", descending=True, limit=5, offset=5)] == wanted[::-1][
        5:10
    ]


def test_what_has_no_value_comes_last_either_way(index: RunIndex) -> None:
    audited = {0, 6, 12, 18}
    for descending in (True, False):
        found = [int(one[-5:]) for one in ids(index, sort="leakage", descending=descending)]
        assert set(found[:4]) == audited


def test_groups_have_the_best_by_the_metrics_own_direction(index: RunIndex) -> None:
    runs = [made_run(number) for number in range(24)]
    for metric, pick in (("RMSE", min), ("NDCG@10", max)):
        for one in index.groups(Query(), "rho", metric):
            own = [run["folds"][0]["metrics"][metric] for run in runs if run["config"]["rho"] == one["value"]]
            assert one["count"] == len(own)
            assert one["best"] == pick(own)
            assert one["mean"] == pytest.approx(sum(own) / len(own))


def test_the_best_of_a_curve_is_by_the_metrics_own_direction(runs_folder: Path) -> None:
    make_runs(runs_folder, 1)
    path = runs_folder / "batch-000" / "run-00000" / "run.json"
    run = json.loads(path.read_bytes())
    run["folds"][0]["curve"] = {"RMSE": [1.2, 0.8, 0.9], "NDCG@10": [0.1, 0.3, 0.2]}
    path.write_text(json.dumps(run))
    found = best_of(read_run(path.parent), None)
    assert (found["RMSE"], found["NDCG@10"]) == (0.8, 0.3)


def test_leakage_is_how_far_the_strongest_attack_is_above_a_blind_guess(runs_folder: Path) -> None:
    make_runs(runs_folder, 7, audited_every=6)
    score = (6 * 7919 % 1000) / 1000
    folder = runs_folder / "batch-000"
    assert leakage_of(folder / "run-00006") == pytest.approx((score - 0.05) / 0.95)
    assert leakage_of(folder / "run-00000") == 0.0  # below chance
    assert leakage_of(folder / "run-00001") is None


# --- Changes -----------------------------------------------------------------------------------------------------


def test_only_what_has_changed_is_read_again(
    index: RunIndex, runs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    from hushrec.ui import index as module

    row_of = module.row_of
    monkeypatch.setattr(
        module, "row_of", lambda folder, run_id, mark: read.append(run_id) or row_of(folder, run_id, mark)
    )
    index.look()
    assert read == []
    path = runs_folder / "batch-000" / "run-00003" / "run.json"
    run = json.loads(path.read_bytes()) | {"seed": 999}
    path.write_text(json.dumps(run))
    index.look()
    assert read == ["batch-000/run-00003"]
    assert index.page(Query("seed=999"))["total"] == 1


def test_what_is_gone_is_forgotten(index: RunIndex, runs_folder: Path) -> None:
    (runs_folder / "batch-000" / "run-00003" / "run.json").unlink()
    index.look()
    assert numbers(index, "") == set(range(24)) - {3}


@pytest.mark.parametrize("damage", ["lost", "rubbish", "cut", "other"])
def test_an_index_that_is_lost_or_damaged_is_made_anew(index: RunIndex, runs_folder: Path, damage: str) -> None:
    path = runs_folder / ".hushrec" / "index.sqlite"
    index.tag("batch-000/run-00003", ["good"])
    for other in path.parent.glob("index.sqlite-*"):
        other.unlink()
    if damage == "lost":
        path.unlink()
    elif damage == "rubbish":
        path.write_bytes(b"rubbish" * 1000)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        path.unlink()
        with sqlite3.connect(path) as database:
            database.execute("create table runs (something)")
            database.execute("pragma user_version = 2")
        database.close()
    again = RunIndex(runs_folder, runs_folder / ".hushrec")
    again.look()
    assert again.page(Query())["total"] == 24
    assert ids(again, "tag:good") == ["batch-000/run-00003"]


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(index: RunIndex, runs_folder: Path) -> None:
    (runs_folder / "batch-000" / "run-00003" / "run.json").write_text("{")
    index.look()
    (row,) = index.page(Query("state=unreadable"))["rows"]
    assert row["id"] == "batch-000/run-00003"
    assert "is damaged" in row["fault"]


def test_folders_in_runs_hidden_ones_and_links_are_not_looked_into(runs_folder: Path) -> None:
    make_runs(runs_folder, 2)
    inside = runs_folder / "batch-000" / "run-00000"
    make_runs(inside / "validation", 1)
    make_runs(runs_folder / ".hidden", 1)
    os.symlink(runs_folder, runs_folder / "loop")
    assert sorted(run_id for run_id, _ in run_folders(runs_folder)) == [
        "batch-000/run-00000",
        "batch-000/run-00001",
    ]


def test_a_run_that_goes_on_is_told_by_its_process(runs_folder: Path) -> None:
    folder = runs_folder / "now"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(made_run(1) | {"folds": []}))
    teller = Teller(folder)
    teller.tell(Begun(time.time(), os.getpid(), process_mark(os.getpid()), "pmf", 1))
    teller.tell(RoundTold(time.time(), 1, 1, 9, 0.5, {"RMSE": 1.5}, {"Ratings": 10}))
    teller.tell(RoundTold(time.time(), 1, 2, 9, 1.0, {"RMSE": 1.25}, {"Ratings": 10}))
    index = RunIndex(runs_folder, runs_folder / ".hushrec")
    index.look()
    (row,) = index.page(Query())["rows"]
    assert (row["state"], row["rounds"], row["bytes"]) == ("running", 2, 20)
    assert json.loads(bytes(row["last"])) == {"RMSE": 1.25}
    teller.tell(Begun(time.time(), 2**22 + 1, "1", "pmf", 1))  # no such process: it was killed
    index.look()
    assert index.page(Query())["rows"][0]["state"] == "stopped"


def test_a_setting_may_be_the_word_none(runs_folder: Path) -> None:
    """Many are: `padding`, `robust`. A run that has no such setting has none either."""
    for name, padding in (("a", {"padding": "none"}), ("b", {"padding": "two words"}), ("c", {})):
        (runs_folder / name).mkdir()
        run = made_run(1)
        (runs_folder / name / "run.json").write_text(json.dumps(run | {"config": run["config"] | padding}))
    index = RunIndex(runs_folder, runs_folder / ".hushrec")
    index.look()
    assert sorted(ids(index, "padding=none")) == ["a", "c"]
    assert ids(index, "padding!=none") == ids(index, 'padding="two words"') == ["b"]
    assert ids(index, "padding=") == ["c"]


@pytest.mark.parametrize("file", ["run.json", "rounds.jsonl", "audit.json"])
def test_a_pipe_in_a_runs_folder_is_not_waited_for(index: RunIndex, runs_folder: Path, file: str) -> None:
    folder = runs_folder / "batch-000" / "run-00004"
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    index.look()
    (row,) = index.page(Query("state=unreadable"))["rows"]
    assert (row["name"], row["fault"]) == (
        "run-00004",
        f"run-00004/{file} is no file; delete the folder and run again",
    )


# --- Tags --------------------------------------------------------------------------------------------------------


def test_tags_are_words_that_can_be_looked_for(index: RunIndex) -> None:
    assert index.tag("batch-000/run-00003", [" good ", "to  show", "", "good"]) == ["good", "to show"]
    assert ids(index, "tag:GOOD") == ids(index, "show") == ids(index, 'tag:"to show"') == ["batch-000/run-00003"]
    assert index.tag("batch-000/run-00003", []) == []
    assert ids(index, "tag:good") == []


def test_tags_have_bounds(index: RunIndex) -> None:
    for tags in (["x" * 41], [str(number) for number in range(21)]):
        with pytest.raises(HushrecError, match="a run may have 20 tags of 40 letters"):
            index.tag("batch-000/run-00003", tags)


@pytest.mark.parametrize("filter", ["RMSE<0,95", "best:RMSE<low", "rounds>many"])
def test_a_number_is_compared_with_numbers_alone(index: RunIndex, filter: str) -> None:
    """SQLite has every text after every number, so that a slip of the keyboard would fit all runs."""
    with pytest.raises(HushrecError, match=r"is a number, and .* is none; compare it with one, as in"):
        ids(index, filter)


def test_settings_are_compared_with_values_of_their_kind(index: RunIndex) -> None:
    assert ids(index, "rho>=0") != []
    assert ids(index, "rho<many") == ids(index, "rho>many") == []
    assert numbers(index, "started<2026-03") == {0, 1, 12, 13}  # by the month of the year


@pytest.mark.parametrize(
    ("filter", "num_found"),
    [("seed=99999999999999999999999", 0), (f"rounds<{'9' * 400}", 24), (f"rounds<-{'9' * 400}", 0), ("a\0b", 0)],
)
def test_numbers_may_be_of_any_size(index: RunIndex, filter: str, num_found: int) -> None:
    assert len(ids(index, filter)) == num_found


def test_a_folder_that_cannot_be_read_keeps_no_other_from_being_listed(runs_folder: Path) -> None:
    """Broken, half-written, of another kind, with numbers that SQLite has not, with a name that is no text."""
    make_runs(runs_folder, 3)
    usual = json.dumps(made_run(1))
    large = made_run(1)
    large["seed"] = 2**70
    large["folds"][0]["sent_bytes"] = {"client->server": 10**30}
    texts = {"empty": "", "half": usual[:300], "list": "[]", "null": "null", "deep": "[" * 100_000,
             "none": '{"system": null}'}  # fmt: skip
    for name, text in {**texts, "large": json.dumps(large), os.fsdecode(b"bad-\xff"): usual}.items():
        (runs_folder / name).mkdir()
        (runs_folder / name / "run.json").write_text(text)
    (runs_folder / "folder" / "run.json").mkdir(parents=True)
    index = RunIndex(runs_folder, runs_folder / ".hushrec")
    index.look()
    rows = {row["id"]: row for row in index.page(Query())["rows"]}
    assert {name for name, row in rows.items() if row["state"] == "unreadable"} == {*texts, "folder"}
    assert all(rows[name]["fault"].startswith(f"{name}/run.json is damaged") for name in texts)
    assert rows["large"]["bytes"] == pytest.approx(1e30)
    assert len(rows) == 3 + len(texts) + 2
