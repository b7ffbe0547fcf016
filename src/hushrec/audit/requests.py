# mypy: allow-untyped-defs, allow-untyped-calls
"""What an orchestrator saw of data owners: the vectors that they asked for, group by group, and their gradients.

Messages are known by their columns: a request has `groups`, `is_item` and `numbers`, a row for each vector; what
was sent has `vectors`, what came back `gradients`, a row for each row of the request. In a group users come first.
Within a request an owner learns from group after group. The orchestrator can follow: it has all that this needs.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Own, is_sent
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, View

Floats = NDArray[np.float64]

_COLUMNS = ("groups", "is_item", "numbers")


def is_request(message_type: type[Message]) -> bool:
    """Whether owners ask for vectors with it."""
    return is_sent(message_type, Role.OWNER, Role.ORCHESTRATOR, *_COLUMNS)


class Asked(NamedTuple):
    """Rows of all requests, owner after owner, in the order in which they came."""

    owners: NDArray[np.int64]  # of each row, as are all columns
    requests: NDArray[np.int64]  # numbered from 0: what one owner asked for at once
    groups: NDArray[np.int64]  # numbered from 0, over all requests
    is_item: NDArray[np.bool_]
    numbers: NDArray[np.int64]

    @property
    def group_starts(self) -> NDArray[np.int64]:
        """Where groups begin; at last, where the last one ends."""
        return np.searchsorted(self.groups, np.arange(1 + self.groups.max(initial=-1) + 1))

    @property
    def num_users(self) -> NDArray[np.int64]:
        """How many users each group has."""
        return np.bincount(self.groups, ~self.is_item, self.groups.max(initial=-1) + 1).astype(np.int64)


def asked_for(view: View) -> Asked:
    """All that owners asked for."""
    owners, batches, (groups, is_item, numbers) = _rows(view, Role.OWNER, Role.ORCHESTRATOR, *_COLUMNS)
    requests = _numbered(owners, batches)
    return Asked(owners, requests, _numbered(requests, groups), is_item.astype(np.bool_), numbers.astype(np.int64))


def answered(view: View, asked: Asked) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The vectors that were sent and the gradients that came back, for the rows of the requests."""
    if not len(asked.owners):
        return np.empty((0, 1), np.float32), np.empty((0, 1), np.float32)
    to, _, (vectors,) = _rows(view, Role.ORCHESTRATOR, Role.OWNER, "vectors")
    by, _, (gradients,) = _rows(view, Role.OWNER, Role.ORCHESTRATOR, "gradients")
    if not (np.array_equal(to, asked.owners) and np.array_equal(by, asked.owners)):
        raise HushrecError("some requests of owners were not answered; audit a run in which no owner is lost")
    return vectors, gradients


def _rows(
    view: View, sender: Role, receiver: Role, *columns: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[Any]]]:
    """Owners, batches and columns of the rows of one kind of message, owner after owner."""
    batches = [one for one in view if is_sent(type(one.message), sender, receiver, *columns)]
    if not batches:
        return np.empty(0, np.int64), np.empty(0, np.int64), [np.empty(0, np.int64) for _ in columns]
    owners = np.concatenate([np.repeat(one.numbers.astype(np.int64), one.message.lengths) for one in batches])
    of_batch = np.repeat(np.arange(len(batches)), [one.message.num_rows for one in batches])
    order = np.argsort(owners, kind="stable")
    values = [np.concatenate([one.message.column(name).values for one in batches])[order] for name in columns]
    return owners[order], of_batch[order], values


def _numbered(outer: NDArray[np.int64], inner: NDArray[Any]) -> NDArray[np.int64]:
    """Runs of rows in which both stay the same, numbered from 0."""
    is_next = (np.diff(outer) != 0) | (np.diff(inner) != 0)
    return np.concatenate([np.zeros(min(len(outer), 1), np.int64), np.cumsum(is_next)])


class Moved(NamedTuple):
    """Requests with vectors as they were when each group was learned from, and the gradients."""

    asked: Asked
    vectors: Floats
    gradients: Floats
    learning_rate: float
    regularization: float


def moved_by(view: View, own: Own) -> Moved:
    """What owners asked for, with vectors and gradients. Both settings are known to the orchestrator."""
    asked = asked_for(view)
    return follow(asked, *answered(view, asked), own.settings["learning_rate"], own.settings["regularization"])


def follow(
    asked: Asked,
    vectors: NDArray[np.floating],
    gradients: NDArray[np.floating],
    learning_rate: float,
    regularization: float,
) -> Moved:
    """Move vectors from group to group of a request, as the owner did."""
    local, moves = vectors.astype(np.float64), gradients.astype(np.float64)
    order = np.lexsort((asked.numbers, asked.is_item, asked.requests))
    is_same = np.ones(len(order), np.bool_)
    for column in (asked.numbers, asked.is_item, asked.requests):
        is_same[1:] &= column[order][1:] == column[order][:-1]
    _follow(order, is_same, local, moves, learning_rate)
    return Moved(asked, local, moves, learning_rate, regularization)


@numba.njit(nogil=True, cache=True)
def _follow(order, is_same, local, moves, rate):
    for place in range(1, order.size):
        if is_same[place]:
            row, before = order[place], order[place - 1]
            for factor in range(local.shape[1]):
                local[row, factor] = local[before, factor] - rate * moves[before, factor]
