"""Compiled loops that put interactions in canonical order: by user, then by item, no pair twice."""

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
def _counting_sort_by_item(items: Int32s, num_items: int, rows: npt.NDArray[np.signedinteger]) -> None:
    cursor = count_starts(items, num_items)
    for row in range(items.size):
        rows[cursor[items[row]]] = row
        cursor[items[row]] += 1


@njit(cache=True, nogil=True)
def _counting_sort_by_user(
    users: Int32s,
    num_users: int,
    rows: npt.NDArray[np.signedinteger],
    sorted_rows: npt.NDArray[np.signedinteger],
) -> None:
    cursor = count_starts(users, num_users)
    for row in rows:
        sorted_rows[cursor[users[row]]] = row
        cursor[users[row]] += 1


def canonical_order(users: Int32s, items: Int32s, num_users: int, num_items: int) -> npt.NDArray[np.signedinteger]:
    """Row numbers in canonical order; equal pairs stay in the order of the rows."""
    dtype: type[np.signedinteger] = np.int32 if users.size < 2**31 else np.int64
    by_item = np.empty(users.size, dtype)
    _counting_sort_by_item(items, num_items, by_item)
    by_user = np.empty(users.size, dtype)
    _counting_sort_by_user(users, num_users, by_item, by_user)
    return by_user
