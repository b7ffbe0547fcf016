"""What a learned model offers to those who measure it or recommend with it."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import Numbers

ScoreUsers = Callable[[NDArray[np.int32]], NDArray[np.floating]]


class Predictor(Protocol):
    """What can be measured: it predicts and ranks for known users."""

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Scores of (user, item) pairs, within the range of ratings if there is one."""
        ...

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items, a row per user, for ranking; minus infinity for items that are unknown there."""
        ...


class Scorer(Predictor, Protocol):
    """A learned model, ready to predict and to rank."""

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of all items for a newcomer with these ratings; nothing leaves the machine."""
        ...


@runtime_checkable
class HasItemVectors(Protocol):
    """What a scorer may offer besides: a vector for each item, so that items can be compared."""

    def vectors_of_items(self) -> NDArray[np.float32] | None:
        """A row per item; None: these models have none that could be compared."""
        ...


def item_vectors_of(scorer: Scorer) -> NDArray[np.float32] | None:
    """The vectors of a scorer's items, where it has some."""
    return scorer.vectors_of_items() if isinstance(scorer, HasItemVectors) else None


@runtime_checkable
class Narrowable(Protocol):
    """What a scorer may offer besides: to score some items only, in less time.

    Scores are the same, but for the last bit on processors where BLAS rounds by the shape of a product.
    """

    def narrowed(self, items: Numbers) -> Predictor:
        """The same model with these items alone, by their places."""
        ...


def scores_among(scorer: Predictor, candidates: NDArray[np.bool_] | None) -> ScoreUsers:
    """How users are scored where only candidates can be listed: these alone, if the scorer can do that.

    The scores have a column for each item or, of candidates alone, for each candidate.
    """
    if candidates is None or candidates.all() or not isinstance(scorer, Narrowable):
        return scorer.score
    return scorer.narrowed(np.flatnonzero(candidates).astype(np.int32)).score


@runtime_checkable
class RanksByLogits(Protocol):
    """What a scorer may offer besides: its scores are logits, which differ where probabilities are all 1."""

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """What people are shown instead of the scores, in the same order."""
        ...


def shown_scores_of(scorer: Scorer, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores as people are shown them: probabilities where a network ranks by logits."""
    return scorer.probabilities(scores) if isinstance(scorer, RanksByLogits) else scores
