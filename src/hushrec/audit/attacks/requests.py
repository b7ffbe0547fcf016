"""What an orchestrator saw of data owners: the vectors that they asked for, group by group, and their gradients.

Messages are known by their columns: a request has `groups`, `is_item` and `numbers`, a row for each vector; what
was sent has `vectors`, what came back `gradients`, a row for each row of the request. In a group users come first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol import Message, Recorded, Role


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


def asked_for(seen: Sequence[Recorded]) -> Asked:
    """All that owners asked for."""
    owners, batches, (groups, is_item, numbers) = _rows(seen, Role.OWNER, "groups", "is_item", "numbers")
    requests = _numbered(owners, batches)
    return Asked(owners, requests, _numbered(requests, groups), is_item.astype(np.bool_), numbers.astype(np.int64))


def answered(seen: Sequence[Recorded], asked: Asked) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The vectors that were sent and the gradients that came back, for the rows of the requests."""
    to, _, (vectors,) = _rows(seen, Role.ORCHESTRATOR, "vectors")
    by, _, (gradients,) = _rows(seen, Role.OWNER, "gradients")
    if not (np.array_equal(to, asked.owners) and np.array_equal(by, asked.owners)):
        raise HushrecError("some requests of owners were not answered; audit a run in which no owner is lost")
    if not len(asked.owners):
        return np.empty((0, 1), np.float32), np.empty((0, 1), np.float32)
    return vectors, gradients


def _rows(
    seen: Sequence[Recorded], sender: Role, *columns: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[Any]]]:
    """Owners, batches and columns of the rows of one kind of message, owner after owner."""
    batches = [one for one in seen if type(one.message).sender == sender and _has(type(one.message), columns)]
    if not batches:
        return np.empty(0, np.int64), np.empty(0, np.int64), [np.empty(0, np.int64) for _ in columns]
    owners = np.concatenate([np.repeat(one.numbers.astype(np.int64), one.message.lengths) for one in batches])
    of_batch = np.repeat(np.arange(len(batches)), [one.message.num_rows for one in batches])
    order = np.argsort(owners, kind="stable")
    values = [np.concatenate([getattr(one.message, name).values for one in batches])[order] for name in columns]
    return owners[order], of_batch[order], values


def _has(message_type: type[Message], columns: tuple[str, ...]) -> bool:
    layouts = {kind.name: kind.layout for kind in message_type.kinds()}
    return all(layouts.get(name) == "ragged" for name in columns)


def _numbered(outer: NDArray[np.int64], inner: NDArray[Any]) -> NDArray[np.int64]:
    """Runs of rows in which both stay the same, numbered from 0."""
    is_next = (np.diff(outer) != 0) | (np.diff(inner) != 0)
    return np.concatenate([np.zeros(min(len(outer), 1), np.int64), np.cumsum(is_next)])
