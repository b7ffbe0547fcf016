"""Locks keep other processes out, and say who holds them; where there are none, nobody is kept out."""

from pathlib import Path

import pytest

from hushrec import files
from hushrec.errors import HushrecError
from hushrec.files import last_holder, locked, locked_as


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
