"""Wire reading: what an observer makes of interactions on their way to data owners.

It sees how many messages each owner gets, their one size, the flags that are outside, and bytes. It takes the
first eight of a message for the tuple (user, item), which they are if nothing is encrypted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.interactions import Guesses, interacted
from hushrec.audit.scoreboard import Attack, Outcome, Truth, is_sent
from hushrec.protocol import Message, Role, Seat, View

_TUPLE_BYTES = 8


class Read(NamedTuple):
    """Messages of all owners, owner after owner, in the order in which they came."""

    owners: NDArray[np.int64]
    flags: NDArray[np.bool_]  # (messages, flags outside)
    users: NDArray[np.int64]  # guesses, of the first interaction of a message
    items: NDArray[np.int64]


def is_interaction(message_type: type[Message]) -> bool:
    """Whether users send interactions to owners with it."""
    return is_sent(message_type, Role.USER, Role.OWNER, "flags", "contents")


def read_messages(view: View) -> Read:
    """All messages from users to owners."""
    batches = [(to, message) for _, _, message, to in view if to is not None and is_interaction(type(message))]
    if not batches:
        none = np.empty(0, np.int64)
        return Read(none, np.empty((0, 0), np.bool_), none, none)
    owners = np.concatenate([np.repeat(to, message.lengths) for to, message in batches]).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    flags = np.concatenate([message.column("flags").values for _, message in batches])[order]
    contents = np.concatenate([message.column("contents").values for _, message in batches])[order, :_TUPLE_BYTES]
    users, items = np.ascontiguousarray(contents).view("<u4").astype(np.int64).T
    return Read(owners[order], flags.astype(np.bool_), users, items)


def judge(read: Read, truth: Truth) -> Outcome:
    """By owner. Blind: the density of interactions among all users and items."""
    known = interacted(truth)
    _, is_right = known.find(Guesses(read.owners, read.users, read.items, None))
    return Outcome.of_marks(read.owners, is_right, np.full(len(read.owners), known.mean_density))


ATTACK = Attack(
    name="wire reading",
    seats=(Seat(Role.OBSERVER),),
    guesses="user and item of a message, as if it were plain",
    measure="precision",
    sentence="A message, read as user and item, is right for {score:.1%}; a blind guess for {chance:.1%}.",
    reads=is_interaction,
    look=lambda _before, view, _own: read_messages(view),
    judge=judge,
    repairs=("--encryption aes-gcm",),
)
