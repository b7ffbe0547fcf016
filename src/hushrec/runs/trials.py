"""Trials: a system trained without a validation part and measured on it, to choose settings."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.data import Interactions, Split
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import AnySystem
from hushrec.runs.folds import run
from hushrec.runs.quality import curve_names
from hushrec.runs.record import VALIDATION
from hushrec.runs.run_settings import RunSettings, settings_for, splits_for
from hushrec.runs.watching import Watch
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.rounds import IsEnough

RATE = "learning_rate"
_PATIENCE = 10  # so often a metric may be measured without a new best; in long trainings, for a tenth of them
_ROUNDS_PER_RATE = 10
_LOWER_IS_BETTER = ("RMSE", "MAE")
_FAR_OFF = 1.1  # times the RMSE of the mean: a model that is worse has learned nothing

Watching = Callable[[str, int, int], AbstractContextManager[Watch | None]]  # of a label, rounds and folds


# --- Curves ----------------------------------------------------------------------------------------------


def main_metric(system: AnySystem, at: Sequence[int]) -> str:
    """What a model is judged by: RMSE of ratings, else NDCG of the longest list."""
    return "RMSE" if "RMSE" in curve_names(system, tuple(at)) else f"NDCG@{max(at)}"


def best_point(curve: Sequence[float], metric: str) -> int:
    """The place of a curve's first best value.

    >>> best_point([0.1, 0.3, 0.3, 0.2], "NDCG@10"), best_point([1.1, 0.9, 1.0], "RMSE")
    (1, 1)
    """
    sign = -1.0 if metric in _LOWER_IS_BETTER else 1.0
    return int(np.argmax(np.nan_to_num(sign * np.asarray(curve), nan=-np.inf)))


def length_setting(system: AnySystem) -> str:
    """The setting that says how long a training takes."""
    return "num_rounds" if "num_rounds" in {entry.name for entry in fields(system.config)} else "epochs"


def length_until(system: AnySystem, config: Any, num_points: int) -> int:
    """The value of that setting with which a training ends after so many points of its curve."""
    rounds: int = num_points * system.result.measured_every(config)
    return rounds if length_setting(system) == "num_rounds" else rounds * config.epochs // config.num_rounds


def is_past_its_best(system: AnySystem, config: Any, at: tuple[int, ...], metric: str | None = None) -> IsEnough:
    """Whether a training has not improved for a while, by this metric or by the main one."""
    metric = metric or main_metric(system, at)
    column = curve_names(system, at).index(metric)
    patience: int = max(_PATIENCE, config.num_rounds // system.result.measured_every(config) // 10)

    def is_enough(progress: Progress) -> bool:
        if progress.curve is None:
            return False
        # The last of equal values counts: predictions may all lie at the end of the scale for some rounds.
        return best_point(progress.curve[::-1, column].tolist(), metric) >= patience

    return is_enough


# --- Trials ----------------------------------------------------------------------------------------------


def _unwatched(_label: str, _num_rounds: int, _num_folds: int) -> AbstractContextManager[Watch | None]:
    return nullcontext()


@dataclass(frozen=True)
class Trials:
    """Where settings are tried: a part of the training rows is held back, and measured on."""

    system: AnySystem
    config: Any  # as it is before anything is chosen
    data: Interactions
    settings: RunSettings  # whose test part is the validation part
    options: RuntimeOptions
    folder: Path | None = None  # of the run
    resume: bool = False
    watching: Watching = _unwatched
    can_split: bool = True

    @property
    def metric(self) -> str:
        """What is compared."""
        return main_metric(self.system, self.settings.at)

    @cached_property
    def _part(self) -> Split:
        return next(splits_for(self.system, self.data, self.settings, self.config))

    @property
    def can_measure(self) -> bool:
        """Whether there is a part on which something can be measured."""
        if not self.can_split:
            return False
        try:
            self.system.feedback.check_measurable(self._part.test)
        except HushrecError:
            return False
        return len(self._part.test) > 0

    def is_far_off(self, score: float) -> bool:
        """Whether a model is far worse than the mean of all ratings; of rankings nobody can tell."""
        train, test = self._part.train.ratings, self._part.test.ratings
        if self.metric != "RMSE" or train is None or test is None:
            return False
        of_mean = np.sqrt(np.mean((test - train.mean(dtype=np.float64)) ** 2))
        return score > _FAR_OFF * float(of_mean)

    def until_past_its_best(self, config: Any) -> list[float]:
        """The curve of a training, until it no longer improves; in a run's folder it is kept, and gone on with."""
        name = f"learning-rate-{getattr(config, RATE):g}" if hasattr(config, RATE) else "run"
        folder = self.folder / VALIDATION / name if self.folder else None
        is_enough = is_past_its_best(self.system, config, self.settings.at)
        with self.watching(f"{self.system.name}, validation", config.num_rounds, 1) as watch:
            done = run(
                self.system, config, self.data, self.settings, self.options, folder, self.resume, watch,
                is_enough=is_enough,
            )  # fmt: skip
        return done.folds[0].curve[self.metric]

    def after_few_rounds(self, config: Any) -> float | None:
        """The best of the metric within some rounds; None: the training diverges."""
        num_points = max(1, _ROUNDS_PER_RATE // self.system.result.measured_every(config))
        setting = length_setting(self.system)
        length = min(length_until(self.system, config, num_points), getattr(config, setting))
        short = replace(config, **{setting: length})
        try:
            with self.watching(f"learning rate {getattr(config, RATE):g}", short.num_rounds, 1) as watch:
                done = run(self.system, short, self.data, self.settings, self.options, watch=watch)
        except DivergedError:
            return None
        curve = done.folds[0].curve[self.metric]
        return curve[best_point(curve, self.metric)]


def trials_of_run(
    system: AnySystem,
    config: Any,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None,
    resume: bool,
    watching: Watching,
) -> Trials:
    """Trials within the training part of a run's first fold."""
    inner = replace(settings, measure="validation", num_folds=1, sampled=0)
    return Trials(system, config, data, inner, options, folder, resume, watching)


def trials_of_fit(
    system: AnySystem,
    config: Any,
    data: Interactions,
    seed: int,
    options: RuntimeOptions,
    watching: Watching = _unwatched,
) -> Trials:
    """Trials within data that is all for training; what partners hold is not dealt anew to split it."""
    settings = settings_for(system, seed, data=data)
    inner = replace(settings, split="random") if settings.split == "folds" else settings
    return Trials(system, config, data, inner, options, watching=watching, can_split=not settings.is_dealt)
