# mypy: allow-untyped-defs, allow-untyped-calls
"""What PTF-FedRec's server tells a client: items that it is sure of and items that the client might like (Eq. 9).

Symbols: alpha = num_items, mu = confident_share.
"""

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import DivergedError
from hushrec.evaluation.top_k import NO_ITEM, top_k
from hushrec.protocol import Numbers, Ragged, Scorer

Strategy = Literal["confidence+hard", "confidence", "hard", "random"]
_BLOCK_CLIENTS = 512


@dataclass(frozen=True)
class Dispersal:
    """How many items are told, and how they are chosen; what is not chosen by a rule is drawn at random."""

    num_items: int
    confident_share: float
    strategy: Strategy


@numba.njit(nogil=True, cache=True)
def _first_free(order, starts, taken, out):
    """For each client, the first items of the order that are not taken: not uploaded, not chosen already."""
    is_taken = np.zeros(order.shape[-1], np.bool_)
    for client in range(out.shape[0]):
        own = taken[starts[client] : starts[client + 1]]
        for item in own:
            is_taken[item] = True
        row = order[min(client, order.shape[0] - 1)]
        found = 0
        for item in row:
            if found == out.shape[1]:
                break
            if not is_taken[item]:
                out[client, found] = item
                found += 1
        for item in own:
            is_taken[item] = False


def _in_order(order: NDArray[np.int32], taken: Ragged, num_wanted: int) -> NDArray[np.int32]:
    chosen = np.full((len(taken), num_wanted), NO_ITEM, np.int32)
    _first_free(np.atleast_2d(order), taken.starts, taken.values, chosen)
    return chosen


def disperse(
    scorer: Scorer,
    clients: Numbers,
    uploaded: Ragged,  # items of each client's last upload
    num_updates: NDArray[np.int64],  # of each item
    how: Dispersal,
    round_number: int,
    draws: Draws,
) -> tuple[Ragged, Ragged]:
    """Items and their scores for each client, none of them in its upload: first the sure ones, then the hard."""
    by_confidence = np.argsort(-num_updates, kind="stable").astype(np.int32)
    generator = draws.generator("told-items", round_number)
    items, scores = [], []
    for first in range(0, len(clients), _BLOCK_CLIENTS):
        block = clients[first : first + _BLOCK_CLIENTS]
        predicted = scorer.score(block)
        if not np.isfinite(predicted).all():
            raise DivergedError("a score of the server's model is not finite")
        chosen = _chosen(predicted, uploaded.part(first, first + len(block)), by_confidence, how, generator)
        items.append(chosen)
        scores.append(np.take_along_axis(predicted, np.maximum(chosen, 0), axis=1))
    all_items, all_scores = np.concatenate(items), np.concatenate(scores)
    is_real = all_items != NO_ITEM
    starts = np.concatenate([[0], np.cumsum(is_real.sum(axis=1))])
    return Ragged(starts, all_items[is_real]), Ragged(starts, all_scores[is_real])


def _chosen(
    predicted: NDArray[np.float32],
    uploaded: Ragged,
    by_confidence: NDArray[np.int32],
    how: Dispersal,
    generator: np.random.Generator,
) -> NDArray[np.int32]:
    num_confident = round(how.confident_share * how.num_items)
    if how.strategy in ("confidence+hard", "confidence"):
        sure = _in_order(by_confidence, uploaded, num_confident)
    else:
        sure = _in_order(_random_orders(predicted.shape, generator), uploaded, num_confident)
    # DEVIATION: the two sets of Eq. 9 may overlap; here hard items are others, as in the authors' code, so that
    # alpha items are told.
    taken, num_hard = _joined(uploaded, sure), how.num_items - num_confident
    if num_hard == 0:
        return sure
    if how.strategy in ("confidence+hard", "hard"):
        # DEVIATION: the authors' code takes these from the first alpha of all items, and so often tells fewer.
        hard, _ = top_k(predicted, num_hard, (taken.starts, taken.values))
    else:
        hard = _in_order(_random_orders(predicted.shape, generator), taken, num_hard)
    return np.concatenate([sure, hard], axis=1)


def _random_orders(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.int32]:
    return np.argsort(generator.random(shape, np.float32), axis=1).astype(np.int32)


def _joined(uploaded: Ragged, more: NDArray[np.int32]) -> Ragged:
    """The uploaded items and more of them for each client."""
    num_more = (more != NO_ITEM).sum(axis=1)
    starts = np.concatenate([[0], np.cumsum(uploaded.lengths + num_more)])
    owners = np.concatenate(
        [np.repeat(np.arange(len(uploaded)), uploaded.lengths), np.nonzero(more != NO_ITEM)[0]]
    )
    items = np.concatenate([uploaded.values, more[more != NO_ITEM]])
    return Ragged(starts, items[np.argsort(owners, kind="stable")])
