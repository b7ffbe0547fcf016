"""Compiled loops that put interactions in canonical order: by user, then by item, no pair twice."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

import hushrec.compiling  # noqa: F401 - before the first kernel

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


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


class Order(NamedTuple):
    """Row numbers in canonical order, and the items of these rows, which sorting finds on its way."""

    rows: npt.NDArray[np.signedinteger]
    items: Int32s


@njit(cache=True, nogil=True)
def _sort_by_item(users: Int32s, items: Int32s, cursor: Int64s, shift: int, found: Int64s) -> None:
    """Into `found` the users and row numbers of the pairs, in one number each, by item."""
    for row in range(items.size):
        place = cursor[items[row]]
        found[place] = (np.int64(users[row]) << shift) | row
        cursor[items[row]] = place + 1


@njit(cache=True, nogil=True)
def _sort_by_user(by_item: Int64s, starts: Int64s, cursor: Int64s, shift: int, found: Int64s) -> None:
    """Into `found` the items and row numbers, by user; `starts` are those of the items."""
    rows = (np.int64(1) << shift) - 1
    for item in range(starts.size - 1):
        for place in range(starts[item], starts[item + 1]):
            user = by_item[place] >> shift
            found[cursor[user]] = (np.int64(item) << shift) | (by_item[place] & rows)
            cursor[user] += 1


@njit(cache=True, nogil=True)
def _unpack(packed: Int64s, shift: int, rows: npt.NDArray[np.signedinteger], items: Int32s) -> None:
    mask = (np.int64(1) << shift) - 1
    for place in range(packed.size):
        rows[place] = packed[place] & mask
        items[place] = packed[place] >> shift


def canonical_order(users: Int32s, items: Int32s, num_users: int, num_items: int) -> Order:
    """Rows in canonical order; equal pairs stay in the order of the rows.

    Two counting sorts. What goes along goes along in one number: every place that is written misses the cache, and
    so would looking up the users and items again. NumPy makes the arrays, as it asks for large pages of memory;
    the first one takes what comes of it all.
    """
    num_rows = users.size
    shift = num_rows.bit_length()
    starts = count_starts(items, num_items)
    by_item, by_user = np.empty(num_rows, np.int64), np.empty(num_rows, np.int64)
    _sort_by_item(users, items, starts.copy(), shift, by_item)
    _sort_by_user(by_item, starts, count_starts(users, num_users), shift, by_user)
    halves = by_item.view(np.int32).reshape(2, -1)
    order = Order(halves[0], halves[1]) if num_rows < 2**31 else Order(by_item, np.empty(num_rows, np.int32))
    _unpack(by_user, shift, *order)
    return order


@njit(cache=True, nogil=True)
def _chosen(
    order: Order, is_chosen: npt.NDArray[np.bool_], numbers: npt.NDArray[np.signedinteger], found: Order
) -> None:
    num_chosen = 0
    for row in range(is_chosen.size):
        numbers[row] = num_chosen
        num_chosen += is_chosen[row]
    place = 0
    for k in range(order.rows.size):
        row = order.rows[k]
        if is_chosen[row]:
            found.rows[place] = numbers[row]
            found.items[place] = order.items[k]
            place += 1


def order_of_chosen(order: Order, is_chosen: npt.NDArray[np.bool_]) -> Order:
    """The order of the chosen rows among themselves, of the order of all."""
    num_chosen, kind = int(np.count_nonzero(is_chosen)), order.rows.dtype
    found = Order(np.empty(num_chosen, kind), np.empty(num_chosen, np.int32))
    _chosen(order, is_chosen, np.empty(is_chosen.size, kind), found)
    return found


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
