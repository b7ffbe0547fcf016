"""Options from files, and the command that makes a run again."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import hushrec
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.runs.record import read_run

DATA = "synthetic:users=40,items=30,ratings=500"
SHORT = ["--data", DATA, "--num-factors", "3", "--threads", "1", "--no-baselines"]


def invoke(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False, prog_name="hushrec")
    assert result.exit_code == 0, result.output
    return result


def written(folder: Path, text: str) -> str:
    (folder / "options.toml").write_text(text, encoding="utf-8")
    return str(folder / "options.toml")


def config_of(*words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(invoke(*words, "--json").stdout)["config"]
    return found


def test_what_is_typed_goes_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    """The preset paper has a rate of 0.8 and rho 3; the file changes both, the command line one of them."""
    file = written(
        tmp_path,
        f'data = "{DATA}"\npreset = "paper"\nrounds = 1\nnum_factors = 3\nrho = 2\nlearning-rate = 0.5\n'
        "baselines = false\nthreads = 1\nat = [5, 10]\n",
    )
    config = config_of("run", "fedrec", "--config", file, "--rho", "1")
    assert (config["rho"], config["learning_rate"], config["num_rounds"]) == (1, 0.5, 1)
    assert config["num_factors"] == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("roundz = 3", "hushrec run fedrec has no option roundz; did you mean rounds?"),
        ("rounds = true", "rounds has another kind of value; write rounds = a number"),
        ("baselines = 1", "baselines has another kind of value; write baselines = true or baselines = false"),
        ("[run]\nrounds = 3", "hushrec run fedrec has no option run"),
        ("rounds 3", "is no TOML"),
    ],
)
def test_bad_files_are_one_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(HushrecError) as refused:
        invoke("run", "fedrec", "--data", DATA, "--config", written(tmp_path, text))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="cannot be read"):
        invoke("compare", "x", "--config", str(tmp_path / "nosuch.toml"))


def test_saved_options_give_the_same_run(tmp_path: Path) -> None:
    saved = tmp_path / "saved.toml"
    words = ["run", "fedrec", *SHORT, "--rounds", "2", "--at", "3,5", "--relevant-from", "4.5"]
    first = json.loads(
        invoke(*words, "--save-config", str(saved), "--out", str(tmp_path / "one"), "--json").stdout
    )
    assert 'at = "3,5"\n' in saved.read_text(encoding="utf-8")
    assert "out" not in saved.read_text(encoding="utf-8")
    again = json.loads(invoke("run", "fedrec", "--config", str(saved), "--json").stdout)
    assert again["folds"][0]["model_sha256"] == first["folds"][0]["model_sha256"]
    assert again["mean"] == first["mean"]


RUNS = {
    "all named": [
        "run",
        "fedrec++",
        *SHORT,
        "--preset",
        "paper",
        "--rounds",
        "2",
        "--denoisers",
        "2",
        "--seed",
        "7",
    ],
    "chosen by the data": ["run", "fedrec", *SHORT, "--rounds", "2"],
    "stopped early": ["run", "pmf", *SHORT],
    "partners": ["run", "average", "--data", DATA, "--folds", "2", "--threads", "1"],
}


@pytest.mark.parametrize("words", RUNS.values(), ids=list(RUNS))
def test_the_command_in_a_runs_folder_makes_it_again(words: list[str], tmp_path: Path) -> None:
    invoke(*words, "--out", str(tmp_path / "one"))
    command = read_run(tmp_path / "one").command
    assert (tmp_path / "one" / "command.txt").read_text(encoding="utf-8") == f"{command}\n"
    program, *typed = shlex.split(command)
    assert program == "hushrec"
    assert "--out" not in typed
    invoke(*typed, "--out", str(tmp_path / "two"), "--threads", "1")
    first, again = (read_run(tmp_path / name) for name in ("one", "two"))
    assert [fold.model_sha256 for fold in first.folds] == [fold.model_sha256 for fold in again.folds]
    assert [fold.clients_sha256 for fold in first.folds] == [fold.clients_sha256 for fold in again.folds]
    assert first.config == again.config


def test_the_command_quotes_what_needs_it(tmp_path: Path) -> None:
    file = tmp_path / "a [red] file.csv"
    rows = [f"{user},{item},{1 + (user + item) % 5}" for user in range(12) for item in range(8)]
    file.write_text("user,item,rating\n" + "\n".join(rows) + "\n", encoding="utf-8")
    words = ["run", "pmf", "--data", str(file), "--rounds", "1", "--num-factors", "2", "--no-baselines"]
    invoke(*words, "--out", str(tmp_path / "one"))
    assert f"--data '{file}'" in read_run(tmp_path / "one").command


def test_the_version() -> None:
    assert invoke("--version").stdout == f"hushrec {hushrec.__version__}\n"


COMPLETED = {
    ("run fedrec", 2): ["fedrec", "fedrec++", "fedrec-bpr"],
    ("run fedrec --data ml-1", 4): ["ml-100k", "ml-1m"],
    ("run fedrec --preset pap", 4): ["paper"],
    ("run fedrec --predict-after-co", 3): ["--predict-after-counts"],
    ("systems drif", 2): ["drift"],
    ("audit sar", 2): ["saros"],
    ("reproduce fedrec++ table2", 3): ["table2"],
    ("deploy local --system sdcf-", 4): ["sdcf-denoised"],
}


@pytest.mark.parametrize(("line", "place"), COMPLETED, ids=[line for line, _ in COMPLETED])
def test_shells_complete_names(line: str, place: int) -> None:
    environment = {
        "_HUSHREC_COMPLETE": "complete_bash",
        "COMP_WORDS": f"hushrec {line}",
        "COMP_CWORD": str(place),
    }
    found = CliRunner().invoke(app, [], prog_name="hushrec", env=environment)
    assert found.stdout.split() == COMPLETED[line, place]
