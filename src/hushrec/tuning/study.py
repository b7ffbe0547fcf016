"""The search: which settings are tried next, which trials are given up, and what came of them all.

Optuna's TPE draws the settings. Its state is not kept: the sampler of every trial is made anew, with a seed of its
number, so that a search in one process that is interrupted and resumed tries the same as one that is not. With
several processes, what is known when a trial begins depends on which of the others are done.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from hushrec.errors import HushrecError, option
from hushrec.protocol import AnySystem
from hushrec.runs.suiting import Plan
from hushrec.runs.trials import length_setting
from hushrec.settings import Between, Space
from hushrec.tuning.bench import Attempt, Bench, Outcome
from hushrec.tuning.measures import is_small_good
from hushrec.tuning.results import Row, Tuned
from hushrec.tuning.spaces import Spaces, longest, rounded
from hushrec.tuning.store import Direction, opened
from hushrec.tuning.workers import one_by_one, side_by_side

if TYPE_CHECKING:
    import optuna

_STARTUP = 5  # trials that are not given up, so that there is a median
_DRAWN = 10  # trials at random, before the others tell where to look
_MOST_JOBS = 256

OnTrial = Callable[[list[Row]], None]  # told all rows after each trial


@dataclass(frozen=True)
class Search:
    """What is searched, and how."""

    bench: Bench
    values: dict[str, Any]  # settings that were named, or chosen by the data
    spaces: Spaces
    num_trials: int = 50
    num_jobs: int = 1
    is_pruning: bool = True

    def __post_init__(self) -> None:
        check_amounts(self.num_trials, self.num_jobs)

    @property
    def system(self) -> AnySystem:
        """The system that is tuned."""
        return self.bench.system

    def described(self) -> dict[str, Any]:
        """What must be the same for trials to be compared."""
        bench = self.bench
        return {
            "system": bench.system_name,
            "data": bench.data.sha256,
            "settings": self.values,
            "split": asdict(bench.settings),
            "measures": list(bench.measures),
            "spaces": {name: asdict(space) for name, space in self.spaces.items()},
        }


def check_amounts(num_trials: int, num_jobs: int) -> None:
    """Refuse a number of trials, or of trials at once, that cannot be."""
    if num_trials < 1:
        raise HushrecError(f"{option('trials', num_trials)}: one trial at least")
    if not 1 <= num_jobs <= _MOST_JOBS:
        raise HushrecError(
            f"{option('jobs', num_jobs)}: choose 1 to {_MOST_JOBS}, and no more than there are cores"
        )


def search(
    wanted: Search, plan: Plan, folder: Path | None = None, resume: bool = False, on_trial: OnTrial | None = None
) -> Tuned:
    """Make the trials that are missing, and tell all. The first one has the settings as they are by default."""
    measures = wanted.bench.measures
    directions: list[Direction] = ["minimize" if is_small_good(name) else "maximize" for name in measures]
    with opened(folder, resume, wanted.described(), directions, _pruner()) as study:
        desk = _Desk(study, wanted, plan, on_trial)
        desk.tell()
        if wanted.num_jobs == 1:
            one_by_one(wanted.bench, desk)
        else:
            side_by_side(wanted.bench, desk, wanted.num_jobs)
        bench = wanted.bench
        return Tuned(bench.system_name, measures, wanted.values, tuple(desk.rows()), bench.settings.seed)


def _pruner() -> Any:
    """Give up what is worse than the median of the others after as many rounds."""
    import optuna

    return optuna.pruners.MedianPruner(n_startup_trials=_STARTUP, n_warmup_steps=_STARTUP, n_min_trials=_STARTUP)


class _Desk:
    """Gives out trials, and takes in what comes of them: the only one that writes to the study."""

    def __init__(self, study: "optuna.Study", wanted: Search, plan: Plan, on_trial: OnTrial | None) -> None:
        self._study, self._wanted, self._plan, self._on_trial = study, wanted, plan, on_trial
        self._trials: dict[int, optuna.Trial] = {}
        self._interrupted = [trial for trial in study.trials if not trial.state.is_finished()]
        # Rounds whose measure is noted already: a trial that begins again measures the same.
        self._noted = {trial.number: set(trial.intermediate_values) for trial in self._interrupted}

    # --- Giving out -------------------------------------------------------------------------------------

    def next(self) -> tuple[int, Attempt] | None:
        """The next trial: one that was interrupted, or a new one."""
        number = self._interrupted[0].number if self._interrupted else len(self._study.trials)
        if number >= self._wanted.num_trials:
            return None
        trial = self._begun(number)
        kinds = get_type_hints(self._wanted.system.config)
        for name, space in self._drawn().items():
            if number > 0 or name in self._of_default():
                _draw(trial, name, space, kinds[name])
        self._trials[number] = trial
        return number, self._attempt(number, trial.params)

    def _begun(self, number: int) -> "optuna.Trial":
        """A trial, perhaps one that was interrupted while its settings were drawn: what it has of them stays."""
        import optuna

        seed = int(np.random.SeedSequence([self._wanted.bench.settings.seed, number]).generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_DRAWN)
        before = self._interrupted.pop(0) if self._interrupted else None
        if before is not None and before.state != optuna.trial.TrialState.WAITING:
            return optuna.Trial(self._study, before._trial_id)
        if number == 0 and before is None:
            self._study.enqueue_trial(self._of_default())
        return self._study.ask()

    def _of_default(self) -> dict[str, Any]:
        """What the default has of all that is drawn, where it lies within what is searched."""
        config = self._plan.config
        return {
            name: getattr(config, name) for name, space in self._drawn().items() if getattr(config, name) in space
        }

    def _drawn(self) -> dict[str, Space]:
        """What is drawn: all that is searched but the length, which is found while training."""
        length = length_setting(self._wanted.system)
        return {name: space for name, space in self._wanted.spaces.items() if name != length}

    def _attempt(self, number: int, params: Mapping[str, Any]) -> Attempt:
        wanted, plan = self._wanted, self._plan
        if number == 0:
            return Attempt(wanted.values, plan.stops_early)
        length = length_setting(wanted.system)
        drawn = {name: rounded(value, wanted.spaces[name]) for name, value in params.items()}
        if length not in wanted.spaces:
            return Attempt({**wanted.values, **drawn}, stops_early=False)
        cap = longest(wanted.system, wanted.spaces, plan.config)
        return Attempt({**wanted.values, **drawn, length: cap}, stops_early=True)

    # --- Taking in --------------------------------------------------------------------------------------

    def on_point(self, number: int, round_number: int, value: float) -> bool:
        """Note the first measure; whether it is worse than the median. The default is not given up."""
        if len(self._wanted.bench.measures) > 1 or not self._wanted.is_pruning:
            return False
        trial = self._trials[number]
        if round_number not in self._noted.get(number, ()):
            trial.report(value, round_number)
        return number > 0 and trial.should_prune()

    def on_done(self, number: int, outcome: Outcome) -> None:
        """Note what came of a trial."""
        import optuna

        states = optuna.trial.TrialState
        trial = self._trials.pop(number)
        if outcome.fault and number == 0 and not outcome.is_diverged:
            raise HushrecError(outcome.fault)  # so would all others
        trial.set_user_attr("outcome", asdict(outcome))
        trial.set_user_attr("settings", self._settings(number, trial.params, outcome))
        if outcome.is_pruned or outcome.is_diverged:  # known for bad; from failed ones nothing is learned
            self._study.tell(number, state=states.PRUNED)
        elif outcome.fault:
            self._study.tell(number, state=states.FAIL)
        else:
            self._study.tell(number, [outcome.measured[name] for name in self._wanted.bench.measures])
        self.tell()

    def _settings(self, number: int, params: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        """What a trial had of all that is searched; the length is that of its best point."""
        values = self._attempt(number, params).values
        config = self._wanted.system.configure(values) if number == 0 else None
        drawn = {name: getattr(config, name) if config else values[name] for name in self._drawn()}
        length = length_setting(self._wanted.system)
        if outcome.length is not None and length in self._wanted.spaces:
            drawn[length] = outcome.length
        return drawn

    # --- Telling ----------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Tell all that is known so far."""
        if self._on_trial:
            self._on_trial(self.rows())

    def rows(self) -> list[Row]:
        """All finished trials, as many as are wanted."""
        found = []
        for trial in self._study.get_trials(deepcopy=False)[: self._wanted.num_trials]:
            if trial.state.is_finished() and "outcome" in trial.user_attrs:
                outcome = Outcome(**trial.user_attrs["outcome"])
                found.append(Row(trial.number, trial.user_attrs["settings"], outcome))
        return found


def _draw(trial: "optuna.Trial", name: str, space: Space, kind: type) -> None:
    """Draw a setting, unless the trial has it."""
    if not isinstance(space, Between):
        trial.suggest_categorical(name, space.values)
    elif kind is int:
        trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
    else:
        trial.suggest_float(name, space.low, space.high, log=space.log)
