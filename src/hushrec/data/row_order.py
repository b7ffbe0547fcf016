"""Compiled loops that put interactions in canonical order: by user, then by item, no pair twice."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

import hushrec.compiling  # noqa: F401 - before the first kernel

Int32s = npt.NDArray[np.int32]


@njit(cache=True, nogil=True)
def is_canonical(users: Int32s, items: Int32s) -> bool:
    """Whether the pairs (user, item) rise strictly, so that no pair can be there twice."""
    for row in range(1, users.size):
        if users[row] < users[row - 1]:
            return False
        if users[row] == users[row - 1] and items[row] <= items[row - 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def count_starts(numbers: Int32s, size: int) -> npt.NDArray[np.int64]:
    """Where the slice of each number starts once the rows are grouped by it: (size + 1,)."""
    starts = np.zeros(size + 1, np.int64)
    for number in numbers:
        starts[number + 1] += 1
    for place in range(size):
        starts[place + 1] += starts[place]
    return starts


@njit(cache=True, nogil=True)
def _sort_by_item(
    users: Int32s, items: Int32s, num_items: int, rows: npt.NDArray[np.signedinteger], users_of_rows: Int32s
) -> None:
    cursor = count_starts(items, num_items)
    for row in range(items.size):
        place = cursor[items[row]]
        rows[place], users_of_rows[place] = row, users[row]
        cursor[items[row]] += 1


@njit(cache=True, nogil=True)
def _sort_by_user(
    num_users: int,
    rows: npt.NDArray[np.signedinteger],
    users_of_rows: Int32s,
    sorted_rows: npt.NDArray[np.signedinteger],
) -> None:
    cursor = count_starts(users_of_rows, num_users)
    for place in range(rows.size):
        user = users_of_rows[place]
        sorted_rows[cursor[user]] = rows[place]
        cursor[user] += 1


def canonical_order(users: Int32s, items: Int32s, num_users: int, num_items: int) -> npt.NDArray[np.signedinteger]:
    """Row numbers in canonical order; equal pairs stay in the order of the rows.

    Two counting sorts; the users go along, as to look them up again would miss the cache at every row.
    """
    dtype: type[np.signedinteger] = np.int32 if users.size < 2**31 else np.int64
    by_item, users_of_rows = np.empty(users.size, dtype), np.empty(users.size, np.int32)
    _sort_by_item(users, items, num_items, by_item, users_of_rows)
    by_user = np.empty(users.size, dtype)
    _sort_by_user(num_users, by_item, users_of_rows, by_user)
    return by_user


@njit(cache=True, nogil=True)
def order_of_chosen(
    order: npt.NDArray[np.signedinteger], is_chosen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.signedinteger]:
    """The order of the chosen rows among themselves, of the order of all."""
    number_of = np.empty(is_chosen.size, order.dtype)
    num_chosen = 0
    for row in range(is_chosen.size):
        number_of[row] = num_chosen
        num_chosen += is_chosen[row]
    chosen = np.empty(num_chosen, order.dtype)
    place = 0
    for row in order:
        if is_chosen[row]:
            chosen[place] = number_of[row]
            place += 1
    return chosen


@njit(cache=True, nogil=True)
def taken(values: npt.NDArray[Any], rows: npt.NDArray[np.signedinteger]) -> npt.NDArray[Any]:
    """The values of these rows."""
    found = np.empty(rows.size, values.dtype)
    for place in range(rows.size):
        found[place] = values[rows[place]]
    return found


@njit(cache=True, nogil=True)
def repeats(starts: npt.NDArray[np.int64], items: Int32s) -> tuple[int, npt.NDArray[np.bool_]]:
    """How many rows, grouped and sorted, have the user and the item of the row before; and which."""
    is_repeat = np.zeros(items.size, np.bool_)
    count = 0
    for user in range(starts.size - 1):
        for place in range(starts[user] + 1, starts[user + 1]):
            is_repeat[place] = items[place] == items[place - 1]
            count += is_repeat[place]
    return count, is_repeat
