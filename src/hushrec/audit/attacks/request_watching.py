"""Request watching: every user of a group interacted with every item of it.

The orchestrator needs nothing but the requests for vectors. With one user in a group the guess is certain; with
more, it is as good as users' tastes are alike.
"""

import numpy as np

from hushrec.audit.interactions import Guesses, interacted
from hushrec.audit.requests import Asked, asked_for, is_request
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import Role, Seat


def guess_all_pairs(asked: Asked) -> Guesses:
    """The users of each group with its items."""
    starts, num_users = asked.group_starts, asked.num_users
    items = np.flatnonzero(asked.is_item)
    group = asked.groups[items]
    repeated = np.repeat(items, num_users[group])
    place = np.arange(len(repeated)) - np.repeat(np.cumsum(num_users[group]) - num_users[group], num_users[group])
    users = starts[asked.groups[repeated]] + place
    return Guesses(asked.owners[repeated], asked.numbers[users], asked.numbers[repeated], None)


ATTACK = Attack(
    name="request watching",
    seats=(Seat(Role.ORCHESTRATOR),),
    guesses="that every user of a group had every item of it",
    measure="precision",
    sentence="Taking every user and item whose vectors are asked for together for an interaction is right for "
    "{score:.1%} of the guesses about a user; a blind guess among the owner's items for {chance:.1%}.",
    reads=is_request,
    look=lambda _before, view, _own: guess_all_pairs(asked_for(view)),
    judge=lambda guesses, truth: interacted(truth).judged(guesses),
    repairs=("--user-vectors users",),
)
