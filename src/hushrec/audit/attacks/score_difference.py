# mypy: allow-untyped-defs, allow-untyped-calls
"""Score difference (DRIFT, Sec. 4.1): who interacted with an item, from how scores move after an update.

The orchestrator knows the vectors that it sent, and gets the gradients: so it knows how much each update moves the
score of each item of a group for each user of it. The report's way: the user whose score of the item moved most.
Nothing is guessed of items whose own vectors stay the same.
"""

import numba
import numpy as np

from hushrec.audit.interactions import Guesses, interacted
from hushrec.audit.requests import Moved, is_request, moved_by
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import Role, Seat


def guess_by_scores(moved: Moved) -> Guesses:
    """For each item of a group, the user whose score of it moved most; up is positive."""
    asked = moved.asked
    users, is_up = _largest_change(
        asked.group_starts, asked.num_users, moved.vectors, moved.gradients, moved.learning_rate
    )
    items = np.flatnonzero(asked.is_item & moved.gradients.any(axis=1))
    return Guesses(asked.owners[items], asked.numbers[users[items]], asked.numbers[items], is_up[items])


@numba.njit(nogil=True, cache=True)
def _largest_change(starts, num_users, vectors, moves, rate):
    users, is_up = np.empty(vectors.shape[0], np.int64), np.empty(vectors.shape[0], np.bool_)
    for group in range(num_users.size):
        first_item = starts[group] + num_users[group]
        for item in range(first_item, starts[group + 1]):
            largest = -1.0
            for user in range(starts[group], first_item):
                change = 0.0
                for factor in range(vectors.shape[1]):
                    before = vectors[user, factor] * vectors[item, factor]
                    moved_user = vectors[user, factor] - rate * moves[user, factor]
                    change += moved_user * (vectors[item, factor] - rate * moves[item, factor]) - before
                if abs(change) > largest:
                    largest = abs(change)
                    users[item], is_up[item] = user, change > 0
    return users, is_up


ATTACK = Attack(
    name="score difference",
    seats=(Seat(Role.ORCHESTRATOR),),
    guesses="who had an item, by the largest change of a score",
    measure="precision",
    sentence="Taking the user of a group whose score of an item moved most, as the report fears, is right for "
    "{score:.1%}; a blind guess for {chance:.1%}.",
    reads=is_request,
    look=lambda _before, view, own: guess_by_scores(moved_by(view, own)),
    judge=lambda guesses, truth: interacted(truth).judged(guesses),
    settings=("learning_rate", "regularization"),
    repairs=("--user-vectors users",),
)
