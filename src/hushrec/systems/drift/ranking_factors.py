"""Vectors of users and items whose products rank: what an orchestrator learns, ready to recommend."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol import Numbers

_STEPS = 200
_STEP_SIZE = 0.5


@dataclass(frozen=True)
class RankingFactors:
    """Scores are inner products; they say what is better, not how good it is."""

    user_factors: NDArray[np.float32]
    item_factors: NDArray[np.float32]
    regularization: float

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs."""
        scores: NDArray[np.float32] = np.einsum("nf,nf->n", self.user_factors[users], self.item_factors[items])
        return scores

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items for each user: (users, items)."""
        scores: NDArray[np.float32] = self.user_factors[users] @ self.item_factors.T
        return scores

    def vectors_of_items(self) -> NDArray[np.float32]:
        """A vector per item."""
        return self.item_factors

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """A newcomer's vector minimises the pairwise loss of one block: all it likes (1) over all it does not (0).

        Without anything that it does not like, the mean of all items takes that place.
        """
        if not np.isin(ratings, (0, 1)).all():
            raise HushrecError("a newcomer's ratings are 1 (liked) or 0 (not) with this model; give these")
        is_positive = ratings == 1
        liked = self.item_factors[items[is_positive]].astype(np.float64)
        disliked = self.item_factors[items[~is_positive]].astype(np.float64)
        if not len(disliked):
            disliked = self.item_factors.mean(axis=0, dtype=np.float64, keepdims=True)
        differences = (liked[:, None] - disliked[None]).reshape(-1, liked.shape[1])
        vector = np.zeros(liked.shape[1])
        for _ in range(_STEPS if len(differences) else 0):
            shares = 1 / (1 + np.exp(np.clip(differences @ vector, -50, 50)))
            vector += _STEP_SIZE * (shares @ differences / len(differences) - self.regularization * vector)
        return (self.item_factors @ vector.astype(np.float32)).astype(np.float32)
