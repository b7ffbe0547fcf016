import json
import re
import webbrowser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hushrec
from hushrec.cli.report import report
from hushrec.errors import HushrecError, naming_options
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

app = typer.Typer(rich_markup_mode="rich")
app.command("report")(report)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    system = system_named("pmf")
    config = build(system.config, {"num_rounds": 2, "num_factors": 2})
    data = hushrec.load("synthetic:users=40,items=30,ratings=500")
    run(system, config, data, RunSettings(), RuntimeOptions(threads=1), folder)
    return folder


def test_report_writes_a_page_and_says_where(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, [str(folder), "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout == f"{out}\n"
    assert result.stderr == ""
    assert "PMF on synthetic" in out.read_text()


def test_report_as_json_and_in_the_browser(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, [str(folder), "--out", str(out), "--json", "--open"], catch_exceptions=False)
    assert json.loads(result.stdout) == {"report": str(out), "runs": ["PMF"]}
    assert opened == [out.as_uri()]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with naming_options(), pytest.raises(HushrecError, match="is not a run; make one with: hushrec run"):
        CliRunner().invoke(app, [str(tmp_path)], catch_exceptions=False)


def test_help_has_an_example_on_its_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = [line.strip() for line in CliRunner().invoke(app, ["--help"]).stdout.splitlines()]
    assert "hushrec report runs/one --out report.html --open" in shown


def test_lists_of_people_only_if_asked_for(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    CliRunner().invoke(app, [str(folder), "--out", str(out)], catch_exceptions=False)
    assert "a person with" not in out.read_text()
    CliRunner().invoke(app, [str(folder), "--out", str(out), "--sample-lists", "3"], catch_exceptions=False)
    assert len(re.findall("<th[^>]*>[^<]*a person with", out.read_text())) == 3
