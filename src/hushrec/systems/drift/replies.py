"""What owners answer the orchestrator, checked as it comes, so that a bad one has a sender."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol import NO_ONE, Collect, Message, Numbers
from hushrec.systems.drift.members import MOST
from hushrec.systems.drift.messages import BlockGradients, Wanted


@dataclass(frozen=True)
class Moves:
    """Gradients, with what they are of, and whose they are."""

    owners: Numbers  # of each row
    is_item: NDArray[np.bool_]
    numbers: Numbers
    gradients: NDArray[np.float32]

    def of(self, rows: NDArray[np.bool_]) -> "Moves":
        """Only the rows where this is true."""
        return Moves(self.owners[rows], self.is_item[rows], self.numbers[rows], self.gradients[rows])


@dataclass
class Requests(Collect):
    """What owners want; unknown users and items are refused as they come, so that their sender is named."""

    num_users: int = 0
    num_items: int = 0

    def fork(self) -> "Requests":
        """An empty one with the same limits."""
        return Requests(num_users=self.num_users, num_items=self.num_items)

    def add(self, numbers: Numbers, message: Wanted) -> None:
        """Keep one batch, or refuse it if somebody or something is unknown."""
        sizes = np.where(message.is_item.values, self.num_items, self.num_users)
        if (message.numbers.values >= sizes).any():
            raise HushrecError("an owner wants the vector of a user or an item that there is not")
        super().add(numbers, message)


@dataclass
class ReturnedGradients(Collect):
    """Gradients, a row for each vector that was sent."""

    num_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # by owner
    num_factors: int = 0

    def fork(self) -> "ReturnedGradients":
        """An empty one with the same limits."""
        return ReturnedGradients(num_rows=self.num_rows, num_factors=self.num_factors)

    def add(self, numbers: Numbers, message: BlockGradients) -> None:
        """Keep one batch, or refuse it if it has other rows than were sent."""
        is_right = message.gradients.values.shape[1] == self.num_factors
        if not is_right or not np.array_equal(message.gradients.lengths, self.num_rows[numbers]):
            raise HushrecError("gradients came that do not fit the vectors that were sent")
        super().add(numbers, message)


def in_order(batches: list[tuple[Numbers, Any]], kind: type[Message]) -> tuple[Numbers, Any]:
    """Batches of replies as one, in the order of the owners, and whose they are: those that hold something."""
    if not batches:
        return NO_ONE, None
    owners = np.concatenate([numbers for numbers, _ in batches])
    joined = kind.join([said for _, said in batches])
    order = np.argsort(owners)
    order = order[joined.lengths[order] > 0]
    return owners[order], joined.take(order)


def owners_of_items(holdings: Collect, num_items: int) -> tuple[NDArray[np.int64], Numbers]:
    """The owners of each item (Algorithm 1)."""
    owners = np.concatenate(
        [np.empty(0, np.int32), *(np.repeat(numbers, said.items.lengths) for numbers, said in holdings.batches)]
    )
    items = np.concatenate([np.empty(0, np.int32), *(said.items.values for _, said in holdings.batches)])
    if not len(items):
        raise HushrecError("no owner holds an item; bring owners with items")
    order = np.lexsort((owners, items))
    if items.max() >= MOST:
        raise HushrecError(f"an owner holds an item numbered {items.max():,}; number items from 0, without gaps")
    counts = np.bincount(items, minlength=num_items)
    return np.concatenate([[0], np.cumsum(counts)]), owners[order].astype(np.int32)
