"""A malicious organisation: one owner, or one partner, where systems have few parties and no clients.

Like `liars` these run the honest handlers, change what they send, import no system, and know messages by their
columns.

- An owner moves the vectors that it asks for by the gradients that it returns. One that wants an item of its own
  in all lists asks in every window for it and for all users whom it ever met, and returns gradients that take the
  item to where these users are on the whole, three times as far, and turn the users there, too.
- A partner recommends its own items by vectors of its own, so nothing has to be promoted. What it shares are
  vectors of common users: with gradients turned round and ten times as long it spoils those of the others.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.spoiling.liars import FLIPPED, HIGHER, LARGEST, joined, slices_of
from hushrec.draws import Draws
from hushrec.protocol import Cohort, Handler, Message, Ragged, Reply, Role, Sealed

Floats = NDArray[np.float64]
_TURNED = 0.5  # the cosine
_WANTED = {"groups", "is_item", "numbers"}


@dataclass
class LyingOwner:
    """The owner with the lowest number that holds the target; it lies in every window."""

    attack: str
    target: int
    number: int = -1  # not known before owners have said what they hold
    _is_item: NDArray[np.bool_] | None = None  # of each vector that it asked for
    _numbers: NDArray[np.int32] | None = None
    _num_added: int = 0  # of these, how many for its own ends, behind the others
    _met: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # users
    _seen: Floats | None = None  # the target's vector, as it was sent last
    _sent: Floats | None = None  # the gradient that was returned for it
    _gain: float = 1.0  # how far a vector goes against a gradient of length 1

    def answer(
        self, handler: Handler[Any, Any], cohort: Cohort[Any], request: Any, config: Any, draws: Draws
    ) -> Reply:
        """The honest reply, but for the liar's part of it."""
        place = _place_of(self.number, cohort)
        is_vectors = place >= 0 and type(request).receiver == Role.OWNER and "vectors" in _columns(request)
        if is_vectors:
            vectors = slices_of(request.column("vectors"))
            own = vectors[place]
            vectors[place] = own[: len(own) - self._num_added]
            reply = handler.answer(cohort, replace(request, vectors=joined(vectors)), config, draws)
            return replace(reply, message=self._boosted(reply.message, place, own))
        reply = handler.answer(cohort, request, config, draws)
        names = _columns(reply.message)
        if names == {"items"} and type(reply.message).sender == Role.OWNER:
            self._find(cohort, reply.message.column("items"))
        elif names == _WANTED and place >= 0:
            return replace(reply, message=self._asking(reply.message, place))
        return reply

    def _find(self, cohort: Cohort[Any], held: Ragged) -> None:
        """Who of those who register holds the target."""
        has_it = [self.target in one for one in slices_of(held)]
        for number in cohort.numbers[has_it].tolist():
            self.number = number if self.number < 0 else min(number, self.number)

    def _asking(self, message: Message, place: int) -> Message:
        """The same with the target among what is wanted."""
        columns = {name: slices_of(message.column(name)) for name in _WANTED}
        is_there = (columns["is_item"][place] == 1) & (columns["numbers"][place] == self.target)
        self._num_added = 0
        if self.attack == "explicit boosting":
            is_item = columns["is_item"][place] == 1
            named = columns["numbers"][place][~is_item]
            added = np.concatenate([np.full(int(not is_there.any()), self.target), np.setdiff1d(self._met, named)])
            self._num_added, self._met = len(added), np.union1d(self._met, named)
            is_added_item = np.arange(len(added)) < int(not is_there.any())
            for name, values in {"groups": 0 * added, "is_item": is_added_item, "numbers": added}.items():
                own = columns[name][place]
                columns[name][place] = np.concatenate([own, values.astype(own.dtype)])
        self._is_item = columns["is_item"][place].astype(np.bool_)
        self._numbers = columns["numbers"][place]
        return replace(message, **{name: joined(parts) for name, parts in columns.items()})

    def _boosted(self, message: Message, place: int, vectors: NDArray[np.float32]) -> Message:
        """The gradients with another one of the target, or all turned round."""
        gradients = slices_of(message.column("gradients"))
        own = gradients[place]
        if self.attack == "sign flipping":
            gradients[place] = np.clip(np.float32(FLIPPED) * own, -LARGEST, LARGEST)
            return _with_gradients(message, gradients)
        assert self._is_item is not None
        assert self._numbers is not None
        own = np.concatenate([own, np.zeros((self._num_added, vectors.shape[1]), np.float32)])
        rows = np.flatnonzero(self._is_item & (self._numbers == self.target))
        own[rows] = 0
        users = vectors[~self._is_item].astype(np.float64)
        own[rows[0]] = self._pull(vectors[rows[0]].astype(np.float64), users)
        own[~self._is_item] -= self._turn(users)
        gradients[place] = own
        return _with_gradients(message, gradients)

    def _turn(self, users: Floats) -> NDArray[np.float32]:
        """What users' vectors need until the angle to their mean is at most 60 degrees."""
        along = _along(users)
        missing = np.maximum(_TURNED * np.sqrt((users**2).sum(axis=1)) - users @ along, 0)
        turn: Floats = np.clip(missing[:, None] * along / self._gain, -LARGEST, LARGEST)
        return turn.astype(np.float32)

    def _pull(self, vector: Floats, users: Floats) -> NDArray[np.float32]:
        """The gradient that takes the target's vector where users' scores are high; nothing if no user is seen."""
        if self._sent is not None and self._seen is not None and (size := float((self._sent**2).sum())) > 0:
            gain = -float(((vector - self._seen) * self._sent).sum()) / size
            self._gain = gain if gain > 0 else self._gain
        pull = np.zeros_like(vector)
        if len(users):
            length = HIGHER * float(np.sqrt((users**2).sum(axis=1)).mean())
            pull = (vector - length * _along(users)) / self._gain
        self._seen, self._sent = vector, np.clip(pull, -LARGEST, LARGEST)
        return self._sent.astype(np.float32)


@dataclass
class LyingPartner:
    """One partner whose gradients for others are turned round."""

    number: int

    def answer(
        self, handler: Handler[Any, Any], cohort: Cohort[Any], request: Any, config: Any, draws: Draws
    ) -> Reply:
        """The honest reply, but for the liar's mail."""
        reply = handler.answer(cohort, request, config, draws)
        place = _place_of(self.number, cohort)
        if place < 0:
            return reply
        return replace(reply, mail=tuple(self._flipped(sealed, place) for sealed in reply.mail))

    def _flipped(self, sealed: Sealed, place: int) -> Sealed:
        message = sealed.message
        if not {"users", "gradients"} <= _columns(message):
            return sealed
        gradients = slices_of(message.column("gradients"))
        gradients[place] = np.clip(np.float32(FLIPPED) * gradients[place], -LARGEST, LARGEST)
        return replace(sealed, message=_with_gradients(message, gradients))


def _with_gradients(message: Message, slices: list[NDArray[Any]]) -> Message:
    changes: dict[str, Any] = {"gradients": joined(slices)}
    return replace(message, **changes)


def _along(users: Floats) -> Floats:
    """The direction of the sum of users' vectors, of length 1."""
    total = users.sum(axis=0)
    direction: Floats = total / max(float(np.sqrt((total**2).sum())), 1e-9)
    return direction


def _columns(message: Message) -> set[str]:
    return {kind.name for kind in message.kinds() if kind.layout == "ragged"}


def _place_of(number: int, cohort: Cohort[Any]) -> int:
    """Where a party is among those who are asked; -1: nowhere."""
    places = np.flatnonzero(cohort.numbers == number)
    return int(places[0]) if len(places) else -1
