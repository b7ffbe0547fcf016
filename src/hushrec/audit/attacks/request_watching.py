"""Request watching: every user of a group interacted with every item of it.

The orchestrator needs nothing but the requests for vectors. With one user in a group the guess is certain; with
more, it is as good as users' tastes are alike.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.requests import Asked


class Guesses(NamedTuple):
    """Interactions that are guessed, a row each."""

    owners: NDArray[np.int64]
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    is_positive: NDArray[np.bool_] | None  # None: nothing is said about it


def guess_all_pairs(asked: Asked) -> Guesses:
    """The users of each group with its items."""
    starts, num_users = asked.group_starts, asked.num_users
    items = np.flatnonzero(asked.is_item)
    group = asked.groups[items]
    repeated = np.repeat(items, num_users[group])
    place = np.arange(len(repeated)) - np.repeat(np.cumsum(num_users[group]) - num_users[group], num_users[group])
    users = starts[asked.groups[repeated]] + place
    return Guesses(asked.owners[repeated], asked.numbers[users], asked.numbers[repeated], None)
