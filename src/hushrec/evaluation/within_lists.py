# mypy: allow-untyped-defs, allow-untyped-calls
"""How unlike the items of one list are: 1 - the mean cosine of all pairs of its items.

An item is the vector of who has it in training, 1 or 0 for each user; so the cosine of items i and j is

    (users who have both) / sqrt(users who have i * users who have j),

the same yardstick for every system, without titles and without a model's vectors. What nobody has is like nothing.
Users who have both are counted for one listed item at a time, from its users' other listed items, and only
looked up for what shares a list with it: the time is that of a sparse product over listed items, the memory a row.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.evaluation.ranking import Rows
from hushrec.evaluation.top_k import NO_ITEM


def diversity_within(lists: NDArray[np.int32], train: Rows, num_items: int) -> float | None:
    """The mean over all lists of two items or more; None if there is none. A list is a row; -1: no item there."""
    is_listed = np.zeros(num_items, np.bool_)
    is_listed[lists[lists != NO_ITEM]] = True
    number = np.where(is_listed, np.cumsum(is_listed) - 1, NO_ITEM).astype(np.int32)
    lists = np.where(lists == NO_ITEM, NO_ITEM, number[lists])
    num_listed = np.count_nonzero(lists != NO_ITEM, axis=1)
    num_pairs = num_listed * (num_listed - 1) / 2
    if not num_pairs.any():
        return None
    is_kept = is_listed[train.items]
    starts = np.concatenate([[0], np.cumsum(is_kept)])[train.starts]
    had = number[train.items[is_kept]]
    users = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    count = int(is_listed.sum())
    of_items = _grouped(had, count), users[np.argsort(had, kind="stable")]
    places = np.flatnonzero(lists != NO_ITEM)
    holders = places[np.argsort(lists.ravel()[places], kind="stable")] // lists.shape[1]
    cosines = np.zeros(len(lists))
    _add_cosines((starts, had), of_items, (_grouped(lists.ravel()[places], count), holders), lists, cosines)
    has_pairs = num_pairs > 0
    return float(1 - (cosines[has_pairs] / num_pairs[has_pairs]).mean())


def _grouped(numbers: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Where each number's places begin, once they are sorted by it."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))]).astype(np.int64)


@numba.njit(nogil=True, cache=True)
def _add_cosines(of_users, of_items, of_lists, lists, cosines):
    """Add to each list the cosines of its pairs. Each pair is met once, at the item with the lower number."""
    (user_starts, had), (item_starts, users), (list_starts, holders) = of_users, of_items, of_lists
    num_listed = len(item_starts) - 1
    together, counted_at = np.zeros(num_listed, np.int64), np.full(num_listed, -1)
    for item in range(num_listed):
        own = users[item_starts[item] : item_starts[item + 1]]
        for user in own:
            place = user_starts[user + 1] - 1
            while had[place] > item:  # a user's items ascend, and this one is among them
                other = had[place]
                if counted_at[other] != item:
                    together[other], counted_at[other] = 0, item
                together[other] += 1
                place -= 1
        for holder in holders[list_starts[item] : list_starts[item + 1]]:
            for other in lists[holder]:
                if other > item and counted_at[other] == item:
                    num_others = item_starts[other + 1] - item_starts[other]
                    cosines[holder] += together[other] / np.sqrt(len(own) * num_others)
