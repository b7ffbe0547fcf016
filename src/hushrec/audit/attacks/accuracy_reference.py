"""Accuracy reference (FedCORE, Eq. 16): visitors' vectors from as many of their scores as vectors have numbers.

The partner that asks about visitors has its own item vectors and the scores that came back; for PMF these are
linear in a visitor's vector.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import ASKER, HOME, NOT_PRODUCTS, answers_to, is_answer, numbers_of
from hushrec.audit.recovery import Solved, is_close, recover_by_reference
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Role, Seat, View


class Visitors(NamedTuple):
    """Vectors that were recovered."""

    places: NDArray[np.int64]  # of the visitors, in the list that was asked about
    solved: Solved


def recover(view: View, own: Own) -> Visitors:
    """The vectors of all visitors that were answered about."""
    if len(own.holds["layers"]):
        raise HushrecError(NOT_PRODUCTS)
    items, answers = own.holds["item_factors"], answers_to(view, own)
    return Visitors(answers.places, recover_by_reference(items, answers.scores, max_answers=items.shape[1]))


def judge(found: Visitors, truth: Truth) -> Outcome:
    """By visitor, whether its vector is recovered. Chance: nobody guesses a vector."""
    asker, home = truth.holds(ASKER), truth.holds(HOME)
    visitors = numbers_of(asker["user_names"][asker["asked"][found.places]], home["user_names"])
    is_found = is_close(found.solved.vectors, home["user_factors"][visitors]) & found.solved.is_solved
    return Outcome.of_victims(visitors, is_found, np.zeros(len(visitors)))


ATTACK = Attack(
    name="accuracy reference",
    seats=(Seat(Role.PARTNER, ASKER),),
    guesses="visitors' vectors from as many answers as they have numbers",
    measure="share",
    sentence="From as many answers as a vector has numbers, {score:.0%} of the visitors' vectors are recovered to "
    "1%.",
    reads=is_answer,
    look=lambda _before, view, own: recover(view, own),
    judge=judge,
    only_last=True,
    settings=("top_k",),
    own=("item_factors", "layers", "helpers"),
    victim=Seat(Role.PARTNER, HOME),
)
