"""Values of SEAL (ciphertexts, keys) as bytes, and back from bytes that somebody else sent."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError

Bytes = NDArray[np.uint8]

_OPEN_FILES, _IN_MEMORY = Path("/proc/self/fd"), Path("/dev/shm")


def bytes_of(value: Any) -> bytes:
    """What SEAL saves of a value."""
    with _file() as path:
        value.save(str(path))
        return path.read_bytes()


def value_from(empty: Any, context: Any, data: bytes, refusal: str) -> Any:
    """A value from its bytes; SEAL checks that it is one of the parameters of the context."""
    if not _inflates_moderately(data):
        raise HushrecError(refusal)
    with _file() as path:
        path.write_bytes(data)
        try:
            empty.load(context, str(path))
        except (RuntimeError, ValueError, IndexError, MemoryError):
            raise HushrecError(refusal) from None
    return empty


@contextmanager
def _file() -> Iterator[Path]:
    """A file for a moment: SEAL reads and writes nothing else.

    On Linux it is in memory and has no name, so nothing of it stays, even if the process is killed.
    """
    if not _OPEN_FILES.is_dir():
        with tempfile.TemporaryDirectory(prefix="hushrec-") as folder:
            yield Path(folder) / "value"
        return
    with tempfile.TemporaryFile(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as file:
        yield _OPEN_FILES / str(file.fileno())


def _inflates_moderately(data: bytes) -> bool:
    """Whether bytes of SEAL are one frame of Zstandard (RFC 8878), with no more blocks than honest ones have.

    A block of four bytes may become 128 KB: without this check, a small message could take all memory.
    """
    if len(data) < 22 or data[5] != 2 or data[16:20] != b"\x28\xb5\x2f\xfd":
        return False
    end, descriptor = int.from_bytes(data[8:16], "little"), data[20]
    has_window, size_code = not descriptor & 32, descriptor >> 6
    size_bytes = (0 if has_window else 1, 2, 4, 8)[size_code]
    place, most_blocks = 21 + has_window + (0, 1, 2, 4)[descriptor & 3] + size_bytes, 16 + len(data) // 4096
    for _ in range(most_blocks):
        header = int.from_bytes(data[place : place + 3], "little")
        place += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
        if header & 1:
            return place + (4 if descriptor & 4 else 0) == end <= len(data)
    return False


def padded(data: bytes, size: int) -> Bytes:
    """Bytes in a row of a fixed length."""
    row = np.zeros(size, np.uint8)
    row[: len(data)] = np.frombuffer(data, np.uint8)
    return row
