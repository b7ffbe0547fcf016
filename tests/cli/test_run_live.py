"""`hushrec run drift --live`: standard input and files, bad lines, what is kept, kill -9 and --resume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from hushrec.cli.verbs import app
from hushrec.data.holdings.owners import owners_of
from hushrec.runs.folds import load_fold
from hushrec.runs.ranker import Ranker
from hushrec.runs.record import read_run

COMMAND = [sys.executable, "-m", "hushrec.cli.app", "run", "drift", "--num-factors", "4", "--live"]
OWNERS = [{"owner": "a", "adds": ["i0", "i1", "i2", "i3"]}, {"owner": "b", "adds": ["i3", "i4", "i5"]}]


def events(num_events: int, seed: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"user": f"u{rng.integers(5)}", "item": f"i{rng.integers(6)}", "positive": bool(rng.random() < 0.6)}
        for _ in range(num_events)
    ]


def write(path: Path, lines: list[dict[str, Any]], more: str = "") -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + more)
    return path


def invoke(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["run", "drift", "--num-factors", "4", *map(str, arguments)])
    assert result.exit_code == code or (code == 2 and result.exception), result.output
    return result


def model_of(text: str) -> str:
    return text.rsplit("model digest ", 1)[1].split()[0].rstrip(":")


def shown(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_file_is_learned_from_and_every_event_is_answered(tmp_path: Path) -> None:
    stream = events(40)
    path = write(tmp_path / "events", [*OWNERS, *stream])
    result = invoke("--live", path, "--until-end", "--recommended", "2", "--out", tmp_path / "run")
    answers = shown(result)
    assert [answer["user"] for answer in answers] == [event["user"] for event in stream]
    assert any(len(answer["items"]) == 2 for answer in answers)
    assert "events: 40" in result.stderr
    assert "users: 5; items: 6; owners: 2; lines taken in: 42" in result.stderr
    for event in stream:
        assert f'"{event["user"]}"' not in result.stderr


def test_the_folder_of_a_live_run_recommends_like_the_live_run(tmp_path: Path) -> None:
    path = write(tmp_path / "events", [*OWNERS, *events(40), {"owner": "b", "drops": ["i5"]}, *events(1, 9)])
    last = shown(invoke("--live", path, "--until-end", "--recommended", "2", "--out", tmp_path / "run"))[-1]
    job, progress = load_fold(tmp_path / "run")
    assert owners_of(job.train).names == ("a", "b")
    assert job.train.item_ids.tolist() == ["i0", "i1", "i2", "i3", "i4"]  # nobody holds i5
    user = job.train.user_numbers([last["user"]])
    for_user = Ranker.of(job, progress).for_users(user, 2, min_raters=0)[0]
    assert [entry.item for entry in for_user] == last["items"]
    arguments = ["--user", last["user"], "-k", "2", "--min-raters", "0", "--json"]
    listed = CliRunner().invoke(app, ["recommend", str(tmp_path / "run"), *arguments], catch_exceptions=False)
    assert [entry["item"] for entry in json.loads(listed.stdout)] == last["items"]
    assert (tmp_path / "run" / "live.npz").stat().st_mode & 0o077 == 0


def test_bad_lines_are_told_by_number_and_left_out(tmp_path: Path) -> None:
    good = write(tmp_path / "good", [*OWNERS, *events(20)])
    bad = write(tmp_path / "bad", [*OWNERS, *events(10)], 'secret\n\n{"owner": "secret", "leaves": true}\n')
    bad.write_text(bad.read_text() + "".join(good.read_text().splitlines(keepends=True)[12:]))
    result = invoke("--live", bad, "--until-end")
    assert "line 13 is left out: not as expected" in result.stderr
    assert "line 15 is left out: an owner drops items or leaves that never had any" in result.stderr
    assert "lines left out: 2" in result.stderr
    assert "secret" not in result.output
    assert model_of(result.stderr) == model_of(invoke("--live", good, "--until-end").stderr)


def test_a_bad_line_ends_a_strict_run_which_keeps_what_was_before(tmp_path: Path) -> None:
    path = write(tmp_path / "events", [*OWNERS, *events(10)], "secret\n")
    result = invoke("--live", path, "--until-end", "--strict", "--out", tmp_path / "run", code=2)
    assert str(result.exception).startswith("line 13: not as expected")
    assert len(shown(result)) == 10
    write(path, [*OWNERS, *events(20)])
    result = invoke("--live", path, "--until-end", "--out", tmp_path / "run", "--resume")
    assert len(shown(result)) == 10
    assert model_of(result.stderr) == model_of(invoke("--live", path, "--until-end").stderr)


@pytest.mark.parametrize(("is_kept", "num_left"), [(True, 2), (False, 0)])
def test_at_the_end_a_window_that_is_not_full_waits_if_it_can(
    tmp_path: Path, is_kept: bool, num_left: int
) -> None:
    path = write(tmp_path / "events", [*OWNERS, *events(10)])
    out = ["--out", tmp_path / "run"] if is_kept else []
    result = invoke("--live", path, "--until-end", "--window", "4", *out)
    assert len(shown(result)) == 10 - num_left
    assert ("events not learned from yet: 2; they are taken in with --resume" in result.stderr) == is_kept
    assert f"lines taken in: {12 - num_left}" in result.stderr


def test_half_a_line_at_the_end_of_a_file_is_left_for_later(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", [*OWNERS, *events(20)])
    path, folder, text = tmp_path / "part", tmp_path / "run", whole.read_text()
    last = text.rindex("{")
    path.write_text(text[: last + 20])
    result = invoke("--live", path, "--until-end", "--strict", "--out", folder)
    assert "line 22, the last one, is not whole; it is left for later" in result.stderr
    assert "lines taken in: 21" in result.stderr
    assert "left out" not in result.stderr
    path.write_text(text)
    result = invoke("--live", path, "--until-end", "--strict", "--out", folder, "--resume")
    assert len(shown(result)) == 1
    assert model_of(result.stderr) == model_of(invoke("--live", whole, "--until-end").stderr)


@pytest.mark.parametrize("window", ["1", "4"])
def test_a_file_that_grew_is_gone_on_with(tmp_path: Path, window: str) -> None:
    lines = [*OWNERS, *events(30), {"owner": "c", "adds": ["i9", "i1"]}, *events(30, 4)]
    arguments = ["--until-end", "--window", window, "--out"]
    whole = invoke("--live", write(tmp_path / "whole", lines), *arguments, tmp_path / "at-once")
    path, folder = tmp_path / "part", tmp_path / "run"
    answers = []
    for number, size in enumerate((17, 33, 36, len(lines))):
        more = ["--resume"] if number else []
        write(path, lines[:size])
        result = invoke("--live", path, *arguments, folder, *more)
        answers += shown(result)
    assert answers == shown(whole)
    assert model_of(result.stderr) == model_of(whole.stderr)
    assert f"going on; lines taken in before: {36 if window == '1' else 33}" in result.stderr
    assert read_run(folder).folds[0].num_train == len(load_fold(folder)[0].train)


def test_a_folder_is_gone_on_with_only_if_asked_to_and_with_its_settings(tmp_path: Path) -> None:
    path, folder = write(tmp_path / "events", [*OWNERS, *events(10)]), tmp_path / "run"
    invoke("--live", path, "--until-end", "--out", folder)
    assert "add --resume" in str(invoke("--live", path, "--out", folder, code=2).exception)
    other = invoke("--live", path, "--out", folder, "--resume", "--theta", "3", code=2)
    assert "other settings" in str(other.exception)
    assert "not a live run" in str(invoke("--live", path, "--out", tmp_path, code=2).exception)
    (folder / "live.npz").write_bytes(b"no")
    assert "damaged" in str(invoke("--live", path, "--out", folder, "--resume", code=2).exception)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--epochs", "2"), "a live stream has no epochs"),
        (("--folds", "2"), "--folds means nothing with --live"),
        (("--max-delay", "2"), "--max-delay"),
        (("--owners", "5"), "without --data give a file"),
        (("--resume",), "--resume needs --out"),
        (("--window", "0"), "--window must be at least 1"),
    ],
)
def test_what_a_live_run_cannot_do_is_refused(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    path = write(tmp_path / "events", events(1))
    assert text in str(invoke("--live", path, "--until-end", *arguments, code=2).exception)


def test_no_owner_is_called_as_the_one_of_what_nobody_holds(tmp_path: Path) -> None:
    path, owners = write(tmp_path / "events", events(1)), tmp_path / "owners.tsv"
    owners.write_text("i0\tall\ni1\ta\n")
    data = tmp_path / "ratings.csv"
    data.write_text("user,item,rating,timestamp\nx,i0,5,1\nx,i1,5,2\n")
    for more in ([], ["--data", data]):
        result = invoke("--live", path, "--until-end", "--owners", owners, *more, code=2)
        assert f"--owners {owners}: 'all' is the owner of what nobody else holds" in str(result.exception)
    result = invoke("--live", path, "--until-end", "--owners", "1", "--data", data)
    assert "owners: 1" in result.stderr


def test_other_owners_than_at_the_start_are_refused(tmp_path: Path) -> None:
    path, owners, other = write(tmp_path / "events", events(20)), tmp_path / "owners.tsv", tmp_path / "other.tsv"
    owners.write_text("i0\ta\ni1\ta\n")
    other.write_text("i0\ta\ni1\tb\n")
    arguments = ["--live", path, "--until-end", "--out", tmp_path / "run"]
    invoke(*arguments, "--owners", owners)
    refused = invoke(*arguments, "--resume", "--owners", other, code=2)
    assert "began with other owners or items; give the same --owners and --data" in str(refused.exception)
    for more in (["--owners", owners], []):
        assert "items: 2; owners: 1" in invoke(*arguments, "--resume", *more).stderr


def test_without_data_and_without_live_one_is_told_what_to_give() -> None:
    assert "--data NAME-or-FILE, or --live" in str(invoke(code=2).exception)


def test_owners_come_from_a_file_and_items_from_data(tmp_path: Path) -> None:
    path, owners = write(tmp_path / "events", events(20)), tmp_path / "owners.tsv"
    owners.write_text("i0\ta\ni1\ta\ni2\tb\ni2\ta\n")
    result = invoke("--live", path, "--until-end", "--owners", owners)
    num_unheld = sum(event["item"] > "i2" for event in events(20))
    assert "items: 3; owners: 2" in result.stderr
    assert f"nobody learned from them: {num_unheld}" in result.stderr
    owners.write_text("i0 a\n")
    assert "line 1: expected an item" in str(invoke("--live", path, "--owners", owners, code=2).exception)
    data = tmp_path / "ratings.csv"
    data.write_text("user,item,rating,timestamp\n" + "".join(f"x,i{number},5,{number}\n" for number in range(8)))
    result = invoke("--live", path, "--until-end", "--data", data, "--owners", "2")
    assert "items: 8; owners: 2" in result.stderr


def start(*arguments: str, **pipes: Any) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, env=environment, **pipes)


def test_standard_input_is_answered_at_once_and_ctrl_c_keeps_all(tmp_path: Path) -> None:
    live = start("-", "--out", str(tmp_path / "run"), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert live.stdin is not None
    assert live.stdout is not None
    for line in OWNERS:
        live.stdin.write(json.dumps(line).encode() + b"\n")
    for event in events(5):
        live.stdin.write(json.dumps(event).encode() + b"\n")
        live.stdin.flush()
        assert json.loads(live.stdout.readline())["user"] == event["user"]  # before the next event is there
    live.send_signal(signal.SIGINT)
    _, said = live.communicate(timeout=60)
    assert live.returncode == 0
    assert b"events: 5" in said
    rest = write(tmp_path / "rest", events(12)[5:])
    refused = invoke("--live", rest, "--until-end", "--out", tmp_path / "run", "--resume", code=2)
    assert f"{len(OWNERS) + 5} lines came through a pipe before; send the others so, too" in str(refused.exception)
    again = start("-", "--out", str(tmp_path / "run"), "--resume", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    answers, said = again.communicate(rest.read_bytes(), timeout=60)
    assert len(answers.splitlines()) == 7
    whole = invoke("--live", write(tmp_path / "whole", [*OWNERS, *events(12)]), "--until-end")
    assert model_of(said.decode()) == model_of(whole.stderr)


def test_a_second_process_on_one_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    path, folder = write(tmp_path / "events", [*OWNERS, *events(3)]), tmp_path / "run"
    first = start(str(path), "--out", str(folder), stderr=subprocess.DEVNULL)
    assert first.stdout is not None
    first.stdout.readline()
    try:
        result = invoke("--live", path, "--until-end", "--out", folder, "--resume", code=2)
        assert f"another process works on {folder}; stop it" in str(result.exception)
    finally:
        first.kill()
        first.communicate()
    again = invoke("--live", path, "--until-end", "--out", folder, "--resume")  # who was killed let go of it
    assert model_of(again.stderr) == model_of(invoke("--live", path, "--until-end").stderr)


@pytest.mark.slow
def test_after_kill_9_the_result_is_that_of_no_interruption(tmp_path: Path) -> None:
    lines = [*OWNERS, *events(400), {"owner": "c", "adds": ["i9", "i1"]}, *events(400, 4)]
    path, folder = write(tmp_path / "events", lines), tmp_path / "run"
    whole = invoke("--live", path, "--until-end")
    rng = np.random.default_rng(5)
    for number in range(6):
        again = ["--resume"] if number else []
        live = start(
            str(path), "--keep-every", "20", "--out", str(folder), *again, stderr=subprocess.DEVNULL
        )  # fmt: skip
        assert live.stdout is not None
        for _ in range(int(rng.integers(1, 140))):
            if not live.stdout.readline():
                break
        time.sleep(float(rng.random()) * 0.02)
        live.kill()
        live.communicate()
    result = invoke("--live", path, "--until-end", "--keep-every", "20", "--out", folder, "--resume")
    assert model_of(result.stderr) == model_of(whole.stderr)
    assert "lines taken in: 803" in result.stderr
    load_fold(folder)


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_run_and_what_was_learned_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "events", [*OWNERS, *events(30)])
    live = start(str(path), "--out", str(tmp_path / "run"), "--keep-every", "5", stderr=subprocess.PIPE)
    assert live.stdout is not None
    live.stdout.close()
    assert live.stderr is not None
    said = live.stderr.read().decode()
    live.stderr.close()
    assert live.wait(timeout=60) == 141
    assert "Traceback" not in said
    assert "Exception" not in said
    assert "nobody reads standard output any more; the run ends\nevents: " in said
    assert "events not learned from yet: 2" in said
    result = invoke("--live", path, "--until-end", "--out", tmp_path / "run", "--resume")
    whole = invoke("--live", path, "--until-end")
    assert model_of(result.stderr) == model_of(whole.stderr)
