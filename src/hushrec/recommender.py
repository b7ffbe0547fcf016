"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions
from hushrec.data.item_choice import may_be_listed
from hushrec.errors import HushrecError
from hushrec.evaluation import top_k
from hushrec.evaluation.candidates import candidates_by, num_raters, usable_min_raters
from hushrec.evaluation.feedback import warm_and_cold
from hushrec.evaluation.neighbours import directions, liking, reasons
from hushrec.evaluation.scoring import item_vectors_of
from hushrec.evaluation.top_k import NO_ITEM
from hushrec.protocol import AnySystem, Numbers, Ragged, Scorer
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import Side, load_fold, save_fitted
from hushrec.runs.lists import Lists, Recommendation
from hushrec.runs.record import Choice, read_run
from hushrec.runs.suiting import Plan, plan_for, trained, usual_preset
from hushrec.runs.trials import trials_of_fit
from hushrec.runtime.checkpoint import Progress, progress_arrays, progress_of
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, prepared, run_job
from hushrec.settings import to_dict

_log = logging.getLogger("hushrec")

# How many raters an item needed in lists of older runs, which did not say.
_OLDER_MIN_RATERS = 10


Mask = NDArray[np.bool_]  # of each item, whether a list may have it
_BLOCK_SCORES = 4_000_000  # scores of a block of users, so that lists of all of them take little memory


@dataclass(frozen=True, eq=False)
class Ranker:
    """A fitted model with all that lists need, computed once; users and items by their numbers."""

    train: Interactions
    scorer: Scorer
    seen: Ragged  # items, a slice per user
    num_raters: NDArray[np.int64]  # of each item
    min_raters: int  # how many an item needs to be listed, unless told

    @classmethod
    def of(cls, job: Job, progress: Progress, min_raters: int | None = None) -> "Ranker":
        """Lists from what a training ended with, of items with as many raters as is usual, unless told."""
        train, rows, feedback = job.train, job.train.by_user(), job.system.feedback
        if min_raters is None:
            min_raters = usable_min_raters(feedback.usual_min_raters, train, max(feedback.usual_lengths))
        seen = Ragged(rows.starts, rows.items)
        return cls(train, job.scorer(progress), seen, num_raters(train), min_raters)

    def for_users(
        self,
        users: Numbers,
        k: int,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        among: Mask | None = None,
        why: bool = False,
    ) -> list[list[Recommendation]]:
        """The best k items for each user."""
        return self.lists(users, k, exclude_seen, min_raters, among, why).entries(self.train)

    def lists(
        self, users: Numbers, k: int, exclude_seen: bool, min_raters: int | None, among: Mask | None, why: bool
    ) -> Lists:
        """The same by numbers."""
        own = users.astype(np.int64)
        seen = self.seen.take(own)
        # BLAS multiplies a row alone in another way, with other last bits: nobody is scored alone.
        scores = self.scorer.score(users if len(users) > 1 else np.repeat(users, 2))[: len(users)]
        liked = Ragged(self.seen.starts, self._liking).take(own).values if why else None
        return self._best(scores, k, seen, exclude_seen, min_raters, among, liked)

    def for_newcomer(
        self,
        items: Numbers,
        ratings: NDArray[np.float32],
        k: int,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        among: Mask | None = None,
        why: bool = False,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings."""
        seen = Ragged(np.array([0, len(items)]), items)
        with np.errstate(all="ignore"):  # what overflows is refused
            scores = self.scorer.fold_in(items, ratings)
        own = scores[scores != -np.inf]  # a partner has no scores of others' items
        if not len(own) or not np.isfinite(own).all():
            raise HushrecError(
                "these ratings give scores that are not finite; give ratings like those of training"
            )
        liked = liking(ratings, self.train.rating_range, len(items)) if why else None
        lists = self._best(scores[None], k, seen, exclude_seen, min_raters, among, liked)
        return lists.entries(self.train)[0]

    def blocks(
        self, k: int, exclude_seen: bool, min_raters: int | None, among: Mask | None, why: bool
    ) -> Iterator[pa.RecordBatch]:
        """The lists of all users as rows of a table, so many users at a time that little memory is taken."""
        num_users, train = self.train.num_users, self.train
        size = max(2, _BLOCK_SCORES // max(train.num_items, 1))
        for first in range(0, num_users, size):
            users = np.arange(first, min(first + size, num_users), dtype=np.int32)
            yield self.lists(users, k, exclude_seen, min_raters, among, why).table(users, train, why)

    def similar(
        self, item: int, k: int, min_raters: int | None = None, among: Mask | None = None
    ) -> list[Recommendation]:
        """The k items nearest to an item; their scores are cosines."""
        of_items = self.directions
        if not of_items[item].any() or (len(self.train) and not self.num_raters[item]):
            raise HushrecError(f"nobody rated item {self.train.item_ids[item]} in training: nothing is like it")
        itself = Ragged(np.array([0, 1]), np.array([item], np.int32))
        lists = self._best((of_items @ of_items[item])[None], k, itself, True, min_raters, among)
        return lists.entries(self.train)[0]

    @property
    def explains(self) -> bool:
        """Whether it can say which items are alike."""
        return item_vectors_of(self.scorer) is not None

    @cached_property
    def directions(self) -> NDArray[np.float32]:
        """Items as nearness is measured between them."""
        vectors = item_vectors_of(self.scorer)
        if vectors is None:
            raise HushrecError(
                "this model has no vectors of items that could be compared; it cannot say what is alike"
            )
        return directions(vectors, self.num_raters > 0)

    @cached_property
    def _liking(self) -> NDArray[np.float32]:
        return liking(self.train.by_user().ratings, self.train.rating_range, len(self.seen.values))

    def _best(
        self,
        scores: NDArray[np.float32],
        k: int,
        own: Ragged,
        exclude_own: bool,
        min_raters: int | None,
        among: Mask | None,
        liked: NDArray[np.float32] | None = None,
    ) -> Lists:
        """The best of each row of scores; with how much people like what is their own, also why."""
        if k < 1:
            raise HushrecError(f"a list of {k} items is too short; ask for at least 1")
        wanted = self.min_raters if min_raters is None else min_raters
        is_candidate = candidates_by(self.num_raters, wanted)
        if among is not None:
            is_candidate = among if is_candidate is None else is_candidate & among
            if not is_candidate.any():
                raise HushrecError(
                    f"no chosen item has {wanted} raters; choose others, or use fewer, as in --min-raters 0"
                )
        excluded = (own.starts, own.values) if exclude_own else None
        items, scores = top_k(scores, min(k, self.train.num_items), excluded, is_candidate)
        items = np.where(np.isfinite(scores), items, NO_ITEM)
        if liked is None:
            return Lists(items, scores, np.full_like(items, NO_ITEM), np.zeros_like(scores))
        return Lists(items, scores, *reasons(self.directions, items, own.starts, own.values, liked))


class Recommender:
    """A system that can be fitted. Its settings are those of the system's config."""

    system: ClassVar[AnySystem]

    def __init__(self, *, seed: int = 0, options: RuntimeOptions | None = None, **settings: Any) -> None:
        """Hold the settings; nothing is trained before `fit`."""
        self.settings = {name: value for name, value in settings.items() if (name, value) != ("preset", None)}
        self.config = self.system.configure(self.settings)
        self.chosen: tuple[Choice, ...] = ()
        self.seed = seed
        self.options = options or RuntimeOptions()
        self._fitted: tuple[Job, Progress] | None = None
        self._min_raters: int | None = None  # of a run; None: what is usual
        self._ranker: Ranker | None = None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in to_dict(self.config).items())
        return f"{type(self).__name__}({settings})"

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled. A system is found again by its name; a fit is kept as in a run's folder."""
        names = ("settings", "config", "chosen", "seed", "options", "_min_raters")
        state = {name: getattr(self, name) for name in names} | {"fit": None}
        if self._fitted is not None:
            job, progress = self._fitted
            state["fit"] = job.train, job.party, progress_arrays(self.system, progress)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fit = state.pop("fit")
        self.__dict__.update(state)
        self._fitted, self._ranker = None, None
        if fit is not None:
            train, party, arrays = fit
            job = Job(self.system, self.config, self.seed, train, party)
            self._fitted = job, progress_of(arrays, self.system, job.start())

    def fit(
        self,
        train: Interactions,
        on_round: Callable[[Progress], None] | None = None,
        stop_early: bool | None = None,
    ) -> Self:
        """Train all rounds, or as many as are best on a part of the data if it is to stop early.

        What the constructor was not told is chosen by the data: `config` is then as it was used, and `chosen` says
        what of it was chosen and why. By default the preset for data of no paper stops early. `on_round` is told
        the progress after each round of the training on all of the data.
        """
        plan = plan_for(self.system, self.settings, train.name, stop_early)
        trials = trials_of_fit(self.system, plan.config, train, self.seed, self.options)

        def fitted(ready: Plan) -> tuple[Plan, Job, Progress]:
            job = job_for(self.system, ready.config, self.seed, train)
            return ready, job, run_job(job, self.options, on_round=on_round)

        for choice in plan.chosen:
            _log.warning(choice.why)
        ready, job, progress = trained(plan, trials, fitted, _log.warning)
        self.config, self.chosen = ready.config, ready.chosen
        self._fitted, self._ranker, self._min_raters = (job, progress), None, None
        return self

    def ranker(self) -> Ranker:
        """What `recommend` ranks with, for callers who ask often and know the numbers of users and items."""
        if self._ranker is None:
            self._ranker = Ranker.of(*self._require_fitted(), self._min_raters)
        return self._ranker

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float32]:
        """Predicted ratings of (user, item) pairs, given by the ids of the source."""
        ranker = self.ranker()
        of_users, of_items = np.broadcast_arrays(np.atleast_1d(users), np.atleast_1d(items))
        numbers = ranker.train.user_numbers(of_users.ravel()), ranker.train.item_numbers(of_items.ravel())
        return ranker.scorer.predict(*numbers).reshape(of_users.shape)

    def recommend(
        self,
        users: ArrayLike,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
    ) -> list[list[Recommendation]]:
        """The best k items for each user, by the ids of the source.

        Only items that `min_raters` users rated in training are listed; unless told, as many as the run measured
        with. Vectors of hardly rated items are noise. `only` and `leave_out` are ids of items that may or may not be listed. `why` adds the nearest of the user's
        own items to each.
        """
        ranker = self.ranker()
        among = may_be_listed(ranker.train, only, leave_out)
        return ranker.for_users(ranker.train.user_numbers(users), k, exclude_seen, min_raters, among, why)

    def recommend_all(
        self,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The lists of all users, as `recommend` makes them, in blocks of rows: user, rank, item, score, title."""
        ranker = self.ranker()
        return ranker.blocks(k, exclude_seen, min_raters, may_be_listed(ranker.train, only, leave_out), why)

    def similar(
        self,
        item: str | int,
        k: int = 10,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
    ) -> list[Recommendation]:
        """The k items nearest to an item, by the ids of the source; their scores are cosines."""
        ranker = self.ranker()
        among = may_be_listed(ranker.train, only, leave_out)
        return ranker.similar(ranker.train.item_number(item), k, min_raters, among)

    def recommend_newcomer(
        self,
        items: ArrayLike,
        ratings: ArrayLike,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings; computed here, nothing is sent or kept."""
        ranker = self.ranker()
        rated = ranker.train.item_numbers(items)
        given = np.atleast_1d(np.asarray(ratings, np.float32))
        if not len(rated):
            raise HushrecError("a newcomer without ratings cannot be told anything; give at least one")
        if len(given) != len(rated):
            raise HushrecError(f"{len(rated)} items and {len(given)} ratings; give one rating per item")
        among = may_be_listed(ranker.train, only, leave_out)
        return ranker.for_newcomer(rated, given, k, exclude_seen, min_raters, among, why)

    def evaluate(self, test: Interactions, at: Sequence[int] = (10,)) -> dict[str, float]:
        """MAE and RMSE (also of warm and cold rows apart) and ranking metrics on ratings that were not trained on.

        Lists are those of `recommend`.
        """
        ranker = self.ranker()
        measured = prepared(self.system, test.renumbered_as(ranker.train), self.config)
        parts = ranker.scorer, ranker.train, measured
        metrics = self.system.feedback.evaluate(*parts, tuple(at), min_raters=ranker.min_raters)
        return metrics | (warm_and_cold(*parts) if "RMSE" in metrics else {})

    def save(self, path: str | Path) -> None:
        """Keep the fitted model as a run's folder, for `hushrec.load_run` and the command line."""
        save_fitted(Path(path), *self._require_fitted(), self._min_raters, self.chosen)

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
        usual, names = usual_preset(system)
        settings.insert(0, _keyword("preset", usual, str if usual else str | None))
        told.insert(0, f"preset: named settings, of which others may differ: {names}")

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
    min_raters = read_run(Path(path)).provenance.min_raters
    recommender._min_raters = _OLDER_MIN_RATERS if min_raters is None else min_raters
    return recommender
