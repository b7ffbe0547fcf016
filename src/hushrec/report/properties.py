"""Settings and provenance of runs, side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from hushrec.registry import system_named
from hushrec.report.numbers import ABSENT, format_count, format_given, format_seconds, format_share
from hushrec.report.tables import name_of_data
from hushrec.runs.record import FoldResult, Run


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
        meanings |= {name: helps.get(name, "") for name in run.config if name not in meanings}
    rows = [
        PropertyRow(
            name, [format_given(run.config[name]) if name in run.config else ABSENT for run in runs], meaning
        )
        for name, meaning in meanings.items()
    ]
    return sorted(rows, key=lambda row: row.is_shared)


def provenance_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    """What is needed to get the same numbers again."""
    wanted: dict[str, Callable[[Run], str]] = {
        "data": lambda run: name_of_data(run.data, run.provenance.is_synthetic),
        "data SHA-256": lambda run: run.provenance.data_sha256,
        "users": lambda run: format_count(run.provenance.num_users),
        "items": lambda run: format_count(run.provenance.num_items),
        "ratings": lambda run: format_count(run.provenance.num_ratings),
        "range of ratings": _rating_range,
        "parties": _parties,
        "who holds what": lambda run: "; ".join(run.provenance.holding) or ABSENT,
        "drawn, passed-over items": lambda run: str(run.provenance.passed_over),
        "split": _split,
        "raters that a listed item needs": lambda run: str(run.provenance.min_raters or 0),
        "seed": lambda run: str(run.seed),
        "chosen by the data": lambda run: "; ".join(choice.why for choice in run.chosen) or ABSENT,
        "folds done": lambda run: f"{len(run.folds)} of {run.num_folds}",
        "training cases": lambda run: _each_fold(run, lambda fold: format_count(fold.num_train)),
        "test cases": lambda run: _each_fold(run, lambda fold: format_count(fold.num_test)),
        "cold test cases": lambda run: _each_fold(run, lambda fold: _count_or_absent(fold.num_cold)),
        "CPU time per fold": lambda run: _each_fold(run, lambda fold: format_seconds(fold.cpu_seconds)),
        "wall time per fold": lambda run: _each_fold(run, lambda fold: format_seconds(fold.wall_seconds)),
        "machine": lambda run: run.provenance.machine,
        "started": lambda run: run.provenance.started.replace("T", " ").replace("+00:00", " UTC"),
    }
    if not any(run.provenance.holding for run in runs):
        del wanted["who holds what"]
    if not any(run.provenance.passed_over for run in runs):
        del wanted["drawn, passed-over items"]
    if not any(run.chosen for run in runs):
        del wanted["chosen by the data"]
    rows = [PropertyRow(name, [text(run) for run in runs]) for name, text in wanted.items()]
    return rows + _version_rows(runs)


def _count_or_absent(count: int | None) -> str:
    return ABSENT if count is None else format_count(count)


def _parties(run: Run) -> str:
    return f"{format_count(run.num_parties)} {run.party_name}{'s' if run.num_parties != 1 else ''}"


def _version_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    names = dict.fromkeys(name for run in runs for name in run.provenance.versions)
    return [PropertyRow(name, [run.provenance.versions.get(name, ABSENT) for run in runs]) for name in names]


def _rating_range(run: Run) -> str:
    limits = run.provenance.rating_range
    return ABSENT if limits is None else f"{format_given(limits[0])} to {format_given(limits[1])}"


def _split(run: Run) -> str:
    kept = run.provenance
    share = f"{format_share(kept.test_share)} for the {kept.measure}"
    meanings: Mapping[str, str] = {
        "folds": f"random folds, {share}",
        "random": f"random, {share}",
        "latest": f"by time, the latest {share}",
        "shared": f"random, {share}, measured alike for all systems",
        "global-time": f"all rows from {kept.split_at} on"
        if kept.split_at
        else f"by one moment, the last {share}",
        "leave-one-out": f"one rating per user for the {kept.measure}",
        "partners": f"dealt to partners, {share}",
        "given": f"rows given by the user, {share}",
        "pooled": f"dealt to partners and pooled again, {share}",
    }
    return meanings[kept.split]


def _each_fold(run: Run, text: Callable[[FoldResult], str]) -> str:
    values = [text(fold) for fold in run.folds]
    return ", ".join(values[:1] if len(set(values)) == 1 else values) or ABSENT


def digest_rows(runs: Sequence[Run]) -> list[PropertyRow]:
    """The first digits of the digests of the final arrays, fold by fold."""
    folds = [{fold.fold: fold for fold in run.folds} for run in runs]
    rows = []
    for number in sorted({number for found in folds for number in found}):
        models = [found[number].model_sha256 if number in found else None for found in folds]
        clients = [found[number].clients_sha256 if number in found else None for found in folds]
        rows.append(PropertyRow(f"fold {number}: driving side", [_digits(digest) for digest in models]))
        rows.append(PropertyRow(f"fold {number}: clients", [_digits(digest) for digest in clients]))
    return rows


def _digits(digest: str | None) -> str:
    return digest[:12] if digest else ABSENT
