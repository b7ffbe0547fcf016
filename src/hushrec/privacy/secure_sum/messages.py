"""What participants and server send each other for a sum, in order of sending."""

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.privacy.secure_sum.masks import KEY_BYTES
from hushrec.protocol import Message, Numbers, Ragged, Role, each, missing_bytes, ragged, shared, writer_number

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SendKeys(Message):
    """Reveals: that a sum is to be made."""

    sender, receiver = Role.SERVER, Role.CLIENT


@dataclass(frozen=True)
class PublicKeys(Message):
    """Reveals: a key that is drawn for this sum."""

    sender, receiver = Role.CLIENT, Role.SERVER
    key: Ragged = ragged(np.uint8, 2)  # one row


@dataclass(frozen=True)
class SendShares(Message):
    """Reveals: how many take part, who the participant's neighbours are, and their keys."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # a sum is begun anew when somebody is lost; a participant answers once for each
    num_parties: Integers = shared(np.int64, 0, low=0)
    neighbours: Ragged = ragged(np.int32, low=0)
    keys: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class SharesSent(Message):
    """Reveals: nothing; the participant has written to its neighbours."""

    sender, receiver = Role.CLIENT, Role.SERVER


@dataclass(frozen=True)
class Shares(Message):
    """Reveals: to a neighbour, one share of a participant's key and one of its mask's seed: alone, nothing."""

    sender, receiver = Role.CLIENT, Role.CLIENT
    writer: Numbers = writer_number()
    num_parties: Numbers = each(np.int32, low=0)  # as the writer was told
    writer_key: Ragged = ragged(np.uint8, 2)  # one row, and so below
    reader_key: Ragged = ragged(np.uint8, 2)  # as the writer was told: for this sum, and no other
    key_share: Ragged = ragged(np.uint8, 2)
    seed_share: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class MaskedNumbers(Message):
    """Reveals: nothing but how many numbers there are; they are uniform to whoever has not all of their masks."""

    sender, receiver = Role.CLIENT, Role.SERVER
    words: Ragged = ragged(np.int64)


@dataclass(frozen=True)
class NoisyNumbers(Message):
    """Reveals: nothing; they stand for masked numbers, within one process, without their masks."""

    sender, receiver = Role.CLIENT, Role.SERVER
    is_stand_in = True
    words: Ragged = ragged(np.int64)


@dataclass(frozen=True)
class Unmask(Message):
    """Reveals: whose numbers are in the sum."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # a sum is begun anew when somebody is lost; a participant answers once for each
    survivors: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class Unmasking(Message):
    """Reveals: with others' together, the own mask of each survivor, and the key of who was lost: never both."""

    sender, receiver = Role.CLIENT, Role.SERVER
    neighbours: Ragged = ragged(np.int32, low=0)
    is_key: Ragged = ragged(np.bool_)  # whether it is a share of the key, for who was lost, or of the seed
    shares: Ragged = ragged(np.uint8, 2)


@dataclass(frozen=True)
class SendCounts(Message):
    """Reveals: that rows of items are to be counted, and of how many clients."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # a sum is begun anew when somebody is lost; a participant answers once for each
    num_items: Integers = shared(np.int64, 0, low=0)
    num_parties: Integers = shared(np.int64, 0, low=0)


@dataclass(frozen=True)
class ItemCounts(Message):
    """Reveals: the client's items; it is masked, and never sent as it is."""

    sender, receiver = Role.CLIENT, Role.SERVER
    words: Ragged = ragged(np.int64)  # a number for each item: 1, or 0, and noise


@dataclass(frozen=True)
class LeaveOut(Message):
    """Reveals: which items have few raters in this round."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # a sum is begun anew when somebody is lost; a participant answers once for each
    items: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class LeftOut(Message):
    """Reveals: nothing."""

    sender, receiver = Role.CLIENT, Role.SERVER


COUNTING: tuple[type[Message], ...] = (SendCounts, LeaveOut, LeftOut)
MESSAGES: tuple[type[Message], ...] = (
    SendKeys, PublicKeys, SendShares, SharesSent, Shares, MaskedNumbers, NoisyNumbers, Unmask, Unmasking,
)  # fmt: skip


def told_to_all(request: Message, round_number: int, num_parties: int, left_out: Numbers) -> bytes:
    """A digest of what all participants of a sum are told alike; the masks that they have in common depend on it.

    Guarantee: who was told something else has other masks, so that the sum with its numbers is noise.
    """
    total = blake2b(digest_size=KEY_BYTES, person=b"hushrec sum told")
    told: list[NDArray[Any]] = [np.array([round_number, num_parties], np.int64), left_out.astype(np.int32)]
    told += [getattr(request, kind.name) for kind in request.kinds() if kind.layout == "shared"]
    total.update(type(request).__name__.encode())
    for column in told:
        total.update(repr((column.dtype.str, column.shape)).encode())
        total.update(np.ascontiguousarray(column).data)
    return total.digest()


def rows_of_one(rows: NDArray[np.uint8]) -> Ragged:
    """A row of bytes for each party."""
    return Ragged(np.arange(len(rows) + 1, dtype=np.int64), rows)


def no_keys(num_parties: int) -> NDArray[np.uint8]:
    """What stands for keys and shares where they are counted only."""
    return np.zeros((num_parties, KEY_BYTES), np.uint8)


# --- What stands for masked numbers where masks are counted only -------------------------------------------------


def stand_in_for(kind: type[Message]) -> type[Message]:
    """The type of a reply in the clear, with the bytes that masked numbers would have more. No view shows it."""
    about = {
        "__doc__": "Reveals: nothing; it stands for masked numbers, whose bytes it counts, within one process.",
        "__module__": kind.__module__,
        "is_stand_in": True,
    }
    absent = [("masks_absent", Integers, missing_bytes("each"))]
    return make_dataclass(
        f"Unmasked{kind.__name__}", absent, bases=(kind,), frozen=True, eq=False, namespace=about
    )


def stand_in(kind: Callable[..., Message], reply: Message, num_parties: int, num_words: int) -> Message:
    """A reply of that type."""
    own = {column.name: getattr(reply, column.name) for column in reply.kinds()}
    absent = 8 * num_words - _column_bytes(reply, num_parties) - 8  # which are the numbers of the column itself
    return kind(**own, masks_absent=absent)


def _column_bytes(reply: Message, num_parties: int) -> Integers:
    """Bytes of each party's columns in a frame, with those that a stand-in counts already."""
    sizes = np.zeros(num_parties, np.int64)
    for column in reply.kinds():
        value = getattr(reply, column.name)
        if column.layout == "ragged":
            row_bytes = column.dtype.itemsize * int(np.prod(value.values.shape[1:]))
            sizes += 4 * (column.num_dims - 1) + (value.lengths * row_bytes + 3) // 4 * 4
        elif column.layout == "each":
            sizes += (column.dtype.itemsize + 3) // 4 * 4 + (value if column.counts_bytes else 0)
    return sizes
