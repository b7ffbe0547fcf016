"""Asks of an active server: those of an honest round, with other requests, and folds that refuse nothing."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol import Ask, Fold, Message, Numbers, Role, Round, Sealed, View


@dataclass(frozen=True)
class ForgedAsk(Ask):
    """A request with mail that the server made up itself, in the name of parties."""

    forged: Sealed


@dataclass
class Forgiving:
    """A fold that passes over what the one in it refuses: a liar expects strange answers."""

    inner: Fold

    def fork(self) -> "Forgiving":
        """One around an empty fold."""
        return Forgiving(self.inner.fork())

    def add(self, numbers: Numbers, message: Any) -> None:
        """Take in one batch, if it can be taken in."""
        with suppress(HushrecError):
            self.inner.add(numbers, message)

    def merge(self, other: "Forgiving") -> None:
        """Take in what a fork took in."""
        with suppress(HushrecError):
            self.inner.merge(other.inner)


def changed(honest: Round[Any], change: Callable[[Message], Message]) -> Round[None]:
    """An honest round whose requests are changed on their way."""
    try:
        ask = next(honest)
        while True:
            ask = honest.send((yield Ask(ask.to, change(ask.request), Forgiving(ask.replies))))
    except StopIteration:
        return


def with_vectors(make: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Callable[[Message], Message]:
    """A change of V, where a request has it."""

    def change(request: Message) -> Message:
        if not has_columns(type(request), "item_factors"):
            return request
        return replace(request, item_factors=make(request.item_factors))  # type: ignore[call-arg, attr-defined]

    return change


def has_columns(message_type: type[Message], *columns: str) -> bool:
    """Whether a type of messages has these."""
    return {kind.name for kind in message_type.kinds()}.issuperset(columns)


def asks_clients(message_type: type[Message], *columns: str) -> bool:
    """Whether the server sends it to clients, with these columns."""
    is_sent = message_type.sender == Role.SERVER and message_type.receiver == Role.CLIENT
    return is_sent and has_columns(message_type, *columns)


def clients_asked(view: View) -> NDArray[np.int64]:
    """The clients to whom V was sent, ascending."""
    numbers = [one.numbers for one in view if asks_clients(type(one.message), "item_factors")]
    return np.unique(np.concatenate([*numbers, np.empty(0, np.int32)])).astype(np.int64)
