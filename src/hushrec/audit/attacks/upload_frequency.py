"""Upload frequency: the items that a client lists in more rounds than others are its own."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, by_client, distinct, is_own, listed, lists, places_of
from hushrec.protocol import Role, Seat, View

_CHANCE = 0.5


class Counts(NamedTuple):
    """In how many rounds each (client, item) was listed, for those that were."""

    pairs: Pairs  # ascending
    times: NDArray[np.int64]


def count(before: Counts | None, view: View) -> Counts:
    """The counts with one more round."""
    return add_round(before, distinct(listed(view).pairs))


def add_round(before: Counts | None, now: Pairs) -> Counts:
    """The counts with the distinct pairs of one more round, ascending."""
    if before is None:
        return Counts(now, np.ones(len(now), np.int64))
    places, is_known = places_of(now, before.pairs)
    times = before.times.copy()
    times[places[is_known]] += 1
    new, gaps = now[~is_known], places[~is_known]
    return Counts(np.insert(before.pairs, gaps, new), np.insert(times, gaps, 1))


def judge(counts: Counts, truth: Truth) -> Outcome:
    """Per client: how often one of its items is listed in more rounds than another listed item (AUC, ties half).

    Clients of whom only own items were listed, or none, are left out: there is nothing to tell apart.
    """
    clients, owners = by_client(counts.pairs)
    num_counts = int(counts.times.max(initial=0)) + 1
    cells = owners * num_counts + counts.times
    size = len(clients) * num_counts
    # How many of a client's own items, and of others, were listed once, twice, ...
    is_positive = is_own(counts.pairs, truth.train)
    positives = np.bincount(cells[is_positive], minlength=size).reshape(len(clients), num_counts)
    others = np.bincount(cells, minlength=size).reshape(len(clients), num_counts) - positives
    num_pairs = positives.sum(axis=1) * others.sum(axis=1)
    wins = np.sum(positives * (np.cumsum(others, axis=1) - others / 2), axis=1)
    can_tell = num_pairs > 0
    scores = wins[can_tell] / num_pairs[can_tell]
    return Outcome.of_victims(clients[can_tell], scores, np.full(len(scores), _CHANCE))


ATTACK = Attack(
    name="upload frequency",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those listed in the most rounds",
    measure="AUC",
    sentence="Of one of the user's own items and another that was listed, the own one was listed more often in "
    "{score:.0%} of cases (half of the ties); blindly it would be {chance:.0%}.",
    reads=lists,
    look=lambda before, view, _own: count(before, view),
    judge=judge,
    only_last=True,
)
