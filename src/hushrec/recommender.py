"""The systems as estimators: settings in the constructor, then `fit`, `predict`, `recommend`, `evaluate`."""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from hushrec.choices import ExportForm
from hushrec.data import load
from hushrec.data.checking import Duplicates
from hushrec.data.item_choice import Mask, may_be_listed
from hushrec.data.reading import ColumnNames, Missing
from hushrec.data.splits import check_seed
from hushrec.errors import HushrecError, option
from hushrec.evaluation.feedback import warm_and_cold
from hushrec.files import write_file
from hushrec.handover.card import card_of
from hushrec.handover.exports import export
from hushrec.handover.tracking import Asked as Tracked
from hushrec.handover.tracking import Following
from hushrec.progress import counting
from hushrec.protocol import AnySystem, Numbers
from hushrec.runs.arguments import Asked, asked_ids, lengths_of, pairs_of, rated_by_newcomer, rows_to_measure
from hushrec.runs.folds import FoldProgress, Watch, fitted_run, followed, planned_run, save_fitted
from hushrec.runs.lists import Recommendation, table_of_lists
from hushrec.runs.newcomers import check_items, checked_ratings
from hushrec.runs.ranker import Ranker, check_length
from hushrec.runs.record import Choice
from hushrec.runs.run_settings import RunSettings
from hushrec.runs.suiting import Plan, plan_for, trained
from hushrec.runs.trials import trials_of_fit
from hushrec.runtime.checkpoint import Progress, progress_arrays, progress_of
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, prepared, run_job
from hushrec.settings import to_dict
from hushrec.tables import Blocks, Metrics, Rows, html_facts

_log = logging.getLogger("hushrec")


class Recommender:
    """A system that can be fitted. Its settings are those of the system's config."""

    system: ClassVar[AnySystem]

    def __init__(self, *, seed: int = 0, options: RuntimeOptions | None = None, **settings: Any) -> None:
        """Hold the settings; nothing is trained before `fit`. What is None is left to the preset and the data."""
        self.settings = {name: _plain(value) for name, value in settings.items() if value is not None}
        self.config = self.system.configure(self.settings)
        self.chosen: tuple[Choice, ...] = ()
        self.seed = _plain(seed)
        check_seed(self.seed)
        self.options = RuntimeOptions() if options is None else options
        if not isinstance(self.options, RuntimeOptions):
            raise HushrecError("options= takes hushrec.RuntimeOptions, as in hushrec.RuntimeOptions(threads=1)")
        self._fitted: tuple[Job, Progress] | None = None
        self._min_raters: int | None = None  # of a run; None: what is usual
        self._ranker: Ranker | None = None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in to_dict(self.config).items())
        return f"{type(self).__name__}({settings})"

    def _repr_html_(self) -> str:
        state = "not fitted"
        if self._fitted is not None:
            job, progress = self._fitted
            sizes = f"{len(job.train):,} rows, {job.train.num_users:,} users, {job.train.num_items:,} items"
            state = f"fitted to {job.train.name}: {sizes}, {progress.round_number} rounds"
        return html_facts(f"{type(self).__name__}: {self.system.about.title}", to_dict(self.config), state)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, as scikit-learn asks for them.

        None stands for what was not given: the preset and the data decide it, and `config` has what they decided.
        """
        names = inspect.signature(type(self)).parameters
        return {name: self.settings.get(name) for name in names} | {"seed": self.seed, "options": self.options}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; None takes one back. A fit stays until the next one."""
        told = {name: value for name, value in (self.get_params() | params).items() if value is not None}
        again = type(self)(**told)
        self.settings, self.config, self.chosen = again.settings, again.config, ()
        self.seed, self.options = again.seed, again.options
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of whatever it searches settings of; `fit` needs rows alone, and no target."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled. A system is found again by its name; a fit is kept as in a run's folder."""
        names = ("settings", "config", "chosen", "seed", "options", "_min_raters")
        state = {name: getattr(self, name) for name in names} | {"fit": None}
        if self._fitted is not None:
            job, progress = self._fitted
            state["fit"] = job.config, job.seed, job.train, job.party, progress_arrays(self.system, progress)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fit = state.pop("fit")
        self.__dict__.update(state)
        self._fitted, self._ranker = None, None
        if fit is not None:
            config, seed, train, party, arrays = fit
            job = Job(self.system, config, seed, train, party)
            self._fitted = job, progress_of(arrays, self.system, job.start())

    def fit(
        self,
        train: Any,
        on_round: Callable[[Progress], None] | None = None,
        stop_early: bool | None = None,
        *,
        columns: ColumnNames | None = None,
        duplicates: Duplicates = "error",
        missing: Missing = "refuse",
        progress: bool | None = None,
        track: Tracked | None = None,
    ) -> Self:
        """Train all rounds, or as many as are best on a part of the data if it is to stop early.

        `train` is whatever `hushrec.load` takes: a frame of pandas, polars or Arrow, a sparse matrix, a tuple of
        arrays, a file, a data set's name, or what it returned. `columns`, `duplicates` and `missing` are handed
        to it.

        What the constructor was not told is chosen by the data: `config` is then as it was used, and `chosen` says
        what of it was chosen and why. By default the preset for data of no paper stops early. `on_round` is told
        the progress after each round of the training on all of the data. `progress` shows a bar; unless told, it
        does so in terminals and notebooks. `track` names trackers that are told of it, too: "mlflow",
        "tensorboard", "wandb", "trackio", several of them, or a dict with the place of each one's store.
        """
        follower = None if track is None else Following(track)
        data = load(train, columns=columns, duplicates=duplicates, missing=missing)
        plan = plan_for(self.system, self.settings, data.name, stop_early)

        @contextmanager
        def watching(label: str, num_rounds: int, _num_folds: int) -> Iterator[Watch]:
            with counting(label, num_rounds, progress) as tell:
                yield lambda now: tell(now.round_number)

        def fitted(ready: Plan) -> tuple[Plan, Job, Progress]:
            job, num_rounds = job_for(self.system, ready.config, self.seed, data), ready.config.num_rounds
            settings = RunSettings(seed=self.seed)
            with (
                counting(self.system.name, num_rounds, progress) as tell,
                followed(
                    follower, lambda: planned_run(self.system, ready.config, job.train, settings)
                ) as tell_end,
            ):

                def after_round(done: Progress) -> None:
                    tell(done.round_number)
                    if on_round is not None:
                        on_round(done)
                    if follower is not None:
                        sent = sum(done.transcript.sent_bytes().values())
                        follower.on_round(FoldProgress(1, 1, done.round_number, num_rounds, {}, sent))

                done = run_job(job, self.options, on_round=after_round)
                if follower is not None:
                    tell_end(fitted_run(job, done))
                return ready, job, done

        for choice in plan.chosen:
            _log.warning(choice.why)
        trials = trials_of_fit(self.system, plan.config, data, self.seed, self.options, watching)
        ready, job, done = trained(plan, trials, fitted, _log.warning)
        self.config, self.chosen = ready.config, ready.chosen
        self._fitted, self._ranker, self._min_raters = (job, done), None, None
        return self

    def ranker(self) -> Ranker:
        """What `recommend` ranks with, for callers who ask often and know the numbers of users and items."""
        if self._ranker is None:
            self._ranker = Ranker.of(*self._require_fitted(), self._min_raters)
        return self._ranker

    def predict(
        self, users: Asked, items: Asked | None = None, *, columns: ColumnNames | None = None
    ) -> NDArray[np.float32]:
        """Predicted ratings of (user, item) pairs, given by the ids of the source.

        One user goes with many items and one item with many users. A frame with a column for each of them, or
        what `hushrec.load` returned, may stand for both; then there is a prediction per row.
        """
        ranker = self.ranker()
        of_users, of_items = pairs_of(users, items, columns)
        numbers = ranker.train.user_numbers(of_users.ravel()), ranker.train.item_numbers(of_items.ravel())
        return ranker.scorer.predict(*numbers).reshape(of_users.shape)

    def recommend(
        self,
        users: Asked,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
        *,
        columns: ColumnNames | None = None,
    ) -> Rows[list[Recommendation]]:
        """The best k items for each user, by the ids of the source: a list of lists, and a frame when it is asked.

        Users come as one id, an array, a series, a frame with a column of users, or what `hushrec.load` returned;
        of the last two each gets one list.

        Only items that `min_raters` users rated in training are listed; unless told, as many as the run measured
        with. Vectors of hardly rated items are noise.

        Who has accounts at several partners gets the best of all of them. `only` and `leave_out` are ids of items
        that may or may not be listed. `why` adds the nearest of the user's own items to each.
        """
        ranker, wanted = self.ranker(), asked_ids(users, "user", columns)
        accounts, among = self.system.holders.accounts(ranker.train, wanted), self._among(only, leave_out)
        if all(len(own) == 1 for own in accounts):
            numbers = np.array([own[0] for own in accounts], np.int32)
            found = ranker.for_users(numbers, k, exclude_seen, min_raters, among, why)
            wanted = ranker.train.user_ids[numbers]
        else:
            found = [self._of_all_accounts(own, k, exclude_seen, min_raters, among, why) for own in accounts]
        return Rows(found, table_of_lists(found, ranker.train, why, wanted.tolist()))

    def recommend_all(
        self,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
    ) -> Blocks:
        """The lists of all users, as `recommend` makes them, in blocks of rows: user, rank, item, score, title."""
        return Blocks(self.ranker().blocks(k, exclude_seen, min_raters, self._among(only, leave_out), why))

    def similar(
        self,
        item: str | int,
        k: int = 10,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
    ) -> Rows[Recommendation]:
        """The k items nearest to an item, by the ids of the source; their scores are cosines."""
        ranker, among = self.ranker(), self._among(only, leave_out)
        number = self.item_number(item)
        found = ranker.similar(number, self._most(k, 1), min_raters, among)
        found = self._once(found, ranker.train.item_ids[[number]].tolist())[:k]
        return Rows(found, table_of_lists([found], ranker.train, why=False))

    def item_number(self, item: str | int) -> int:
        """The number of an item by the id of the source; where several partners have it, the first one's."""
        train = self.ranker().train
        copies = self.system.holders.copies(train, np.array([item]))[0]
        return int(copies[0]) if len(copies) else train.item_number(item)  # which says that there is none

    def _among(self, only: ArrayLike | None, leave_out: ArrayLike | None) -> Mask | None:
        wanted, unwanted = (None if ids is None else asked_ids(ids, "item") for ids in (only, leave_out))
        return may_be_listed(self.ranker().train, wanted, unwanted, self.system.holders.copies)

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
        check_length(k)
        copies = self.system.holders.most_copies(self.ranker().train)
        return k if copies == 1 else copies * (k + num_seen)

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
        items: Asked,
        ratings: ArrayLike | None = None,
        k: int = 10,
        exclude_seen: bool = True,
        min_raters: int | None = None,
        only: ArrayLike | None = None,
        leave_out: ArrayLike | None = None,
        why: bool = False,
        *,
        columns: ColumnNames | None = None,
    ) -> Rows[Recommendation]:
        """The best k items for someone with these ratings; computed here, nothing is sent or kept.

        Ratings are on the scale of the data that was trained on. Without any, all items are liked. Whatever `fit`
        takes may stand for both, if its rows are of one user: a frame with a column of items and perhaps one of
        ratings, a sparse matrix of one row, a tuple (None, items, ratings).
        """
        ranker, (wanted, ratings) = self.ranker(), rated_by_newcomer(items, ratings, columns)
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
        found = self._once(found, ranker.train.item_ids[numbers].tolist() if exclude_seen else [])[:k]
        return Rows(found, table_of_lists([found], ranker.train, why))

    def known_items(self, items: ArrayLike) -> NDArray[np.bool_]:
        """Of each of these ids of the source, whether the model knows such an item."""
        copies = self.system.holders.copies(self.ranker().train, asked_ids(items, "item"))
        return np.array([len(numbers) > 0 for numbers in copies], np.bool_)

    def evaluate(
        self,
        test: Any,
        at: int | Sequence[int] = (10,),
        *,
        columns: ColumnNames | None = None,
        duplicates: Duplicates = "error",
        missing: Missing = "refuse",
        skip_unknown: bool = False,
    ) -> Metrics:
        """MAE and RMSE (also of warm and cold rows apart) and ranking metrics on ratings that were not trained on.

        `test` is whatever `fit` takes. Rows with users or items that the model never heard of are refused, or
        left out with `skip_unknown`. Lists are those of `recommend`.
        """
        ranker, (job, _) = self.ranker(), self._require_fitted()
        given = load(test, columns=columns, duplicates=duplicates, missing=missing)
        rows = rows_to_measure(given, ranker.train, skip_unknown)
        parts = ranker.scorer, ranker.train, prepared(self.system, rows, job.config)
        metrics = self.system.feedback.evaluate(*parts, lengths_of(at), min_raters=ranker.min_raters)
        return Metrics(metrics | (warm_and_cold(*parts) if "RMSE" in metrics else {}))

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Keep the fitted model as a run's folder, for `hushrec.load_run` and the command line.

        A folder that is there already is refused; `overwrite` replaces a model that was saved there before.
        """
        save_fitted(Path(path), *self._require_fitted(), self._min_raters, self.chosen, overwrite)

    def export(
        self, to: str | Path, form: ExportForm | Sequence[ExportForm] = "arrow", *, with_users: bool = False
    ) -> list[Path]:
        """Write the model for other programs into a folder: "arrow", "parquet", "onnx", or several; see the paths.

        Items' vectors come as Arrow or Parquet; the scorer as ONNX, which takes users' vectors and gives scores of
        all items. Users' vectors are private: they are written `with_users` only.
        """
        return export(*self._require_fitted(), Path(to), form, with_users)

    def card(self, test: Any = None, out: str | Path | None = None) -> str:
        """A model card in Markdown: what was trained, on how many people, what it reveals; written to `out`, too.

        With rows that were not trained on, whatever `fit` takes, also how good it is. Nothing is of one person.
        """
        job, progress = self._require_fitted()
        rows = None
        if test is not None:
            rows = prepared(self.system, rows_to_measure(load(test), self.ranker().train, False), job.config)
        text = card_of(fitted_run(job, progress, rows, self._min_raters, self.chosen))
        if out is not None:
            write_file(Path(out), text.encode(), option("out"))
        return text

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


def _plain(value: Any) -> Any:
    """A setting without NumPy around it, as searches over settings give it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
