"""Which baselines there are, which of them suit the data, and about how long they take."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from hushrec.baselines.biases import Biases
from hushrec.baselines.library import ALS, ItemKNN
from hushrec.baselines.popularity import Popularity
from hushrec.data import Interactions
from hushrec.evaluation.feedback import Feedback
from hushrec.evaluation.scoring import Predictor

_PACKAGE = "implicit"
_IMPORT_SECONDS = 2.0  # of the package, the first time
_SECONDS_PER_PLACE = 1e-8  # to rank a candidate for a user, twice: for all users and for thirds of them
_SECONDS_PER_SCORE = 1e-8  # to score an item for a user, as often


@dataclass(frozen=True)
class Baseline:
    """One of them. Times are rough: of one core that does nothing else."""

    name: str
    fit: Callable[[Interactions, int], Predictor]
    fit_seconds: Callable[[Interactions], float]
    predicts_ratings: bool = False
    is_of_package: bool = False  # and scores each user's items apart

    def suits(self, train: Interactions, feedback: Feedback) -> bool:
        """Whether it can learn from such data."""
        return not self.predicts_ratings or (feedback.needs_ratings and train.ratings is not None)

    def seconds(self, train: Interactions, num_lists: int, num_candidates: int) -> float:
        """About how long it takes to fit and to rank so many items for so many users."""
        per_list = _SECONDS_PER_PLACE * num_candidates
        if self.is_of_package:
            per_list += _SECONDS_PER_SCORE * train.num_items
        loading = _IMPORT_SECONDS if self.is_of_package and _PACKAGE not in sys.modules else 0.0
        return loading + self.fit_seconds(train) + per_list * num_lists


def _knn_seconds(train: Interactions) -> float:
    """Every pair of items of a user is looked at."""
    return 1e-8 * float(np.square(np.bincount(train.users), dtype=np.float64).sum())


BASELINES = (
    Baseline("popularity", Popularity.fit, lambda train: 1e-8 * len(train)),
    Baseline("biases", Biases.fit, lambda train: 3e-7 * len(train), predicts_ratings=True),
    Baseline("item-kNN", ItemKNN.fit, _knn_seconds, is_of_package=True),
    Baseline(
        "ALS", ALS.fit, lambda train: 2e-6 * len(train) + 1e-5 * (train.num_users + train.num_items),
        is_of_package=True,
    ),
)  # fmt: skip
"""From the cheapest on."""


def are_installed() -> bool:
    """Whether the package is there that item-kNN and ALS are of."""
    return find_spec(_PACKAGE) is not None
