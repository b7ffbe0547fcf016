"""Gradient inversion (FedCORE, RQ1): another partner's item vectors from the gradients of common users.

For PMF in closed form, blind: without the true errors, which the paper's attack is given. For NeuCF by a search.
"""

import numpy as np

from hushrec.audit import partner_gradients as gradients
from hushrec.audit.inversion import cosines
from hushrec.audit.partner_gradients import ATTACKER, VICTIM, Recovered, behind
from hushrec.audit.scoreboard import Attack, Outcome, Truth


def judge(found: Recovered, truth: Truth) -> Outcome:
    """By user. Chance: the mean of the attacker's own item vectors as the guess for all."""
    made_of = behind(found, truth)
    vectors = truth.holds(VICTIM)["item_factors_before"][made_of.items]
    blind = np.broadcast_to(truth.holds(ATTACKER)["item_factors_before"].mean(axis=0), vectors.shape)
    return Outcome.of_marks(made_of.users, cosines(found.vectors[made_of.rows], vectors), cosines(blind, vectors))


ATTACK = Attack(
    name="gradient inversion",
    seats=gradients.SEATS,
    guesses="the direction of the item vector behind a gradient",
    measure="cosine",
    sentence="From gradients of common users a partner recovers item vectors with a cosine of {score:.3f} to the "
    "true ones; its own mean item vector has {chance:.3f}.",
    reads=gradients.of_common_users,
    look=gradients.recover,
    judge=judge,
    only_last=True,
    settings=gradients.SETTINGS,
    own=gradients.OWN,
    victim=gradients.VICTIM_SEAT,
)
