"""Lines of a live source: a file that grows, or standard input; each an event or a change of owners, as JSON.

An event: {"user": "u1", "item": "i7", "positive": true, "time": 1700000000}; the time may be left out: what counts
is the order of the lines. A change: {"owner": "shop", "adds": ["i1", "i2"]}, {"owner": "shop", "drops": ["i1"]},
{"owner": "shop", "leaves": true}. Ids are texts or whole numbers (7 and "7" are the same). Other fields are left
aside.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec

from hushrec.errors import HushrecError

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24
_PAUSE_SECONDS = 0.1
_EVENT = '{"user": "u1", "item": "i7", "positive": true}'
_CHANGE = '{"owner": "shop", "adds": ["i1"]}, or "drops", or "leaves": true'


class Event(NamedTuple):
    """A user interacted with an item."""

    user: str
    item: str
    is_positive: bool


class Change(NamedTuple):
    """An owner takes items in, gives items up, or leaves with all that it has."""

    owner: str
    adds: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    leaves: bool = False


class Place(NamedTuple):
    """How far a source was read."""

    num_lines: int = 0
    num_bytes: int = 0


Id = str | int


class _Line(msgspec.Struct):
    user: Id | None = None
    item: Id | None = None
    positive: bool | Literal[0, 1] | None = None
    time: float | str | None = None
    owner: Id | None = None
    adds: list[Id] | None = None
    drops: list[Id] | None = None
    leaves: bool = False


_decode = msgspec.json.Decoder(_Line).decode


def parse(line: bytes) -> Event | Change:
    """What a line says. Errors do not repeat it: it may be private."""
    try:
        said = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HushrecError(f"not as expected; write {_EVENT} or {_CHANGE}") from None
    if said.owner is None:
        if said.user is None or said.item is None or said.positive is None or "" in (said.user, said.item):
            raise HushrecError(f"an event needs user, item and positive; write {_EVENT}")
        return Event(str(said.user), str(said.item), bool(said.positive))
    adds, drops = (tuple(str(item) for item in items or ()) for items in (said.adds, said.drops))
    is_clear = said.leaves != bool(adds or drops) and "" not in (said.owner, *adds, *drops)
    if said.user is not None or said.item is not None or not is_clear:
        raise HushrecError(f"an owner adds or drops items, or leaves; write {_CHANGE}")
    return Change(str(said.owner), adds, drops, said.leaves)


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
    path: Path, start: Place, until_end: bool, is_stopped: Callable[[], bool], on_half: Callable[[int], None]
) -> Iterator[Lines]:
    """The lines of a file from a place on; at its end wait for more, or end.

    `on_half` gets the number of a last line that somebody is still writing: it is not taken.
    """

    def is_whole(number: int, rest: bytes) -> bool:
        try:
            parse(rest)
        except HushrecError:
            if rest.strip():
                on_half(number)
            return False
        return True

    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < start.num_bytes:
                raise HushrecError(f"{path} is shorter than what was read of it before; give the same file")
            if start.num_lines and not start.num_bytes:
                raise HushrecError(
                    f"{start.num_lines:,} lines came through a pipe before; send the others so, too: "
                    f"tail -n +{start.num_lines + 1} {path} | hushrec run ... --live -"
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
        raise HushrecError(f"{path} cannot be read ({error.strerror}); give --live a file, or -") from None


def _lines(
    more: Callable[[], bytes | None],
    place: Place,
    is_stopped: Callable[[], bool],
    is_whole: Callable[[int, bytes], bool],
) -> Iterator[Lines]:
    """The whole lines of each chunk; `more` gives b"" while nothing comes, and None at the end.

    `is_whole`: whether to take the last line, with this number, although it has no end.
    """
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
