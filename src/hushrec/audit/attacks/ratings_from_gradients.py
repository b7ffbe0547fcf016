"""Ratings from gradients: the rating behind a gradient of a common user, found as in `gradient_inversion.py`."""

from dataclasses import replace

import numpy as np

from hushrec.audit.attacks import gradient_inversion
from hushrec.audit.partner_gradients import ATTACKER, Recovered, behind
from hushrec.audit.scoreboard import Outcome, Truth


def judge(found: Recovered, truth: Truth) -> Outcome:
    """By user. Chance: the commonest of the attacker's own ratings as the guess for all."""
    made_of = behind(found, truth)
    known, counts = np.unique(truth.holds(ATTACKER)["ratings"], return_counts=True)
    nearest = known[np.argmin(np.abs(found.ratings[made_of.rows][:, None] - known), axis=1)]
    is_commonest = made_of.ratings == known[np.argmax(counts)]
    return Outcome.of_marks(made_of.users, nearest == made_of.ratings, is_commonest)


ATTACK = replace(
    gradient_inversion.ATTACK,
    name="ratings from gradients",
    guesses="the rating behind a gradient",
    measure="share",
    sentence="It reads {score:.0%} of the ratings exactly; always guessing the commonest rating gives "
    "{chance:.0%}.",
    judge=judge,
)
