"""The inbox of a participant of a sum: the shares that its neighbours wrote to it."""

from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.masks import KEY_BYTES
from hushrec.privacy.secure_sum.messages import Shares
from hushrec.protocol import Fold, Message, Numbers


@dataclass(frozen=True)
class Letters:
    """The letters to some participants, by reader and writer."""

    starts: NDArray[np.int64]  # those to reader k are starts[k]..starts[k + 1] - 1
    shares: Shares

    def of(self, place: int) -> Shares:
        """Those to one reader."""
        return self.shares.part(int(self.starts[place]), int(self.starts[place + 1]))


class LetterBox:
    """Keeps letters as they come, and sorts them when they are read."""

    def __init__(self) -> None:
        self._batches: list[tuple[Numbers, Shares]] = []
        self._sorted: tuple[Numbers, Shares] | None = None
        self._lock = Lock()

    def fork(self) -> "LetterBox":
        """An empty one."""
        return LetterBox()

    def add(self, addressees: Numbers, message: Shares) -> None:
        """Keep letters; each has one row of its keys and shares."""
        columns = (message.writer_key, message.reader_key, message.key_share, message.seed_share)
        if (message.lengths != 1).any() or any(column.values.shape[1] != KEY_BYTES for column in columns):
            raise HushrecError(
                f"a letter has not one key and one share of {KEY_BYTES} bytes; begin the round again"
            )
        self._batches.append((addressees, message))
        self._sorted = None

    def merge(self, other: "LetterBox") -> None:
        """Keep another's letters, too."""
        self._batches += other._batches
        self._sorted = None

    def to(self, readers: Numbers) -> Letters:
        """The letters to these readers, who ascend; one of each writer."""
        addressees, shares = self._in_order()
        firsts, lasts = (np.searchsorted(addressees, readers, side) for side in ("left", "right"))
        starts = np.concatenate([[0], np.cumsum(lasts - firsts)])
        places = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], lasts - firsts)
        return Letters(starts, shares.take(places))

    def num_parties(self) -> int:
        """How many take part in the sum, as the first writer was told."""
        return int(self._batches[0][1].num_parties[0])

    def _in_order(self) -> tuple[Numbers, Shares]:
        with self._lock:
            if self._sorted is None:
                addressees = np.concatenate([one for one, _ in self._batches])
                shares = Shares.join([one for _, one in self._batches])
                order = np.lexsort((shares.writer, addressees))
                addressees, shares = addressees[order], shares.take(order)
                is_same = (addressees[1:] == addressees[:-1]) & (shares.writer[1:] == shares.writer[:-1])
                if is_same.any():
                    raise HushrecError("a neighbour wrote twice for one sum; begin the round again")
                self._sorted = addressees, shares
            return self._sorted


def letters_to(readers: Numbers, inbox: Fold | None) -> Letters:
    """What came for these readers."""
    if not isinstance(inbox, LetterBox):
        raise HushrecError("no neighbour wrote to a participant of a sum; ask for shares first")
    return inbox.to(readers)


def digest_parts(shares: Message) -> list[bytes]:
    """Letters as bytes, column by column."""
    columns = (getattr(shares, kind.name) for kind in shares.kinds())
    return [getattr(column, "values", column).tobytes() for column in columns]
