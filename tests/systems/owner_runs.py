"""Small streams with owners, and the report's Algorithms 1-4 in plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hushrec.data import OwnerRows

from .runs import Ratings

Event = tuple[int, int, bool]  # user, item, whether it is positive
Block = tuple[int, list[int], list[int]]  # user, negatives, positives


def stream(events: Sequence[Event], held: Sequence[Sequence[int]], num_items: int | None = None) -> Ratings:
    """Events, and the items of each owner."""
    users, items = (np.array([event[place] for event in events], np.int32) for place in (0, 1))
    starts = np.cumsum([0, *map(len, held)]).astype(np.int64)
    all_held = np.array([item for own in held for item in own], np.int32)
    rows = OwnerRows(
        tuple(map(str, range(len(held)))), starts, all_held, True, users, items,
        np.array([event[2] for event in events], np.bool_), 1 + int(users.max()),
    )  # fmt: skip
    return Ratings(rows, num_items or 1 + int(all_held.max()))


def some_stream(size: int = 300, num_users: int = 6, num_items: int = 12, seed: int = 0) -> list[Event]:
    draws = np.random.default_rng(seed)
    columns = draws.integers(0, num_users, size), draws.integers(0, num_items, size), draws.random(size) < 0.6
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass
class SlowOwner:
    """A data owner as in the report."""

    blocks: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    saved: list[Block] = field(default_factory=list)
    is_literal: bool = False

    def update_block(self, user: int, item: int, is_positive: bool) -> None:
        """Algorithm 2; a block without a negative gives no gradient, and is saved only if it is read literally."""
        negatives, positives = self.blocks.setdefault(user, ([], []))
        if is_positive:
            positives.append(item)
        elif not positives:
            negatives.append(item)
        else:
            if negatives or self.is_literal:
                self.saved.append((user, negatives, positives))
            self.blocks[user] = ([item], [])


Vectors = dict[tuple[str, int], np.ndarray]


def gradients_of(blocks: list[Block], vectors: Vectors, ridge: float, is_sum: bool = False) -> Vectors:
    """Algorithm 3, with the sign put right, the mean or the sum over a block's pairs, and ridge."""
    sums: Vectors = {}

    def add(name: tuple[str, int], gradient: np.ndarray) -> None:
        sums[name] = sums.get(name, 0) + gradient

    for user, negatives, positives in blocks:
        if not negatives:  # no pair
            continue
        v = vectors["user", user]
        share = 1 if is_sum else 1 / len(negatives) / len(positives)
        for negative in negatives:
            for positive in positives:
                difference = vectors["item", positive] - vectors["item", negative]
                slope = -share / (1 + np.exp(v @ difference))
                add(("user", user), slope * difference)
                add(("item", positive), slope * v)
                add(("item", negative), -slope * v)
        for name in (("user", user), *(("item", item) for item in (*negatives, *positives))):
            add(name, ridge * vectors[name])
    return sums


def learned_slowly(
    events: Sequence[Event],
    held: Sequence[Sequence[int]],
    vectors: Vectors,
    theta: int,
    rate: float,
    ridge: float,
    window: int,
    epochs: int = 1,
    ends_blocks: bool = False,
    is_literal: bool = False,
    is_sum: bool = False,
) -> Vectors:
    """Go through the stream in windows; with windows of one event it is the report's sequence.

    Open blocks go on in the next epoch or end before it; completed ones that wait for others are kept.
    """
    table: dict[int, list[int]] = {}
    for number, items in enumerate(held):  # Algorithm 1
        for item in items:
            table.setdefault(item, []).append(number)
    owners = [SlowOwner(is_literal=is_literal) for _ in held]
    for first in [first for _ in range(epochs) for first in range(0, len(events), window)]:
        if first == 0 and ends_blocks:
            for owner in owners:
                owner.blocks.clear()
        for user, item, is_positive in events[first : first + window]:
            for number in table.get(item, []):
                owners[number].update_block(user, item, is_positive)
        moved = dict(vectors)
        for owner in owners:
            own = dict(vectors)
            while len(owner.saved) >= theta:
                group, owner.saved = owner.saved[:theta], owner.saved[theta:]
                for name, gradient in gradients_of(group, own, ridge, is_sum).items():  # Algorithm 4
                    own[name] = own[name] - rate * gradient
                    moved[name] = moved[name] - rate * gradient
        vectors = moved
    return vectors
