import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hushrec.cli.app import app as whole_app
from hushrec.cli.audit import app
from hushrec.errors import HushrecError

DATA = "synthetic:users=80,items=50,ratings=1500"
SHORT = ["--data", DATA, "--rounds", "4", "--num-factors", "5"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result


def attacks(*arguments: str) -> dict[str, dict]:
    result = invoke(*arguments, "--json")
    assert len(result.stdout.splitlines()) == 1
    said = json.loads(result.stdout)
    assert list(said) == ["attacks"]
    for attack in said["attacks"]:
        assert list(attack) == ["name", "role", "score", "chance", "interval", "rounds"]
        assert attack["role"] == "server"
        low, high = attack["interval"]
        assert low <= attack["score"] <= high
    return {attack["name"]: attack for attack in said["attacks"]}


def test_virtual_items_hide_until_lists_are_compared() -> None:
    """rho 1: half of a list is rated, so F1 = 2/3 at most; rated items are in every list, others in some."""
    found = attacks("fedrec", *SHORT, "--rho", "1")
    assert 0.66 < found["listed items"]["score"] < 0.72
    frequency = found["upload frequency"]
    assert frequency["rounds"][0] == 0.5
    assert len(frequency["rounds"]) == 4
    assert frequency["score"] == frequency["rounds"][-1] > 0.8


def test_lists_drawn_once_cannot_be_compared() -> None:
    found = attacks("fedrec", *SHORT, "--rho", "1", "--resample", "once")
    assert found["upload frequency"]["rounds"] == [0.5] * 4


def test_without_virtual_items_the_list_is_the_truth() -> None:
    """Then counting how often an item is listed has nothing to tell apart, and is left out."""
    plain = ["fedrec", *SHORT, "--rho", "0", "--filling", "none"]
    found = attacks(*plain)
    assert list(found) == ["listed items"]
    assert found["listed items"]["score"] == 1.0
    assert "upload frequency: left out" in invoke(*plain).stderr


def test_a_round_without_uploads_does_not_lower_a_score() -> None:
    """PMF's clients hand over all ratings in round 1 and are not asked again."""
    found = attacks("pmf", *SHORT)["listed items"]
    assert found["score"] == 1.0
    assert found["rounds"] == [1.0, None, None, None]


def test_threads_change_nothing() -> None:
    one, two = (attacks("fedrec", *SHORT, "--threads", threads) for threads in ("1", "2"))
    assert one == two


def test_a_kept_run_is_made_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "one")
    result = CliRunner().invoke(whole_app, ["run", "fedrec", *SHORT, "--rho", "1", "--out", folder])
    assert result.exit_code == 0
    assert attacks(folder) == attacks("fedrec", *SHORT, "--rho", "1")
    assert "other numbers" not in invoke(folder).stderr


def test_a_run_that_ends_elsewhere_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    CliRunner().invoke(whole_app, ["run", "fedrec", *SHORT, "--out", str(folder)])
    kept = json.loads((folder / "run.json").read_text())
    kept["config"]["rho"] = 1
    (folder / "run.json").write_text(json.dumps(kept))
    assert "ended in other numbers than those kept" in invoke(str(folder)).stderr


def test_table_has_a_line_and_a_sentence_for_each_attack() -> None:
    result = invoke("fedrec", *SHORT)
    lines = result.stdout.splitlines()
    assert lines[0] == "fedrec on synthetic on synthetic data, seed 0, 4 rounds"
    assert lines[1].split() == [
        *("attack", "by", "guesses", "measure", "score", "95%", "chance", "round", "1", "last"),
    ]
    assert lines[2].startswith("listed items ")
    assert lines[3].startswith("upload frequency ")
    assert lines[4].startswith("listed items: Taking every item")
    assert lines[5].startswith("upload frequency: Of one of the user's own items")


def test_no_attack_that_applies_is_no_proof() -> None:
    metamf = ["metamf", "--data", DATA, "--rounds", "1"]
    assert attacks(*metamf) == {}
    assert "that is no proof that they reveal nothing" in invoke(*metamf).stdout


def test_neither_a_system_nor_a_folder(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match=r"nowhere is neither a system \(pmf, .*\) nor the folder of a run"):
        invoke("nowhere")
    with pytest.raises(HushrecError, match="is not a run"):
        invoke(str(tmp_path))


def test_help_lists_systems_and_no_placeholder() -> None:
    said = invoke("--help").stdout
    assert "fedrec++" in said
    assert "│ RUN" not in said
