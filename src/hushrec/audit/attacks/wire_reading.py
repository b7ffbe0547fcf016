"""Wire reading: what an observer makes of interactions on their way to data owners.

It sees how many messages each owner gets, their one size, the flags that are outside, and bytes. It takes the
first eight of a message for the tuple (user, item), which they are if nothing is encrypted. Where flags are
inside, it takes every interaction for positive, as most are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Recorded, Role

_TUPLE_BYTES = 8


class Read(NamedTuple):
    """Messages of all owners, owner after owner, in the order in which they came."""

    owners: NDArray[np.int64]
    flags: NDArray[np.bool_]  # (messages, flags outside)
    users: NDArray[np.int64]  # guesses, of the first interaction of a message
    items: NDArray[np.int64]


def read_messages(seen: Sequence[Recorded]) -> Read:
    """All messages from users to owners."""
    batches: list[Any] = [
        one for one in seen if (type(one.message).sender, type(one.message).receiver) == (Role.USER, Role.OWNER)
    ]
    if not batches:
        none = np.empty(0, np.int64)
        return Read(none, np.empty((0, 0), np.bool_), none, none)
    owners = np.concatenate([np.repeat(one.addressees, one.message.lengths) for one in batches]).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    flags = np.concatenate([one.message.flags.values for one in batches])[order]
    contents = np.concatenate([one.message.contents.values for one in batches])[order, :_TUPLE_BYTES]
    users, items = np.ascontiguousarray(contents).view("<u4").astype(np.int64).T
    return Read(owners[order], flags.astype(np.bool_), users, items)


def guess_positives(read: Read, batch: int) -> NDArray[np.bool_]:
    """For each place of each message, whether it is positive."""
    if read.flags.shape[1]:
        return read.flags
    return np.ones((len(read.owners), batch), np.bool_)
