"""Rows for the page and for the terminal: pure functions from runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, pstdev

from hushrec.experiments.published import published_for
from hushrec.experiments.rounding import is_met
from hushrec.protocol import AnySystem, Role
from hushrec.registry import system_named
from hushrec.report.numbers import format_given, format_metric, format_spread
from hushrec.runs.record import FoldResult, Run

DRIVING_ROLES = (Role.SERVER, Role.ORCHESTRATOR)
_FAVOURITES = ("RMSE", "MAE", "NDCG", "HR", "Recall")


# --- What runs are called --------------------------------------------------------------------------------


def short_title(system: AnySystem) -> str:
    """A system's name as papers write it."""
    return system.about.title.partition(":")[0]


def name_of_data(name: str, is_synthetic: bool) -> str:
    """What data is called; what was made up says so.

    >>> name_of_data("ml-100k", False), name_of_data("synthetic", True), name_of_data("shop", True)
    ('ml-100k', 'synthetic', 'shop (synthetic)')
    """
    return f"{name} (synthetic)" if is_synthetic and "synthetic" not in name else name


def labels(runs: Sequence[Run], joint: str = " ") -> list[str]:
    """A short and distinct name per run: the system, and what differs between these runs on purpose."""
    differing = [_differing_settings(run, runs) for run in runs]

    def num_distinct(shown: Sequence[str]) -> int:
        return len(set(_names(runs, differing, shown, joint)))

    telling = dict.fromkeys(name for names in differing for name in names)
    shown: list[str] = []
    for name in sorted(telling, key=lambda name: -num_distinct([name])):
        if not shown or num_distinct([*shown, name]) > num_distinct(shown):
            shown.append(name)
    seen: dict[str, int] = {}
    distinct = []
    for name in _names(runs, differing, shown, joint):
        seen[name] = seen.get(name, 0) + 1
        distinct.append(f"{name} #{seen[name]}" if seen[name] > 1 else name)
    return distinct


def _names(runs: Sequence[Run], differing: Sequence[list[str]], shown: Sequence[str], joint: str) -> list[str]:
    has_seeds = len({run.seed for run in runs}) > 1
    has_splits = len({run.provenance.split for run in runs}) > 1
    has_data = len({run.data for run in runs}) > 1
    names = []
    for run, own in zip(runs, differing, strict=True):
        parts = [f"{name.replace('_', ' ')} {format_given(run.config[name])}" for name in shown if name in own]
        parts += [f"seed {run.seed}"] * has_seeds + [f"split {run.provenance.split}"] * has_splits
        title = short_title(system_named(run.system)) + (f" on {run.data}" if has_data else "")
        names.append(f"{title}{joint}{', '.join(parts)}" if parts else title)
    return names


def _differing_settings(run: Run, runs: Iterable[Run]) -> list[str]:
    """Settings of a run that differ from those of another, where both systems have the same default."""
    defaults = _defaults(run)
    kin = [(other.config, _defaults(other)) for other in runs]
    return [
        name
        for name, value in run.config.items()
        if any(
            name in config and config[name] != value and others.get(name) == defaults.get(name)
            for config, others in kin
        )
    ]


def _defaults(run: Run) -> dict[str, object]:
    return {entry.name: entry.default for entry in fields(system_named(run.system).config)}


# --- Accuracy --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricCell:
    """One metric of one run, and what the paper says."""

    mean: float
    std: float | None  # None with a single fold
    published: float | None = None
    published_std: float | None = None

    @property
    def difference(self) -> float | None:
        """Our mean minus the published one."""
        return None if self.published is None else self.mean - self.published

    @property
    def is_within_spread(self) -> bool | None:
        """Whether ours, as printed, lies within one published deviation of the published mean."""
        if self.published is None or self.published_std is None:
            return None
        return is_met(self.mean, self.published, self.published_std)

    @property
    def text(self) -> str:
        """Mean and deviation as they are printed."""
        return format_spread(self.mean, self.std)


@dataclass(frozen=True)
class MetricRow:
    """All metrics of one run."""

    label: str
    num_folds: int
    cells: dict[str, MetricCell]
    source: str | None  # where the published values stand


def metric_rows(runs: Sequence[Run]) -> list[MetricRow]:
    """Metrics of every run, with the published values of the same settings."""
    return [_metric_row(run, label) for run, label in zip(runs, labels(runs), strict=True)]


def _metric_row(run: Run, label: str) -> MetricRow:
    paper = published_for(run)
    std = run.std if len(run.folds) > 1 else {}
    cells = {}
    for name, mean in run.mean.items():
        values = paper.values.get(name, []) if paper else []
        published, deviation = (*values, None, None)[:2]
        cells[name] = MetricCell(mean, std.get(name), published, deviation)
    source = f"{paper.table}: {paper.label}" if paper else None
    return MetricRow(label, len(run.folds), cells, source)


def metric_names(runs: Iterable[Run]) -> list[str]:
    """All metrics that some run has, in their order."""
    return list(dict.fromkeys(name for run in runs for name in run.mean))


def per_party(runs: Iterable[Run]) -> str:
    """What bytes are divided by, in words: rounds, and parties too unless they are counted together."""
    runs = list(runs)
    if runs and all(are_counted_together(run) for run in runs):
        return "per round, all together"
    names = {run.party_name for run in runs}
    return f"per {names.pop() if len(names) == 1 else 'party'} and round"


def shown_metrics(runs: Iterable[Run]) -> list[str]:
    """Those of them that papers on these systems give."""
    names = [name for run in runs for name in run.mean if system_named(run.system).feedback.is_shown(name)]
    return list(dict.fromkeys(names))


def main_metric(runs: Sequence[Run]) -> str | None:
    """The metric to draw: RMSE where there is one, else the first of the usual ones, of ten items if there is."""
    names = metric_names(runs)
    for favourite in _FAVOURITES:
        found = [name for name in names if name.partition("@")[0] == favourite]
        if found:
            return f"{favourite}@10" if f"{favourite}@10" in found else found[0]
    return names[0] if names else None


def is_error(metric: str) -> bool:
    """Whether less is better.

    >>> is_error("RMSE"), is_error("RMSE, cold"), is_error("NDCG@10")
    (True, True, False)
    """
    return metric.partition("@")[0].partition(",")[0] in ("MAE", "RMSE") or "loss" in metric.lower()


def best_text(rows: Iterable[MetricRow], metric: str) -> str | None:
    """The best mean as printed: several runs may share it."""
    means = [row.cells[metric].mean for row in rows if metric in row.cells]
    if len(means) < 2:
        return None
    return format_metric(min(means) if is_error(metric) else max(means))


# --- Bytes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrafficRow:
    """One type of message in one run: means over the folds."""

    type: str
    sender: str
    receiver: str
    messages: float
    vectors: float
    bytes: float
    per_client_round: float  # bytes divided by parties and rounds, see `per_party`

    @property
    def way(self) -> str:
        """Sender and receiver, as in `client → server`."""
        return f"{self.sender} → {self.receiver}"

    @property
    def is_up(self) -> bool:
        """Whether a client or the like sends it, not the driving side."""
        return self.sender not in DRIVING_ROLES


def traffic_rows(run: Run) -> list[TrafficRow]:
    """What was sent, by type of message, in order of sending; what was not has no row."""
    if not run.folds:
        return []
    rows = []
    for place, count in enumerate(run.folds[0].messages):
        same = [fold.messages[place] for fold in run.folds]
        if not any(entry.messages for entry in same):
            continue
        rows.append(
            TrafficRow(
                count.type,
                count.sender,
                count.receiver,
                fmean(entry.messages for entry in same),
                fmean(entry.rows for entry in same),
                fmean(entry.bytes for entry in same),
                fmean(
                    entry.bytes / _client_rounds(run, fold) for entry, fold in zip(same, run.folds, strict=True)
                ),
            )
        )
    return rows


def are_counted_together(run: Run) -> bool:
    """Whether bytes are told of all parties together, as these differ too much."""
    return system_named(run.system).holders.traffic_per is None


def _client_rounds(run: Run, fold: FoldResult) -> int:
    num_parties = 1 if are_counted_together(run) else run.num_parties
    return max(1, num_parties) * max(1, fold.num_rounds)


@dataclass(frozen=True)
class RoleRow:
    """What all parties of one role send and get: means over the folds."""

    role: str
    sent: float
    received: float
    sent_per_client_round: float
    received_per_client_round: float


def role_rows(run: Run) -> list[RoleRow]:
    """What the parties of each role send and get, in bytes."""
    traffic = traffic_rows(run)
    rows = []
    for role in dict.fromkeys(role for row in traffic for role in (row.sender, row.receiver)):
        sent = [row for row in traffic if row.sender == role]
        received = [row for row in traffic if row.receiver == role]
        totals = [sum(row.bytes for row in part) for part in (sent, received)]
        rows.append(
            RoleRow(role, *totals, *(sum(row.per_client_round for row in part) for part in (sent, received)))
        )
    return rows


def up_and_down(run: Run) -> tuple[float, float]:
    """Bytes per client and round: sent by clients and the like, and sent by the driving side."""
    traffic = traffic_rows(run)
    up = sum(row.per_client_round for row in traffic if row.is_up)
    return up, sum(row.per_client_round for row in traffic) - up


def cpu_seconds(run: Run) -> tuple[float, float | None]:
    """CPU time of a fold: mean and, with several, standard deviation."""
    times = [fold.cpu_seconds for fold in run.folds]
    return (fmean(times) if times else 0.0), (pstdev(times) if len(times) > 1 else None)
