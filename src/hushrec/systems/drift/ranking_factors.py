"""Vectors of users and items whose products rank: what an orchestrator learns, ready to recommend."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.evaluation.formula import Formula
from hushrec.kernels.sigmoids import sigmoids
from hushrec.models.newcomers import Bends, Reals, least
from hushrec.protocol import Numbers

_LEAST_REGULARIZATION = 1e-4  # of a newcomer's vector: without any it could grow without end


@dataclass(frozen=True)
class RankingFactors:
    """Scores are inner products; they say what is better, not how good it is."""

    user_factors: NDArray[np.float32]
    item_factors: NDArray[np.float32]
    regularization: float
    has_biases: bool = False  # at the end of items' vectors; users' end with a 1 there

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs."""
        scores: NDArray[np.float32] = np.einsum("nf,nf->n", self.user_factors[users], self.item_factors[items])
        return scores

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items for each user: (users, items)."""
        scores: NDArray[np.float32] = self.user_factors[users] @ self.item_factors.T
        return scores

    def narrowed(self, items: Numbers) -> "RankingFactors":
        """The same with these items alone."""
        return replace(self, item_factors=self.item_factors[items])

    def vectors_of_items(self) -> NDArray[np.float32]:
        """A vector per item, without its bias, which says how popular it is and not what it is like."""
        return self.item_factors[:, :-1] if self.has_biases else self.item_factors

    def formula(self) -> Formula:
        """Inner products of whole vectors, biases among them."""
        return Formula(self.user_factors, self.item_factors, self.item_factors.shape[1])

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """A newcomer's vector minimises the pairwise loss of one block: all it likes (1) over all it does not (0).

        Without anything that it does not like, the mean of all items takes that place.
        """
        if not np.isin(ratings, (0, 1)).all():
            raise HushrecError("a newcomer's ratings are 1 (liked) or 0 (not) with this model; give these")
        is_positive = ratings == 1
        vectors = self.vectors_of_items()
        biases = self.item_factors[:, -1] if self.has_biases else np.zeros(len(vectors), np.float32)
        liked = vectors[items[is_positive]].astype(np.float64)
        disliked = vectors[items[~is_positive]].astype(np.float64)
        leads = biases[items[is_positive]][:, None] - biases[items[~is_positive]]
        if not len(disliked):
            disliked = vectors.mean(axis=0, dtype=np.float64, keepdims=True)
            leads = biases[items[is_positive]][:, None] - biases.mean()
        if not len(liked):
            return biases.copy()
        regularization = max(self.regularization, _LEAST_REGULARIZATION)
        vector = least(
            lambda vector: _block_loss(vector, liked, disliked, leads, regularization), np.zeros(liked.shape[1])
        )
        return (vectors @ vector.astype(np.float32) + biases).astype(np.float32)


def _block_loss(
    vector: Reals, liked: Reals, disliked: Reals, leads: NDArray[np.float32], regularization: float
) -> tuple[float, Bends]:
    """The mean of log(1 + exp(-x (v - w) - l)) over all pairs of liked v and disliked w, and how it bends.

    l is by how much the bias of v is above that of w. Sums over pairs are made of sums over rows and columns, so
    that no pair has a vector of its own.
    """
    margins = (liked @ vector)[:, None] - disliked @ vector + leads
    num_pairs = margins.size

    def bends() -> tuple[Reals, Reals]:
        misses = sigmoids(-margins)
        bent = misses * (1 - misses)
        pulls = misses.sum(axis=1) @ liked - misses.sum(axis=0) @ disliked
        crossed = liked.T @ bent @ disliked
        curvature = (liked.T * bent.sum(axis=1)) @ liked + (disliked.T * bent.sum(axis=0)) @ disliked
        curvature -= crossed + crossed.T
        gradient = regularization * vector - pulls / num_pairs
        return gradient, curvature / num_pairs + regularization * np.eye(len(vector))

    return float(np.logaddexp(0, -margins).mean() + 0.5 * regularization * vector @ vector), bends
