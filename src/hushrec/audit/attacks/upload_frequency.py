"""Upload frequency: the items that a client lists in more rounds than others are its own."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, auc_of, distinct, listed, lists, places_of
from hushrec.protocol import Role, Seat, View


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
    """Per client: how often one of its items is listed in more rounds than another listed item."""
    return auc_of(counts.pairs, counts.times.astype(np.float64), truth.train)


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
    repairs=("--resample once", "--secure-sums"),
)
