"""What clients showed the server: which items each listed, read from any message that lists items.

A (client, item) pair is one number, so that pairs can be sorted, joined and counted all at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.protocol import Message, Ragged, Recorded, Role

Pairs = NDArray[np.int64]

_STRIDE = np.int64(1) << 31


class Listed(NamedTuple):
    """Rows of all uploads, in the order in which they came."""

    pairs: Pairs
    scores: NDArray[np.float32]  # empty, if they were not asked for


def lists(message_type: type[Message], *columns: str) -> bool:
    """Whether clients send it to the server, with items and these columns, a row for each item."""
    layouts = {kind.name: kind.layout for kind in message_type.kinds()}
    is_upload = message_type.sender == Role.CLIENT and message_type.receiver == Role.SERVER
    return is_upload and all(layouts.get(name) == "ragged" for name in ("items", *columns))


def listed(seen: Sequence[Recorded], with_scores: bool = False) -> Listed:
    """All rows that clients listed."""
    columns = ("scores",) if with_scores else ()
    uploads = [one for one in seen if lists(type(one.message), *columns)]
    if not uploads:
        return Listed(np.empty(0, np.int64), np.empty(0, np.float32))
    who = np.concatenate([np.repeat(one.numbers.astype(np.int64), one.message.lengths) for one in uploads])
    items = np.concatenate([_column(one.message, "items").values for one in uploads])
    scores = (
        [_column(one.message, "scores").values for one in uploads] if with_scores else [np.empty(0, np.float32)]
    )
    return Listed(who * _STRIDE + items, np.concatenate(scores))


def _column(message: Message, name: str) -> Ragged:
    column: Ragged = getattr(message, name)
    return column


def clients_of(pairs: Pairs) -> NDArray[np.int64]:
    """Whose pairs they are."""
    return pairs // _STRIDE


def is_own(pairs: Pairs, train: Interactions) -> NDArray[np.bool_]:
    """The truth about each pair: whether the client trained on the item as its own."""
    return np.isin(pairs, train.users.astype(np.int64) * _STRIDE + train.items)
