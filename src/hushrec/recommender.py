"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.evaluation import top_k
from hushrec.experiments.runs import evaluate, load_fold, save_fitted
from hushrec.protocol import Ragged, Scorer, System
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.settings import build, to_dict
from hushrec.systems import SYSTEMS

# Below this number of raters an item's vector is hardly trained, and its scores are far too high or too low.
MIN_RATERS = 10


@dataclass(frozen=True)
class Recommendation:
    """One recommended item."""

    item: Any  # the id of the source
    score: float
    title: str


class Recommender:
    """A system that can be fitted. Its settings are those of the system's config."""

    system: ClassVar[System[Any, Any, Any]]

    def __init__(self, *, seed: int = 0, options: RuntimeOptions | None = None, **settings: Any) -> None:
        self.config = build(self.system.config, settings)
        self.seed = seed
        self.options = options or RuntimeOptions()
        self._fitted: tuple[Job, Progress] | None = None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in to_dict(self.config).items())
        return f"{type(self).__name__}({settings})"

    def fit(self, train: Interactions, on_round: Callable[[Progress], None] | None = None) -> Self:
        """Train all rounds. `on_round` is told the progress after each."""
        job = Job(self.system, self.config, self.seed, train)
        self._fitted = job, run_job(job, self.options, on_round=on_round)
        return self

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float32]:
        """Predicted ratings of (user, item) pairs, given by the ids of the source."""
        job, scorer = self._model()
        of_users, of_items = np.broadcast_arrays(np.atleast_1d(users), np.atleast_1d(items))
        numbers = job.train.user_numbers(of_users.ravel()), job.train.item_numbers(of_items.ravel())
        return scorer.predict(*numbers).reshape(of_users.shape)

    def recommend(
        self, users: ArrayLike, k: int = 10, exclude_seen: bool = True, min_raters: int = MIN_RATERS
    ) -> list[list[Recommendation]]:
        """The best k items for each user, by the ids of the source. Vectors of hardly rated items are noise."""
        job, scorer = self._model()
        wanted = job.train.user_numbers(users)
        rows = job.train.by_user()
        seen = Ragged(rows.starts, rows.items).take(wanted.astype(np.int64))
        return _best(job.train, scorer.score(wanted), k, seen if exclude_seen else None, min_raters)

    def recommend_newcomer(
        self,
        items: ArrayLike,
        ratings: ArrayLike,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int = MIN_RATERS,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings; computed here, nothing is sent or kept."""
        job, scorer = self._model()
        rated = job.train.item_numbers(items)
        given = np.atleast_1d(np.asarray(ratings, np.float32))
        if not len(rated):
            raise HushrecError("a newcomer without ratings cannot be told anything; give at least one")
        if len(given) != len(rated):
            raise HushrecError(f"{len(rated)} items and {len(given)} ratings; give one rating per item")
        seen = Ragged(np.array([0, len(rated)]), rated) if exclude_seen else None
        return _best(job.train, scorer.fold_in(rated, given)[None], k, seen, min_raters)[0]

    def evaluate(self, test: Interactions, at: Sequence[int] = (10,)) -> dict[str, float]:
        """MAE, RMSE and ranking metrics on ratings that were not trained on."""
        job, scorer = self._model()
        return evaluate(scorer, job.train, test.renumbered_as(job.train), tuple(at))

    def save(self, path: str | Path) -> None:
        """Keep the fitted model as a run's folder, for `hushrec.load_run` and the command line."""
        save_fitted(Path(path), *self._require_fitted())

    def _require_fitted(self) -> tuple[Job, Progress]:
        if self._fitted is None:
            raise HushrecError(f"{type(self).__name__} is not fitted; call fit(train) first")
        return self._fitted

    def _model(self) -> tuple[Job, Scorer]:
        job, progress = self._require_fitted()
        return job, job.scorer(progress)


def _best(
    train: Interactions, scores: NDArray[np.float32], k: int, seen: Ragged | None, min_raters: int
) -> list[list[Recommendation]]:
    if k < 1:
        raise HushrecError(f"a list of {k} items is too short; ask for at least 1")
    is_candidate = np.bincount(train.items, minlength=train.num_items) >= min_raters
    if not is_candidate.any():
        raise HushrecError(f"no item has {min_raters} raters; use fewer, as in --min-raters 0")
    scores = np.where(is_candidate, scores, -np.inf).astype(np.float32)
    items, scores = top_k(scores, k, None if seen is None else (seen.starts, seen.values))
    titles = train.titles if train.titles is not None else np.full(train.num_items, "")
    return [
        [
            Recommendation(train.item_ids[item].item(), float(score), str(titles[item]))
            for item, score in zip(*row, strict=True)
            if item >= 0 and np.isfinite(score)
        ]
        for row in zip(items, scores, strict=True)
    ]


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


RECOMMENDERS = {kind.system.name: kind for kind in (PMF, FedRec, FedRecPlusPlus, SDCF, SDCFDenoised)}


def load_run(path: str | Path, fold: int | None = None) -> Recommender:
    """A fitted recommender from a run's folder (its first fold, unless told)."""
    job, progress = load_fold(Path(path), fold)
    recommender = RECOMMENDERS[job.system.name](seed=job.seed, **to_dict(job.config))
    recommender._fitted = job, progress
    return recommender
