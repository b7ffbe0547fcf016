"""Joint answers: a visitor's vector from what two partners were answered about it (FedCORE, Eq. 16, collusion).

Each that asks about a visitor gets the scores of its own items: products of these with the visitor's vector,
perhaps with noise. Together they have more equations, so noise on scores averages out further. Users' vectors are
much alike, so what counts is how a visitor's differs from the mean of the attackers' own users. The guess is that
difference which fits all answers best, with a ridge of the noise's variance over that of their own users' vectors.
Noise on the vector itself is in all answers, and stays.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import HOME, NOBODY, NOT_PRODUCTS, is_answer, numbers_of, rows_sent
from hushrec.audit.inversion import cosines
from hushrec.audit.recovery import train_pmf
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Role, Seat, View

_SEATS = (Seat(Role.PARTNER, 0), Seat(Role.PARTNER, 2))
_LEAST = 1e-9  # keeps equations solvable
_NONE_IN_COMMON = "no visitor was asked about by all of those who collude; use a higher --num-asked"


class Found(NamedTuple):
    """Visitors by their names, and how their vectors differ from the mean of the attackers' own users."""

    names: NDArray[np.uint8]
    differences: NDArray[np.float64]
    mean: NDArray[np.float64]


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
    users = np.concatenate([holds["user_factors"] for holds in own.each.values()]).astype(np.float64)
    mean, both = users.mean(axis=0), np.concatenate(items).astype(np.float64)
    ridge = 2 * float(own.settings["answer_noise"]) ** 2 / max(float(users.var(axis=0).mean()), _LEAST)
    differences = train_pmf(both, rows - both @ mean, regularization=ridge + _LEAST)
    return Found(np.array([list(name) for name in shared], np.uint8), differences, mean)


def judge(found: Found, truth: Truth) -> Outcome:
    """By visitor, the cosine of the difference to the true one. Chance: a direction that is drawn has 0."""
    home = truth.holds(HOME)
    visitors = numbers_of(found.names, home["user_names"])
    right = cosines(found.differences, home["user_factors"][visitors] - found.mean)
    return Outcome.of_victims(visitors, right, np.zeros(len(visitors)))


ATTACK = Attack(
    name="joint answers",
    seats=_SEATS,
    guesses="visitors' vectors from the answers to both",
    measure="cosine",
    sentence="From what two partners were answered about a visitor they know how its vector differs from that of "
    "their mean user with a cosine of {score:.3f}; a blind guess has {chance:.2f}.",
    reads=is_answer,
    look=lambda _before, view, own: recover(view, own),
    judge=judge,
    only_last=True,
    settings=("top_k", "answer_noise"),
    own=("item_factors", "user_factors", "layers", "helpers", "asked", "user_names"),
    victim=Seat(Role.PARTNER, HOME),
    repairs=("--top-k 10",),
)
