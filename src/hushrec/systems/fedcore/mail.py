"""Mail between the partners of FedCORE: who gets it, who is left, and how it is read. Used by `system.py`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, MadeUpError, PublicError
from hushrec.limits import MOST_PARTNERS
from hushrec.protocol import Answer, Cohort, Collect, Message, Numbers, Ragged
from hushrec.systems.fedcore.co_training import is_addable
from hushrec.systems.fedcore.messages import ItemGradients, LayerGradients, UserGradients
from hushrec.systems.fedcore.partners import Partnership

Mail = TypeVar("Mail", bound=Message)


@dataclass
class Inbox(Collect):
    """Mail of a type. What cannot be used is refused as it comes, so that its writer is named.

    That are rows of another width than was agreed on, and gradients that cannot be added up.
    """

    width: int = 0
    num_partners: int = 0  # whose gradients are added up

    def fork(self) -> "Inbox":
        """An empty one."""
        return Inbox(width=self.width, num_partners=self.num_partners)

    def add(self, numbers: Numbers, message: Message) -> None:
        """Keep one batch."""
        for kind in message.kinds():
            if kind.num_dims == 2 and (width := getattr(message, kind.name).values.shape[1]) != self.width:
                raise PublicError(
                    f"{kind.name} of {width} numbers in a row, not {self.width}; agree on the same settings"
                )
            if isinstance(message, UserGradients | ItemGradients | LayerGradients) and kind.dtype == np.float32:
                self._check_addable(message.column(kind.name), message.writer)
        super().add(numbers, message)

    def _check_addable(self, column: Ragged, writers: Numbers) -> None:
        """Refuse gradients that an honest partner does not send: it says that the training diverges."""
        for place, writer in enumerate(writers.tolist()):
            own = column.values[column.starts[place] : column.starts[place + 1]]
            if not is_addable(own if own.ndim > 1 else own[None], self.num_partners):
                raise MadeUpError(f"a gradient of partner {writer} is not finite or far too large; leave it out")


def slices_to(
    cohort: Cohort[Partnership], kind: type[Message], number: int, step: int, partners: Numbers
) -> list[list[NDArray[Any]]]:
    """The ragged columns of the messages of a type about a step: one of each other partner, or all are refused."""
    inbox = cohort.inboxes.get(kind)
    assert inbox is None or isinstance(inbox, Collect)
    names = [entry.name for entry in kind.kinds() if entry.layout == "ragged"]
    found: dict[int, list[NDArray[Any]]] = {}
    for addressees, message in () if inbox is None else inbox.batches:
        for place in np.flatnonzero(addressees == number).tolist():
            writer = int(message.writer[place])
            if message.step[place] != step or writer in found:
                raise PublicError(
                    f"gradients of partner {writer} twice, or of another step; begin the round again"
                )
            columns: list[Ragged] = [getattr(message, name) for name in names]
            found[writer] = [column.values[column.starts[place] : column.starts[place + 1]] for column in columns]
    expected = set(partners.tolist()) - {number}
    if found.keys() != expected:
        who = ", ".join(map(str, sorted(found.keys() ^ expected)))
        raise PublicError(f"gradients are missing, or of nobody who takes part: {who}; begin the round again")
    return [found[writer] for writer in sorted(found)]


def by_writer(cohort: Cohort[Partnership], kind: type[Mail], number: int, name: str) -> dict[int, Mail]:
    """The messages of a type that were sent to a partner, by who wrote them as a column says; each once."""
    found: dict[int, Mail] = {}
    for message in mail_to(cohort, kind, number):
        writer = int(getattr(message, name)[0])
        if writer in found:
            raise PublicError(f"partner {writer} wrote twice; begin the round again")
        found[writer] = message
    return found


def check_partners(partners: Numbers, cohort: Cohort[Partnership]) -> None:
    """Refuse a list of partners that cannot be: not ascending, too long, or without those who are asked."""
    is_list = 0 < len(partners) <= MOST_PARTNERS and partners[-1] < MOST_PARTNERS and (np.diff(partners) > 0).all()
    if not is_list or not np.isin(cohort.numbers, partners).all():
        raise PublicError("the list of partners is none, or leaves out who is asked; ask with another")


def check_aligned(partners: Numbers, cohort: Cohort[Partnership]) -> None:
    """Refuse such a list also if it has one who was not there when users were aligned."""
    check_partners(partners, cohort)
    for row in cohort.rows:
        known = cohort.private.partners[row].aligned_with
        if known and not known.issuperset(partners.tolist()):
            raise PublicError("a partner takes part with whom nothing was aligned; begin again without it")


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


def inbox_of_gradients(private: Partnership, config: _HasWidth) -> Inbox:
    """An inbox for gradients, of vectors or of layers."""
    return Inbox(width=config.width, num_partners=max(len(one.aligned_with) for one in private.partners))
