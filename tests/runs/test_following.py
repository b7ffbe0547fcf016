"""What a run tells of its rounds while it goes on."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import hushrec
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.following import Begun, Ended, Followed, RoundTold, Teller, process_mark
from hushrec.runs.record import ROUNDS, read_run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions

DATA = "synthetic:users=40,items=30,ratings=600"


def told(fold: int, number: int, rmse: float = 1.0) -> RoundTold:
    return RoundTold(time.time(), fold, number, 9, float(number), {"RMSE": rmse}, {"Ratings": 10})


def test_what_is_told_is_what_run_json_holds(tmp_path: Path) -> None:
    """Curves to the last bit, bytes by message; with an interruption, and over two folds."""
    system, data = system_named("fedrec"), hushrec.load(DATA)
    config, settings = system.configure({"num_rounds": 5}), replace(settings_for(system), num_folds=2)
    options, seen = RuntimeOptions(1), []

    def stop(now: object) -> None:
        seen.append(now)
        if len(seen) == 7:  # in the second fold
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(system, config, data, settings, options, tmp_path, watch=stop)
    followed = Followed(tmp_path)
    assert followed.look()
    assert [(one.fold, one.round_number) for one in followed.rounds] == [(1, n) for n in range(1, 6)] + [
        (2, 1),
        (2, 2),
    ]
    assert followed.ended is not None
    assert not followed.ended.is_done
    assert not followed.is_running
    run(system, config, data, settings, options, tmp_path, resume=True)
    assert followed.look()
    assert followed.ended.is_done
    kept = read_run(tmp_path)
    for fold in kept.folds:
        own = [one for one in followed.rounds if one.fold == fold.fold]
        assert [one.round_number for one in own] == [1, 2, 3, 4, 5]
        for name, values in fold.curve.items():
            assert [one.metrics[name] for one in own] == values
        for message in fold.messages:
            assert sum(one.sent_bytes.get(message.type, 0) for one in own) == message.bytes
    assert not followed.look()
    assert (tmp_path / ROUNDS).stat().st_mode & 0o077 == 0


def test_a_round_that_is_told_again_replaces_what_came_after_it(tmp_path: Path) -> None:
    teller, followed = Teller(tmp_path), Followed(tmp_path)
    for line in (told(1, 1), told(1, 2), told(2, 1), told(2, 2)):
        teller.tell(line)
    followed.look()
    teller.tell(told(1, 2, rmse=0.5))
    followed.look()
    assert [(one.fold, one.round_number, one.metrics["RMSE"]) for one in followed.rounds] == [
        (1, 1, 1.0),
        (1, 2, 0.5),
    ]


def test_half_a_line_is_waited_for_and_damage_is_passed_over(tmp_path: Path) -> None:
    teller, followed = Teller(tmp_path), Followed(tmp_path)
    teller.tell(told(1, 1))
    with (tmp_path / ROUNDS).open("ab") as file:
        file.write(b'{"type":"round","ti')
    assert followed.look()
    assert not followed.look()
    Teller(tmp_path).tell(told(1, 2))  # of another process, after the one that was killed
    followed.look()
    assert [one.round_number for one in followed.rounds] == [1, 2]


def test_a_process_is_known_by_more_than_its_number(tmp_path: Path) -> None:
    teller, followed = Teller(tmp_path), Followed(tmp_path)
    own = os.getpid()
    for mark, is_running in ((process_mark(own), True), ("1", False)):
        teller.tell(Begun(time.time(), own, mark, "pmf", 1))
        followed.look()
        assert followed.is_running is is_running
    teller.tell(Begun(time.time(), own, process_mark(own), "pmf", 1))
    teller.tell(Ended(time.time(), True))
    followed.look()
    assert not followed.is_running


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    Teller(tmp_path / "nowhere").tell(told(1, 1))


def test_not_finite_is_told_as_nothing(tmp_path: Path) -> None:
    Teller(tmp_path).tell(told(1, 1, rmse=float("nan")))
    followed = Followed(tmp_path)
    followed.look()
    assert followed.rounds[0].metrics == {"RMSE": None}


@pytest.mark.parametrize("process", [0, -1, -7, 2**31, 2**70])
def test_no_number_names_more_than_one_process(tmp_path: Path, process: int) -> None:
    """A signal to 0 goes to all of the group, one to -1 to all that the user has."""
    line = f'{{"type":"begun","time":1.0,"process":{process},"mark":"","system":"pmf","num_folds":1}}\n'
    (tmp_path / ROUNDS).write_text(line)
    followed = Followed(tmp_path)
    followed.look()
    assert followed.begun is None
    assert not followed.is_running


def test_a_round_beyond_all_bounds_is_left_out(tmp_path: Path) -> None:
    teller = Teller(tmp_path)
    teller.tell(told(1, 1))
    lines = (tmp_path / ROUNDS).read_text()
    (tmp_path / ROUNDS).write_text(lines + lines.replace('"num_rounds":9', f'"num_rounds":{10**400}'))
    followed = Followed(tmp_path)
    followed.look()
    assert [one.num_rounds for one in followed.rounds] == [9]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ROUNDS)
    assert not Followed(tmp_path).look()
