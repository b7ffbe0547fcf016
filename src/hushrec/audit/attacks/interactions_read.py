"""Interactions read: how much of everything the signs of gradients told, over all rounds so far."""

from dataclasses import replace

import numpy as np

from hushrec.audit.attacks import gradient_direction
from hushrec.audit.attacks.gradient_direction import Read
from hushrec.audit.interactions import interacted
from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.audit.uploads import paired


def judge(read: Read, truth: Truth) -> Outcome:
    """The share of a user's interactions that some owner got. Blind: as many guesses, from all held items."""
    known = interacted(truth)
    pairs = paired(known.users, known.items)
    is_read = np.where(known.is_positive, np.isin(pairs, read.positive), np.isin(pairs, read.negative))
    num_read = np.bincount(known.users, is_read, known.events.num_users)
    is_sent, blind = known.is_held[known.items], num_read / np.count_nonzero(known.is_held)
    return Outcome.of_marks(known.users[is_sent], is_read[is_sent], blind[known.users[is_sent]])


ATTACK = replace(
    gradient_direction.ATTACK,
    name="interactions read",
    guesses="all interactions: user, item, whether positive",
    measure="recall",
    sentence="What the threshold leaves open: the orchestrator has read {score:.1%} of a user's interactions, "
    "with their sign; as many blind guesses find {chance:.1%}. Only blocks learned from can be read.",
    judge=judge,
    only_last=True,
)
