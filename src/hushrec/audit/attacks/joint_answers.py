"""Joint answers: a visitor's vector from what two partners were answered about it (FedCORE, Eq. 16, collusion).

Each that asks about a visitor gets the scores of its own items: products of these with the visitor's vector,
perhaps with noise. Together they have more equations, so noise on scores averages out further. The guess is the
least squares solution of all answers to all of them. Noise on the vector itself is in all answers, and stays.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import HOME, NOBODY, NOT_PRODUCTS, is_answer, numbers_of, rows_sent
from hushrec.audit.inversion import cosines
from hushrec.audit.recovery import Solved, solve_products
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Role, Seat, View

_SEATS = (Seat(Role.PARTNER, 0), Seat(Role.PARTNER, 2))
_NONE_IN_COMMON = "no visitor was asked about by all of those who collude; use a higher --num-asked"


class Found(NamedTuple):
    """Visitors by their names, and their vectors."""

    names: NDArray[np.uint8]
    solved: Solved
    asker: int  # the first of those who collude


def recover(view: View, own: Own) -> Found:
    """The vectors of visitors about whom all who collude were answered."""
    if own.settings["top_k"]:
        raise HushrecError("answers are only the places of the best items: the attack cannot start without scores")
    items, answers = [], []
    for number, holds in own.each.items():
        if len(holds["layers"]):
            raise HushrecError(NOT_PRODUCTS)
        sent = rows_sent(view, "home", HOME, "scores", number)
        if sent is None:
            raise HushrecError(NOBODY)
        places = np.flatnonzero(holds["helpers"] == HOME)
        names = [name.tobytes() for name in holds["user_names"][holds["asked"][places]]]
        items.append(holds["item_factors"])
        answers.append(dict(zip(names, sent.reshape(len(places), len(holds["item_factors"])), strict=True)))
    shared = sorted(set.intersection(*(set(one) for one in answers)))
    if not shared:
        raise HushrecError(_NONE_IN_COMMON)
    rows = np.array([np.concatenate([one[name] for one in answers]) for name in shared])
    solved = solve_products(np.concatenate(items), rows, np.isfinite(rows))
    return Found(np.array([list(name) for name in shared], np.uint8), solved, min(own.each))


def judge(found: Found, truth: Truth) -> Outcome:
    """By visitor, the cosine to its true vector. Chance: the mean vector of the attacker's own users for all."""
    home, asker = truth.holds(HOME), truth.holds(found.asker)
    visitors = numbers_of(found.names, home["user_names"])
    vectors = home["user_factors"][visitors]
    blind = np.broadcast_to(asker["user_factors"].mean(axis=0), vectors.shape)
    return Outcome.of_victims(visitors, cosines(found.solved.vectors, vectors), cosines(blind, vectors))


ATTACK = Attack(
    name="joint answers",
    seats=_SEATS,
    guesses="visitors' vectors from the answers to both",
    measure="cosine",
    sentence="From what two partners were answered about a visitor, its vector is recovered with a cosine of "
    "{score:.3f}; the mean of their own users' vectors has {chance:.3f}.",
    reads=is_answer,
    look=lambda _before, view, own: recover(view, own),
    judge=judge,
    only_last=True,
    settings=("top_k",),
    own=("item_factors", "layers", "helpers", "asked", "user_names"),
    victim=Seat(Role.PARTNER, HOME),
    repairs=("--top-k 10",),
)
