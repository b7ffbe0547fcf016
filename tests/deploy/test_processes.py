"""What dies is started again; what is stopped is gone, with all that it started."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hushrec.deploy import processes
from hushrec.deploy.processes import Kept

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


def is_alive(pid: int) -> bool:
    """Whether a process is there and not just waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(happened: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def pids_in(path: Path, count: int) -> list[int]:
    """Numbers that processes wrote to a file, once there are enough."""
    wait_until(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.5)
    monkeypatch.setattr(processes, "_FASTEST_RESTART_SECONDS", 0.0)


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[[str], tuple[Kept, list[str]]]]:
    """Makes kept processes of the shell, which are gone after the test whatever it did."""
    made: list[Kept] = []

    def make(script: str) -> tuple[Kept, list[str]]:
        told = list[str]()
        environment = {"PIDS": str(tmp_path / "pids")}
        made.append(Kept("node-1", ["sh", "-c", script], environment, tmp_path / "logs" / "out.log", told.append))
        return made[-1], told

    yield make
    for kept in made:
        kept.stop()
    if (tmp_path / "pids").exists():
        for pid in (int(word) for word in (tmp_path / "pids").read_text().split()):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


Make = Callable[[str], tuple[Kept, list[str]]]


def test_output_goes_to_a_log_that_only_we_can_read(keep: Make, tmp_path: Path) -> None:
    kept, _ = keep("echo $PIDS; echo oh >&2; read line; echo got $?; sleep 60")
    before = os.umask(0)
    try:
        kept.start()
    finally:
        os.umask(before)
    wait_until(lambda: "got" in kept.log.read_text())
    # Nothing can be typed into it.
    assert kept.log.read_text() == f"{tmp_path / 'pids'}\noh\ngot 1\n"
    assert stat.S_IMODE(kept.log.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.log.parent.stat().st_mode) == 0o700


def test_what_dies_is_started_again_with_the_same_log(keep: Make) -> None:
    kept, told = keep("echo here; exit 3")
    kept.start()
    for times in (1, 2):
        assert kept.process is not None
        kept.process.wait(10)
        kept.keep()
        assert told == ["node-1 ended with code 3; starting it again"] * times
    wait_until(lambda: kept.log.read_text() == "here\n" * 3)


def test_what_is_killed_is_started_again(keep: Make, tmp_path: Path) -> None:
    kept, told = keep("echo $$ >> $PIDS; sleep 60")
    kept.start()
    [first] = pids_in(tmp_path / "pids", 1)
    kept.keep()
    assert told == []
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: kept.process is not None and kept.process.poll() is not None)
    kept.keep()
    assert told == ["node-1 ended with code -9; starting it again"]
    first, second = pids_in(tmp_path / "pids", 2)
    assert first != second
    assert is_alive(second)


def test_what_dies_at_once_is_not_started_too_often(keep: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_FASTEST_RESTART_SECONDS", 3600.0)
    kept, told = keep("exit 1")
    kept.start()
    assert kept.process is not None
    kept.process.wait(10)
    for _ in range(20):
        kept.keep()
    assert told == []


def test_stop_ends_all_that_it_started(keep: Make, tmp_path: Path) -> None:
    kept, _ = keep("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; (sleep 61 & echo $! >> $PIDS); wait")
    kept.start()
    pids = pids_in(tmp_path / "pids", 3)
    assert all(map(is_alive, pids))
    kept.stop()
    wait_until(lambda: not any(map(is_alive, pids)))
    assert kept.process is None


def test_stop_does_not_take_no_for_an_answer(keep: Make, tmp_path: Path) -> None:
    kept, _ = keep("trap '' TERM; echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; wait; sleep 60")
    kept.start()
    pids = pids_in(tmp_path / "pids", 2)
    kept.stop()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_stop_is_gentle_first(keep: Make, tmp_path: Path) -> None:
    kept, _ = keep("trap 'echo bye; exit 0' TERM; echo $$ >> $PIDS; while true; do sleep 0.02; done")
    kept.start()
    pids_in(tmp_path / "pids", 1)
    kept.stop()
    assert kept.log.read_text().endswith("bye\n")


def test_what_is_stopped_stays_so(keep: Make) -> None:
    kept, told = keep("sleep 60")
    kept.stop()
    kept.start()
    kept.stop()
    kept.stop()
    kept.keep()
    assert kept.process is None
    assert told == []


def test_children_of_what_died_do_not_stay_behind(keep: Make, tmp_path: Path) -> None:
    """The process is killed, its child is not; after a new start and a stop nothing is left of either."""
    kept, _ = keep("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; wait")
    kept.start()
    parent, child = pids_in(tmp_path / "pids", 2)
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: kept.process is not None and kept.process.poll() is not None)
    kept.keep()
    pids = pids_in(tmp_path / "pids", 4)
    kept.stop()
    wait_until(lambda: not any(map(is_alive, pids[2:])))
    assert not is_alive(child)


OURS = """
import sys, time
from pathlib import Path
from hushrec.deploy.processes import Kept
kept = Kept("x", ["sh", "-c", "echo $$ >> $PIDS; sleep 60"], {"PIDS": sys.argv[1]}, Path(sys.argv[2]), print)
kept.start()
time.sleep(60)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_nothing_stays_behind_when_we_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OURS, str(tmp_path / "pids"), str(tmp_path / "log")]
    ours = subprocess.Popen(command)
    try:
        [pid] = pids_in(tmp_path / "pids", 1)
        assert is_alive(pid)
    finally:
        ours.kill()
        ours.wait()
    wait_until(lambda: not is_alive(pid))


def test_a_command_that_is_not_there_is_told_in_the_log_or_at_once(tmp_path: Path) -> None:
    told = list[str]()
    kept = Kept("node-1", [str(tmp_path / "missing")], {}, tmp_path / "log", told.append)
    try:
        kept.start()
    except OSError:
        return
    try:
        assert kept.process is not None
        assert kept.process.wait(10) != 0
        assert "missing" in kept.log.read_text()
    finally:
        kept.stop()
