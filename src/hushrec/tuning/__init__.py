"""Tuning: settings that suit a file, looked for with Optuna on validation data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hushrec.data import Interactions, load
from hushrec.data.checking import Duplicates
from hushrec.data.reading import ColumnNames, Missing
from hushrec.errors import HushrecError, option
from hushrec.estimators import estimator_named
from hushrec.privacy.user_privacy import is_private
from hushrec.progress import counting
from hushrec.recommender import Recommender
from hushrec.registry import system_named
from hushrec.runs.run_settings import RunSettings
from hushrec.runs.suiting import plan_for
from hushrec.runs.trials import trials_of_fit
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.tuning.bench import Bench
from hushrec.tuning.measures import checked_measures
from hushrec.tuning.results import Tuned
from hushrec.tuning.spaces import chosen_spaces
from hushrec.tuning.store import need_optuna
from hushrec.tuning.study import OnTrial, Search, check_amounts, search

__all__ = ["Tuned", "prepared_search", "tune"]


def tune(
    model: str | Recommender | type[Recommender],
    data: Any,
    *,
    trials: int = 50,
    measure: str | Sequence[str] = (),
    over: str | Sequence[str] = (),
    jobs: int = 1,
    prune: bool = True,
    out: str | Path | None = None,
    resume: bool = False,
    columns: ColumnNames | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "refuse",
    progress: bool | None = None,
) -> Tuned:
    """Look for good settings of a system on data that is all for training; a part of it is held back to measure.

    `model` is the name of a system, an estimator's class, or an estimator, whose settings and seed are kept as
    they are. `data` is whatever `fit` takes, and is read in the same way. `measure` is one or several of what its
    models are measured by, `bytes` and `leakage`. `over` says what is searched: names, `rho=0..5`,
    `filling=hybrid,average`. With `out` trials are kept in a folder, and with `resume` gone on with. A bar counts
    them, unless `progress` is False. Of the result, `best` is an estimator with the settings that were found.

    >>> import hushrec
    >>> data = hushrec.load("synthetic:users=60,items=40,ratings=900")
    >>> tuned = hushrec.tune("pmf", data, trials=2, over=["num_factors=2..4", "rounds=1..3"])
    >>> sorted(tuned.best_row.settings), type(tuned.best).__name__
    (['num_factors', 'num_rounds'], 'PMF')
    """
    need_optuna()
    check_amounts(trials, jobs)
    estimator = _estimator(model)
    system, kept, seed = estimator.system, estimator.settings, estimator.seed
    rows = load(data, columns=columns, duplicates=duplicates, missing=missing)
    config = plan_for(system, kept, rows.name).config
    held = trials_of_fit(system, config, rows, seed, RuntimeOptions(threads=1))
    if not held.can_split:
        raise HushrecError(f"what partners hold cannot be split here; use: hushrec tune {system.name}")
    names = (measure,) if isinstance(measure, str) else tuple(measure)
    asked = (over,) if isinstance(over, str) else tuple(over)
    usual = replace(held.settings, min_raters=None)
    with counting(f"tune {system.name}", trials, progress, "trial") as tell:
        return prepared_search(
            system.name, kept, rows, usual, names, asked, trials, jobs, prune,
            Path(out) if out else None, resume, lambda found: tell(len(found)),
        )  # fmt: skip


def _estimator(model: object) -> Recommender:
    if isinstance(model, Recommender):
        return model
    if isinstance(model, str):
        return estimator_named(system_named(model).name)()
    if isinstance(model, type) and issubclass(model, Recommender):
        return model()
    raise HushrecError(f"{type(model).__name__} cannot be tuned; give the name of a system, or an estimator")


def prepared_search(
    system_name: str,
    fixed: Mapping[str, Any],
    data: Interactions,
    settings: RunSettings,
    measures: Sequence[str],
    over: Sequence[str],
    num_trials: int,
    num_jobs: int,
    is_pruning: bool,
    folder: Path | None,
    resume: bool,
    on_trial: OnTrial | None = None,
) -> Tuned:
    """Check what is asked for, then search. The test part of `settings` is what is measured."""
    system = system_named(system_name)
    names, at = checked_measures(measures, system, settings.at)
    spaces = chosen_spaces(system, over, fixed)
    plan = plan_for(system, fixed, data.name)
    if is_private(plan.config):
        raise HushrecError(
            f"trials look at ratings without noise, which no epsilon counts; leave {option('epsilon_total')} "
            f"and {option('noise_multiplier')} out, or tune on other data"
        )
    values = {**{choice.setting: choice.value for choice in plan.chosen}, **fixed}
    bench = Bench(system_name, data, replace(settings, at=at), names)
    return search(Search(bench, values, spaces, num_trials, num_jobs, is_pruning), plan, folder, resume, on_trial)
