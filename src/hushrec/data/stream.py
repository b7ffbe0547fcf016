"""The stream: the rows of all users in one order of time, as a system that learns while it runs meets them."""

import numpy as np
import numpy.typing as npt
from numba import njit

from hushrec.data.interactions import Interactions
from hushrec.data.row_order import count_starts

UNKNOWN = -1


def stream_order(data: Interactions) -> npt.NDArray[np.int64]:
    """The numbers of the rows in the order of time; events at the same time go by user.

    A user's events stay in their `order` where it is known, else equal times stay in the order of the file. A row
    without a time takes that of the row before it in its user's history (at the start: of the first known one
    after), to sort by and for nothing else; a user without any time comes first. Data without any time goes in the
    order of the file.
    """
    rows = np.lexsort((np.arange(len(data)) if data.order is None else data.order, data.users))
    if data.timestamps is None or (data.timestamps == UNKNOWN).all():
        times = rows.astype(np.int64)
    else:
        times = data.timestamps[rows].astype(np.int64)
    _fill(count_starts(data.users, data.num_users), times, data.order is not None)
    return rows[np.argsort(times, kind="stable")].astype(np.int64, copy=False)


@njit(cache=True, nogil=True)
def _fill(starts: npt.NDArray[np.int64], times: npt.NDArray[np.int64], has_order: bool) -> None:
    """Give each unknown time its neighbour's; with a known order no time is before that of an earlier row."""
    for user in range(starts.size - 1):
        rows = range(starts[user], starts[user + 1])
        last = UNKNOWN
        for row in rows:
            if times[row] != UNKNOWN:
                last = times[row]
                break
        for row in rows:
            if times[row] == UNKNOWN or (has_order and times[row] < last):
                times[row] = last
            last = times[row]
