"""What owners answer the orchestrator, checked as it comes, so that a bad one has a sender."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, MadeUpError, PublicError
from hushrec.limits import MOST_EVENTS, MOST_ITEMS, MOST_NUMBERS
from hushrec.privacy.exact_sum import row_limit, sender_of
from hushrec.protocol import NO_ONE, Collect, Message, Numbers
from hushrec.systems.drift.messages import Began, BlockGradients, Holdings, Wanted, WindowSent
from hushrec.systems.drift.plan import Plan


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


@dataclass(frozen=True)
class Held:
    """Which owner holds which item."""

    pairs: NDArray[np.int64]  # of owner and item, ascending

    @classmethod
    def of(cls, starts: NDArray[np.int64], owners: Numbers) -> "Held":
        """From a table."""
        return cls(np.sort(_paired(owners, np.repeat(np.arange(len(starts) - 1), np.diff(starts)))))

    def by(self, owners: Numbers, items: Numbers) -> NDArray[np.bool_]:
        """Of each owner and item, whether that one holds this."""
        pairs = _paired(owners, items)
        if not len(self.pairs):
            return np.zeros(len(pairs), np.bool_)
        places = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        is_held: NDArray[np.bool_] = self.pairs[places] == pairs
        return is_held


def _paired(owners: Numbers, items: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    return (owners.astype(np.int64) << 32) | items


@dataclass
class Claims(Collect):
    """What owners say they hold; an item twice is refused as it comes."""

    num_items: int = 0

    def fork(self) -> "Claims":
        """An empty one with the same limits."""
        return Claims(num_items=self.num_items)

    def add(self, numbers: Numbers, message: Holdings) -> None:
        """Keep one batch. New items are numbered on from those known: no claim is larger than its message."""
        if message.items.not_ascending().any():
            raise PublicError("an owner lists an item twice, or not in ascending order")
        highest = int(message.items.values.max(initial=-1))
        if highest >= min(self.num_items + len(message.items.values), MOST_ITEMS):
            raise PublicError(f"an owner holds an item numbered {highest:,}; number items from 0, without gaps")
        super().add(numbers, message)


@dataclass
class Beginnings(Collect):
    """What the users' side says that is to come; more than can be afforded is refused."""

    window: int = 1  # events in one
    num_columns: int = 1

    def fork(self) -> "Beginnings":
        """An empty one with the same limits."""
        return Beginnings(window=self.window, num_columns=self.num_columns)

    def add(self, numbers: Numbers, message: Began) -> None:
        """Keep one batch."""
        num_windows, num_users = int(message.num_windows.max()), int(message.num_users.max())
        if num_windows * self.window >= MOST_EVENTS + self.window or num_users * self.num_columns > MOST_NUMBERS:
            raise PublicError(f"{num_windows:,} windows in a round, or {num_users:,} users, are too many")
        super().add(numbers, message)


@dataclass
class ActiveUsers(Collect):
    """Users to whom something is to be recommended: some of those of one window, if that was agreed on."""

    num_users: int = 0
    most: int = 0

    def fork(self) -> "ActiveUsers":
        """An empty one with the same limits."""
        return ActiveUsers(num_users=self.num_users, most=self.most)

    @classmethod
    def of(cls, num_users: int, plan: Plan) -> "ActiveUsers":
        """With the limits of a plan."""
        return cls(
            num_users=num_users, most=plan.window if plan.recommended and not plan.users_keep_vectors else 0
        )

    def add(self, numbers: Numbers, message: WindowSent) -> None:
        """Keep one batch."""
        users = message.users
        if users.lengths.max(initial=0) > self.most or users.not_ascending().any():
            raise PublicError("the users' side names more users than a window has, or one twice")
        if users.values.max(initial=-1) >= self.num_users:
            raise PublicError("the users' side names a user that there is not")
        super().add(numbers, message)


@dataclass
class Requests(Collect):
    """What owners want; users that there are not and items of others are refused: their sender is named."""

    num_users: int = 0
    held: Held = field(default_factory=lambda: Held(np.empty(0, np.int64)))
    most: int = 0  # vectors of one owner

    def fork(self) -> "Requests":
        """An empty one with the same limits."""
        return Requests(num_users=self.num_users, held=self.held, most=self.most)

    def add(self, numbers: Numbers, message: Wanted) -> None:
        """Keep one batch, or refuse it if somebody or something in it is not to be had."""
        if message.lengths.max(initial=0) > self.most:
            raise PublicError(
                f"an owner wants {message.lengths.max():,} vectors at once; {self.most:,} are the most"
            )
        is_item, wanted = message.is_item.values.astype(np.bool_), message.numbers.values
        owners = np.repeat(numbers, message.lengths)
        if (wanted[~is_item] >= self.num_users).any() or not self.held.by(owners[is_item], wanted[is_item]).all():
            raise PublicError("an owner wants the vector of a user that there is not, or of an item not its own")
        super().add(numbers, message)


@dataclass
class ReturnedGradients(Collect):
    """Gradients, a row for each vector that was sent; what nobody could add up is refused as it comes."""

    num_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # by owner
    num_factors: int = 0

    def fork(self) -> "ReturnedGradients":
        """An empty one with the same limits."""
        return ReturnedGradients(num_rows=self.num_rows, num_factors=self.num_factors)

    def add(self, numbers: Numbers, message: BlockGradients) -> None:
        """Keep one batch, or refuse it if it has other rows than were sent."""
        is_right = message.gradients.values.shape[1] == self.num_factors
        if not is_right or not np.array_equal(message.gradients.lengths, self.num_rows[numbers]):
            raise PublicError("gradients came that do not fit the vectors that were sent")
        is_bad = ~(np.abs(message.gradients.values) <= row_limit(1)).all(axis=1)
        if is_bad.any():
            sender = sender_of(numbers, message.gradients, is_bad)
            raise MadeUpError(f"a gradient of owner {sender} is not finite or far too large; leave it out")
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
    counts = np.bincount(items, minlength=num_items)
    return np.concatenate([[0], np.cumsum(counts)]), owners[order].astype(np.int32)
