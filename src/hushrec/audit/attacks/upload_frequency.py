"""Upload frequency: the items that a client lists in more rounds than others are its own."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, clients_of, is_own, listed, lists
from hushrec.protocol import Role, Seat, View

_CHANCE = 0.5


class Counts(NamedTuple):
    """In how many rounds each (client, item) was listed, for those that were."""

    pairs: Pairs  # ascending
    times: NDArray[np.int64] | NDArray[np.float64]  # or scores, by which `judge` tells items apart as well


def count(before: Counts | None, view: View) -> Counts:
    """The counts with one more round."""
    return add_round(before, np.unique(listed(view).pairs))


def add_round(before: Counts | None, now: Pairs) -> Counts:
    """The counts with the distinct pairs of one more round."""
    if before is None:
        return Counts(now, np.ones(len(now), np.int64))
    pairs, places = np.unique(np.concatenate([before.pairs, now]), return_inverse=True)
    times = np.zeros(len(pairs), np.int64)
    times[places[: len(before.pairs)]] = before.times
    times[places[len(before.pairs) :]] += 1
    return Counts(pairs, times)


def judge(counts: Counts, truth: Truth) -> Outcome:
    """Per client: how often one of its items is listed in more rounds than another listed item (AUC, ties half).

    Clients of whom only own items were listed, or none, are left out: there is nothing to tell apart.
    """
    clients, owners = np.unique(clients_of(counts.pairs), return_inverse=True)
    order = np.lexsort((counts.times, owners))
    owners, times = owners[order], counts.times[order]
    is_positive = is_own(counts.pairs, truth.train)[order]
    # Ranks within a client from 1; equal counts share the mean of their ranks.
    starts = np.searchsorted(owners, np.arange(len(clients)))
    is_first = np.ones(len(owners), bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (times[1:] != times[:-1])
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(firsts, len(owners)))
    ranks = np.repeat(firsts + (sizes + 1) / 2, sizes) - starts[owners]
    num_positives = np.bincount(owners, is_positive, len(clients))
    num_others = np.bincount(owners, ~is_positive, len(clients))
    rank_sums = np.bincount(owners, ranks * is_positive, len(clients))
    can_tell = (num_positives > 0) & (num_others > 0)
    wins = rank_sums - num_positives * (num_positives + 1) / 2
    scores = wins[can_tell] / (num_positives * num_others)[can_tell]
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
