"""What the command line says of what it chose."""

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import hushrec.cli.work.deploy_run
from hushrec.cli.verbs import app
from hushrec.deploy.orders import Order
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run

SHORT = ["fedrec", "--data", "synthetic:users=80,items=50,ratings=1500", "--num-factors", "5", "--threads", "1"]
PRESET = "preset general: synthetic is in no published table of fedrec; --preset paper has the paper's settings"


@pytest.fixture(autouse=True)
def _general(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedRec has settings for data of no paper."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    system = SYSTEMS["fedrec"]
    presets = {"paper": {}, "general": {"num_rounds": 40, "regularization": 0.002}}
    about = replace(system.about, presets=presets, published_on=("ml-100k",))
    monkeypatch.setitem(SYSTEMS._loaded, "fedrec", replace(system, about=about))


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_a_strangers_file_is_told_what_was_chosen_and_how_to_fix_it(tmp_path: Path) -> None:
    first = invoke("run", *SHORT, "--out", str(tmp_path / "one"))
    kept = read_run(tmp_path / "one")
    rounds = kept.config["num_rounds"]
    lines = first.stderr.splitlines()
    assert lines.count(PRESET) == 1
    (chosen,) = [line for line in lines if line.startswith(f"{rounds} rounds: the best RMSE on a validation part")]
    flags = f"--preset general --rounds {rounds}"
    assert f"the same run at once, with nothing left to choose: add {flags}" in lines
    again = invoke("run", *SHORT, *flags.split(), "--out", str(tmp_path / "two"))
    assert "chosen" not in again.stderr
    assert read_run(tmp_path / "two").folds[0].model_sha256 == kept.folds[0].model_sha256
    resumed = invoke("run", *SHORT, "--out", str(tmp_path / "one"), "--resume")
    assert resumed.stdout == first.stdout
    assert {PRESET, chosen} <= set(resumed.stderr.splitlines())


def test_json_says_who_chose_what() -> None:
    said = json.loads(invoke("run", *SHORT, "--json").stdout)
    assert [entry["setting"] for entry in said["chosen"]] == ["preset", "num_rounds"]
    assert said["chosen"][0] == {
        "setting": "preset",
        "value": "general",
        "why": PRESET,
        "flag": "--preset general",
    }
    assert said["config"]["num_rounds"] == said["chosen"][1]["value"]
    named = json.loads(invoke("run", *SHORT, "--preset", "paper", "--rounds", "3", "--json").stdout)
    assert "chosen" not in named


def test_flags_turn_it_on_and_off() -> None:
    on = invoke("run", *SHORT, "--preset", "paper", "--rounds", "5", "--stop-early")
    assert "1 round: the best RMSE on a validation part" in on.stderr  # as yet none is better than another
    off = invoke("run", *SHORT, "--no-stop-early", "--rounds", "5")
    assert "validation part" not in off.stderr
    with pytest.raises(HushrecError, match="leave one out"):
        invoke("run", *SHORT, "--stop-early", "--measure", "validation")


def test_help_says_which_preset_is_usual() -> None:
    shown = " ".join(invoke("run", "fedrec", "--help").stdout.split())
    assert "paper, general, private; default: general for data of no paper, else paper" in shown
    assert "--no-stop-early" in shown


def test_an_audit_goes_by_the_data() -> None:
    assert PRESET in invoke("audit", *SHORT, "--rounds", "1").stderr.splitlines()
    assert PRESET not in invoke("audit", *SHORT, "--rounds", "1", "--preset", "paper").stderr.splitlines()


class StopError(Exception):
    """The order is all that is wanted."""


def test_a_deployment_goes_by_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a federation nobody knows more than its name."""
    orders = list[Order]()

    def keep(_folder: Path, order: Order, *_others: object) -> Path:
        orders.append(order)
        raise StopError

    monkeypatch.setattr(hushrec.cli.work.deploy_run, "place_order", keep)
    invoke("deploy", "init", str(tmp_path / "fed"), "--nodes", "1", "--engine", "flower")
    (tmp_path / "items.tsv").write_text("a\tA\nb\tB\n")
    items = ["--items", str(tmp_path / "items.tsv"), "--rating-range", "1,5"]
    order = ["deploy", "run", "fedrec", str(tmp_path / "fed"), *items]
    for more in ([], ["--preset", "paper"], ["--data-name", "ml-100k"]):
        result = CliRunner().invoke(app, [*order, *more])
        assert isinstance(result.exception, StopError)
        assert ("preset general: federation is in" in result.stderr) == (not more)
    assert [order.config["regularization"] for order in orders] == [0.002, 0.001, 0.001]


def test_a_systems_presets_are_shown() -> None:
    lines = invoke("systems", "fedrec").stdout.splitlines()
    assert "preset paper: the defaults" in lines
    assert "preset general: num_rounds 40, regularization 0.002" in lines
    (said,) = json.loads(invoke("systems", "fedrec", "--json").stdout)
    assert (said["presets"]["general"]["num_rounds"], said["published_on"]) == (40, ["ml-100k"])


def test_the_report_says_what_was_chosen(tmp_path: Path) -> None:
    invoke("run", *SHORT, "--out", str(tmp_path / "one"))
    invoke("run", *SHORT, "--preset", "paper", "--rounds", "3", "--out", str(tmp_path / "two"))
    invoke("report", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "page.html"))
    page = html.unescape((tmp_path / "page.html").read_text())
    assert "chosen by the data" in page
    assert PRESET in page
    invoke("report", str(tmp_path / "two"), "--out", str(tmp_path / "page.html"))
    assert "chosen by the data" not in (tmp_path / "page.html").read_text()
