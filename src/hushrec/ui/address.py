"""Where a page over a folder of runs is open: a file in that folder, which a process that is gone leaves behind.

Needs none of what the page needs: `hushrec run` looks here, to say where its run can be watched.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from hushrec.files import write_private_file
from hushrec.runs.following import process_mark

STATE = ".hushrec"  # in the runs folder: all that the page itself keeps
_FILE = "page.json"
_MOST_DEPTH = 8


class Open(msgspec.Struct, frozen=True):
    """A page that is open, and whose it is."""

    address: str
    process: int
    mark: str


@contextmanager
def told_open(runs_folder: Path, address: str) -> Iterator[None]:
    """Say where the page is while it is open."""
    path = runs_folder / STATE / _FILE
    process = os.getpid()
    write_private_file(path, msgspec.json.encode(Open(address, process, process_mark(process))))
    try:
        yield
    finally:
        found = _read(path)
        if found is not None and found.process == process:  # another page over the same folder may have come
            with suppress(OSError):
                path.unlink()


def page_of(run_folder: Path) -> str | None:
    """The address at which a run can be watched, if a page is open over a folder above it."""
    folder = run_folder.absolute()
    for above in list(folder.parents)[:_MOST_DEPTH]:
        found = _read(above / STATE / _FILE)
        if found is not None and process_mark(found.process) == found.mark and found.mark:
            return f"{found.address}/#/run/{quote(str(folder.relative_to(above)), safe='')}"
    return None


def _read(path: Path) -> Open | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Open)
    except (OSError, msgspec.MsgspecError):
        return None
