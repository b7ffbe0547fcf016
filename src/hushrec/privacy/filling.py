# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Virtual items: unrated items that a client lists among its rated ones, so that the server cannot tell them.

Guarantee: none in the sense of differential privacy. A list hides the rated items among (1 + rho) times as many;
what is sent along with the list may tell them apart, and lists drawn anew every round can be intersected. Virtual
ratings that are drawn from the client's own are on the same steps of the scale and as frequent; what fits an item
and its vector is still more likely to be rated.
"""

from typing import NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.kernels.bits import bit_of, lowest_bit


class Listing(NamedTuple):
    """What each client of a cohort lists: items in ascending order, so that the order tells nothing."""

    starts: NDArray[np.int64]  # (clients + 1,)
    items: NDArray[np.int32]
    rated_place: NDArray[np.int32]  # place among the client's rated items, or -1 for a virtual item


def num_virtual_items(num_rated: NDArray[np.int64], rho: int, num_items: int) -> NDArray[np.int64]:
    """|I'_u| = min(rho |I_u|, m - |I_u|).

    DEVIATION: the papers say rho |I_u|; whoever has too few unrated items for that lists all there are.
    """
    return np.minimum(rho * num_rated, num_items - num_rated)


@numba.njit(nogil=True, cache=True)
def _list_items(clients, rows, numbers, num_virtual, num_items, key, round_number, listing):
    rated_starts, rated_items = clients
    starts, items, rated_place = listing
    words = np.empty(BLOCK_WORDS, np.uint32)
    size = (num_items + 63) // 64
    rated = np.zeros(size, np.uint64)
    taken = np.zeros(size, np.uint64)
    last_word = ~np.uint64(0) >> np.uint64((64 - num_items) & 63)
    for client in range(rows.size):
        first, last = rated_starts[rows[client]], rated_starts[rows[client] + 1]
        if num_virtual[client] == 0:
            for rank in range(last - first):
                items[starts[client] + rank] = rated_items[first + rank]
                rated_place[starts[client] + rank] = rank
            continue
        rated[:] = 0
        for entry in range(first, last):
            rated[rated_items[entry] >> 6] |= bit_of(rated_items[entry])
        for word in range(size):  # taken[:] = rated takes numba two seconds to compile
            taken[word] = rated[word]
        num_unrated = num_items - (last - first)
        # Draw what is left out instead, where that is less work.
        is_left_out = 2 * num_virtual[client] > num_unrated
        num_drawn = num_unrated - num_virtual[client] if is_left_out else num_virtual[client]
        counter, used = np.int64(0), BLOCK_WORDS  # typed, or chacha_block is compiled for the constant too
        while num_drawn > 0:
            if used == BLOCK_WORDS:
                chacha_block(key, numbers[client], round_number, counter, words)
                counter, used = counter + 1, 0
            item = (np.uint64(words[used]) * np.uint64(num_items)) >> np.uint64(32)
            used += 1
            word, bit = item >> np.uint64(6), bit_of(item)
            num_drawn -= np.int64(taken[word] & bit == 0)
            taken[word] |= bit
        place = np.uint64(starts[client])  # unsigned, to spare the check for indices from the end
        rank = 0
        for word in range(size):
            listed = taken[word]
            if is_left_out:
                listed = ~listed | rated[word]
                if word == size - 1:
                    listed &= last_word
            while listed != 0:
                low = lowest_bit(listed)
                listed &= listed - np.uint64(1)
                items[place] = 64 * word + np.int64(low)
                is_rated = np.int64((rated[word] >> low) & np.uint64(1))
                rated_place[place] = (rank + 1) * is_rated - 1
                rank += is_rated
                place += np.uint64(1)


class RatedItems(Protocol):
    """Whoever holds the rated items of clients."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    num_items: int


def list_items(
    clients: RatedItems,
    rows: NDArray[np.int64],
    numbers: NDArray[np.int32],
    rho: int,
    key: Key,
    round_number: int,
) -> Listing:
    """Rated items of each client together with virtual ones, drawn uniformly without replacement."""
    num_rated = clients.starts[rows + 1] - clients.starts[rows]
    num_virtual = num_virtual_items(num_rated, rho, clients.num_items)
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(num_rated + num_virtual, out=starts[1:])
    listing = Listing(starts, np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32))
    rated = (clients.starts, clients.items)
    _list_items(rated, rows, numbers, num_virtual, clients.num_items, key, round_number, listing)
    return listing


@numba.njit(nogil=True, cache=True)
def _draw_ratings(starts, ratings, rows, numbers, listing, key, out):
    listed_starts, items, rated_place = listing
    words = np.empty(BLOCK_WORDS, np.uint32)
    for client in range(rows.size):
        first = starts[rows[client]]
        num_rated = np.uint64(starts[rows[client] + 1] - first)
        block = np.int64(-1)
        for place in range(listed_starts[client], listed_starts[client + 1]):
            if rated_place[place] < 0:
                if items[place] // BLOCK_WORDS != block:  # items are in ascending order
                    block = np.int64(items[place] // BLOCK_WORDS)
                    chacha_block(key, numbers[client], np.int64(0), block, words)
                word = words[items[place] % BLOCK_WORDS]
                out[place] = ratings[first + np.int64((np.uint64(word) * num_rated) >> np.uint64(32))]


class Ratings(RatedItems, Protocol):
    """Whoever holds the ratings, too."""

    ratings: NDArray[np.float32]


def draw_ratings(
    clients: Ratings, rows: NDArray[np.int64], numbers: NDArray[np.int32], listing: Listing, key: Key
) -> NDArray[np.float32]:
    """Virtual ratings parallel to a listing, each one of the client's own, drawn at random; 0 for rated items.

    A client has the same rating for the same item whenever it lists it: one that changes would be virtual.
    """
    drawn = np.zeros(len(listing.items), np.float32)
    _draw_ratings(clients.starts, clients.ratings, rows, numbers, listing, key, drawn)
    return drawn
