"""What the parties of DRIFT tell each other, in the order of sending. Used by `drift`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.limits import MOST_MESSAGES, MOST_USERS, MOST_WINDOWS
from hushrec.protocol import Message, Numbers, Ragged, Role, each, ragged, shared, writer_number


@dataclass(frozen=True)
class Register(Message):
    """Reveals: whether the owner's last round counted."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    users_side: NDArray[np.int32] = shared(np.int32, 0, low=0)  # its number
    counted_round: Numbers = each(np.int32, low=0)  # the owner's last one


@dataclass(frozen=True)
class OwnerKey(Message):
    """Reveals: the owner's key, to the users' side only; and that the owner signed for its items."""

    sender, receiver = Role.OWNER, Role.USER
    owner: Numbers = writer_number()
    key: Ragged = ragged(np.uint8, 2)  # a row each; without a byte if interactions are in the clear
    signing_key: Ragged = ragged(np.uint8, 2)
    signature: Ragged = ragged(np.uint8, 2)  # of a deed, see `deeds.py`


@dataclass(frozen=True)
class Holdings(Message):
    """Reveals: which items the owner holds."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    items: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Begin(Message):
    """Reveals: who holds which items, to the users' side."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    starts: NDArray[np.int64] = shared(np.int64, low=0)
    owners: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class Began(Message):
    """Reveals: how many windows of events there are, and how many users."""

    sender, receiver = Role.USER, Role.ORCHESTRATOR
    num_windows: NDArray[np.int64] = each(np.int64, low=0, high=MOST_WINDOWS)
    num_users: NDArray[np.int64] = each(np.int64, low=0, high=MOST_USERS)


@dataclass(frozen=True)
class NextWindow(Message):
    """Reveals: nothing."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)


@dataclass(frozen=True)
class SentInteractions(Message):
    """Reveals: to the owner, who interacted with which of its items, in order, and whether it was positive.

    To who watches the wire: how many messages there are, and the flags if they are outside.
    """

    sender, receiver = Role.USER, Role.OWNER
    has_own_cipher = True
    window: NDArray[np.int64] = each(np.int64, low=0, high=MOST_WINDOWS)
    salt_low: NDArray[np.uint64] = each(np.uint64)  # of the key of these messages, see `cipher.py`
    salt_high: NDArray[np.uint64] = each(np.uint64)
    sequences: Ragged = ragged(np.int64, low=1, high=MOST_MESSAGES)
    flags: Ragged = ragged(np.uint8, 2, high=1)
    contents: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class WindowSent(Message):
    """Reveals: which users want a recommendation, so that they are active."""

    sender, receiver = Role.USER, Role.ORCHESTRATOR
    users: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class TakeIn(Message):
    """Reveals: nothing."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)


@dataclass(frozen=True)
class Wanted(Message):
    """Reveals: which users and items are in the blocks of each group.

    So some of these users interacted with some of these items, each item with at least one of them.
    """

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    groups: Ragged = ragged(np.int32, low=0)
    is_item: Ragged = ragged(np.uint8, high=1)
    numbers: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: the vectors of those users and items."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    vectors: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class BlockGradients(Message):
    """Reveals: for each item of a group, a combination of the vectors of the users who interacted with it, with a
    sign that says whether it was positive; for each user, one of its items' vectors.
    """

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Recommend(Message):
    """Reveals: to the users, the items with the highest scores."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    users: Ragged = ragged(np.int32, low=0)
    items: Ragged = ragged(np.int32, 2, low=0)


@dataclass(frozen=True)
class Recommended(Message):
    """Reveals: nothing."""

    sender, receiver = Role.USER, Role.ORCHESTRATOR


# --- Where users' vectors stay with the users' side: in place of `TakeIn` and what follows it -------------------


@dataclass(frozen=True)
class NameUsers(Message):
    """Reveals: nothing."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    users_side: NDArray[np.int32] = shared(np.int32, 0, low=0)  # its number
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)


@dataclass(frozen=True)
class NamedUsers(Message):
    """Reveals: nothing; the owner has written to the users' side."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR


@dataclass(frozen=True)
class WantedUsers(Message):
    """Reveals: to the users' side, which users have completed blocks with the owner."""

    sender, receiver = Role.OWNER, Role.USER
    owner: Numbers = writer_number()
    window: NDArray[np.int64] = each(np.int64, low=0, high=MOST_WINDOWS)
    users: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class HandUsers(Message):
    """Reveals: nothing."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)


@dataclass(frozen=True)
class HandedUsers(Message):
    """Reveals: nothing; the users' side has written to owners."""

    sender, receiver = Role.USER, Role.ORCHESTRATOR


@dataclass(frozen=True)
class UserVectors(Message):
    """Reveals: to the owner, the vectors of the users that it named."""

    sender, receiver = Role.USER, Role.OWNER
    window: NDArray[np.int64] = each(np.int64, low=0, high=MOST_WINDOWS)
    vectors: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class HeldVectors(Message):
    """Reveals: the vectors of all items that the owner holds."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    users_side: NDArray[np.int32] = shared(np.int32, 0, low=0)
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)
    vectors: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class ItemSums(Message):
    """Reveals: which items of the owner are in blocks that were completed in the window, and the sums of their
    gradients: combinations of vectors of users that the receiver does not know.
    """

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    items: Ragged = ragged(np.int32, low=0)
    sums: Ragged = ragged(np.int64, 2)  # fixed point


@dataclass(frozen=True)
class UserSums(Message):
    """Reveals: to the users' side, the sums of users' gradients."""

    sender, receiver = Role.OWNER, Role.USER
    owner: Numbers = writer_number()
    window: NDArray[np.int64] = each(np.int64, low=0, high=MOST_WINDOWS)
    users: Ragged = ragged(np.int32, low=0)
    sums: Ragged = ragged(np.int64, 2)  # fixed point


@dataclass(frozen=True)
class MoveUsers(Message):
    """Reveals: the vectors of all items, if something is to be recommended."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    window: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_WINDOWS)
    item_factors: NDArray[np.float32] = shared(np.float32, 2)


@dataclass(frozen=True)
class MovedUsers(Message):
    """Reveals: nothing."""

    sender, receiver = Role.USER, Role.ORCHESTRATOR
