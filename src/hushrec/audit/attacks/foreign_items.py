"""Foreign items: what an owner and the orchestrator together read of other owners' items (DRIFT, collusion).

With `--user-vectors users` the orchestrator gets sums of items' gradients and knows no user; an owner knows the
users of its own items, whose vectors the users' side hands to it, and gets nothing of other owners. Together:
the sum of an item that one user had points along that user's vector, whichever owner sent it. The guess: the user
whose vector, of all that the owner was handed so far, is parallel to the sum of an item that it does not hold.

As published the orchestrator needs no owner for that: see `gradient_direction.py`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.interactions import Guesses, interacted
from hushrec.audit.item_sums import PARALLEL, Floats, Sums, directions, has_sums, held_by_owners, windows_of
from hushrec.audit.scoreboard import Attack, Own, is_sent
from hushrec.audit.uploads import Pairs, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Recorded, Role, Seat, View

_NO_NUMBERS = np.empty(0, np.int64)
NOTHING = Guesses(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, np.empty(0, np.bool_))


class Foreign(NamedTuple):
    """What is read: of the last round, and of all rounds so far; and the vectors that the owner was handed."""

    now: Guesses
    pairs: Pairs  # distinct users and items
    vectors: dict[int, NDArray[np.float32]]  # of users, the newest of each
    held: NDArray[np.int64]  # by those who collude


def read_foreign(before: Foreign | None, view: View, own: Own) -> Foreign:
    """The guesses of a round, added to those of the rounds before."""
    if not any(has_sums(type(one.message)) for one in view):
        raise HushrecError("the orchestrator gets no sums without users here; it needs no owner to read gradients")
    vectors = dict(before.vectors) if before else {}
    handed = _handed(view)
    colluders = {owner for of_window in handed.values() for owner in of_window}
    held = held_by_owners(view)
    own_items = np.concatenate([np.empty(0, np.int32), *(held[owner] for owner in sorted(colluders))])
    found = [NOTHING]
    for learned in windows_of(view, float(own.settings["regularization"])):
        for of_users in handed.get(learned.window, {}).values():
            vectors |= of_users
        found.append(_named(learned, ~np.isin(learned.items, own_items), vectors))
    now = Guesses(*(np.concatenate(column) for column in zip(*found, strict=True)))
    pairs = np.unique(paired(now.users, now.items))
    known = before.pairs if before else pairs[:0]
    return Foreign(now, np.union1d(known, pairs), vectors, own_items.astype(np.int64))


def _named(learned: Sums, is_foreign: NDArray[np.bool_], vectors: dict[int, NDArray[np.float32]]) -> Guesses:
    """The user to whose vector the sum of each foreign item is parallel, if there is one; against it: good."""
    users = np.array(list(vectors), np.int64)
    if not len(users) or not is_foreign.any():
        return NOTHING
    along: Floats = directions(learned.rows[is_foreign]) @ directions(np.array(list(vectors.values()), float)).T
    best = np.abs(along).argmax(axis=1)
    cosines = along[np.arange(len(best)), best]
    is_found = np.abs(cosines) >= PARALLEL
    owners, items = learned.owners[is_foreign][is_found], learned.items[is_foreign][is_found].astype(np.int64)
    return Guesses(owners, users[best[is_found]], items, cosines[is_found] < 0)


def _handed(view: View) -> dict[int, dict[int, dict[int, NDArray[np.float32]]]]:
    """By window and owner: the users that a colluding owner named, and the vectors that it was handed."""
    named: dict[tuple[int, int], NDArray[np.int64]] = {}
    found: dict[int, dict[int, dict[int, NDArray[np.float32]]]] = {}
    for one in view:
        if one.addressees is None:
            continue
        if _names_users(type(one.message)):
            named |= _by_window(one, one.message.owner.tolist(), "users")  # type: ignore[attr-defined]
        elif is_sent(type(one.message), Role.USER, Role.OWNER, "vectors"):
            for (window, owner), vectors in _by_window(one, one.addressees.tolist(), "vectors").items():
                users = named[window, owner].tolist()
                found.setdefault(window, {})[owner] = dict(zip(users, vectors, strict=True))
    return found


def _names_users(message_type: type[Message]) -> bool:
    is_it = is_sent(message_type, Role.OWNER, Role.USER, "users")
    return is_it and not is_sent(message_type, Role.OWNER, Role.USER, "sums")


def _by_window(one: Recorded, owners: list[int], name: str) -> dict[tuple[int, int], NDArray[np.int64]]:
    column = one.message.column(name)
    rows = np.split(column.values, column.starts[1:-1])
    windows = one.message.window.tolist()  # type: ignore[attr-defined]
    return dict(zip(zip(windows, owners, strict=True), rows, strict=True))


ATTACK = Attack(
    name="foreign items",
    seats=(Seat(Role.ORCHESTRATOR), Seat(Role.OWNER, 0)),
    guesses="who had an item of another owner, by a vector that fits its sum",
    measure="precision",
    sentence="The orchestrator and one owner together say who had an item of another owner, and are right for "
    "{score:.1%} of such guesses about a user; a blind guess is for {chance:.1%}.",
    reads=has_sums,
    look=read_foreign,
    judge=lambda read, truth: interacted(truth).judged(read.now),
    settings=("regularization",),
)
