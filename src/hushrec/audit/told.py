"""What the answers to a lie tell of clients' items, and how right that is."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.audit.uploads import Pairs, clients_of, is_own


class Told(NamedTuple):
    """The clients asked, ascending; the pairs that they listed, ascending; and which are taken for rated."""

    asked: NDArray[np.int64]
    pairs: Pairs
    is_rated: NDArray[np.bool_]


def nothing_of(asked: NDArray[np.int64]) -> Told:
    """Nothing is told of these clients."""
    return Told(asked, np.empty(0, np.int64), np.empty(0, np.bool_))


def told_of(asked: NDArray[np.int64], pairs: Pairs, is_rated: NDArray[np.bool_]) -> Told:
    """The same of pairs in any order, each once. Of clients for whom none is rated, all are: nothing is told."""
    order = np.argsort(pairs, kind="stable")
    pairs, is_rated = pairs[order], is_rated[order]
    owners = np.searchsorted(asked, clients_of(pairs))
    has_any = np.bincount(owners, is_rated, len(asked)) > 0
    return Told(asked, pairs, is_rated | ~has_any[owners])


def judge(told: Told, truth: Truth) -> Outcome:
    """F1 of what is taken for rated, by client.

    Blind: all that the client listed, or the catalogue if it listed nothing.
    """
    return _judged(told, truth, of_list=False)


def judge_of_list(told: Told, truth: Truth) -> Outcome:
    """The same, where a list need not hold all rated items: of those that it holds."""
    return _judged(told, truth, of_list=True)


def _judged(told: Told, truth: Truth, of_list: bool) -> Outcome:
    train, asked = truth.train, told.asked
    owners = np.searchsorted(asked, clients_of(told.pairs))
    own = is_own(told.pairs, train)
    listed, guessed, listed_own, hits = (
        np.bincount(owners, marks, len(asked))
        for marks in (np.ones(len(own)), told.is_rated, own, own & told.is_rated)
    )
    num_own = np.bincount(train.users, minlength=train.num_users)[asked]
    is_silent = listed == 0
    for counts in (listed, guessed):
        counts[is_silent] = train.num_items
    for counts in (listed_own, hits):
        counts[is_silent] = num_own[is_silent]
    if of_list:
        num_own = listed_own.astype(np.int64)
    has_any = num_own > 0
    right, blind = 2 * hits / np.maximum(guessed + num_own, 1), 2 * listed_own / np.maximum(listed + num_own, 1)
    return Outcome.of_victims(asked[has_any], right[has_any], blind[has_any])
