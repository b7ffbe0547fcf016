"""What `run drift` and `run saros` print."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushrec.cli.app import app
from hushrec.experiments.record import read_run

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
    owners, fold = done.provenance.owners, done.folds[0]
    assert owners is not None
    assert lines[1] == "3 owners: owner1, owner2, owner3"
    per_item, per_event = owners.owners_per_item, owners.owners_per_interaction
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
    folder = str(tmp_path / "run")
    printed("drift", "--data", DATA, "--owners", "3", "--out", folder)
    more = ["--epochs", "2", "--parts", "2", "--out", folder, "--resume"]
    result = CliRunner().invoke(app, ["run", "drift", "--data", DATA, "--owners", "4", *more])
    assert result.exception is not None
    assert "holds a run with owners" in str(result.exception)
