"""Item-kNN and ALS as the package `implicit` has them, with one thread and a seed: the same numbers every time.

Both take rows without ratings. Their settings were chosen on the validation part of ML-100K: TF-IDF weights and
100 neighbours were the best of five kinds of item-kNN, 32 factors with weights of 1 the best of six of ALS.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.data import Interactions
from hushrec.data.interactions import Numbers

_NUM_NEIGHBOURS = 100
_NUM_FACTORS = 32
_NUM_ITERATIONS = 15
_REGULARIZATION = 0.1


@dataclass(frozen=True, eq=False)
class ItemKNN:
    """An item's score is the sum of its likeness to the user's items, if it is among their nearest."""

    rows: Any  # a sparse matrix (users, items) of ones
    likeness: Any  # a sparse matrix (items, items), of each item's nearest

    @classmethod
    def fit(cls, train: Interactions, _seed: int = 0) -> Self:
        """Find the nearest items of each."""
        from implicit.nearest_neighbours import TFIDFRecommender

        rows = _matrix(train)
        with _quiet():
            model = TFIDFRecommender(K=_NUM_NEIGHBOURS, num_threads=1)
            model.fit(rows, show_progress=False)
        likeness = model.similarity.astype(np.float32)
        likeness.data[~np.isfinite(likeness.data)] = 0  # of items that only users with nearly all items have
        return cls(rows, likeness)

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of pairs."""
        liked = self.rows[users].multiply(self.likeness.T.tocsr()[items])
        return np.asarray(liked.sum(axis=1), np.float32).ravel()

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items."""
        return np.asarray((self.rows[users] @ self.likeness).toarray(), np.float32)


@dataclass(frozen=True, eq=False)
class ALS:
    """Factors by alternating least squares on implicit feedback (Hu, Koren, Volinsky 2008)."""

    user_factors: NDArray[np.float32]
    item_factors: NDArray[np.float32]

    @classmethod
    def fit(cls, train: Interactions, seed: int = 0) -> Self:
        """Solve for users and items in turn."""
        from implicit.als import AlternatingLeastSquares

        with _quiet(), threadpool_limits(1, user_api="blas"):
            model = AlternatingLeastSquares(
                factors=_NUM_FACTORS, regularization=_REGULARIZATION, alpha=1.0, iterations=_NUM_ITERATIONS,
                num_threads=1, random_state=seed, use_gpu=False,
            )  # fmt: skip
            model.fit(_matrix(train), show_progress=False)
        return cls(np.asarray(model.user_factors), np.asarray(model.item_factors))

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of pairs."""
        return np.asarray(np.einsum("pf,pf->p", self.user_factors[users], self.item_factors[items]), np.float32)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items."""
        return np.asarray(self.user_factors[users] @ self.item_factors.T, np.float32)

    def narrowed(self, items: Numbers) -> "ALS":
        """The same with these items alone."""
        return replace(self, item_factors=self.item_factors[items])


def _matrix(train: Interactions) -> Any:
    from scipy.sparse import csr_matrix

    ones = np.ones(len(train), np.float32)
    return csr_matrix((ones, (train.users, train.items)), (train.num_users, train.num_items))


@contextmanager
def _quiet() -> Iterator[None]:
    """The package warns of conversions of its own, and of threads that we limit ourselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
