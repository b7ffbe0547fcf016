"""Whether a run is worth having: beside baselines, and by what its lists are like. Computed, never assumed."""

from collections.abc import Mapping, Sequence

from hushrec.evaluation.lists import are_alike
from hushrec.report.findings import test_set
from hushrec.report.numbers import format_count, format_metric, format_number, format_share
from hushrec.report.tables import is_error
from hushrec.runs.beside import THIRDS, main_length
from hushrec.runs.record import Run


def judged_metrics(run: Run) -> list[str]:
    """What a run and its baselines are judged by: RMSE if ratings are predicted, and NDCG of lists."""
    return [name for name in ("RMSE", f"NDCG@{main_length(run.at)}") if name in run.mean]


def shown_beside(run: Run) -> list[str]:
    """The metrics of a table of baselines: those that judge, and one more that is easier to grasp."""
    hit_rate = f"HR@{main_length(run.at)}"
    return [*judged_metrics(run), *([hit_rate] if hit_rate in run.mean else [])]


def common_baselines(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """The baselines of runs that were tested on the same rows with the same candidates; none if these differ."""
    if len({(*test_set(run), run.provenance.min_raters, run.relevant_from) for run in runs}) > 1:
        return {}
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        for name, values in run.baselines.items():
            found[name] = found.get(name, {}) | values
    return found


def is_beaten(metric: str, ours: float, other: float) -> bool:
    """Whether ours is better than another, both as they are printed."""
    one, two = float(format_metric(ours)), float(format_metric(other))
    return one < two if is_error(metric) else one > two


def unbeaten_lines(run: Run) -> list[str]:
    """A line for each judging metric by which some baseline does as well as the run, or better."""
    lines = []
    for metric in judged_metrics(run):
        ours = run.mean[metric]
        rivals = {name: values[metric] for name, values in run.baselines.items() if metric in values}
        as_good = {name: value for name, value in rivals.items() if not is_beaten(metric, ours, value)}
        if as_good:
            best = min(as_good, key=lambda name: as_good[name] if is_error(metric) else -as_good[name])
            whose = f" ({best})" if len(as_good) > 1 else ""
            lines.append(
                f"{run.system} does not beat {_joined(list(as_good))}: {metric} {format_metric(ours)} against "
                f"{format_metric(as_good[best])}{whose}"
            )
    return lines


def verdict_lines(run: Run) -> list[str]:
    """Which baselines a run beats and by how much, which it does not, and for whom it does not beat the former."""
    lines = []
    for metric in judged_metrics(run):
        ours = run.mean[metric]
        for name, values in run.baselines.items():
            if metric not in values or not is_beaten(metric, ours, values[metric]):
                continue
            other = values[metric]
            by = f" ({format_share(abs(ours - other) / other)} {_lower(metric)})" if other else ""
            lines.append(f"beats {name}: {metric} {format_metric(ours)} against {format_metric(other)}{by}")
            lines += _not_for(run, metric, name)
    return [*lines, *(line.removeprefix(f"{run.system} ") for line in unbeaten_lines(run))]


def _not_for(run: Run, metric: str, baseline: str) -> list[str]:
    """The thirds of users for whom a baseline does as well that is beaten on the whole."""
    found = []
    for word in THIRDS:
        ours, other = run.thirds.get(f"{metric}, {word}"), run.baselines[baseline].get(f"{metric}, {word}")
        if ours is not None and other is not None and not is_beaten(metric, ours, other):
            found.append(
                f"but not for the third of users with {word}: {metric} {format_metric(ours)} against "
                f"{format_metric(other)} of {baseline}"
            )
    return found


def _lower(metric: str) -> str:
    return "lower" if is_error(metric) else "higher"


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def lists_line(measures: Mapping[str, float], length: int) -> str:
    """What lists are like, in one line."""
    lists, users = measures["lists"], measures["users"]
    of_whom = (
        f"{format_count(users)} users"
        if lists == users
        else (f"{format_count(lists)} users, drawn from {format_count(users)}")
    )
    within = measures.get("diversity within")  # older runs have none, nor have lists of one item
    return (
        f"lists of {length} for {of_whom}: {format_count(measures['distinct items'])} distinct items "
        f"({format_share(measures['coverage'])} of all), diversity {format_metric(measures['diversity'])}"
        f"{'' if within is None else f' between lists and {format_metric(within)} within'}, "
        f"novelty {format_number(measures['novelty'])} bits; a listed item is had by "
        f"{format_share(measures['popularity'])} of users; the most listed is in "
        f"{format_share(measures['most listed'])} of lists"
    )


def alike_line(run: Run) -> str | None:
    """What to say if lists are alike for most people."""
    measures = run.lists
    if not measures or not are_alike(measures):
        return None
    return (
        f"lists are alike for most people: two of them share {format_share(1 - measures['diversity'])} of their "
        f"items, one item is in {format_share(measures['most listed'])} of them"
    )
