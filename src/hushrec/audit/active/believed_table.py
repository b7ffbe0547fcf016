"""Believed table: the users' side is told that one owner holds every item, and sends it all interactions (DRIFT).

The orchestrator tells the users' side who holds which items. Together with an owner it can name that owner for all
items, beside those who hold them; letters to it are under its own key. Where owners do not sign for their items,
the others get what they always get, and notice nothing.
"""

import hmac

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from hushrec.audit.asking import changed, has_columns
from hushrec.audit.attacks.foreign_items import NOTHING, Foreign
from hushrec.audit.attacks.foreign_items_read import judge
from hushrec.audit.attacks.wire_reading import is_interaction
from hushrec.audit.interactions import Guesses
from hushrec.audit.item_sums import held_by_owners
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage, is_sent
from hushrec.audit.uploads import paired
from hushrec.protocol import Message, Recorded, Role, Round, Seat, View

_TUPLE_BYTES = 8  # user and item
_KEY_TAG = b"hushrec drift letters v1\0"  # the key of letters is HMAC-SHA256 of it and their salt, 16 bytes
_NOBODY = 2**32 - 1  # the user of a place that is only there to fill up


def tell(stage: Stage, _own: Own) -> Round[None]:
    """The round again, with another table of who holds what."""
    numbers = np.array(sorted(_colluders(stage.view)), np.int32)

    def change(request: Message) -> Message:
        is_table = type(request).receiver == Role.USER and has_columns(type(request), "starts", "owners")
        return with_all_items(request, numbers) if is_table else request

    yield from changed(stage.honest, change)


def with_all_items(table: Message, numbers: NDArray[np.int32]) -> Message:
    """The table in which these owners hold every item, beside those who do."""
    starts, owners = getattr(table, "starts"), getattr(table, "owners")  # noqa: B009
    cells = [np.union1d(cell, numbers) for cell in np.split(owners, starts[1:-1])]
    sizes = np.concatenate([[0], np.cumsum([len(cell) for cell in cells])]).astype(np.int64)
    return type(table)(sizes, np.concatenate(cells).astype(np.int32))  # type: ignore[call-arg]


def _colluders(view: View) -> set[int]:
    """The owners whose mail is in the view."""
    found: set[int] = set()
    for one in view:
        if one.addressees is not None and is_interaction(type(one.message)):
            found.update(one.addressees.tolist())
        elif one.addressees is not None and is_sent(type(one.message), Role.OWNER, Role.USER, "key"):
            found.update(one.writers().tolist())
    return found


def look(before: Foreign | None, view: View, own: Own) -> Foreign:
    """Open what came to the colluding owners, of this round and those before."""
    keys = {
        owner: key.tobytes()
        for one in view
        if is_sent(type(one.message), Role.OWNER, Role.USER, "key")
        for owner, key in zip(one.writers().tolist(), _slices(one, "key"), strict=True)
    }
    mail = [one for one in view if one.addressees is not None and is_interaction(type(one.message))]
    rows = [_opened(one, keys, own) for one in mail]
    users, items = np.concatenate([np.empty((0, 2), np.int64), *rows]).T
    held, colluders = held_by_owners(view), _colluders(view)
    own_items = np.concatenate([np.empty(0, np.int64), *(held[owner] for owner in sorted(colluders))])
    pairs = np.unique(paired(users, items))
    now = Guesses(np.zeros(len(users), np.int64), users, items, None) if len(users) else NOTHING
    pairs = pairs if before is None else np.union1d(before.pairs, pairs)
    return Foreign(now, pairs, {}, own_items.astype(np.int64))


def _slices(one: Recorded, name: str) -> list[NDArray[np.uint8]]:
    column = one.message.column(name)
    return np.split(column.values, column.starts[1:-1])


def _salts(message: Message) -> list[bytes]:
    """Of the letters to each addressee."""
    halves = (getattr(message, name).tolist() for name in ("salt_low", "salt_high"))
    return [low.to_bytes(8, "little") + high.to_bytes(8, "little") for low, high in zip(*halves, strict=True)]


def _opened(one: Recorded, keys: dict[int, bytes], own: Own) -> NDArray[np.int64]:
    """Users and items of letters, with the keys of those who got them."""
    assert one.addressees is not None
    plain = []
    columns = [_slices(one, name) for name in ("sequences", "flags", "contents")]
    salts = _salts(one.message)
    for owner, salt, sequences, flags, contents in zip(one.addressees.tolist(), salts, *columns, strict=True):
        if own.settings["encryption"] == "none":
            plain.append(contents.tobytes())
            continue
        for sequence, outside, content in zip(sequences.tolist(), flags, contents, strict=True):
            number = sequence.to_bytes(8, "little")
            bound = owner.to_bytes(4, "little") + number + outside.tobytes()
            try:
                key = hmac.digest(keys[owner], _KEY_TAG + salt, "sha256")[:16]
                plain.append(AESGCM(key).decrypt(number + bytes(4), content.tobytes(), bound))
            except (InvalidTag, KeyError):  # under a key that nobody here has
                continue
    width = _TUPLE_BYTES + (own.settings["flag"] == "inside")
    places = np.frombuffer(b"".join(plain), np.uint8).reshape(-1, width)[:, :_TUPLE_BYTES]
    found: NDArray[np.int64] = np.ascontiguousarray(places).view("<u4").astype(np.int64)
    return np.compress(found[:, 0] != _NOBODY, found, axis=0)


ATTACK = Attack(
    name="believed table",
    seats=(Seat(Role.ACTIVE_SERVER), Seat(Role.OWNER, 0)),
    guesses="all interactions, also with items of other owners",
    measure="recall",
    sentence="Told that one owner holds everything, the users' side sends it {score:.1%} of a user's interactions "
    "with items of other owners; as many blind guesses find {chance:.1%}.",
    reads=is_interaction,
    look=look,
    judge=judge,
    only_last=True,
    settings=("flag", "batch", "encryption"),
    lie=Lie(tell),
)
