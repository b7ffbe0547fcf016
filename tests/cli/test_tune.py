"""`hushrec tune`: what it prints, that its command gives what it found, and how it refuses."""

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hushrec.cli.endings import Interrupted
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run

DATA = "synthetic:users=60,items=40,ratings=900"
SHORT = [
    "tune", "pmf", "--data", DATA, "--preset", "paper", "--num-factors", "5", "--trials", "4",
    "--over", "learning_rate=0.1..1", "--over", "biases", "--over", "rounds=1..4",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_the_command_of_the_best_run_gives_what_was_found(tmp_path: Path) -> None:
    """The same configuration to the last bit, and on the validation part the same measure."""
    told = json.loads(invoke(*SHORT, "--seed", "3", "--out", str(tmp_path / "tuned"), "--json").stdout)
    words = shlex.split(told["command"])
    assert words[:3] == ["hushrec", "run", "pmf"]
    assert words[words.index("--seed") + 1] == "3"
    out = tmp_path / "best"
    invoke(*words[1:], "--measure", "validation", "--threads", "1", "--out", str(out))
    kept = read_run(out)
    config = SYSTEMS["pmf"].configure(told["best_settings"])
    assert SYSTEMS["pmf"].configure(kept.config) == config
    assert kept.mean["RMSE"] == told["best"]["measured"]["RMSE"]
    assert told["best"]["measured"]["RMSE"] == min(row["measured"]["RMSE"] for row in told["trials"])
    assert [row["trial"] for row in told["trials"]] == [0, 1, 2, 3]


def test_the_default_stands_beside_the_best(tmp_path: Path) -> None:
    first = invoke(*SHORT, "--out", str(tmp_path))
    lines = first.stdout.splitlines()
    assert lines[0] == "pmf on synthetic, validation: 4 trials, 0 given up, 0 failed"
    assert lines[2].split() == ["trial", "RMSE", "learning", "rate", "biases", "num", "rounds"]
    assert sum("0 default" in line for line in lines) == 1
    assert any(line.startswith("default RMSE ") and line.endswith(" on validation data") for line in lines)
    assert lines[-1].startswith("hushrec run pmf --data synthetic:users=60,items=40,ratings=900 --preset paper")
    assert invoke(*SHORT, "--out", str(tmp_path), "--resume").stdout == first.stdout


def test_a_moment_to_split_at_is_that_of_the_run(tmp_path: Path) -> None:
    pairs = [(user, item) for user in range(9) for item in range(9)]
    lines = [f"{user},{item},{1 + (user * item) % 5},{1000 * ((user + item) % 9)}" for user, item in pairs]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,rating,time", *lines]))
    given = ["--data", str(tmp_path / "a.csv"), "--split", "global-time", "--split-at", "7000", "--rounds", "2"]
    told = invoke("tune", "pmf", *given, "--over", "learning_rate", "--trials", "1", "--json").stdout
    words = shlex.split(json.loads(told)["command"])
    assert words[words.index("--split-at") + 1] == "7000"
    invoke(*words[1:], "--threads", "1")


def test_failed_trials_are_told() -> None:
    over = ["--over", "learning_rate=50..60", "--over", "rounds=1..4"]
    told = invoke(
        "tune", "pmf", "--data", DATA, "--num-factors", "5", "--preset", "paper", "--trials", "3", *over
    ).stdout
    assert "3 trials, 0 given up, 2 failed" in told
    assert "trial 1 failed: round " in told
    assert "the training diverges" in told
    assert "no trial is better" in told


def test_the_front_is_printed_and_drawn(tmp_path: Path) -> None:
    measures = ["--measure", "RMSE", "--measure", "bytes", "--measure", "leakage"]
    given = ["--preset", "paper", "--rounds", "3", "--denoisers", "2", "--over", "rho=0..2", "--trials", "4"]
    result = invoke(
        "tune", "fedrec++", "--data", DATA, *given, *measures, "--num-factors", "5", "--out", str(tmp_path)
    )
    assert "the front: no other trial is as good in all and better in one" in result.stdout
    assert "leakage" in result.stdout
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    command = shlex.split(result.stdout.splitlines()[-1])
    for flag, value in (
        ("--rounds", "3"),
        ("--denoisers", "2"),
        ("--num-factors", "5"),
        ("--preset", "paper"),
    ):
        assert command[command.index(flag) + 1] == value  # what was typed stays
    assert command.count("--rho") == 1
    assert "--measure" not in command


def test_who_interrupts_is_told_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hushrec.tuning.bench.Bench.make", interrupted)
    for words, told in (
        ([], "interrupted; no trial is kept, as there was no --out"),
        (
            ["--out", str(tmp_path)],
            f"interrupted; finished trials are in {tmp_path}; the same command goes on with",
        ),
    ):
        with pytest.raises(Interrupted, match=told):
            CliRunner().invoke(app, [*SHORT, *words], catch_exceptions=False)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("num_trials", [0, 1])  # as the processes of trials begin, and while they are at work
def test_signals_to_all_processes_end_a_search_in_one_line(
    num_trials: int, number: signal.Signals, tmp_path: Path
) -> None:
    """A terminal sends Ctrl-C to the trials' processes as well: no word of theirs, and no trial failed by it."""
    words = [*SHORT, "--trials", "2000", "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "hushrec.cli.app", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while process.poll() is None and not (started_by(process.pid) and num_finished(tmp_path) >= num_trials):
        time.sleep(0.001)
    for _ in range(30):  # to them alone for a while, as the first to end hides what the others say
        for child in started_by(process.pid):
            os.kill(child, number)
        time.sleep(0.01)
    os.killpg(process.pid, number)
    out_text, err_text = process.communicate(timeout=60)
    assert (process.returncode, out_text) == (128 + number, "")
    assert "Traceback" not in err_text
    assert err_text.splitlines()[-1].startswith(f"hushrec: interrupted; finished trials are in {tmp_path}")
    kept = num_finished(tmp_path)
    assert kept >= num_trials
    told = invoke(*SHORT, "--trials", str(kept + 2), "--resume", "--out", str(tmp_path), "--json")
    states = [trial["state"] for trial in json.loads(told.stdout)["trials"]]
    assert len(states) == kept + 2
    assert "failed" not in states


def started_by(number: int) -> list[int]:
    """The processes that make trials for another."""
    found = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    return [int(one) for one in found if b"workers" in Path(f"/proc/{one}/cmdline").read_bytes()]


def num_finished(folder: Path) -> int:
    """Trials that are kept as finished; none while their file is being made."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)) as kept:
        query = "select count(*) from trials where state in ('COMPLETE', 'PRUNED', 'FAIL')"
        return int(kept.execute(query).fetchone()[0])
    return 0


BAD: dict[str, tuple[list[str], str]] = {
    "no trial": (["--trials", "0"], "--trials 0: one trial at least"),
    "fewer than none": (["--trials", "-4"], "--trials -4: one trial at least"),
    "unknown measure": (["--measure", "nosuch"], "--measure nosuch: pmf is measured by MAE, RMSE, bytes, leakage"),
    "unknown setting": (["--over", "nosuch"], "--over nosuch: pmf has no such setting"),
    "given and searched": (["--decay", "0.9", "--over", "decay"], "decay is given a value; leave that out"),
    "no process": (["--jobs", "0"], "--jobs 0: choose 1 to 256"),
    "resume without out": (["--resume"], "--resume needs --out"),
    "a picture of one measure": (["--picture", "x.png"], "--picture draws several measures"),
    "a picture of another kind": (
        ["--picture", "x.gif", "--measure", "RMSE", "--measure", "bytes"],
        ".png or .svg",
    ),
    "negative rate": (["--learning-rate", "-1"], "--learning-rate must be above 0"),
    "out below a file": (["--out", "file/below"], "file/below cannot be made"),
    "out of something else": (["--out", "full"], "full holds something else than trials"),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=list(BAD))
def test_bad_input_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full", "thesis").write_text("")
    with pytest.raises(HushrecError) as caught:
        CliRunner().invoke(app, ["tune", "pmf", "--data", DATA, *words], catch_exceptions=False)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked: Any = None
    monkeypatch.setitem(sys.modules, "optuna", blocked)
    with pytest.raises(HushrecError, match=r"tune needs Optuna; install it with: pip install '\.\[tune\]'"):
        CliRunner().invoke(app, SHORT, catch_exceptions=False)
