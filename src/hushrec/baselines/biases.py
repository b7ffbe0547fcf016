"""Mean and biases: a rating is the mean of all ratings, plus what is usual for its user, plus that of its item.

    r(u, i) = m + b(u) + b(i), with the b that minimise the sum of (rating - r)^2 over the training ratings,
    plus 2 times the sum of all squared b

Given the biases of users, the best bias of an item has a closed form, and the other way round: the sum of what is
left of its ratings, divided by their number plus 2. Both are done in turn, twenty times. The 2 was chosen on the
validation parts of ML-100K, MovieTweetings and Jester, where it is the best of 2, 5, 10 and 25.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.data.interactions import Numbers, RatingRange

_REGULARIZATION = 2.0
_NUM_TURNS = 20


@dataclass(frozen=True, eq=False)
class Biases:
    """What is usual for a user and for an item; 0 for those without a training rating."""

    mean: float
    of_users: NDArray[np.float64]
    of_items: NDArray[np.float64]
    rating_range: RatingRange

    @classmethod
    def fit(cls, train: Interactions, _seed: int = 0) -> Self:
        """Solve for items and users in turn."""
        assert train.ratings is not None
        users, items, ratings = train.users, train.items, train.ratings.astype(np.float64)
        mean = float(ratings.mean())
        left = ratings - mean
        num_of_users = np.bincount(users, minlength=train.num_users) + _REGULARIZATION
        num_of_items = np.bincount(items, minlength=train.num_items) + _REGULARIZATION
        of_users, of_items = np.zeros(train.num_users), np.zeros(train.num_items)
        for _ in range(_NUM_TURNS):
            of_items = np.bincount(items, left - of_users[users], train.num_items) / num_of_items
            of_users = np.bincount(users, left - of_items[items], train.num_users) / num_of_users
        return cls(mean, of_users, of_items, train.rating_range)

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Predicted ratings, within the range of ratings."""
        predicted = self.mean + self.of_users[users] + self.of_items[items]
        if self.rating_range is not None:
            predicted = predicted.clip(*self.rating_range)
        return predicted.astype(np.float32)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """By the biases of items: a user's own changes no order."""
        return np.broadcast_to(self.of_items.astype(np.float32), (len(users), len(self.of_items)))
