"""Listed items: every item that a client lists in an upload is one of its own."""

from collections.abc import Sequence

import numpy as np

from hushrec.audit.attacks.uploads import Pairs, clients_of, f1_of, listed, lists
from hushrec.audit.scoreboard import Attack, Outcome
from hushrec.data import Interactions
from hushrec.protocol import Recorded, Role


def guess_listed(seen: Sequence[Recorded]) -> Pairs:
    """All pairs of uploads."""
    return np.unique(listed(seen).pairs)


def judge(pairs: Pairs, train: Interactions) -> Outcome:
    """F1 of each client that listed something."""
    return f1_of(np.unique(clients_of(pairs)), pairs, train)


ATTACK = Attack(
    name="listed items",
    role=Role.SERVER,
    guesses="a user's items, as all that one upload lists",
    measure="F1",
    sentence="Taking every item that an upload lists for one of the user's own gives an F1 of {score:.2f}; "
    "as many blind guesses from the catalogue give {chance:.2f}.",
    reads=lists,
    look=lambda _before, seen: guess_listed(seen),
    judge=judge,
    sums_up=False,
)
