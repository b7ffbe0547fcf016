# mypy: allow-untyped-defs, allow-untyped-calls
"""Two-stage randomised response: which items a client reports, whether it rated them or not.

Stage 1, once per run: a permanent bit per item says "rated" truly with probability 1 - f, else by a fair coin.
Stage 2, every round: an item is reported with probability q if its permanent bit is set, p if not.

Guarantee: one permanent bit is ln((1 - f/2) / (f/2))-locally differentially private with respect to one item
being rated or not, for all rounds together; the bits of different items add up. `epsilon_of_one_item` says it.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.privacy.filling import Listing, RatedItems


class Response(NamedTuple):
    """Chances of the two stages: to flip an item's permanent bit, then to list the item in a round."""

    flip: float  # f
    if_set: float  # q
    if_unset: float  # p


def epsilon_of_one_item(flip: float) -> float:
    """Epsilon of the permanent bit of one item, whatever the number of rounds; infinite without flips."""
    return math.inf if flip == 0 else math.log((1 - flip / 2) / (flip / 2))


@numba.njit(nogil=True, cache=True)
def _report(clients, rows, numbers, num_items, response, key, round_number, listing):
    rated_starts, rated_items = clients
    starts, items, rated_place = listing
    permanent = np.empty(BLOCK_WORDS, np.uint32)
    instant = np.empty(BLOCK_WORDS, np.uint32)
    scale = 2.0**-32
    place = 0
    for client in range(rows.size):
        entry, last = rated_starts[rows[client]], rated_starts[rows[client] + 1]
        first = entry
        for item in range(num_items):
            word = item % BLOCK_WORDS
            if word == 0:
                # Rounds count from 1: round 0 holds what is drawn once.
                chacha_block(key, numbers[client], 0, item // BLOCK_WORDS, permanent)
                chacha_block(key, numbers[client], round_number, item // BLOCK_WORDS, instant)
            is_rated = entry < last and rated_items[entry] == item
            # One uniform number decides both whether to flip and, below `flip`, the fair coin.
            chance = permanent[word] * scale
            is_set = chance < response.flip * 0.5 if chance < response.flip else is_rated
            if instant[word] * scale < (response.if_set if is_set else response.if_unset):
                items[place] = item
                rated_place[place] = entry - first if is_rated else -1
                place += 1
            if is_rated:
                entry += 1
        starts[client + 1] = place


def report_items(
    clients: RatedItems,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    response: Response,
    key: Key,
    round_number: int,
) -> Listing:
    """The items that each client reports in a round, ascending."""
    size = len(rows) * clients.num_items
    listing = Listing(np.zeros(len(rows) + 1, np.int64), np.empty(size, np.int32), np.empty(size, np.int32))
    rated = (clients.starts, clients.items)
    _report(rated, rows, numbers, clients.num_items, response, key, round_number, listing)
    num_listed = listing.starts[-1]
    return Listing(listing.starts, listing.items[:num_listed], listing.rated_place[:num_listed])
