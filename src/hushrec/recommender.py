"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from hushrec.data import Interactions
from hushrec.data.item_choice import Mask, may_be_listed
from hushrec.errors import HushrecError
from hushrec.evaluation.feedback import warm_and_cold
from hushrec.protocol import AnySystem, Numbers
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import Side, load_fold, save_fitted
from hushrec.runs.lists import Recommendation
from hushrec.runs.newcomers import check_items, checked_ratings
from hushrec.runs.ranker import Ranker
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
        with. Vectors of hardly rated items are noise.

        Who has accounts at several partners gets the best of all of them. `only` and `leave_out` are ids of items
        that may or may not be listed. `why` adds the nearest of the user's own items to each.
        """
        ranker, wanted = self.ranker(), np.atleast_1d(np.asarray(users))
        accounts, among = self.system.holders.accounts(ranker.train, wanted), self._among(only, leave_out)
        if all(len(own) == 1 for own in accounts):
            numbers = np.array([own[0] for own in accounts], np.int32)
            return ranker.for_users(numbers, k, exclude_seen, min_raters, among, why)
        return [self._of_all_accounts(own, k, exclude_seen, min_raters, among, why) for own in accounts]

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
        return self.ranker().blocks(k, exclude_seen, min_raters, self._among(only, leave_out), why)

    def similar(
        self,
        item: str | int,
        k: int = 10,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
    ) -> list[Recommendation]:
        """The k items nearest to an item, by the ids of the source; their scores are cosines."""
        ranker, among = self.ranker(), self._among(only, leave_out)
        number = self.item_number(item)
        found = ranker.similar(number, self._most(k, 1), min_raters, among)
        return self._once(found, ranker.train.item_ids[[number]].tolist())[:k]

    def item_number(self, item: str | int) -> int:
        """The number of an item by the id of the source; where several partners have it, the first one's."""
        train = self.ranker().train
        copies = self.system.holders.copies(train, np.array([item]))[0]
        return int(copies[0]) if len(copies) else train.item_number(item)  # which says that there is none

    def _among(self, only: ArrayLike | None, leave_out: ArrayLike | None) -> Mask | None:
        return may_be_listed(self.ranker().train, only, leave_out, self.system.holders.copies)

    def _of_all_accounts(
        self, accounts: Numbers, k: int, exclude_seen: bool, min_raters: int | None, among: Mask | None, why: bool
    ) -> list[Recommendation]:
        """The best of the lists of one person's accounts, each item of the source once."""
        ranker = self.ranker()
        seen = ranker.seen.take(accounts.astype(np.int64)).values if exclude_seen else np.empty(0, np.int32)
        lists = ranker.for_users(accounts, self._most(k, len(seen)), exclude_seen, min_raters, among, why)
        found = sorted((entry for own in lists for entry in own), key=lambda entry: -entry.score)
        return self._once(found, ranker.train.item_ids[seen].tolist())[:k]

    def _most(self, k: int, num_seen: int) -> int:
        """How long a list must be to have k items of the source, however many copies it has of each."""
        copies = self.system.holders.most_copies(self.ranker().train)
        return k if k < 1 or copies == 1 else copies * (k + num_seen)

    def _once(self, found: list[Recommendation], seen: list[Any]) -> list[Recommendation]:
        """Each item of the source once, where it comes first, and none of those seen."""
        source_id, kept = self.system.holders.source_id, []
        known = {source_id(item) for item in seen}
        for entry in found:
            if source_id(entry.item) not in known:
                known.add(source_id(entry.item))
                kept.append(entry)
        return kept

    def recommend_newcomer(
        self,
        items: ArrayLike,
        ratings: ArrayLike | None = None,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
    ) -> list[Recommendation]:
        """The best k items for someone with these ratings; computed here, nothing is sent or kept.

        Ratings are on the scale of the data that was trained on. Without any, all items are liked.
        """
        ranker, wanted = self.ranker(), np.atleast_1d(np.asarray(items))
        copies = self.system.holders.copies(ranker.train, wanted)
        num_unknown = sum(not len(own) for own in copies)
        if num_unknown:
            ids = ranker.train.item_ids
            looks = f"item ids look like {ids[0]} ... {ids[-1]}" if len(ids) else "there are no items"
            raise HushrecError(
                f"{num_unknown} of {len(wanted)} items are not in {ranker.train.name}; leave them out ({looks})"
            )
        numbers = np.concatenate([np.empty(0, np.int32), *copies])
        check_items(numbers)
        given = np.repeat(checked_ratings(ranker.train, ratings, len(wanted)), [len(own) for own in copies])
        among = self._among(only, leave_out)
        most = self._most(k, len(numbers))
        with threadpool_limits(1, user_api="blas"):  # threads for such small products only wait for each other
            found = ranker.for_newcomer(numbers, given, most, exclude_seen, min_raters, among, why)
        return self._once(found, ranker.train.item_ids[numbers].tolist() if exclude_seen else [])[:k]

    def known_items(self, items: ArrayLike) -> NDArray[np.bool_]:
        """Of each of these ids of the source, whether the model knows such an item."""
        copies = self.system.holders.copies(self.ranker().train, np.atleast_1d(np.asarray(items)))
        return np.array([len(numbers) > 0 for numbers in copies], np.bool_)

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
