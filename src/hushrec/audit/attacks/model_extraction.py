"""Model extraction: the other partner's item vectors from the scores of one's own users.

In collaborative inference (FedCORE, Algorithm 2) the partner that owns the users decrypts V.u for each of them. It
knows every u, the noise that it added itself included, so as many independent users as there are factors give V
exactly. Noise on the users' vectors hides these from the other partner; it does not hide its items. Nor does it
help to return the best places only: who decrypts has all scores. The attack takes them with the noise that
protects the key when they are returned; without it, which the partner has as well, it would find a little more.
"""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import ASKER, HOME, NOBODY, NOT_PRODUCTS, names_sender, numbers_of, rows_sent
from hushrec.audit.recovery import Solved, is_close, solve_products
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View


def is_visit(message_type: type[Message]) -> bool:
    """Whether a partner asks another about visitors with it."""
    return names_sender(message_type, "asker", "names")


def extract(view: View, own: Own) -> Solved:
    """The asking partner's item vectors."""
    if len(own.holds["layers"]):
        raise HushrecError(NOT_PRODUCTS)
    names = rows_sent(view, "asker", ASKER, "names", HOME)
    known = rows_sent(view, "home", HOME, "places", ASKER)
    if names is None or known is None:
        raise HushrecError(NOBODY)
    visitors, scores = numbers_of(names[known], own.holds["user_names"]), own.holds[f"decrypted_{ASKER}"]
    if len(scores) != len(visitors):
        raise HushrecError("the asking partner used some of the vectors only; nobody knows which scores are whose")
    return extract_items(own.holds["shown_users"][visitors], scores)


def extract_items(sent_vectors: NDArray[np.floating], scores: NDArray[np.floating]) -> Solved:
    """Item vectors from scores: a row for each vector as it was sent (with its noise), a column for each item."""
    return solve_products(sent_vectors, scores.T, np.isfinite(scores).T)


def judge(solved: Solved, truth: Truth) -> Outcome:
    """By item, whether its vector is recovered. Chance: nobody guesses a vector."""
    vectors = truth.holds(ASKER)["item_factors"]
    is_found = is_close(solved.vectors, vectors) & solved.is_solved
    return Outcome.of_victims(np.arange(len(vectors)), is_found, np.zeros(len(vectors)))


ATTACK = Attack(
    name="model extraction",
    seats=(Seat(Role.PARTNER, HOME),),
    guesses="the other's item vectors from decrypted scores",
    measure="share",
    sentence="The partner that decrypts recovers {score:.0%} of the other's item vectors to 1%.",
    reads=is_visit,
    look=lambda _before, view, own: extract(view, own),
    judge=judge,
    only_last=True,
    own=("user_names", "shown_users", "layers", f"decrypted_{ASKER}"),
    victim=Seat(Role.PARTNER, ASKER),
    is_about_people=False,
)
