"""Malicious clients that work together: the same handlers as honest ones, with other numbers in their uploads.

They know what a client knows: the items' vectors that it is sent, its own upload, the settings. They import no
system, and know messages by their columns. Against a bound on rows they keep to it.

- Explicit boosting: the target's vector is pulled to three times the mean vector of all items, for which
  everybody has a high score.
- Popular alignment (PIECK: Zhang, Li, Rong, Zhao, Chen, Shou: Preventing the Popular Item Embedding Based Attack
  in Federated Recommendations, ICDE 2024): items whose vectors moved most are taken for popular ones, and the
  target's vector is pulled to the mean of theirs.
- Random users (A-ra: Rong, He, Chen: Poisoning Deep Learning Based Recommender Model in Federated Learning
  Scenarios, IJCAI 2022): users are approximated by random vectors, and the target's score is raised for these.
- Sign flipping: the own upload, turned round and ten times as long.
- Clustering (Yu, Liu, Wu, Yu, Yu, Zhang: Untargeted Attack against Federated Recommendation Systems via Poisonous
  Item Embeddings and the Defense, AAAI 2023): all items' vectors are pulled to the nearest of a few centres.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.privacy.robust_sum import shortened
from hushrec.protocol import AnySystem, Cohort, Handler, Message, Numbers, Ragged, Reply, Role

Floats = NDArray[np.float64]
LARGEST = 1000.0  # of one number, where no bound is set: sums take twice as much
_NUM_POPULAR, _NUM_RANDOM_USERS, _NUM_CENTRES = 10, 50, 3
HIGHER, FLIPPED = 3.0, -10.0


@dataclass
class Seen:
    """What liars remember of the rounds, together."""

    item_factors: Floats  # as they were sent in this round
    moved: Floats  # of each item, how far its vector has gone in all rounds
    gain: float  # how far a vector goes against a row of length 1 that all of them send
    sent: Floats | None = None  # their rows of the last round; those of other items are zero

    def after(self, item_factors: Floats) -> None:
        """Take in the vectors of the next round, and learn from them what became of the rows."""
        step = item_factors - self.item_factors
        self.moved += np.sqrt((step**2).sum(axis=1))
        if self.sent is not None and (size := float((self.sent**2).sum())) > 0:
            gain = -float((step * self.sent).sum()) / size
            self.gain = np.sign(gain) * min(max(abs(gain), 1e-3), 1e3) if gain else self.gain
        self.item_factors, self.sent = item_factors, None


class Lie(NamedTuple):
    """What all liars send in a round: rows of some items, the others as they are, times a factor."""

    items: Numbers  # ascending
    rows: Floats
    factor: float = 1.0


Plan = Callable[[Seen, int, np.random.Generator], Lie]


def _pulled(seen: Seen, target: int, to: Floats) -> Lie:
    """A row that moves the target's vector there."""
    row = (seen.item_factors[target] - to) / seen.gain
    return Lie(np.array([target], np.int32), row[None])


def boost(seen: Seen, target: int, _draws: np.random.Generator) -> Lie:
    """The target's score high for everybody."""
    return _pulled(seen, target, HIGHER * seen.item_factors.mean(axis=0))


def align(seen: Seen, target: int, _draws: np.random.Generator) -> Lie:
    """The target like items that move most, which many people have."""
    order = np.argsort(-seen.moved, kind="stable")
    popular = order[order != target][:_NUM_POPULAR]
    return _pulled(seen, target, seen.item_factors[popular].mean(axis=0))


def please_random(seen: Seen, target: int, draws: np.random.Generator) -> Lie:
    """The target's score higher for users that are drawn: the gradient of -log sigmoid, as long as a vector."""
    scale = float(np.sqrt((seen.item_factors**2).mean()))
    users = draws.normal(0.0, max(scale, 1e-3), (_NUM_RANDOM_USERS, seen.item_factors.shape[1]))
    scores = users @ seen.item_factors[target]
    row = -(users / (1 + np.exp(np.clip(scores, -50, 50)))[:, None]).sum(axis=0)
    return Lie(np.array([target], np.int32), row[None] / abs(seen.gain))


def flip(seen: Seen, _target: int, _draws: np.random.Generator) -> Lie:
    """The own rows, turned round."""
    return Lie(np.empty(0, np.int32), np.empty((0, seen.item_factors.shape[1])), FLIPPED)


def cluster(seen: Seen, _target: int, draws: np.random.Generator) -> Lie:
    """All items like the nearest of a few centres (a few steps of k-means)."""
    vectors = seen.item_factors
    centres = vectors[draws.choice(len(vectors), min(_NUM_CENTRES, len(vectors)), replace=False)]
    for _ in range(5):
        nearest = ((vectors[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        for one in np.unique(nearest).tolist():
            centres[one] = vectors[nearest == one].mean(axis=0)
    return Lie(np.arange(len(vectors), dtype=np.int32), (vectors - centres[nearest]) / abs(seen.gain))


PLANS: dict[str, Plan] = {
    "explicit boosting": boost,
    "popular alignment": align,
    "random users": please_random,
    "sign flipping": flip,
    "clustering": cluster,
}
OF_SCORES = ("explicit boosting", "sign flipping")  # what can be done with scores instead of rows


@dataclass
class Liars:
    """Who lies, and how. One per run: they remember."""

    numbers: Numbers
    attack: str
    target: int
    bound: float  # the longest row that is taken; 0: any
    draws: Draws
    _round: int = 0
    _seen: Seen | None = None
    _lie: Lie | None = None
    _lock: Any = field(default_factory=Lock)

    def answer(
        self, handler: Handler[Any, Any], cohort: Cohort[Any], request: Any, config: Any, draws: Draws
    ) -> Reply:
        """The honest reply, but for what liars upload."""
        return self.changed(cohort, request, handler.answer(cohort, request, config, draws))

    def changed(self, cohort: Cohort[Any], request: Message, reply: Reply) -> Reply:
        """What the liars of a cohort send in place of their honest upload."""
        message = reply.message
        places = np.flatnonzero(np.isin(cohort.numbers, self.numbers))
        columns = {kind.name for kind in message.kinds() if kind.layout == "ragged"}
        if not len(places) or type(message).receiver != Role.SERVER:
            return reply
        if {"items", "scores"} <= columns:
            return replace(reply, message=self._scored(message, places))
        item_factors = getattr(request, "item_factors", None)
        if "gradients" not in columns or item_factors is None:
            return reply
        lie = self._lie_of(item_factors.astype(np.float64), cohort.round_number)
        return replace(reply, message=self._rows(message, places, lie))

    def _lie_of(self, item_factors: Floats, round_number: int) -> Lie:
        """What all say in this round; who is asked first makes it up."""
        with self._lock:
            if self._round != round_number or self._lie is None or self._seen is None:
                if self._seen is None:
                    self._seen = Seen(item_factors, np.zeros(len(item_factors)), float(len(self.numbers)))
                else:
                    self._seen.after(item_factors)
                # Random users and first centres are the same in all rounds, so that pulls add up.
                lie = PLANS[self.attack](self._seen, self.target, self.draws.generator(f"liars-{self.attack}"))
                self._lie = lie._replace(rows=self._within(lie.rows.astype(np.float32)).astype(np.float64))
                self._seen.sent = np.zeros_like(item_factors)
                self._seen.sent[lie.items] = self._lie.rows
                self._round = round_number
            return self._lie

    def _within(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows that are taken: no longer than the bound, or no number beyond the largest."""
        if self.bound:
            return shortened(rows, self.bound)
        peaks = np.abs(rows).max(axis=1, initial=0)[:, None]
        taken: NDArray[np.float32] = rows * (LARGEST / np.maximum(peaks, LARGEST)).astype(np.float32)
        return taken

    def _rows(self, message: Message, places: NDArray[np.int64], lie: Lie) -> Message:
        """The message with other rows of the liars: those of the lie, and their own, times its factor."""
        gradients, lists = message.column("gradients"), getattr(message, "items", None)
        rows, items = slices_of(gradients), None if lists is None else slices_of(lists)
        for place in places.tolist():
            own = rows[place] if lie.factor == 1.0 else self._within(np.float32(lie.factor) * rows[place])
            if items is None:  # a row of each item
                rows[place] = own.copy()
                rows[place][lie.items] = lie.rows
                continue
            is_kept = ~np.isin(items[place], lie.items)
            listed = np.concatenate([items[place][is_kept], lie.items])
            order = np.argsort(listed)
            items[place] = listed[order].astype(np.int32)
            rows[place] = np.concatenate([own[is_kept], lie.rows])[order].astype(np.float32)
        changes = {"gradients": joined(rows)} | ({} if items is None else {"items": joined(items)})
        return replace(message, **changes)

    def _scored(self, message: Message, places: NDArray[np.int64]) -> Message:
        """The message with other scores: the highest for the target, in place of a near item, or all reversed."""
        items, scores = message.column("items"), message.column("scores")
        listed, given = items.values.copy(), scores.values.copy()
        for place in places.tolist():
            own = slice(items.starts[place], items.starts[place + 1])
            if self.attack == "sign flipping":
                given[own] = 1 - given[own]
            elif own.stop > own.start:
                if self.target not in listed[own]:
                    at = min(own.start + int(np.searchsorted(listed[own], self.target)), own.stop - 1)
                    listed[at] = self.target
                    order = own.start + np.argsort(listed[own], kind="stable")
                    listed[own], given[own] = listed[order], given[order]
                given[own][listed[own] == self.target] = 1.0
        changes = {"items": Ragged(items.starts, listed), "scores": Ragged(scores.starts, given)}
        return replace(message, **changes)


def slices_of(column: Ragged) -> list[NDArray[Any]]:
    """A column's slices, one for each party."""
    return [column.values[first:last] for first, last in pairwise(column.starts.tolist())]


def joined(slices: list[NDArray[Any]]) -> Ragged:
    """A column of these slices."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in slices])])
    return Ragged(starts, np.concatenate(slices))


class Lying(Protocol):
    """Parties that answer in place of honest ones, whose handlers they have."""

    def answer(
        self, handler: Handler[Any, Any], cohort: Cohort[Any], request: Any, config: Any, draws: Draws
    ) -> Reply:
        """What is sent instead."""
        ...


def spoiled(system: AnySystem, liars: Lying) -> AnySystem:
    """The same system in which some parties lie."""

    def lying(handler: Handler[Any, Any]) -> Handler[Any, Any]:
        def answer(cohort: Cohort[Any], request: Any, config: Any, draws: Draws) -> Reply:
            return liars.answer(handler, cohort, request, config, draws)

        return Handler(answer, handler.reads)

    return replace(system, handlers={kind: lying(handler) for kind, handler in system.handlers.items()})
