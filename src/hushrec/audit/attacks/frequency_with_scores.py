"""Frequency with scores: the items that a client lists often, and with high scores, are its own.

Over the rounds a client's own items come back more often than what else it lists, and its model learns to score
them higher. The sum of all scores that an item was listed with has both. Scores that were swapped in one round
count little among many. Chosen among fifteen sums, means, medians and ranks on synthetic data, for a server cannot
look at the truth of those whom it attacks: sums of ranks are a little better after few rounds, worse after many.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.top_guess import last_of
from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, auc_of, listed, lists
from hushrec.protocol import Role, Seat, View


class Sums(NamedTuple):
    """The sum of the scores that each (client, item) was listed with, for those that were."""

    pairs: Pairs  # ascending
    totals: NDArray[np.float64]


def add_scores(before: Sums | None, view: View) -> Sums:
    """The sums with one more round; of an item that is listed twice in it the last score counts."""
    pairs, scores = last_of(*listed(view, with_scores=True))
    if before is None:
        return Sums(pairs, scores.astype(np.float64))
    every, places = np.unique(np.concatenate([before.pairs, pairs]), return_inverse=True)
    totals = np.bincount(places, np.concatenate([before.totals, scores]), len(every))
    return Sums(every, totals.astype(np.float64))


def judge(sums: Sums, truth: Truth) -> Outcome:
    """Per client: how often one of its items has a larger sum than another listed item."""
    return auc_of(sums.pairs, sums.totals, truth.train)


ATTACK = Attack(
    name="frequency with scores",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those with the largest sums of scores over the rounds",
    measure="AUC",
    sentence="Of one of the user's own items and another that was listed, the own one has the larger sum of "
    "scores over all rounds in {score:.0%} of cases; blindly it would be {chance:.0%}.",
    reads=lambda message_type: lists(message_type, "scores"),
    look=lambda before, view, _own: add_scores(before, view),
    judge=judge,
    only_last=True,
)
