"""Popularity: everybody is told what most people have."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.data.interactions import Numbers


@dataclass(frozen=True, eq=False)
class Popularity:
    """An item's score is the number of users who have it in training, whoever asks."""

    num_users: NDArray[np.float32]  # of each item

    @classmethod
    def fit(cls, train: Interactions, _seed: int = 0) -> Self:
        """Count."""
        return cls(np.bincount(train.items, minlength=train.num_items).astype(np.float32))

    def predict(self, _users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """How many users have each item."""
        return self.num_users[items]

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """The same row for each user."""
        return np.broadcast_to(self.num_users, (len(users), len(self.num_users)))

    def narrowed(self, items: Numbers) -> "Popularity":
        """The same with these items alone."""
        return Popularity(self.num_users[items])
