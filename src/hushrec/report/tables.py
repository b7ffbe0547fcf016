"""Rows for the page and for the terminal: pure functions from runs, and how numbers are written."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, pstdev
from typing import Any

from hushrec.experiments.published import published_for
from hushrec.experiments.runs import FoldResult, Run
from hushrec.protocol import Role, System
from hushrec.systems import system_named

ABSENT = "–"
DRIVING_ROLES = (Role.SERVER, Role.ORCHESTRATOR)
_BYTE_UNITS = ("KB", "MB", "GB", "TB", "PB")
_FAVOURITES = ("RMSE", "MAE", "NDCG", "HR", "Recall")


# --- How numbers are written -----------------------------------------------------------------------------


def format_bytes(count: float) -> str:
    """Bytes with three significant digits; 1 KB is 1000 bytes.

    >>> [format_bytes(count) for count in (0, 7.25, 999, 134592, 9996, 2675610860)]
    ['0 B', '7.25 B', '999 B', '135 KB', '10.0 KB', '2.68 GB']
    """
    if count < 999.5:
        return f"{count:.3g} B"
    for unit in _BYTE_UNITS:
        count /= 1000
        if count < 999.5:
            break
    return f"{count:#.3g}".removesuffix(".") + f" {unit}"


def format_count(count: float) -> str:
    """A count, rounded, with separators of thousands.

    >>> format_count(31816400.5)
    '31,816,400'
    """
    return f"{round(count):,}"


def format_metric(value: float) -> str:
    """A metric with four decimals, as papers print them."""
    return f"{value:.4f}"


def format_spread(value: float, deviation: float | None) -> str:
    """A metric and, where several folds or a paper give one, its standard deviation."""
    return format_metric(value) + ("" if deviation is None else f" ± {format_metric(deviation)}")


def format_seconds(seconds: float) -> str:
    """CPU or wall time.

    >>> [format_seconds(seconds) for seconds in (0.123, 2.66, 75.2, 4000)]
    ['0.12 s', '2.7 s', '75 s', '67 min']
    """
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def format_setting(value: object) -> str:
    """A value of a config."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- What runs are called --------------------------------------------------------------------------------


def short_title(system: System[Any, Any, Any]) -> str:
    """A system's name as papers write it."""
    return system.title.partition(":")[0]


def labels(runs: Sequence[Run], joint: str = " ") -> list[str]:
    """A short and distinct name per run: the system, and what differs between these runs on purpose."""
    names = [_label(run, runs, joint) for run in runs]
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(f"{name} #{seen[name]}" if seen[name] > 1 else name)
    return distinct


def _label(run: Run, runs: Sequence[Run], joint: str) -> str:
    parts = [
        f"{name.replace('_', ' ')} {format_setting(run.config[name])}" for name in _differing_settings(run, runs)
    ]
    if len({other.seed for other in runs}) > 1:
        parts.append(f"seed {run.seed}")
    if len({other.provenance.split for other in runs}) > 1:
        parts.append(f"split {run.provenance.split}")
    title = short_title(system_named(run.system))
    if len({other.data for other in runs}) > 1:
        title += f" on {run.data}"
    return f"{title}{joint}{', '.join(parts)}" if parts else title


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
        """Ours less the published mean."""
        return None if self.published is None else self.mean - self.published

    @property
    def is_within_spread(self) -> bool | None:
        """Whether ours, as printed, lies within one published deviation of the published mean."""
        if self.published is None or self.published_std is None:
            return None
        return round(abs(round(self.mean, 4) - self.published), 6) <= self.published_std

    @property
    def text(self) -> str:
        """Mean and deviation."""
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
        published, deviation, *_ = [*(paper.values.get(name, ()) if paper else ()), None, None]
        cells[name] = MetricCell(mean, std.get(name), published, deviation)
    source = f"{paper.table}: {paper.label}" if paper else None
    return MetricRow(label, len(run.folds), cells, source)


def metric_names(runs: Iterable[Run]) -> list[str]:
    """All metrics that some run has, in their order."""
    return list(dict.fromkeys(name for run in runs for name in run.mean))


def main_metric(runs: Sequence[Run]) -> str | None:
    """The metric to draw: RMSE where there is one, else the first of the usual ones."""
    names = metric_names(runs)
    for favourite in _FAVOURITES:
        for name in names:
            if name.partition("@")[0] == favourite:
                return name
    return names[0] if names else None


def is_error(metric: str) -> bool:
    """Whether less is better.

    >>> is_error("RMSE"), is_error("NDCG@10")
    (True, False)
    """
    return metric.partition("@")[0] in ("MAE", "RMSE") or "loss" in metric.lower()


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
    per_client_round: float  # bytes divided by users and rounds

    @property
    def way(self) -> str:
        """From whom to whom."""
        return f"{self.sender} → {self.receiver}"

    @property
    def is_up(self) -> bool:
        """Whether a client or the like sends it, not the driving side."""
        return self.sender not in DRIVING_ROLES


def traffic_rows(run: Run) -> list[TrafficRow]:
    """What was sent, by type of message, in order of sending."""
    if not run.folds:
        return []
    rows = []
    for place, count in enumerate(run.folds[0].messages):
        same = [fold.messages[place] for fold in run.folds]
        rows.append(
            TrafficRow(
                count.type,
                count.sender,
                count.receiver,
                fmean(entry.messages for entry in same),
                fmean(entry.rows for entry in same),
                fmean(entry.bytes for entry in same),
                _per_client_round(run, lambda fold, place=place: fold.messages[place].bytes),
            )
        )
    return rows


def _per_client_round(run: Run, of_fold: Callable[[FoldResult], int]) -> float:
    users = max(1, run.provenance.num_users)
    return fmean(of_fold(fold) / (users * max(1, fold.num_rounds)) for fold in run.folds)


@dataclass(frozen=True)
class RoleRow:
    """What one role sends and gets: bytes per client and round."""

    role: str
    sent: float
    received: float


def role_rows(run: Run) -> list[RoleRow]:
    """Bytes of every role, per client and round."""
    traffic = traffic_rows(run)
    roles = dict.fromkeys(role for row in traffic for role in (row.sender, row.receiver))
    return [
        RoleRow(
            role,
            sum(row.per_client_round for row in traffic if row.sender == role),
            sum(row.per_client_round for row in traffic if row.receiver == role),
        )
        for role in roles
    ]


def up_and_down(run: Run) -> tuple[float, float]:
    """Bytes per client and round: sent by clients and the like, and sent by the driving side."""
    traffic = traffic_rows(run)
    up = sum(row.per_client_round for row in traffic if row.is_up)
    return up, sum(row.per_client_round for row in traffic) - up


def cpu_seconds(run: Run) -> tuple[float, float | None]:
    """CPU time of a fold: mean and, with several, standard deviation."""
    times = [fold.cpu_seconds for fold in run.folds]
    return (fmean(times) if times else 0.0), (pstdev(times) if len(times) > 1 else None)


# --- Settings and provenance -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertyRow:
    """One property of all runs, a text per run."""

    name: str
    values: list[str]
    meaning: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether all runs have the same."""
        return len(set(self.values)) == 1


def setting_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    """Every setting of the systems' configs, those that differ first."""
    meanings: dict[str, str] = {}
    for run in runs:
        helps = {entry.name: entry.metadata.get("help", "") for entry in fields(system_named(run.system).config)}
        meanings = {name: helps.get(name, "") for name in run.config} | meanings
    rows = [
        PropertyRow(
            name, [format_setting(run.config[name]) if name in run.config else ABSENT for run in runs], meaning
        )
        for name, meaning in meanings.items()
    ]
    return sorted(rows, key=lambda row: row.is_shared)


def provenance_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    """What is needed to get the same numbers again."""
    wanted: dict[str, Callable[[Run], str]] = {
        "data": lambda run: run.data + (" (synthetic)" if run.provenance.is_synthetic else ""),
        "data SHA-256": lambda run: run.provenance.data_sha256,
        "users": lambda run: format_count(run.provenance.num_users),
        "items": lambda run: format_count(run.provenance.num_items),
        "ratings": lambda run: format_count(run.provenance.num_ratings),
        "range of ratings": _rating_range,
        "split": _split,
        "seed": lambda run: str(run.seed),
        "folds done": lambda run: f"{len(run.folds)} of {run.num_folds}",
        "training cases": lambda run: _each_fold(run, lambda fold: format_count(fold.num_train)),
        "test cases": lambda run: _each_fold(run, lambda fold: format_count(fold.num_test)),
        "cold test cases": lambda run: _each_fold(run, lambda fold: format_count(fold.num_cold)),
        "CPU time per fold": lambda run: _each_fold(run, lambda fold: format_seconds(fold.cpu_seconds)),
        "wall time per fold": lambda run: _each_fold(run, lambda fold: format_seconds(fold.wall_seconds)),
        "machine": lambda run: run.provenance.machine,
        "started": lambda run: run.provenance.started,
    }
    rows = [PropertyRow(name, [text(run) for run in runs]) for name, text in wanted.items()]
    return rows + _version_rows(runs)


def _version_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    names = dict.fromkeys(name for run in runs for name in run.provenance.versions)
    return [PropertyRow(name, [run.provenance.versions.get(name, ABSENT) for run in runs]) for name in names]


def _rating_range(run: Run) -> str:
    limits = run.provenance.rating_range
    return ABSENT if limits is None else f"{limits[0]:g} to {limits[1]:g}"


def _split(run: Run) -> str:
    share = f"{run.provenance.test_share:.0%} for the test"
    meanings: Mapping[str, str] = {
        "folds": f"random folds, {share}",
        "random": f"random, {share}",
        "latest": f"by time, the latest {share}",
        "leave-one-out": "one rating per user for the test",
    }
    return meanings[run.provenance.split]


def _each_fold(run: Run, text: Callable[[FoldResult], str]) -> str:
    values = [text(fold) for fold in run.folds]
    return ", ".join(values[:1] if len(set(values)) == 1 else values) or ABSENT


def digest_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    """The first digits of the digests of the final arrays, fold by fold."""
    numbers = sorted({fold.fold for run in runs for fold in run.folds})
    rows = []
    for number in numbers:
        found = [next((fold for fold in run.folds if fold.fold == number), None) for run in runs]
        rows.append(PropertyRow(f"fold {number}, model", [_digits(fold and fold.model_sha256) for fold in found]))
        rows.append(
            PropertyRow(f"fold {number}, clients", [_digits(fold and fold.clients_sha256) for fold in found])
        )
    return rows


def _digits(digest: str | None) -> str:
    return digest[:12] if digest else ABSENT
