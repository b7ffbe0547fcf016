"""Mail between the partners of FedCORE: who gets it, who is left, and how it is read. Used by `system.py`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, PublicError
from hushrec.protocol import Answer, Cohort, Collect, Message, Numbers, Ragged
from hushrec.systems.fedcore.partners import Partnership

Mail = TypeVar("Mail", bound=Message)


@dataclass
class Inbox(Collect):
    """Mail of a type. Rows of another width than was agreed on are refused as they come: their writer is named."""

    width: int = 0

    def fork(self) -> "Inbox":
        """An empty one."""
        return Inbox(width=self.width)

    def add(self, numbers: Numbers, message: Message) -> None:
        """Keep one batch."""
        for kind in message.kinds():
            if kind.num_dims == 2 and (width := getattr(message, kind.name).values.shape[1]) != self.width:
                raise PublicError(
                    f"{kind.name} of {width} numbers in a row, not {self.width}; agree on the same settings"
                )
        super().add(numbers, message)


def slices_to(cohort: Cohort[Partnership], kind: type[Message], number: int) -> Iterator[list[NDArray[Any]]]:
    """The columns of the messages of a type that were sent to a partner; all of them are ragged."""
    inbox = cohort.inboxes.get(kind)
    assert inbox is None or isinstance(inbox, Collect)
    names = [entry.name for entry in kind.kinds()]
    for addressees, message in () if inbox is None else inbox.batches:
        for place in np.flatnonzero(addressees == number).tolist():
            columns: list[Ragged] = [getattr(message, name) for name in names]
            yield [column.values[column.starts[place] : column.starts[place + 1]] for column in columns]


def mail_to(cohort: Cohort[Partnership], kind: type[Mail], number: int) -> Iterator[Mail]:
    """The messages of a type that were sent to a partner."""
    inbox = cohort.inboxes.get(kind)
    assert inbox is None or isinstance(inbox, Collect)
    for addressees, message in inbox.batches if inbox is not None else ():
        for place in np.flatnonzero(addressees == number):
            yield message.part(place, place + 1)


def others(partners: Numbers, numbers: Numbers, shift: int) -> Numbers:
    """The partner so many places after each."""
    return partners[(np.searchsorted(partners, numbers) + shift) % len(partners)]


def still_here(partners: Numbers, answer: Answer, num_partners: int) -> Numbers:
    """Who goes on: a partner that is lost stays out, as its copies of common vectors are no longer in step."""
    left = answer.came(partners)
    if len(left) < min(2, num_partners):
        raise HushrecError("fewer than two partners are left; bring the others back and use --resume")
    return left


class _HasWidth(Protocol):
    """Settings that say how long a vector is."""

    @property
    def width(self) -> int:
        """How many numbers a user's or an item's vector has."""
        ...


def inbox_of(width: int) -> Callable[[object, object], Inbox]:
    """How an inbox is opened for rows of one width."""
    return lambda _private, _config: Inbox(width=width)


def inbox_of_rows(_private: object, config: _HasWidth) -> Inbox:
    """An inbox for gradients of vectors."""
    return Inbox(width=config.width)
