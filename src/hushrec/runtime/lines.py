"""Lines as they come: of a file that grows, or of standard input."""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from hushrec.errors import HushrecError

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24
_PAUSE_SECONDS = 0.1


class Place(NamedTuple):
    """How far a source was read."""

    num_lines: int = 0
    num_bytes: int = 0


Lines = list[tuple[Place, bytes]]  # each with the place behind it; empty while nothing comes


def standard_input(file: IO[bytes], start: Place, is_stopped: Callable[[], bool]) -> Iterator[Lines]:
    """The lines that wait, as soon as there are some, until the end of the input; a pipe cannot go back."""

    def more() -> bytes | None:
        if not select.select([file], [], [], _PAUSE_SECONDS)[0]:
            return b""
        return os.read(file.fileno(), _CHUNK_BYTES) or None

    for lines in _lines(more, start, is_stopped, lambda _number, _rest: True):
        yield [(Place(place.num_lines, start.num_bytes), line) for place, line in lines]


def followed(
    path: Path,
    start: Place,
    until_end: bool,
    is_stopped: Callable[[], bool],
    is_whole: Callable[[int, bytes], bool],
) -> Iterator[Lines]:
    """The lines of a file from a place on; at its end wait for more, or end.

    `is_whole`: whether to take the last line, with this number, although it has no end; somebody may still be
    writing it.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < start.num_bytes:
                raise HushrecError(f"{path} is shorter than what was read of it before; give the same file")
            if start.num_lines and not start.num_bytes:
                raise HushrecError(
                    f"{start.num_lines:,} lines came through a pipe before; send the others so, too, "
                    f"with - in place of the file: tail -n +{start.num_lines + 1} {path} | ..."
                )
            file.seek(start.num_bytes)

            def more() -> bytes | None:
                chunk = file.read(_CHUNK_BYTES)
                if chunk or until_end:
                    return chunk or None
                if os.fstat(file.fileno()).st_size < file.tell():
                    raise HushrecError(f"{path} became shorter while it was read; append to it only")
                time.sleep(_PAUSE_SECONDS)
                return b""

            yield from _lines(more, start, is_stopped, is_whole)
    except OSError as error:
        raise HushrecError(f"{path} cannot be read ({error.strerror}); give another file, or -") from None


def _lines(
    more: Callable[[], bytes | None],
    place: Place,
    is_stopped: Callable[[], bool],
    is_whole: Callable[[int, bytes], bool],
) -> Iterator[Lines]:
    """The whole lines of each chunk; `more` gives b"" while nothing comes, and None at the end."""
    rest = b""
    while not is_stopped():
        chunk = more()
        if chunk is None:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise HushrecError(f"line {place.num_lines + len(whole) + 1} does not end; write one event per line")
        found: Lines = []
        for line in whole:
            place = Place(place.num_lines + 1, place.num_bytes + len(line) + 1)
            found.append((place, line))
        yield found
    if rest and not is_stopped() and is_whole(place.num_lines + 1, rest):
        yield [(Place(place.num_lines + 1, place.num_bytes + len(rest)), rest)]
