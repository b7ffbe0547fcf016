"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.evaluation import top_k
from hushrec.protocol import AnySystem, Numbers, Ragged, Scorer
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import Side, load_fold, save_fitted
from hushrec.runtime.checkpoint import Progress, progress_arrays, progress_of
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, prepared, run_job
from hushrec.settings import to_dict

# Below this number of raters an item's vector is hardly trained, and its scores are far too high or too low.
MIN_RATERS = 10


@dataclass(frozen=True)
class Recommendation:
    """One item of a list, with its score and its title."""

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
        """Lists from what a training ended with."""
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
        own = scores[scores != -np.inf]  # a partner has no scores of others' items
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
        items, scores = top_k(
            scores, min(k, scores.shape[1]), None if seen is None else (seen.starts, seen.values)
        )
        return [
            [self._entry(item, score) for item, score in zip(*row, strict=True) if isfinite(score)]
            for row in zip(items.tolist(), scores.tolist(), strict=True)
        ]

    def _entry(self, item: int, score: float) -> Recommendation:
        title = "" if self.train.titles is None else str(self.train.titles[item])
        return Recommendation(self.train.item_ids[item].item(), score, title)


class Recommender:
    """A system that can be fitted. Its settings are those of the system's config."""

    system: ClassVar[AnySystem]

    def __init__(self, *, seed: int = 0, options: RuntimeOptions | None = None, **settings: Any) -> None:
        """Hold the settings; nothing is trained before `fit`."""
        self.config = self.system.configure(settings)
        self.seed = seed
        self.options = options or RuntimeOptions()
        self._fitted: tuple[Job, Progress] | None = None
        self._ranker: Ranker | None = None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in to_dict(self.config).items())
        return f"{type(self).__name__}({settings})"

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled. A system is found again by its name; a fit is kept as in a run's folder."""
        state = {"config": self.config, "seed": self.seed, "options": self.options, "fit": None}
        if self._fitted is not None:
            job, progress = self._fitted
            state["fit"] = job.train, job.party, progress_arrays(self.system, progress)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.config, self.seed, self.options = state["config"], state["seed"], state["options"]
        self._fitted, self._ranker = None, None
        if state["fit"] is not None:
            train, party, arrays = state["fit"]
            job = Job(self.system, self.config, self.seed, train, party)
            self._fitted = job, progress_of(arrays, self.system, job.start())

    def fit(self, train: Interactions, on_round: Callable[[Progress], None] | None = None) -> Self:
        """Train all rounds. `on_round` is told the progress after each."""
        job = job_for(self.system, self.config, self.seed, train)
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
        measured = prepared(self.system, test.renumbered_as(ranker.train), self.config)
        return self.system.feedback.evaluate(ranker.scorer, ranker.train, measured, tuple(at))

    def save(self, path: str | Path) -> None:
        """Keep the fitted model as a run's folder, for `hushrec.load_run` and the command line."""
        save_fitted(Path(path), *self._require_fitted())

    @property
    def source(self) -> str:
        """Whose model predicts: words to print with recommendations."""
        job, _ = self._require_fitted()
        if self.system.result.server is not None and job.party != "node":
            return "the server's model"
        return self.system.holders.whose_model(is_on_node=job.party == "node")

    def _require_fitted(self) -> tuple[Job, Progress]:
        if self._fitted is None:
            raise HushrecError(f"{type(self).__name__} is not fitted; call fit(train) first")
        return self._fitted


def estimator(system: AnySystem) -> type[Recommender]:
    """The class of a system: its settings are the keyword arguments, its docstring tells what they mean."""
    hints, entries, presets = get_type_hints(system.config), fields(system.config), system.about.presets
    settings = [_keyword(entry.name, entry.default, hints[entry.name]) for entry in entries]
    told = [f"{entry.name}: {entry.metadata['help']} (default {entry.default!r})" for entry in entries]
    if presets:
        settings.insert(0, _keyword("preset", next(iter(presets)), str))
        told.insert(0, f"preset: named settings, of which others may differ: {', '.join(presets)}")

    shared = list(inspect.signature(Recommender).parameters.values())[:-1]  # all but **settings
    paper = system.about.paper
    lines = [
        f"{system.about.title}.",
        "",
        f"{paper.authors}: {paper.title} ({paper.venue} {paper.year}).",
        "",
        "Settings:",
        *(f"    {line}" for line in told),
        "    seed: of everything random (default 0)",
        "    options: threads and the like, which change no number",
    ]
    members = {
        "system": system,
        "__signature__": inspect.Signature([*settings, *shared]),
        "__doc__": "\n".join(lines),
        "__module__": "hushrec",
    }
    return type(system.about.class_name, (Recommender,), members)


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@cache
def estimator_named(system_name: str) -> type[Recommender]:
    """The class of the system of this name: always the same."""
    return estimator(SYSTEMS[system_name])


class _Estimators(Mapping[str, type[Recommender]]):
    """The estimators, by the names of their classes. Those of other packages are looked at last, if at all."""

    def __getitem__(self, class_name: str) -> type[Recommender]:
        ours = ((name, SYSTEMS[name]) for name in SYSTEMS if SYSTEMS.is_built_in(name))
        for systems in (ours, _usable()):
            for name, system in systems:
                if system.about.class_name == class_name:
                    return estimator_named(name)
        raise KeyError(class_name)

    def __iter__(self) -> Iterator[str]:
        return (system.about.class_name for _, system in _usable())

    def __len__(self) -> int:
        return len(list(_usable()))


def _usable() -> Iterator[tuple[str, AnySystem]]:
    yield from SYSTEMS.items()  # not before it is asked for: it loads them all


ESTIMATORS = _Estimators()


def load_run(path: str | Path, fold: int | None = None, side: Side | None = None) -> Recommender:
    """A fitted recommender from a run's folder (its first fold, unless told).

    Where server and clients have models of their own, `side` says whose; the server's, unless told.
    """
    job, progress = load_fold(Path(path), fold, side)
    recommender = estimator_named(job.system.name)(seed=job.seed, **to_dict(job.config))
    recommender._fitted = job, progress
    return recommender
