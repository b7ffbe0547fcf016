"""What `run drift` and `run saros` print."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hushrec.cli.verbs import app
from hushrec.data import load, owned
from hushrec.data.holdings.owners import owners_of
from hushrec.runs.record import read_run

DATA = "synthetic:users=60,items=40,ratings=1500"


def printed(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, ["run", *arguments, "--epochs", "2", "--parts", "2"], catch_exceptions=False)
    assert result.exit_code == 0
    return [line.rstrip() for line in result.stdout.splitlines()]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def test_owners_metrics_and_facts(tmp_path: Path) -> None:
    lines = printed("drift", "--data", DATA, "--owners", "3", "--out", str(tmp_path / "run"))
    done = read_run(tmp_path / "run")
    owners, fold = owners_of(owned(load(DATA), "3", 0)), done.folds[0]
    assert done.provenance.names == owners.names
    assert lines[1] == "3 owners: owner1, owner2, owner3"
    per_item = len(owners.owners) / load(DATA).num_items
    per_event = np.diff(owners.starts)[load(DATA).items].mean()
    assert lines[2] == f"{per_item:.2f} owners per item and {per_event:.2f} per interaction"
    assert lines[3].split() == ["metric", "mean", "std", "epoch", "1"]
    rows = {line.rsplit(maxsplit=3)[0]: line.split()[-3:] for line in lines[4:14]}
    assert set(rows) == {f"{name}@{k}" for name in ("MAP", "NDCG") for k in (1, 5, 10, 20)} | {
        "train loss",
        "test loss",
    }
    for name, (mean, _, first) in rows.items():
        assert (mean, first) == (f"{fold.curve[name][-1]:.4f}", f"{fold.curve[name][0]:.4f}")
    facts = [line for line in lines if line.startswith(("messages ", "interactions "))]
    assert len({len(line) for line in facts}) == 1, "numbers are aligned to the right"
    accepted = f"{fold.facts['interactions accepted']:,.0f}"
    assert facts[0].split() == ["interactions", "accepted:", accepted]


def test_all_metrics_are_in_the_json() -> None:
    (line,) = printed("saros", "--data", DATA, "--json")
    assert "HR@10" in json.loads(line)["mean"]


def test_saros_has_no_owners_to_tell() -> None:
    lines = printed("saros", "--data", DATA)
    assert lines[1].split()[0] == "metric"


def test_another_deal_is_not_gone_on_with(tmp_path: Path) -> None:
    """Neither with more owners, nor with as many others."""
    folder, others = str(tmp_path / "run"), tmp_path / "others.tsv"
    printed("drift", "--data", DATA, "--owners", "3", "--out", folder)
    others.write_text("".join(f"{item}\tshop{item % 3}\n" for item in load(DATA).item_ids.tolist()))
    for owners, told in (
        ("4", "holds a run with owners 3, not 4; choose another --out"),
        (str(others), "holds a run with holding 3 owners: owner1, owner2, owner3; "),
    ):
        more = ["--epochs", "2", "--parts", "2", "--out", folder, "--resume"]
        result = CliRunner().invoke(app, ["run", "drift", "--data", DATA, "--owners", owners, *more])
        assert told in str(result.exception)


def test_a_test_part_without_a_completed_block_has_no_loss_and_the_run_can_be_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    lines = printed(
        "drift", "--data", "synthetic:users=40,items=30,ratings=200", "--owners", "3", "--out", str(run)
    )
    assert any(line.startswith("train loss") for line in lines)
    assert not any(line.startswith("test loss") for line in lines)
    assert "test loss" not in read_run(run).folds[0].curve
    page = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", str(run), "--out", str(page)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Mean loss of blocks" in page.read_text()


def test_means_and_deviations_are_of_all_folds(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    lines = printed("drift", "--data", DATA, "--owners", "3", "--split", "folds", "--folds", "2", "--out", run)
    done = read_run(Path(run))
    rows = {
        line.rsplit(maxsplit=3)[0]: line.split()[-3:] for line in lines if line.startswith(("NDCG", "test loss"))
    }
    for name, (mean, std, first) in rows.items():
        one, other = (fold.curve[name] for fold in done.folds)
        expected = (one[-1] + other[-1]) / 2, abs(one[-1] - other[-1]) / 2, (one[0] + other[0]) / 2
        assert (mean, std, first) == tuple(f"{value:.4f}" for value in expected)


def test_nothing_to_measure_is_said_before_training(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("user,item,rating,timestamp\na,x,5,1\na,y,1,2\n")
    result = CliRunner().invoke(app, ["run", "drift", "--data", str(path), "--owners", "1"])
    told = "two.csv: --test-share 0.2 of at most 2 rows a user is less than one"
    assert str(result.exception).startswith(told)


def test_items_that_changed_hands_are_not_gone_on_with(tmp_path: Path) -> None:
    """As many owners with as many items each, and as many events: only the table tells."""
    ratings, owners = tmp_path / "ratings.csv", tmp_path / "owners.tsv"
    rows = [f"u{user},i{item},{1 + 4 * ((user + item) % 2)},{time}" for time, (user, item) in enumerate(PAIRS)]
    ratings.write_text("\n".join(["user,item,rating,timestamp", *rows]) + "\n")
    arguments = ["drift", "--data", str(ratings), "--owners", str(owners), "--out", str(tmp_path / "run")]
    held = {f"i{item}": "a" if item < 5 else "b" for item in range(10)}
    owners.write_text("".join(f"{item}\t{owner}\n" for item, owner in held.items()))
    printed(*arguments)
    held["i0"], held["i5"] = held["i5"], held["i0"]
    owners.write_text("".join(f"{item}\t{owner}\n" for item, owner in held.items()))
    record = tmp_path / "run" / "run.json"
    kept = json.loads(record.read_text()) | {"folds": []}  # as if it were not finished
    del kept["checksum"]
    record.write_text(json.dumps(kept))
    result = CliRunner().invoke(app, ["run", *arguments, "--epochs", "2", "--parts", "2", "--resume"])
    assert "was trained on other rows or owners of" in str(result.exception)


PAIRS = [(user, item) for item in range(10) for user in range(8)]
