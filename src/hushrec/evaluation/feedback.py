"""Feedback: what a row means. It says how data is prepared, how a model is measured, and how data is split.

Explicit: a rating. Implicit: the user took the item, and nothing more is known. Signed: good or bad.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions, SplitKind
from hushrec.data.reading import naming_of
from hushrec.errors import HushrecError
from hushrec.evaluation.candidates import candidates
from hushrec.evaluation.held_back import held_back_metrics, held_back_names
from hushrec.evaluation.ranking import evaluated_users, ranking_metrics
from hushrec.evaluation.rating import rating_metrics
from hushrec.evaluation.scoring import Predictor, scores_among

Lengths = tuple[int, ...]  # of ranked lists

# With more scores than these, a point of a learning curve is of every n-th user only: seconds, whatever the data.
MOST_CURVE_SCORES = 2 * 10**9


class Feedback(ABC):
    """One kind of feedback: what a row of the data means."""

    name: ClassVar[str]
    usual_split: ClassVar[SplitKind]
    usual_lengths: ClassVar[Lengths]
    usual_min_raters: ClassVar[int] = 1  # of an item that can be listed, see `candidates.py`
    needs_ratings: ClassVar[bool] = False  # of a newcomer, too
    takes_passed_over: ClassVar[bool] = False  # whether items can be drawn that a user did not like

    @abstractmethod
    def prepare(self, data: Interactions, wanted_by: str, positive_from: float = 0.0) -> Interactions:
        """The data as a system takes it; once per job. `positive_from` is for those who tell good from bad."""

    def check_trainable(self, _train: Interactions, _wanted_by: str) -> None:
        """Refuse data from which nothing can be learned; as a rule, something can."""
        return

    def check_measurable(self, test: Interactions) -> None:
        """Refuse, before training, a test part on which nothing can be measured after a round."""
        if not len(evaluated_users(test.by_user(), relevance_limit(test))):
            raise HushrecError(
                "no user has a relevant item in the test part; bring more data, or choose another split"
            )

    def liked(self, train: Interactions) -> Interactions:
        """The rows that say good, all that baselines of rankings learn from; as a rule every row does."""
        return train

    @abstractmethod
    def curve_names(self, lengths: Lengths) -> tuple[str, ...]:
        """The metrics of a learning curve."""

    @abstractmethod
    def curve(
        self, scorer: Predictor, train: Interactions, test: Interactions, lengths: Lengths, min_raters: int = 0
    ) -> dict[str, float]:
        """The metrics of a learning curve, after a round."""

    def evaluate(
        self,
        scorer: Predictor,
        train: Interactions,
        test: Interactions,
        lengths: Lengths,
        relevant_from: float | None = None,
        min_raters: int = 0,
    ) -> dict[str, float]:
        """All metrics of a model: of rankings, if some test row is relevant.

        Only items with so many raters in training can be listed (0: every item).
        """
        return ranking_quality(scorer, train, test, lengths, relevant_from, min_raters)

    def is_shown(self, _metric: str) -> bool:
        """Whether tables for people have this metric."""
        return True


class _Explicit(Feedback):
    """Rows are ratings."""

    name = "explicit"
    usual_split: ClassVar[SplitKind] = "folds"
    usual_lengths = (10,)
    usual_min_raters = 10
    needs_ratings = True

    def prepare(self, data: Interactions, wanted_by: str, _positive_from: float = 0.0) -> Interactions:
        """The ratings, unchanged."""
        if data.ratings is None:
            raise HushrecError(
                f"{wanted_by} needs ratings, {data.name} has none; name their column with "
                f"{naming_of(['rating'])}, or choose a system that needs none, such as fcf or fedrec-bpr"
            )
        return data

    def check_measurable(self, _test: Interactions) -> None:
        """Refuse nothing: every rating can be predicted."""

    def curve_names(self, _lengths: Lengths) -> tuple[str, ...]:
        """MAE and RMSE."""
        return ("MAE", "RMSE")

    def curve(
        self,
        scorer: Predictor,
        _train: Interactions,
        test: Interactions,
        _lengths: Lengths,
        _min_raters: int = 0,
    ) -> dict[str, float]:
        """MAE and RMSE of predicted ratings."""
        return rating_quality(scorer, test)

    def evaluate(
        self,
        scorer: Predictor,
        train: Interactions,
        test: Interactions,
        lengths: Lengths,
        relevant_from: float | None = None,
        min_raters: int = 0,
    ) -> dict[str, float]:
        """MAE and RMSE of predicted ratings, and metrics of rankings."""
        metrics = rating_quality(scorer, test) if test.ratings is not None else {}
        return metrics | super().evaluate(scorer, train, test, lengths, relevant_from, min_raters)


class _Implicit(Feedback):
    """Ratings are left out; what was interacted with is a positive."""

    name = "implicit"
    usual_split: ClassVar[SplitKind] = "random"
    usual_lengths = (20,)

    def prepare(self, data: Interactions, _wanted_by: str, _positive_from: float = 0.0) -> Interactions:
        """Drop the ratings."""
        return data.as_implicit()

    def curve_names(self, lengths: Lengths) -> tuple[str, ...]:
        """Recall and NDCG of the longest list."""
        return (f"Recall@{max(lengths)}", f"NDCG@{max(lengths)}")

    def curve(
        self, scorer: Predictor, train: Interactions, test: Interactions, lengths: Lengths, min_raters: int = 0
    ) -> dict[str, float]:
        """Recall and NDCG of the longest list."""
        return _ranked(scorer, train, test, (max(lengths),), self.curve_names(lengths), min_raters)


class _Signed(Feedback):
    """Rows say good or bad."""

    name = "signed"
    usual_split: ClassVar[SplitKind] = "latest"
    usual_lengths = (1, 5, 10, 20)
    takes_passed_over = True

    def prepare(self, data: Interactions, _wanted_by: str, positive_from: float = 0.0) -> Interactions:
        """1 from this rating on, or from the middle of the range up, else 0."""
        return data.as_signed(positive_from)

    def check_trainable(self, train: Interactions, wanted_by: str) -> None:
        """Refuse data with only good or only bad rows."""
        if train.ratings is not None and len(np.unique(train.ratings)) == 1:
            raise HushrecError(
                f"{train.name} does not tell what users liked from what they did not, and {wanted_by} needs both; "
                "choose data with ratings, or draw what users passed over (hushrec run ... --passed-over 1)"
            )

    def liked(self, train: Interactions) -> Interactions:
        """The good rows."""
        return train.select(train.is_positive())

    def curve_names(self, lengths: Lengths) -> tuple[str, ...]:
        """MAP and NDCG for each length, longest first: of all items, and of those that were held back."""
        ranked = (f"{name}@{length}" for name in ("MAP", "NDCG") for length in sorted(lengths, reverse=True))
        return (*ranked, *held_back_names(lengths))

    def curve(
        self, scorer: Predictor, train: Interactions, test: Interactions, lengths: Lengths, min_raters: int = 0
    ) -> dict[str, float]:
        """MAP and NDCG for each length, longest first: of all items, and of those that were held back."""
        held_back = held_back_metrics(scorer.predict, test.by_user(), lengths, relevance_limit(test))
        names = self.curve_names(lengths)
        return _ranked(scorer, train, test, lengths, names[: -len(held_back)], min_raters) | held_back

    def evaluate(
        self,
        scorer: Predictor,
        train: Interactions,
        test: Interactions,
        lengths: Lengths,
        relevant_from: float | None = None,
        min_raters: int = 0,
    ) -> dict[str, float]:
        """Metrics of rankings of all items, and of those that were held back."""
        metrics = super().evaluate(scorer, train, test, lengths, relevant_from, min_raters)
        if not metrics:
            return {}
        limit = relevance_limit(test, relevant_from)
        return metrics | held_back_metrics(scorer.predict, test.by_user(), lengths, limit)

    def is_shown(self, metric: str) -> bool:
        """Only MAP and NDCG."""
        return metric.startswith(("MAP@", "NDCG@"))


EXPLICIT, IMPLICIT, SIGNED = _Explicit(), _Implicit(), _Signed()


def ranking_quality(
    scorer: Predictor,
    train: Interactions,
    test: Interactions,
    lengths: Lengths,
    relevant_from: float | None = None,
    min_raters: int = 0,
) -> dict[str, float]:
    """Metrics of rankings, if some test row is relevant."""
    rows, limit = test.by_user(), relevance_limit(test, relevant_from)
    if not len(evaluated_users(rows, limit)):
        return {}
    is_candidate = candidates(train, min_raters)
    score = scores_among(scorer, is_candidate)
    return ranking_metrics(score, train.by_user(), rows, lengths, limit, candidates=is_candidate)


def rating_quality(scorer: Predictor, test: Interactions) -> dict[str, float]:
    """MAE and RMSE of predicted test ratings."""
    assert test.ratings is not None
    return rating_metrics(scorer.predict(test.users, test.items), test.ratings)


def warm_and_cold(scorer: Predictor, train: Interactions, test: Interactions) -> dict[str, float]:
    """MAE and RMSE of warm and of cold test rows apart, as in "RMSE, cold"; nothing if all are of one kind.

    A row is cold if its user or its item has no training row: of it a model knows half at best.
    """
    is_cold = cold_rows(train, test)
    if test.ratings is None or is_cold.all() or not is_cold.any():
        return {}
    metrics: dict[str, float] = {}
    for word, is_in in (("warm", ~is_cold), ("cold", is_cold)):
        found = rating_quality(scorer, test.select(is_in))
        metrics |= {f"{name}, {word}": value for name, value in found.items()}
    return metrics


def cold_rows(train: Interactions, test: Interactions) -> NDArray[np.bool_]:
    """Of each test row, whether its user or its item has no training row."""
    has_user = np.bincount(train.users, minlength=train.num_users) > 0
    has_item = np.bincount(train.items, minlength=train.num_items) > 0
    is_cold: NDArray[np.bool_] = ~(has_user[test.users] & has_item[test.items])
    return is_cold


def positive_from(config: object) -> float:
    """From which rating on an event is good, if a config says so; 0: from the middle of the range up."""
    limit: float = getattr(config, "positive_from", 0.0)
    return limit


def relevance_limit(test: Interactions, relevant_from: float | None = None) -> float | None:
    """From which rating on an item is relevant: as told, or the upper quarter of the range, or all."""
    if relevant_from is not None or test.rating_range is None:
        return relevant_from
    low, high = test.rating_range
    return low + 0.75 * (high - low)


def _ranked(
    scorer: Predictor,
    train: Interactions,
    test: Interactions,
    lengths: Lengths,
    names: tuple[str, ...],
    min_raters: int,
) -> dict[str, float]:
    is_candidate, limit = candidates(train, min_raters), relevance_limit(test)
    score, rows = scores_among(scorer, is_candidate), thinned(test, limit).by_user()
    metrics = ranking_metrics(score, train.by_user(), rows, lengths, limit, candidates=is_candidate)
    return {name: metrics[name] for name in names}


def thinned(test: Interactions, limit: float | None, most_scores: int | None = None) -> Interactions:
    """All test rows or, where lists take more scores than these, the rows of every n-th user who is measured."""
    users, most = evaluated_users(test.by_user(), limit), most_scores or MOST_CURVE_SCORES
    step = -(-len(users) * test.num_items // most)
    if step <= 1:
        return test
    is_in = np.zeros(test.num_users, np.bool_)
    is_in[users[::step]] = True
    return test.select(is_in[test.users])
