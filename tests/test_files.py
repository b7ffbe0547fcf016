"""Files are written as a whole; locks keep other processes out. Where there are no locks, nobody is kept out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hushrec import files
from hushrec.errors import HushrecError
from hushrec.files import clear_leftovers, last_holder, locked, locked_as, write_file, write_private_file
from hushrec.runs.record import alone_in


def test_a_lock_names_its_last_holder(tmp_path: Path) -> None:
    lock = tmp_path / "job.lock"
    assert last_holder(lock) == ("", False)
    for job in ("12345", "9"):
        with locked_as(lock, job):
            assert last_holder(lock) == (job, True)
        assert last_holder(lock) == (job, False)


def test_a_lock_that_is_taken_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        locked(lock, "somebody is here"),
        pytest.raises(HushrecError, match="somebody is here"),
        locked(lock, "somebody is here"),
    ):
        pass
    with locked(lock, "somebody is here"):
        pass


def test_without_locks_nobody_is_kept_out_or_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    monkeypatch.setattr(files, "fcntl", None)
    lock = tmp_path / "lock"
    with locked(lock, "somebody is here"), locked(lock, "somebody is here"):
        pass
    with locked_as(lock, "12345"), locked_as(lock, "9"):
        assert last_holder(lock) == ("", False)
    assert last_holder(lock) == ("", False)


# --- Written as a whole, also after a power cut ----------------------------------------------------------------


def test_a_file_and_then_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data before the file has its name, the name after that."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(opened: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{opened}")).name
        events.append(("sync", name))
        fsync(opened)

    def watched_replace(source: Path, target: Path) -> None:
        events.append(("name", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    write_private_file(tmp_path / "run" / "state", b"data")
    assert events == [("sync", f".state.{os.getpid()}"), ("name", "state"), ("sync", "run")]
    write_file(tmp_path / "run" / "table.csv", b"data", "--out")
    assert events[3:] == [("sync", f".table.csv.{os.getpid()}"), ("name", "table.csv"), ("sync", "run")]


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_of_the_dead_are_cleared_and_nothing_else(tmp_path: Path) -> None:
    living, dead = os.getppid(), dead_process()
    kept = [
        f".run.json.{living}",
        f".run.json.{os.getpid()}",
        "run.json",
        ".lock",
        ".run.json.x",
        f"run.json.{dead}",
    ]
    gone = [f".run.json.{dead}", f"fold-1/.state.npz.{dead}"]
    (tmp_path / "fold-1").mkdir()
    (tmp_path / f".folder.{dead}").mkdir()
    for name in (*kept, *gone):
        (tmp_path / name).touch()
    clear_leftovers(tmp_path)
    assert all((tmp_path / name).exists() for name in (*kept, f".folder.{dead}"))
    assert not any((tmp_path / name).exists() for name in gone)


def test_who_goes_on_with_a_run_clears_what_a_kill_left(tmp_path: Path) -> None:
    left = tmp_path / f".run.json.{dead_process()}"
    left.touch()
    with alone_in(tmp_path):
        assert not left.exists()


def test_who_finds_a_folder_taken_clears_nothing(tmp_path: Path) -> None:
    left = tmp_path / f".run.json.{dead_process()}"
    with alone_in(tmp_path):
        left.touch()
        with pytest.raises(HushrecError, match="another process"), alone_in(tmp_path):
            pass
        assert left.exists()
