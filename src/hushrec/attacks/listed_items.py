"""Listed items: every item that a client lists in an upload is one of its own."""

from collections.abc import Sequence

import numpy as np

from hushrec.attacks.scoreboard import Attack, Outcome
from hushrec.attacks.uploads import Pairs, clients_of, is_own, listed, lists
from hushrec.data import Interactions
from hushrec.protocol import Recorded, Role


def guess_listed(seen: Sequence[Recorded]) -> Pairs:
    """All pairs of uploads."""
    return np.unique(listed(seen).pairs)


def judge(pairs: Pairs, train: Interactions) -> Outcome:
    """F1 of each client that listed something.

    Chance: the expected F1 of as many guesses at random from the whole catalogue.
    """
    clients, owners = np.unique(clients_of(pairs), return_inverse=True)
    num_guesses = np.bincount(owners, minlength=len(clients))
    num_hits = np.bincount(owners, is_own(pairs, train), len(clients))
    num_positives = np.bincount(train.users, minlength=train.num_users)[clients]
    both = np.maximum(num_guesses + num_positives, 1)
    blind_hits = num_guesses * num_positives / max(train.num_items, 1)
    return Outcome(clients, 2 * num_hits / both, 2 * blind_hits / both)


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
