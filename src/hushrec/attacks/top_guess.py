"""Top guess: the items with the highest scores of an upload are the client's positives.

The attack of the PTF-FedRec paper (Sec. III-B2, there from one round's upload). It reads what clients sent to the
server: messages with items and scores. The server knows the usual ratio of positives to negatives, 1 : 4, and so
guesses the best fifth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.protocol import Message, Ragged, Recorded, Role

POSITIVE_SHARE = 0.2
_ROW_STRIDE = np.int64(1) << 31  # (client, item) as one sortable number


@dataclass(frozen=True)
class Guesses:
    """Who showed what, and which of it is guessed to be positive."""

    clients: NDArray[np.int64]  # who uploaded, ascending
    pairs: NDArray[np.int64]  # distinct uploaded (client, item) as keys, by client
    is_guess: NDArray[np.bool_]  # of each pair


def guess_positives(seen: Sequence[Recorded], positive_share: float = POSITIVE_SHARE) -> Guesses:
    """The best share of each client's upload, at least one item."""
    keys, scores, rows = _uploads(seen)
    # Of a repeated item the last score counts.
    pairs, from_end = np.unique(keys[::-1], return_index=True)
    best = np.lexsort((-scores[::-1][from_end], pairs // _ROW_STRIDE))
    clients, num_pairs = np.unique(pairs // _ROW_STRIDE, return_counts=True)
    num_rows = np.bincount(rows, minlength=int(clients.max(initial=-1)) + 1)[clients]
    num_guesses = np.maximum((positive_share * num_rows).astype(np.int64), 1)
    rank = np.arange(len(pairs)) - np.repeat(np.cumsum(num_pairs) - num_pairs, num_pairs)
    is_guess = np.zeros(len(pairs), np.bool_)
    is_guess[best] = rank < np.repeat(num_guesses, num_pairs)
    return Guesses(clients, pairs, is_guess)


def _uploads(
    seen: Sequence[Recorded],
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """(client, item), score and client of every uploaded row."""
    uploads = [one for one in seen if _is_scored_upload(one)]
    if not uploads:
        return np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int64)
    rows = np.concatenate([np.repeat(one.numbers.astype(np.int64), one.message.lengths) for one in uploads])
    items = np.concatenate([_column(one.message, "items").values for one in uploads])
    scores = np.concatenate([_column(one.message, "scores").values for one in uploads])
    return rows * _ROW_STRIDE + items, scores, rows


def _column(message: Message, name: str) -> Ragged:
    column: Ragged = getattr(message, name)
    return column


def _is_scored_upload(sent: Recorded) -> bool:
    kinds = {kind.name: kind.layout for kind in sent.message.kinds()}
    is_scored = kinds.get("items") == kinds.get("scores") == "ragged"
    return is_scored and type(sent.message).sender == Role.CLIENT


def f1_of_clients(guesses: Guesses, train: Interactions) -> NDArray[np.float64]:
    """F1 of each client that uploaded; its recall counts all its positives, shown or not."""
    owners = np.searchsorted(guesses.clients, guesses.pairs // _ROW_STRIDE)
    hits = guesses.is_guess & is_positive(guesses, train)
    num_hits = np.bincount(owners, hits, len(guesses.clients))
    num_guesses = np.bincount(owners, guesses.is_guess, len(guesses.clients))
    num_positives = np.bincount(train.users, minlength=train.num_users)[guesses.clients]
    f1: NDArray[np.float64] = 2 * num_hits / np.maximum(num_guesses + num_positives, 1)
    return f1


def is_positive(guesses: Guesses, train: Interactions) -> NDArray[np.bool_]:
    """The truth about each uploaded pair."""
    return np.isin(guesses.pairs, train.users.astype(np.int64) * _ROW_STRIDE + train.items)


def top_guess_f1(seen: Sequence[Recorded], train: Interactions) -> float:
    """Mean F1 over the clients that uploaded; 0 if none did."""
    f1 = f1_of_clients(guess_positives(seen), train)
    return float(f1.mean()) if len(f1) else 0.0
