"""Differing rounds: of two sums whose participants differ by one, the difference is that one's.

Somebody who is lost in one round and not in another is enough. If one comes and another goes, counts that grew are
the former's and counts that fell the latter's. With two or three on a side, what grew is said to be all of theirs.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.sums import Remembered, SeenSum, f1_beside_popular, has_sums, remember
from hushrec.audit.uploads import Pairs, distinct, paired
from hushrec.protocol import Role, Seat

_FEW = 3  # by so many participants two sums differ at the most


def differences(known: Remembered) -> tuple[Pairs, NDArray[np.int64]]:
    """What is guessed, ascending, and of whom: each from the two sums that differ by the fewest with it."""
    guesses: dict[int, tuple[int, Pairs]] = {}
    for one, other in combinations(known.sums, 2):
        for more, less in ((one, other), (other, one)):
            came = np.setdiff1d(more.participants, less.participants)
            went = np.setdiff1d(less.participants, more.participants)
            if not 1 <= len(came) + len(went) <= _FEW:
                continue
            for number in came.tolist():
                if number not in guesses or guesses[number][0] > len(came) + len(went):
                    guesses[number] = len(came) + len(went), _grown(number, more, less)
    pairs = np.concatenate([np.empty(0, np.int64), *(pairs for _, pairs in guesses.values())])
    return distinct(pairs), np.array(sorted(guesses), np.int64)


def _grown(number: int, more: SeenSum, less: SeenSum) -> Pairs:
    items = np.flatnonzero(more.counts > less.counts)
    return paired(np.full(len(items), number), items)


def judge(known: Remembered, truth: Truth) -> Outcome:
    """F1 by who is in one of two sums and not in the other."""
    pairs, victims = differences(known)
    return f1_beside_popular(pairs, victims, truth.train)


ATTACK = Attack(
    name="differing rounds",
    seats=(Seat(Role.SERVER),),
    guesses="a participant's items, as what two sums differ by that differ by few participants",
    measure="F1",
    sentence="Taking what counts grew by for the items of who came gives an F1 of {score:.3f}; as many of the "
    "most popular items give {chance:.2f}.",
    reads=has_sums,
    look=remember,
    judge=judge,
    only_last=True,
    repairs=("--secure-together 10",),
)
