import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from hushrec.data import fetching
from hushrec.data.fetching import Download, fetch_archive, fetch_into, file_digest
from hushrec.errors import HushrecError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("inside/a.txt", "alpha")
        opened.writestr("inside/b.txt", "beta")
        opened.writestr("../outside.py", "raise SystemExit")
    return path


def download_of(archive: Path, **changes: object) -> Download:
    fields = {
        "kind": "publisher",
        "address": "https://example.org/made.zip",
        "algorithm": "sha256",
        "digest": file_digest(archive),
        "members": (("inside/a.txt", "set/one.txt"), ("inside/b.txt", "set/two.txt")),
    }
    return Download(**(fields | changes))


def accept(folder: Path) -> None:
    assert (folder / "set/two.txt").read_text() == "beta"


def test_wanted_members_arrive_and_nothing_else(tmp_path: Path, archive: Path) -> None:
    cache = tmp_path / "cache"
    fetch_into(cache, download_of(archive), lambda address, folder: archive, accept)
    assert sorted(str(path.relative_to(cache)) for path in cache.rglob("*.*")) == [
        "set/one.txt",
        "set/two.txt",
    ]
    assert (cache / "set/one.txt").read_text() == "alpha"


def test_md5_of_an_archive(tmp_path: Path, archive: Path) -> None:
    md5 = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
    fetch_into(tmp_path, download_of(archive, algorithm="md5", digest=md5), lambda *_: archive, accept)
    assert (tmp_path / "set/two.txt").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "0" * 64}, r"the SHA256 of made\.zip is [0-9a-f]{64}, expected 0{64}"),
        ({"members": (("inside/c.txt", "c"),)}, r"made\.zip is not the expected archive: .*inside/c\.txt"),
    ],
)
def test_an_archive_that_is_not_the_one_leaves_nothing(
    tmp_path: Path, archive: Path, changes: dict, message: str
) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(HushrecError, match=message):
        fetch_into(cache, download_of(archive, **changes), lambda *_: archive, accept)
    assert list(cache.iterdir()) == []


def test_what_verification_refuses_leaves_nothing(tmp_path: Path, archive: Path) -> None:
    def refuse(folder: Path) -> None:
        raise HushrecError("not good")

    with pytest.raises(HushrecError, match="not good"):
        fetch_into(tmp_path / "cache", download_of(archive), lambda *_: archive, refuse)
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_archive_at_all(tmp_path: Path) -> None:
    page = tmp_path / "page.zip"
    page.write_text("<html>sign in</html>")
    with pytest.raises(HushrecError, match=r"page\.zip is not the expected archive: File is not a zip file"):
        fetch_into(tmp_path, download_of(page), lambda *_: page, accept)


def test_fetch_of_a_file_address(tmp_path: Path, archive: Path) -> None:
    fetched = fetch_archive(archive.as_uri(), tmp_path / "..")
    assert file_digest(fetched) == file_digest(archive)
    fetched.unlink()


def test_pip_is_told_to_build_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run(command: list[str], **options: object) -> None:
        commands.append(command)
        (tmp_path / "made-1-py3-none-any.whl").write_bytes(b"wheel")

    monkeypatch.setattr(fetching.subprocess, "run", run)
    assert fetch_archive("pip:made==1", tmp_path).name == "made-1-py3-none-any.whl"
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:"} <= set(commands[0])
    assert commands[0][-3:] == ["--dest", str(tmp_path), "made==1"]


@pytest.mark.parametrize(
    "error",
    [subprocess.CalledProcessError(1, "pip"), subprocess.TimeoutExpired("pip", 1), OSError("no"), None],
)
def test_pip_without_luck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    def run(command: list[str], **options: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(fetching.subprocess, "run", run)
    with pytest.raises(HushrecError, match=r"pip could not download made==1; try: pip download --no-deps made==1"):
        fetch_archive("pip:made==1", tmp_path)
