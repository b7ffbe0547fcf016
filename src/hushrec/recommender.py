"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.evaluation import top_k
from hushrec.protocol import Numbers, Ragged, Scorer, System
from hushrec.runs.folds import Side, load_fold, save_fitted
from hushrec.runs.quality import evaluate
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, data_for, run_job
from hushrec.settings import to_dict
from hushrec.systems import SYSTEMS

# Below this number of raters an item's vector is hardly trained, and its scores are far too high or too low.
MIN_RATERS = 10


@dataclass(frozen=True)
class Recommendation:
    """One recommended item."""

    item: Any  # the id of the source
    score: float
    title: str


@dataclass(frozen=True, eq=False)
class Ranker:
    """A fitted model with all that lists need, computed once; users and items by their numbers."""

    train: Interactions
    scorer: Scorer
    seen: Ragged  # items, a slice per user
    num_raters: NDArray[np.int64]  # of each item

    @classmethod
    def of(cls, job: Job, progress: Progress) -> "Ranker":
        """The ranker of a training."""
        train, rows = job.train, job.train.by_user()
        num_raters = np.bincount(train.items, minlength=train.num_items)
        return cls(train, job.scorer(progress), Ragged(rows.starts, rows.items), num_raters)

    def for_users(
        self, users: Numbers, k: int, exclude_seen: bool = True, min_raters: int = MIN_RATERS
    ) -> list[list[Recommendation]]:
        """The best k items for each user."""
        seen = self.seen.take(users.astype(np.int64)) if exclude_seen else None
        return self._best(self.scorer.score(users), k, seen, min_raters)

    def for_newcomer(
        self,
        items: Numbers,
        ratings: NDArray[np.float32],
        k: int,
        exclude_seen: bool = True,
        min_raters: int = MIN_RATERS,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings."""
        seen = Ragged(np.array([0, len(items)]), items) if exclude_seen else None
        with np.errstate(all="ignore"):  # what overflows is refused
            scores = self.scorer.fold_in(items, ratings)
        # A partner has no scores of others' items.
        own = scores if self.train.partners is None else scores[scores != -np.inf]
        if not len(own) or not np.isfinite(own).all():
            raise HushrecError(
                "these ratings give scores that are not finite; give ratings like those of training"
            )
        return self._best(scores[None], k, seen, min_raters)[0]

    def _best(
        self, scores: NDArray[np.float32], k: int, seen: Ragged | None, min_raters: int
    ) -> list[list[Recommendation]]:
        if k < 1:
            raise HushrecError(f"a list of {k} items is too short; ask for at least 1")
        # A deployed server has no ratings, and so no number of raters.
        is_candidate = (self.num_raters >= min_raters) | (len(self.train) == 0)
        if not is_candidate.any():
            raise HushrecError(f"no item has {min_raters} raters; use fewer, as in --min-raters 0")
        scores = np.where(is_candidate, scores, np.float32(-np.inf))
        items, scores = top_k(scores, k, None if seen is None else (seen.starts, seen.values))
        return [
            [self._entry(item, score) for item, score in zip(*row, strict=True) if isfinite(score)]
            for row in zip(items.tolist(), scores.tolist(), strict=True)
        ]

    def _entry(self, item: int, score: float) -> Recommendation:
        title = "" if self.train.titles is None else str(self.train.titles[item])
        return Recommendation(self.train.item_ids[item].item(), score, title)


class Recommender:
    """A system that can be fitted. Its settings are those of the system's config."""

    system: ClassVar[System[Any, Any, Any]]

    def __init__(self, *, seed: int = 0, options: RuntimeOptions | None = None, **settings: Any) -> None:
        self.config = self.system.configure(settings)
        self.seed = seed
        self.options = options or RuntimeOptions()
        self._fitted: tuple[Job, Progress] | None = None
        self._ranker: Ranker | None = None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in to_dict(self.config).items())
        return f"{type(self).__name__}({settings})"

    def fit(self, train: Interactions, on_round: Callable[[Progress], None] | None = None) -> Self:
        """Train all rounds. `on_round` is told the progress after each."""
        job = Job(self.system, self.config, self.seed, data_for(self.system, train))
        self._fitted, self._ranker = (job, run_job(job, self.options, on_round=on_round)), None
        return self

    def ranker(self) -> Ranker:
        """What `recommend` ranks with, for callers who ask often and know the numbers of users and items."""
        if self._ranker is None:
            self._ranker = Ranker.of(*self._require_fitted())
        return self._ranker

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float32]:
        """Predicted ratings of (user, item) pairs, given by the ids of the source."""
        ranker = self.ranker()
        of_users, of_items = np.broadcast_arrays(np.atleast_1d(users), np.atleast_1d(items))
        numbers = ranker.train.user_numbers(of_users.ravel()), ranker.train.item_numbers(of_items.ravel())
        return ranker.scorer.predict(*numbers).reshape(of_users.shape)

    def recommend(
        self, users: ArrayLike, k: int = 10, exclude_seen: bool = True, min_raters: int = MIN_RATERS
    ) -> list[list[Recommendation]]:
        """The best k items for each user, by the ids of the source. Vectors of hardly rated items are noise."""
        ranker = self.ranker()
        return ranker.for_users(ranker.train.user_numbers(users), k, exclude_seen, min_raters)

    def recommend_newcomer(
        self,
        items: ArrayLike,
        ratings: ArrayLike,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int = MIN_RATERS,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings; computed here, nothing is sent or kept."""
        ranker = self.ranker()
        rated = ranker.train.item_numbers(items)
        given = np.atleast_1d(np.asarray(ratings, np.float32))
        if not len(rated):
            raise HushrecError("a newcomer without ratings cannot be told anything; give at least one")
        if len(given) != len(rated):
            raise HushrecError(f"{len(rated)} items and {len(given)} ratings; give one rating per item")
        return ranker.for_newcomer(rated, given, k, exclude_seen, min_raters)

    def evaluate(self, test: Interactions, at: Sequence[int] = (10,)) -> dict[str, float]:
        """MAE, RMSE and ranking metrics on ratings that were not trained on."""
        ranker = self.ranker()
        measured = data_for(self.system, test.renumbered_as(ranker.train))
        return evaluate(ranker.scorer, ranker.train, measured, tuple(at), feedback=self.system.feedback)

    def save(self, path: str | Path) -> None:
        """Keep the fitted model as a run's folder, for `hushrec.load_run` and the command line."""
        save_fitted(Path(path), *self._require_fitted())

    @property
    def source(self) -> str:
        """Whose model predicts, in words."""
        job, _ = self._require_fitted()
        if self.system.server_ranks and job.party != "node":
            return "the server's model"
        if self.system.parties == "partners" and job.party != "node":
            return "the partners' vectors, all of which this simulation has"
        return f"the {'partner' if self.system.parties == 'partners' else 'client'}'s own model; nothing was sent"

    def _require_fitted(self) -> tuple[Job, Progress]:
        if self._fitted is None:
            raise HushrecError(f"{type(self).__name__} is not fitted; call fit(train) first")
        return self._fitted


class PMF(Recommender):
    """Probabilistic matrix factorisation in one place."""

    system = SYSTEMS["pmf"]


class FedRec(Recommender):
    """Rated items hidden among virtual ones."""

    system = SYSTEMS["fedrec"]


class FedRecPlusPlus(Recommender):
    """Virtual items, and denoisers who take their noise out again."""

    system = SYSTEMS["fedrec++"]


class SDCF(Recommender):
    """Randomised response and Langevin noise."""

    system = SYSTEMS["sdcf"]


class SDCFDenoised(Recommender):
    """SDCF with FedRec++'s denoisers."""

    system = SYSTEMS["sdcf-denoised"]


class PTFFedRec(Recommender):
    """Predictions instead of parameters; the server's model stays hidden."""

    system = SYSTEMS["ptf-fedrec"]


class FCF(Recommender):
    """Federated collaborative filtering of implicit feedback."""

    system = SYSTEMS["fcf"]


class FedMF(Recommender):
    """Matrix factorisation with homomorphically encrypted gradients."""

    system = SYSTEMS["fedmf"]


class MetaMF(Recommender):
    """A meta network on the server generates each client's model."""

    system = SYSTEMS["metamf"]


class NeuMF(Recommender):
    """Neural matrix factorisation in one place."""

    system = SYSTEMS["neumf"]


class NGCF(Recommender):
    """Neural graph collaborative filtering in one place."""

    system = SYSTEMS["ngcf"]


class LightGCN(Recommender):
    """Light graph convolution in one place."""

    system = SYSTEMS["lightgcn"]


class FedCORE(Recommender):
    """Organisations that train together; fitted to data of partners (`hushrec.data.join`)."""

    system = SYSTEMS["fedcore"]


class NeuCF(Recommender):
    """NeuCF for ratings in one place, the baseline of FedCORE."""

    system = SYSTEMS["neucf"]


class Average(Recommender):
    """The mean of all ratings, the baseline of FedCORE."""

    system = SYSTEMS["average"]


class DRIFT(Recommender):
    """Owners of items learn from encrypted interactions; `hushrec.data.owned` says who owns what."""

    system = SYSTEMS["drift"]


class SAROS(Recommender):
    """Blocks of one stream of interactions in one place, the counterpart of DRIFT."""

    system = SYSTEMS["saros"]


_KINDS = (
    PMF, FedRec, FedRecPlusPlus, SDCF, SDCFDenoised, PTFFedRec, FCF, FedMF, MetaMF, NeuMF, NGCF, LightGCN, FedCORE,
    NeuCF, Average, DRIFT, SAROS,
)  # fmt: skip
RECOMMENDERS = {kind.system.name: kind for kind in _KINDS}


def load_run(path: str | Path, fold: int | None = None, side: Side | None = None) -> Recommender:
    """A fitted recommender from a run's folder (its first fold, unless told).

    Where server and clients have models of their own, `side` says whose; the server's, unless told.
    """
    job, progress = load_fold(Path(path), fold, side)
    recommender = RECOMMENDERS[job.system.name](seed=job.seed, **to_dict(job.config))
    recommender._fitted = job, progress
    return recommender
