"""Two models at once: the server's, and the client's own where it has trained."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.evaluation.scoring import item_vectors_of
from hushrec.protocol import Numbers, Scorer
from hushrec.systems.ptf_fedrec.clients import LocalModel


@dataclass(frozen=True)
class Ensemble:
    """The mean of the server's and the client's score where the client trained the item, else the server's."""

    server: Scorer
    own: LocalModel

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs."""
        found = self.score(np.unique(users))
        return found[np.searchsorted(np.unique(users), users), items]

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items for each user: (users, items)."""
        scores = self.server.score(users)
        owners, items, own = self.own.trained_scores(users)
        scores[owners, items] = (scores[owners, items] + own) / 2
        return scores

    def vectors_of_items(self) -> NDArray[np.float32] | None:
        """The server's."""
        return item_vectors_of(self.server)

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the server's model says of newcomers: they have trained nothing."""
        return self.server.fold_in(items, ratings)
