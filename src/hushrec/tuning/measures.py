"""What trials are judged by: accuracy on validation data, bytes, and how much an attacker finds out."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hushrec.audit.driver import audit
from hushrec.errors import HushrecError, option
from hushrec.protocol import AnySystem
from hushrec.runs.trials import length_setting, length_until, main_metric
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job

BYTES, LEAKAGE = "bytes", "leakage"
_SMALL_IS_GOOD = ("RMSE", "MAE", BYTES, LEAKAGE)
_AUDITED_ROUNDS = 3


def is_small_good(measure: str) -> bool:
    """Whether a measure is to be made small; else large."""
    return measure in _SMALL_IS_GOOD


def checked_measures(
    names: Sequence[str], system: AnySystem, usual_at: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The measures, as they are spelled, and the lengths of lists that they need; the first is an accuracy.

    Without a name it is what a model of this system is judged by.
    """
    lengths = sorted({int(found[1]) for name in names if (found := re.search(r"@(\d+)$", name))})
    at = tuple(lengths) or usual_at
    if not at or min(at) < 1:
        raise HushrecError(f"lists have at least one item; write {option('measure', 'NDCG@10')}")
    accuracies = system.feedback.curve_names(at)
    known = {name.casefold(): name for name in (*accuracies, BYTES, LEAKAGE)}
    measures = [known.get(name.casefold(), name) for name in names] or [main_metric(system, at)]
    for name in measures:
        if name not in known.values():
            told = ", ".join(dict.fromkeys([*accuracies, BYTES, LEAKAGE]))
            raise HushrecError(f"{option('measure', name)}: {system.name} is measured by {told}")
    if len(set(measures)) < len(measures):
        raise HushrecError(f"{option('measure', measures)}: name each measure once")
    if measures[0] not in accuracies:
        usual = main_metric(system, at)
        raise HushrecError(f"{option('measure', measures[0])}: name an accuracy first, such as {usual}")
    return tuple(measures), at


def leakage(job: Job, options: RuntimeOptions) -> float:
    """By how much the best attack on the first rounds is above a blind guess; 0: none is, or none applies.

    It has two decimals: what a few rounds tell of is no more exact.
    """
    system, config = job.system, job.config
    num_points = max(1, _AUDITED_ROUNDS // system.result.measured_every(config))
    setting = length_setting(system)
    length = min(length_until(system, config, num_points), getattr(config, setting))
    short: Any = replace(config, **{setting: length})
    found = audit(replace(job, config=short), options, lambda _progress, _scores: None).findings
    return round(max([0.0, *(finding.score - finding.chance for finding in found)]), 2)
