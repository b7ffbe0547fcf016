"""Files that only their owner can read, written as a whole or not at all; locks that keep other processes out."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hushrec.errors import HushrecError

_TEMPORARY = re.compile(r"\..+\.([1-9][0-9]{0,9})")  # of a file that is being written, by which process
_TRIED_BYTES = 4096  # written and taken away again, to see whether a disk has room for anything

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def make_private_folder(folder: Path) -> None:
    """The folder, and all above it that are missing, for their owner only."""
    for path in reversed([folder, *folder.parents]):
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """An empty file that was not there before, for its owner only."""
    make_private_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def check_folder_to_write(path: Path, flag: str) -> None:
    """Refuse a folder that cannot be made or written to, before work is done for it; nothing is left behind."""
    if path.exists() and not path.is_dir():
        raise HushrecError(f"{path} is a file; choose a folder for {flag}")
    _refuse_unwritable(path, flag)


def check_file_to_write(path: Path, flag: str) -> None:
    """Refuse a file that cannot be made or replaced, before work is done for it; nothing is left behind."""
    if path.is_dir():
        raise HushrecError(f"{path} is a folder; name a file for {flag}")
    _refuse_unwritable(path, flag)


def _refuse_unwritable(path: Path, flag: str) -> None:
    there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
    if there != path and not there.is_dir():
        raise HushrecError(f"{path}: {there} is a file, so nothing can be below it; choose another {flag}")
    if there.exists() and not (there.is_dir() or there.is_file()):  # a pipe or a device takes what it takes
        return
    folder = there if there.is_dir() else there.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TRIED_BYTES))
            file.flush()
    except OSError as error:
        raise HushrecError(
            f"{path}: nothing can be written there ({error.strerror}); choose another {flag}"
        ) from None


def write_file(path: Path, data: bytes, flag: str) -> None:
    """Write a file for all to read: as a whole or not at all, so that a full disk leaves the one before.

    `flag` is the setting that an error names.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_bytes(data)
            return
        with _whole_file(path.resolve(), 0o666) as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(data)
    except OSError as error:
        raise HushrecError(f"{path} cannot be written ({error.strerror}); choose another {flag}") from None


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that only its owner can read, as a whole or not at all, also after a power cut."""
    make_private_folder(path.parent)
    with _whole_file(path, 0o600) as file:
        yield file


@contextmanager
def _whole_file(path: Path, mode: int, is_synced: bool = True) -> Iterator[IO[bytes]]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if is_synced:
            _sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or path  # a full disk does not say which file it was
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Have the disk know the new name of a file; before that, a power cut could bring the old one back."""
    if os.name != "posix":  # Windows has no such thing
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def clear_leftovers(folder: Path) -> None:
    """Take away what a process that was killed had begun to write, in a folder of ours and all below it.

    Of who writes at this moment nothing is touched: the name says which process it is.
    """
    for path in folder.rglob(".*"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and path.is_file() and not path.is_symlink() and not _is_alive(int(found[1])):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    with private_file(path) as file:
        file.write(data)


def write_passing_file(path: Path, data: bytes) -> None:
    """The same for what is soon written again: as a whole or not at all, but a power cut may take it."""
    make_private_folder(path.parent)
    with _whole_file(path, 0o600, is_synced=False) as file:
        file.write(data)


@contextmanager
def locked(path: Path, if_taken: str) -> Iterator[None]:
    """Hold a lock; refused at once if another process has it, with these words.

    A process that is killed lets go. Where there are no such locks (Windows), nobody is kept out.
    """
    with path.open("w") as file:
        if not _take(file):
            raise HushrecError(if_taken)
        yield


@contextmanager
def locked_as(path: Path, holder: str) -> Iterator[None]:
    """Wait for a lock and hold it; the file then names its holder. Else as `locked`."""
    with path.open("a+") as file:
        _take(file, waits=True)
        file.truncate(0)
        file.write(holder)
        file.flush()
        yield


def last_holder(path: Path) -> tuple[str, bool]:
    """Who held a lock file last, and whether that holder still does; nobody where there are no locks."""
    if fcntl is None or not path.exists():
        return "", False
    with path.open() as file:
        is_held = not _take(file, is_shared=True)
        return file.read(), is_held


def _take(file: IO[str], is_shared: bool = False, waits: bool = False) -> bool:
    """Take the lock of an open file, which lasts until it is closed; False: another process has it."""
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if waits else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
