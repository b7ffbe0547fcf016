"""Pulled up: of the items that a ranking upload pulls up, those that the client's vector scores highest are its.

Where clients learn to rank pairs (FedRec++ with a ranking loss), every row of an upload is a multiple of the
client's vector U, whose last number is 1: below zero for an item that is pulled up, above it for one that is
pushed down. So one row gives U, and with the V that was sent, the score of every item that is claimed to be liked.
U was made of the client's own items, so they score higher than virtual ones that were drawn blindly.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Answered, Pairs, answered, auc_of, lists, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View

Floats = NDArray[np.float64]


class Scored(NamedTuple):
    """The items that each client pulls up."""

    pairs: Pairs  # ascending
    scores: Floats

    @classmethod
    def of(cls, found: list[tuple[Pairs, Floats]]) -> "Scored":
        """From several uploads; what is in two of them counts as in the first."""
        if not found:
            return cls(np.empty(0, np.int64), np.empty(0))
        pairs, scores = (np.concatenate(column) for column in zip(*found, strict=True))
        pairs, places = np.unique(pairs, return_index=True)
        return cls(pairs, scores[places])


class Shown(NamedTuple):
    """What some clients were sent, and what their uploads show."""

    clients: NDArray[np.int64]
    starts: NDArray[np.int64]  # of each client's rows
    items: NDArray[np.int32]
    slopes: Floats  # the rows' last numbers: below zero for what is pulled up
    users: Floats  # the vector of each client
    vectors: Floats  # of all items

    @property
    def owners(self) -> NDArray[np.int64]:
        """For each row the place of its client."""
        return np.repeat(np.arange(len(self.clients)), np.diff(self.starts))

    def pulled_up(self, scores: Floats) -> tuple[Pairs, Floats]:
        """The pairs of a client and an item that it pulls up, with a score for each row of the uploads."""
        is_up = self.slopes < 0
        return paired(self.clients[self.owners[is_up]], self.items[is_up]), scores[is_up]


def has_gradients(message_type: type[Message]) -> bool:
    """Whether clients list items, with a gradient of each."""
    return lists(message_type, "gradients")


def shown(view: View) -> Iterator[Shown]:
    """What uploads show, batch after batch."""
    kinds = {type(one.message) for one in view if has_gradients(type(one.message))}
    for kind in kinds:
        for one in answered(view, "item_factors", kind):
            yield _shown(one)


def _shown(one: Answered) -> Shown:
    vectors: NDArray[np.float32] = one.request.item_factors  # type: ignore[attr-defined]
    items, rows = one.upload.column("items"), one.upload.column("gradients").values.astype(np.float64)
    if rows.shape[1:] != vectors.shape[1:] or (items.values >= len(vectors)).any():
        raise HushrecError("an upload does not fit the item vectors that were sent; leave it out")
    owners = np.repeat(np.arange(len(one.clients)), items.lengths)
    # Of each client's rows the longest, which rounding has changed least.
    order = np.lexsort((np.abs(rows[:, -1]), owners))
    longest = order[items.starts[1:][items.lengths > 0] - 1]
    users = np.zeros((len(one.clients), rows.shape[1]))
    last = rows[longest, -1:]
    users[owners[longest]] = np.divide(rows[longest], last, out=np.zeros_like(rows[longest]), where=last != 0)
    return Shown(one.clients, items.starts, items.values, rows[:, -1], users, vectors.astype(np.float64))


def scored(view: View) -> Scored:
    """The items that each client pulls up, with their scores."""
    return Scored.of(
        [
            one.pulled_up(np.einsum("nf,nf->n", one.users[one.owners], one.vectors[one.items]))
            for one in shown(view)
        ]
    )


def judge(found: Scored, truth: Truth) -> Outcome:
    """Per client: how often one of its items has a higher score than another that is pulled up."""
    return auc_of(found.pairs, found.scores, truth.train)


ATTACK = Attack(
    name="pulled up",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as the best-scored of those that one upload pulls up",
    measure="AUC",
    sentence="Of one of the user's own items and a virtual one that an upload pulls up as well, the own one has "
    "the higher score in {score:.0%} of cases; blindly it would be {chance:.0%}.",
    reads=has_gradients,
    look=lambda _before, view, _own: scored(view),
    judge=judge,
    settings=("negatives", "looks"),
)
