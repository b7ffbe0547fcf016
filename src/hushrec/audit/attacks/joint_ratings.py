"""Joint ratings: how many of all ratings of a partner two others read together (FedCORE).

A partner gets rows of users whom it has itself. Of all ratings that the victim trained on in the steps that are
attacked, those of other users are guessed blindly; two partners have more users between them than one.
"""

from dataclasses import replace

import numpy as np

from hushrec.audit.attacks import joint_identification
from hushrec.audit.joint_gradients import Joint, rows_of
from hushrec.audit.partner_gradients import VICTIM
from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.audit.uploads import paired


def judge(found: Joint, truth: Truth) -> Outcome:
    """By the victim's users. Chance: the commonest of the attackers' own ratings as the guess for all."""
    victim, rows = truth.holds(VICTIM), rows_of(found, truth)
    own = np.concatenate([truth.holds(number)["ratings"] for number in found.found])
    known, counts = np.unique(own, return_counts=True)
    num_steps = 1 + max((letter.step for one in found.found.values() for letter in one.letters), default=-1)
    size = min(truth.settings["batch_size"], len(victim["ratings"]))
    places = victim["batches"][: num_steps * size]
    is_commonest = victim["ratings"][places] == known[np.argmax(counts)]
    read = known[np.argmin(np.abs(rows.guesses[:, None] - known), axis=1)] == rows.ratings
    told = paired(rows.users, rows.items)
    trained = paired(victim["common_users"][victim["users"][places]], victim["items"][places])
    order = np.argsort(told)
    at = order[np.minimum(np.searchsorted(told[order], trained), max(len(told) - 1, 0))] if len(told) else None
    is_right = is_commonest if at is None else np.where(told[at] == trained, read[at], is_commonest)
    return Outcome.of_marks(victim["users"][places], is_right, is_commonest)


ATTACK = replace(
    joint_identification.ATTACK,
    name="joint ratings",
    guesses="all ratings of the steps, blindly where no row came",
    measure="share",
    sentence="Two partners together know {score:.0%} of all ratings that a third trained on in the steps "
    "attacked; always guessing the commonest gives {chance:.0%}.",
    judge=judge,
)
