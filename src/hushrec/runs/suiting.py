"""What suits data of no paper: a preset, a number of rounds, a learning rate; and a line that says each.

What somebody named is never changed. Rounds and rates are chosen on a validation part, which is taken from the
training part of the first fold, never on test rows:

1. Where nobody named a preset, data on which no paper reports gets the preset `general`, if the system has it.
2. With early stopping, the system is first trained without the validation part and measured on it after every
   round, until it has not improved for a while; then on the whole training part, for as many rounds as were best.
3. Where a training diverges, or stays far worse than the mean of all ratings, smaller learning rates are tried for
   a few rounds each.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hushrec.data import Interactions
from hushrec.errors import DivergedError, HushrecError, option
from hushrec.privacy.user_privacy import is_private
from hushrec.protocol import AnySystem
from hushrec.runs.beside import Beside
from hushrec.runs.folds import run
from hushrec.runs.record import Choice, Run, kept_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runs.trials import (
    RATE,
    Trials,
    Watching,
    best_point,
    length_setting,
    length_until,
    trials_of_run,
)
from hushrec.runs.watching import Follower
from hushrec.runtime.in_process import RuntimeOptions

GENERAL = "general"  # the preset for data of no paper
_PRESET = "preset"
_HALVINGS = 10  # of a learning rate, at most

Done = TypeVar("Done")
Tell = Callable[[str], None]


# --- Presets ---------------------------------------------------------------------------------------------


def by_data(
    system: AnySystem, values: Mapping[str, Any], data_name: str
) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    """The settings that were named, with a preset for data of no paper if none was; and that it was chosen."""
    about = system.about
    if _PRESET in values or GENERAL not in about.presets or data_name in about.published_on:
        return dict(values), ()
    paper = next(iter(about.presets))
    why = (
        f"preset {GENERAL}: {data_name} is in no published table of {system.name}; "
        f"{option('preset', paper)} has the paper's settings"
    )
    return {_PRESET: GENERAL, **values}, (Choice(_PRESET, GENERAL, why),)


def usual_preset(system: AnySystem) -> tuple[str | None, str]:
    """The preset that is taken where none is named, None if that depends on the data; and words for `--help`."""
    presets = system.about.presets
    paper, names = next(iter(presets)), ", ".join(presets)
    if GENERAL not in presets:
        return paper, names
    return None, f"{names}; default: {GENERAL} for data of no paper, else {paper}"


# --- Plans -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What to train: a config, what of it was chosen, and what may still be."""

    system: AnySystem
    config: Any
    chosen: tuple[Choice, ...] = ()
    stops_early: bool = False
    has_free_rate: bool = False  # whether nobody named the learning rate
    length: Choice | None = None  # when to stop, if an interrupted run has found that already

    def with_choice(self, choice: Choice) -> "Plan":
        """The plan with one more setting chosen."""
        others = tuple(one for one in self.chosen if one.setting != choice.setting)
        config = replace(self.config, **{choice.setting: choice.value})
        return replace(self, config=config, chosen=(*others, choice))


def plan_for(system: AnySystem, values: Mapping[str, Any], data_name: str, stop_early: bool | None = None) -> Plan:
    """What to train with the settings that were named; unless told, what has the preset for others stops early."""
    named, chosen = by_data(system, values, data_name)
    config = system.configure(named)
    if is_private(config):
        _check_no_trials(stop_early)
        stop_early = False
    if stop_early is None:
        stop_early = named.get(_PRESET) == GENERAL and length_setting(system) not in values
    return Plan(system, config, chosen, stop_early, _has_free_rate(config, values))


def _check_no_trials(stop_early: bool | None) -> None:
    """Rounds and rates that are found on users' ratings are no part of a ledger of noise."""
    if stop_early:
        raise HushrecError(
            "--stop-early looks at users' ratings without noise, which no epsilon counts; leave it out and set "
            f"{option('num_rounds')}"
        )


def _has_free_rate(config: Any, values: Mapping[str, Any]) -> bool:
    return getattr(config, RATE, 0) > 0 and not {_PRESET, RATE} & values.keys() and not is_private(config)


def plan_of_run(
    system: AnySystem,
    values: Mapping[str, Any],
    data: Interactions,
    settings: RunSettings,
    stop_early: bool | None = None,
    folder: Path | None = None,
    resume: bool = False,
) -> Plan:
    """The plan of a run; of one that goes on, with what was chosen when it began."""
    if settings.measure == "validation":  # is measured, and so chooses nothing
        if stop_early:
            raise HushrecError("--measure validation measures what --stop-early would choose by; leave one out")
        plan = _begun_plan(system, values, data, False, folder, resume)
        return replace(plan, has_free_rate=False)
    return _begun_plan(system, values, data, stop_early, folder, resume)


def _begun_plan(
    system: AnySystem,
    values: Mapping[str, Any],
    data: Interactions,
    stop_early: bool | None,
    folder: Path | None,
    resume: bool,
) -> Plan:
    kept = kept_run(folder, resume) if folder else None
    if kept is None:
        return plan_for(system, values, data.name, stop_early)
    # What is named otherwise now is not taken from the run, so that its folder refuses to go on with it.
    found = {choice.setting: choice for choice in kept.chosen if choice.setting not in values}
    preset, rate, length = (found.get(name) for name in (_PRESET, RATE, length_setting(system)))
    if stop_early and length is None:
        raise HushrecError(f"{folder} holds a run without --stop-early; leave it out, or choose another --out")
    config = system.configure({**({_PRESET: preset.value} if preset else {}), **values})
    plan = Plan(system, config, (preset,) if preset else (), has_free_rate=_has_free_rate(config, values))
    plan = plan.with_choice(rate) if rate else plan
    return replace(plan, stops_early=True, length=length) if length and stop_early is not False else plan


# --- Training --------------------------------------------------------------------------------------------


def trained(plan: Plan, trials: Trials, train: Callable[[Plan], Done], tell: Tell) -> Done:
    """Choose what is to be chosen, and train; where that diverges, with a smaller learning rate."""
    for _ in range(_HALVINGS):
        try:
            ready, score = _stopped(plan, trials, tell)
            is_far_off = score is not None and trials.is_far_off(score)
            slower = _slower(plan, trials, tell, score) if is_far_off else None
            if slower is None:
                return train(ready)
        except DivergedError:
            slower = _slower(plan, trials, tell)
            if slower is None:
                raise
            if trials.folder is not None:
                _forget_folds(trials.folder)
        plan = slower
    return train(_stopped(plan, trials, tell)[0])


def _stopped(plan: Plan, trials: Trials, tell: Tell) -> tuple[Plan, float | None]:
    """The plan with as many rounds as are best, and the metric that these gave."""
    if plan.length is not None:
        tell(plan.length.why)
        return plan.with_choice(plan.length), None
    if not plan.stops_early:
        return plan, None
    if not trials.can_measure:
        tell("all rounds are trained: no part of the data can be held back to choose their number")
        return plan, None
    curve, metric = trials.until_past_its_best(plan.config), trials.metric
    choice = stopped_at_best(plan.system, plan.config, curve, metric)
    tell(choice.why)
    return plan.with_choice(choice), curve[best_point(curve, metric)]


def stopped_at_best(system: AnySystem, config: Any, curve: list[float], metric: str) -> Choice:
    """As many rounds as were best on validation data."""
    best = best_point(curve, metric)
    length = length_until(system, config, best + 1)
    choice = Choice(length_setting(system), length, "")
    words = choice.setting.removeprefix("num_")
    why = (
        f"{length} {words if length > 1 else words[:-1]}: the best {metric} on a validation part, "
        f"{curve[best]:.4f}, of {len(curve)} measured; {option(choice.setting, length)} fixes it"
    )
    return replace(choice, why=why)


def _slower(plan: Plan, trials: Trials, tell: Tell, score: float | None = None) -> Plan | None:
    """The plan with a smaller learning rate, the best of those tried; None: there is none, or it was named.

    `score`: what the rate gives that it has; None: it diverges.
    """
    if not plan.has_free_rate or not trials.can_measure:
        return None
    rate, known, found = getattr(plan.config, RATE), score, None
    for halvings in range(1, _HALVINGS + 1):
        tried = rate / 2**halvings
        result = trials.after_few_rounds(replace(plan.config, **{RATE: tried}))
        is_better = result is not None and (known is None or best_point([known, result], trials.metric) == 1)
        if is_better:
            known, found = result, tried
        elif found is not None:
            break
    if found is None:
        return None
    fault = "diverges" if score is None else f"gives {trials.metric} {score:.4f}, worse than the mean,"
    why = (
        f"learning rate {rate:g} {fault} on {trials.data.name}; {found:g} was found on a validation part; "
        f"{option('learning_rate')} fixes it"
    )
    tell(why)
    return replace(plan, length=None).with_choice(Choice(RATE, found, why))


def _forget_folds(folder: Path) -> None:
    """Take a run that diverged out of its folder; what tells that it is one goes last."""
    for path in folder.glob("fold-*"):
        shutil.rmtree(path)
    (folder / "run.json").unlink(missing_ok=True)


def _with_chosen(command: str, plan: Plan) -> str:
    """The command that made a run, with nothing left to choose."""
    if not command:
        return ""
    has_length = any(one.setting == length_setting(plan.system) for one in plan.chosen)
    return " ".join([command, *(one.flag for one in plan.chosen), *(["--no-stop-early"] if has_length else [])])


def run_suited(
    plan: Plan,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None,
    resume: bool,
    watching: Watching,
    tell: Tell,
    beside: Beside | None = None,
    command: str = "",
    follower: Follower | None = None,
) -> Run:
    """A run as planned, with what is still to be chosen; it can be gone on with, wherever it was interrupted."""
    system = plan.system

    def train(ready: Plan) -> Run:
        with watching(system.name, ready.config.num_rounds, settings.num_folds) as watch:
            return run(
                system, ready.config, data, settings, options, folder, resume, watch,
                chosen=ready.chosen, beside=beside,
                command=_with_chosen(command, ready), follower=follower,
            )  # fmt: skip

    return trained(
        plan, trials_of_run(system, plan.config, data, settings, options, folder, resume, watching), train, tell
    )
