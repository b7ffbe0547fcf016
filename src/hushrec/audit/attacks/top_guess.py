"""Top guess: the items with the highest scores of an upload are the client's positives.

The attack of the PTF-FedRec paper (Sec. III-B2, there from one round's upload). It reads what clients sent to the
server: messages with items and scores. The server knows the usual ratio of positives to negatives, 1 : 4, and so
guesses the best fifth.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, clients_of, is_own, listed, lists
from hushrec.protocol import Role, Seat, View

POSITIVE_SHARE = 0.2


@dataclass(frozen=True)
class Guesses:
    """Who showed what, and which of it is guessed to be positive."""

    clients: NDArray[np.int64]  # who uploaded, ascending
    pairs: Pairs  # distinct uploaded (client, item), by client
    is_guess: NDArray[np.bool_]  # of each pair


def guess_positives(view: View, positive_share: float = POSITIVE_SHARE) -> Guesses:
    """The best share of each client's upload, at least one item."""
    rows, scores = listed(view, with_scores=True)
    pairs, last_scores = last_of(rows, scores)
    return best_of(pairs, last_scores, num_guesses(rows, positive_share))


def last_of(rows: Pairs, scores: NDArray[np.float32]) -> tuple[Pairs, NDArray[np.float32]]:
    """Distinct pairs, ascending; of a repeated one the last score counts."""
    pairs, from_end = np.unique(rows[::-1], return_index=True)
    return pairs, scores[::-1][from_end]


def num_guesses(rows: Pairs, positive_share: float = POSITIVE_SHARE) -> NDArray[np.int64]:
    """How many positives are guessed of each client that uploaded these rows, by client."""
    _, num_rows = np.unique(clients_of(rows), return_counts=True)
    return np.maximum((positive_share * num_rows).astype(np.int64), 1)


def best_of(pairs: Pairs, values: NDArray[np.floating], most: NDArray[np.int64]) -> Guesses:
    """Those with the highest values of each client's pairs, at most so many."""
    best = np.lexsort((-values, clients_of(pairs)))
    clients, num_pairs = np.unique(clients_of(pairs), return_counts=True)
    rank = np.arange(len(pairs)) - np.repeat(np.cumsum(num_pairs) - num_pairs, num_pairs)
    is_guess = np.zeros(len(pairs), np.bool_)
    is_guess[best] = rank < np.repeat(most, num_pairs)
    return Guesses(clients, pairs, is_guess)


def judge(guesses: Guesses, truth: Truth) -> Outcome:
    """F1 of each client that uploaded; its recall counts all its positives, shown or not.

    Chance: the expected F1 of as many guesses at random among the items of the same upload.
    """
    size = len(guesses.clients)
    owners = np.searchsorted(guesses.clients, clients_of(guesses.pairs))
    is_positive = is_own(guesses.pairs, truth.train)
    num_guesses, num_hits, num_shown, num_shown_positives = (
        np.bincount(owners, weights, size)
        for weights in (guesses.is_guess, guesses.is_guess & is_positive, None, is_positive)
    )
    num_positives = np.bincount(truth.train.users, minlength=truth.train.num_users)[guesses.clients]
    share = num_shown_positives / np.maximum(num_shown, 1)
    both = np.maximum(num_guesses + num_positives, 1)
    return Outcome.of_victims(guesses.clients, 2 * num_hits / both, 2 * num_guesses * share / both)


ATTACK = Attack(
    name="top guess",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as the best-scored fifth of one upload",
    measure="F1",
    sentence="Taking the best-scored fifth of one upload for the user's own items gives an F1 of {score:.2f}; "
    "as many blind guesses from the same upload give {chance:.2f}.",
    reads=lambda message_type: lists(message_type, "scores"),
    look=lambda _before, view, _own: guess_positives(view),
    judge=judge,
)
