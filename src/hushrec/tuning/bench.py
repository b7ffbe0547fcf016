"""One trial: a system trained without the validation part, measured on it, and stopped when that is enough."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.data import Interactions
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import AnySystem
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings, splits_for
from hushrec.runs.trials import best_point, is_past_its_best, length_setting, length_until
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.rounds import IsEnough
from hushrec.runtime.training import Job
from hushrec.tuning.measures import BYTES, LEAKAGE, leakage

# Told the round and the first measure after it; whether the trial is to be given up.
OnPoint = Callable[[int, float], bool]


@dataclass(frozen=True)
class Attempt:
    """What is tried: settings, and whether the best of its rounds counts or the last."""

    values: dict[str, Any]
    stops_early: bool


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    measured: dict[str, float]
    length: int | None = None  # of the training, to its best point
    seconds: float = 0.0  # of CPU
    is_pruned: bool = False
    fault: str = ""  # why nothing was measured
    is_diverged: bool = False  # else whoever has a fault was refused


class _PrunedError(Exception):
    """A trial that is given up."""


@dataclass(frozen=True)
class Bench:
    """Where trials are made, in whichever process."""

    system_name: str
    data: Interactions
    settings: RunSettings  # whose test part is the validation part
    measures: tuple[str, ...]
    threads: int = 1

    @property
    def system(self) -> AnySystem:
        """The system that is tuned."""
        return system_named(self.system_name)

    def make(self, attempt: Attempt, on_point: OnPoint) -> Outcome:
        """Train and measure; what cannot be measured has a fault."""
        started = time.process_time()
        try:
            measured, length = self._measured(attempt, on_point)
        except _PrunedError:
            return Outcome({}, seconds=time.process_time() - started, is_pruned=True)
        except HushrecError as error:
            seconds, is_diverged = time.process_time() - started, isinstance(error, DivergedError)
            return Outcome({}, seconds=seconds, fault=str(error), is_diverged=is_diverged)
        return Outcome(measured, length, time.process_time() - started)

    def _measured(self, attempt: Attempt, on_point: OnPoint) -> tuple[dict[str, float], int]:
        system, metric = self.system, self.measures[0]
        config, options = system.configure(attempt.values), RuntimeOptions(threads=self.threads)
        watched = _watched(system, config, self.settings.at, metric, attempt.stops_early, on_point)
        done = run(system, config, self.data, self.settings, options, is_enough=watched)
        curves = done.folds[0].curve
        if metric not in curves:
            raise DivergedError(f"{metric} is not finite; the training diverges")
        curve = curves[metric]
        point = best_point(curve, metric) if attempt.stops_early else len(curve) - 1
        length = length_until(system, config, point + 1)
        measured: dict[str, float] = {}
        for name in self.measures:
            if name == LEAKAGE:
                train = next(splits_for(system, self.data, self.settings, config)).train
                measured[name] = leakage(Job(system, config, self.settings.seed, train), options)
            else:
                measured[name] = _bytes(done) if name == BYTES else curves[name][point]
        return measured, length if attempt.stops_early else getattr(config, length_setting(system))


def _watched(
    system: AnySystem, config: Any, at: tuple[int, ...], metric: str, stops_early: bool, on_point: OnPoint
) -> IsEnough:
    """Tell every new point of the curve; end the training where it no longer improves, or is given up."""
    is_past = is_past_its_best(system, config, at, metric) if stops_early else None
    column = system.feedback.curve_names(at).index(metric)
    num_told = 0

    def is_enough(progress: Progress) -> bool:
        nonlocal num_told
        if progress.curve is None:
            return False
        value = float(progress.curve[-1, column])
        if len(progress.curve) > num_told and np.isfinite(value):
            num_told = len(progress.curve)
            if on_point(progress.round_number, value):
                raise _PrunedError
        return is_past is not None and is_past(progress)

    return is_enough


def _bytes(done: Run) -> float:
    """Bytes per party and round, both ways, to the three digits that are shown: less is no difference."""
    fold = done.folds[0]
    return float(f"{sum(fold.sent_bytes.values()) / fold.num_rounds / done.num_parties:.3g}")
