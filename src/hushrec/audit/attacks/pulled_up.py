"""Pulled up: of the items that a ranking upload pulls up, those that the client's vector scores highest are its.

Where clients learn to rank pairs (FedRec++ with a ranking loss), every row of an upload is a multiple of the
client's vector U, whose last number is 1: below zero for an item that is pulled up, above it for one that is
pushed down. So one row gives U, and with the V that was sent, the score of every item that is claimed to be liked.
U was made of the client's own items, so they score higher than virtual ones that were drawn blindly.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Answered, Pairs, answered, by_client, is_own, lists, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View

_CHANCE = 0.5


class Scored(NamedTuple):
    """The items that each client pulls up."""

    pairs: Pairs  # ascending
    scores: NDArray[np.float64]


def has_gradients(message_type: type[Message]) -> bool:
    """Whether clients list items, with a gradient of each."""
    return lists(message_type, "gradients")


def scored(view: View) -> Scored:
    """The items that each client pulls up, with their scores."""
    kinds = {type(one.message) for one in view if has_gradients(type(one.message))}
    found = [_scored_batch(one) for kind in kinds for one in answered(view, "item_factors", kind)]
    if not found:
        return Scored(np.empty(0, np.int64), np.empty(0))
    pairs, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    pairs, places = np.unique(pairs, return_index=True)
    return Scored(pairs, scores[places])


def _scored_batch(one: Answered) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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
    is_up = rows[:, -1] < 0
    listed, who = items.values[is_up], owners[is_up]
    scores = np.einsum("nf,nf->n", users[who], vectors[listed].astype(np.float64))
    return paired(one.clients[who], listed), scores


def judge(found: Scored, truth: Truth) -> Outcome:
    """Per client: how often one of its items has a higher score than another that is pulled up (AUC, ties half).

    Clients who pull up only their own items, or none of them, are left out: there is nothing to tell apart.
    """
    clients, owners = by_client(found.pairs)
    order = np.lexsort((found.scores, owners))
    owners, scores = owners[order], found.scores[order]
    is_positive = is_own(found.pairs, truth.train)[order]
    # Ranks within a client from 1; equal scores share the mean of their ranks.
    starts = np.searchsorted(owners, np.arange(len(clients)))
    is_first = np.ones(len(owners), bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (scores[1:] != scores[:-1])
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(firsts, len(owners)))
    ranks = np.repeat(firsts + (sizes + 1) / 2, sizes) - starts[owners]
    num_positives = np.bincount(owners, is_positive, len(clients))
    num_others = np.bincount(owners, ~is_positive, len(clients))
    wins = np.bincount(owners, ranks * is_positive, len(clients)) - num_positives * (num_positives + 1) / 2
    can_tell = (num_positives > 0) & (num_others > 0)
    shares = wins[can_tell] / (num_positives * num_others)[can_tell]
    return Outcome.of_victims(clients[can_tell], shares, np.full(len(shares), _CHANCE))


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
