"""A planted checkerboard: even users like even items, odd users odd ones. Who learns anything learns that."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.protocol import AnySystem, Numbers

NUM_USERS, NUM_ITEMS = 40, 20
_LIKED, _NOT_LIKED, _WANTED = 5.0, 1.0, 4.0


@dataclass(frozen=True)
class Board:
    """What a system learns from, and the items that are then to come first, with the users whom they are for."""

    train: Interactions  # as the system takes it
    users: Numbers
    wanted: Numbers

    def rated_by(self, user: int) -> tuple[Numbers, NDArray[np.float32]]:
        """Items and ratings."""
        is_own, ratings = self.train.users == user, self.train.ratings
        items = self.train.items[is_own]
        return items, np.ones(len(items), np.float32) if ratings is None else ratings[is_own]

    def ranked_first(self, scores: NDArray[np.float32]) -> float:
        """The share of users for whom the wanted item is the best of those that they have not rated."""
        is_first = []
        for user, item, row in zip(self.users.tolist(), self.wanted.tolist(), scores.copy(), strict=True):
            row[self.rated_by(user)[0]] = -np.inf
            is_first.append(row.argmax() == item)
        return float(np.mean(is_first))


def checkerboard(system: AnySystem) -> Board:
    """Of each user one liked item and three others are withheld; where there are positives only, all others are.

    By chance the wanted item comes first of 4 items, or of 11.
    """
    has_ratings = system.feedback.prepare(_whole(3), system.name).ratings is not None
    data = system.holders.sample(_whole(3 if has_ratings else NUM_ITEMS // 2), 0)
    assert data.ratings is not None
    is_wanted = data.ratings == _WANTED
    train = system.feedback.prepare(data.select(~is_wanted), system.name)
    return Board(train, data.users[is_wanted], data.items[is_wanted])


def _whole(num_hidden: int) -> Interactions:
    """In one piece, in a random order; the wanted items have a rating that no other has."""
    draws, rows = np.random.default_rng(0), []
    for user in range(NUM_USERS):
        liked, others = np.arange(user % 2, NUM_ITEMS, 2), np.arange(1 - user % 2, NUM_ITEMS, 2)
        wanted, hidden = int(draws.choice(liked)), draws.choice(others, num_hidden, replace=False).tolist()
        rows += [(user, item, _WANTED if item == wanted else _LIKED) for item in liked.tolist()]
        rows += [(user, item, _NOT_LIKED) for item in others.tolist() if item not in hidden]
    users, items, ratings = (np.array(column) for column in zip(*draws.permutation(rows).tolist(), strict=True))
    return Interactions(
        users.astype(np.int32), items.astype(np.int32), ratings.astype(np.float32), None, None,
        np.arange(NUM_USERS), np.arange(NUM_ITEMS), None, (1.0, 5.0), "checkerboard", "", True,
    )  # fmt: skip
