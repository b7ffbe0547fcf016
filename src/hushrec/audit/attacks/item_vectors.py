"""Item vectors: whether the item vector behind a gradient is recovered whole, found as in `gradient_inversion.py`.

A cosine tells little where all item vectors point nearly the same way; here length and direction must both fit.
"""

from dataclasses import replace

import numpy as np

from hushrec.audit.attacks import gradient_inversion
from hushrec.audit.partner_gradients import ATTACKER, VICTIM, Recovered, behind
from hushrec.audit.recovery import is_close
from hushrec.audit.scoreboard import Outcome, Truth


def judge(found: Recovered, truth: Truth) -> Outcome:
    """By user, whether vectors are recovered to 1%. Chance: the mean of the attacker's own item vectors."""
    made_of = behind(found, truth)
    vectors = truth.holds(VICTIM)["item_factors_before"][made_of.items]
    blind = np.broadcast_to(truth.holds(ATTACKER)["item_factors_before"].mean(axis=0), vectors.shape)
    return Outcome.of_marks(
        made_of.users, is_close(found.vectors[made_of.rows], vectors), is_close(blind, vectors)
    )


ATTACK = replace(
    gradient_inversion.ATTACK,
    name="item vectors",
    guesses="the whole item vector behind a gradient",
    measure="share",
    sentence="From gradients of common users a partner recovers {score:.0%} of the item vectors to 1%; its own "
    "mean item vector fits {chance:.0%}.",
    judge=judge,
)
