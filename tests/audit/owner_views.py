"""What an orchestrator sees, made by hand: requests of owners, vectors, gradients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Message, Ragged, Recorded, Role, ragged


@dataclass(frozen=True)
class Request(Message):
    """Reveals: users and items, by group."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    groups: Ragged = ragged(np.int32, low=0)
    is_item: Ragged = ragged(np.uint8, high=1)
    numbers: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Sent(Message):
    """Reveals: vectors."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    vectors: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Came(Message):
    """Reveals: gradients."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    gradients: Ragged = ragged(np.float32, 2)


Group = tuple[list[int], list[int]]  # users, items


def request(asked: dict[int, list[Group]]) -> Recorded:
    """One batch: per owner its groups."""
    rows = [
        [
            (group, is_item, number)
            for group, both in enumerate(groups)
            for is_item in (0, 1)
            for number in both[is_item]
        ]
        for groups in asked.values()
    ]
    starts = np.cumsum([0, *(len(one) for one in rows)])
    columns = np.array([row for one in rows for row in one], np.int32).reshape(-1, 3).T
    groups, is_item, numbers = (Ragged(starts, column) for column in columns)
    message = Request(groups, Ragged(starts, is_item.values.astype(np.uint8)), numbers)
    return Recorded(1, np.array(list(asked), np.int32), message)


def replies(owner: int, vectors: NDArray[np.floating], gradients: NDArray[np.floating]) -> list[Recorded]:
    """What was sent to one owner, and what came back."""
    number = np.array([owner], np.int32)
    return [
        Recorded(1, number, Sent(Ragged.one(vectors.astype(np.float32)))),
        Recorded(1, number, Came(Ragged.one(gradients.astype(np.float32)))),
    ]
