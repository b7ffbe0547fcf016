"""What a line of a live source says: an event or a change of owners, as JSON.

An event: {"user": "u1", "item": "i7", "positive": true, "time": 1700000000}; the time may be left out: what counts
is the order of the lines. A change: {"owner": "shop", "adds": ["i1", "i2"]}, {"owner": "shop", "drops": ["i1"]},
{"owner": "shop", "leaves": true}. Ids are texts or whole numbers (7 and "7" are the same). Other fields are left
aside.
"""

from typing import Literal, NamedTuple

import msgspec

from hushrec.errors import HushrecError

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
