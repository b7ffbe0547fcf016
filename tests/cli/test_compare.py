import io
import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

import hushrec
from hushrec.cli.commands import joined
from hushrec.cli.compare import compare
from hushrec.cli.work.compare import comparison_table
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.runs.beside import Beside
from hushrec.runs.folds import run
from hushrec.runs.record import read_run, write_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

ONE_THREAD = RuntimeOptions(threads=1)
app = typer.Typer(rich_markup_mode="rich")
app.command("compare")(joined(compare))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """FedRec without virtual items, with them, and FedRec++."""
    base = tmp_path_factory.mktemp("runs")
    data = hushrec.load("synthetic:users=40,items=30,ratings=500")
    wanted = {"plain": ("fedrec", 0), "noisy": ("fedrec", 2), "denoised": ("fedrec++", 2)}
    for name, (system_name, rho) in wanted.items():
        system = system_named(system_name)
        config = build(system.config, {"num_rounds": 3, "num_factors": 2, "rho": rho})
        run(system, config, data, RunSettings(num_folds=2), RuntimeOptions(threads=1), base / name)
    return [str(base / name) for name in wanted]


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_table_is_aligned_and_marks_equal_models(folders: list[str]) -> None:
    result = invoke(*folders)
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].split()[:3] == ["run", "MAE", "RMSE"]
    assert [line.split("  ")[0] for line in lines[1:]] == ["1", "2", "3"]
    assert [line.split()[-1] for line in lines[1:]] == ["3", "–", "1"]
    assert "FedRec++ rho 2" in lines[3]
    assert all(line.index("±") == lines[1].index("±") for line in lines[1:])
    assert result.stderr == ""


def test_ciphertexts_do_not_make_another_model(tmp_path: Path) -> None:
    data, system = hushrec.load("synthetic:users=12,items=20,ratings=100"), system_named("fedmf")
    for name, encryption in (("a", "bfv"), ("b", "bfv"), ("c", "none")):
        config = build(system.config, {"num_rounds": 2, "num_factors": 2, "encryption": encryption})
        run(system, config, data, RunSettings(split="random"), RuntimeOptions(threads=1), tmp_path / name)
    lines = invoke(*(str(tmp_path / name) for name in "abc")).stdout.splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [["2,", "3"], ["1,", "3"], ["1,", "2"]]


def test_json_has_every_metric(folders: list[str]) -> None:
    said = json.loads(invoke(*folders, "--json").stdout)
    plain, noisy, denoised = said["runs"]
    assert plain["same_model_as"] == ["FedRec++ rho 2"]
    assert noisy["same_model_as"] == []
    assert plain["mean"] == denoised["mean"] == read_run(Path(folders[0])).mean
    assert (
        denoised["up_bytes_per_client_round"]
        > noisy["up_bytes_per_client_round"]
        > plain["up_bytes_per_client_round"]
    )
    assert said["notes"] == []


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_column_is_lost(width: int, folders: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side, in bands or stacked: every heading and every number is there."""
    runs = [read_run(Path(folder)) for folder in folders]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", invoke(*folders).stdout)
    words = " ".join(shown.split())
    table = comparison_table(runs)
    assert all(len(line) <= width for line in shown.splitlines())
    assert "…" not in shown
    for column in table.columns:
        assert column.header in words
        for cell in column.cells:
            assert str(cell) in words


def test_pictures(folders: list[str], tmp_path: Path) -> None:
    png, svg = tmp_path / "new" / "a.png", tmp_path / "a.svg"
    assert f"picture: {png}" in invoke(*folders, "--picture", str(png)).stderr.replace("\n", "")
    invoke(*folders, "--picture", str(svg))
    assert struct.unpack(">II", png.read_bytes()[16:24])[0] > 1000
    assert ElementTree.fromstring(svg.read_bytes()).tag.endswith("svg")


def test_other_pictures_are_refused(folders: list[str]) -> None:
    with pytest.raises(HushrecError, match=r"ends in \.png or \.svg"):
        invoke(*folders, "--picture", "a.pdf")


def test_unfinished_runs_are_said_on_stderr(folders: list[str], tmp_path: Path) -> None:
    whole = read_run(Path(folders[1]))
    for name, count in (("begun", 1), ("empty", 0)):
        kept = type(whole)(**{**vars(whole), "folds": whole.folds[:count]})
        write_run(tmp_path / name, kept)
    result = invoke(folders[0], str(tmp_path / "begun"), str(tmp_path / "empty"))
    assert len(result.stdout.splitlines()) == 3
    assert "1 of 2 folds finished" in result.stderr
    assert "0 of 2 folds finished" in result.stderr
    with pytest.raises(HushrecError, match="no run has a finished fold to compare"):
        invoke(str(tmp_path / "empty"))


def test_help_has_an_example_on_its_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = [line.strip() for line in invoke("--help").stdout.splitlines()]
    assert "hushrec compare runs/one runs/two --picture compare.png" in shown


def test_lists_and_baselines_stand_beside_runs(tmp_path: Path) -> None:
    """Once for all, as they are tested on the same rows with the same candidates."""
    data = hushrec.load("synthetic:users=40,items=30,ratings=500")
    for name, baselines in (("pmf", True), ("fedrec", False)):
        system = system_named(name)
        config, settings = build(system.config, {"num_rounds": 2, "num_factors": 2}), RunSettings(min_raters=None)
        run(system, config, data, settings, ONE_THREAD, tmp_path / name, beside=Beside(baselines))
    folders = [tmp_path / "pmf", tmp_path / "fedrec"]
    runs = [read_run(folder) for folder in folders]
    console = Console(width=140, file=io.StringIO())
    console.print(comparison_table(runs))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0][:8] == ["run", "MAE", "RMSE", "HR@10", "NDCG@10", "distinct", "diversity", "within"]
    assert f"{runs[0].lists['diversity']:.4f}" in lines[1]
    rows = {line[0]: line[2:] for line in lines[3:]}
    assert list(rows) == ["popularity,", "biases,", "item-kNN,", "ALS,"]
    assert rows["biases,"][1] == f"{runs[0].baselines['biases']['RMSE']:.4f}"
    assert rows["ALS,"][:2] == ["–", "–"]
    said = json.loads(invoke(*map(str, folders), "--json").stdout)["runs"]
    assert said[0]["baselines"] == runs[0].baselines
    assert said[1]["lists"] == runs[1].lists
    other = replace(runs[1], provenance=replace(runs[1].provenance, min_raters=0))
    write_run(folders[1], other)
    told = invoke(*map(str, folders))
    assert "the runs list items by different numbers of raters (0, 10): compare no rankings" in told.stderr
    assert "centralised" not in told.stdout
