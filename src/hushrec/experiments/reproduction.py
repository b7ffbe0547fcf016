"""Published tables beside our own numbers: what a row runs, where its runs are kept, what comes out."""

import hashlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from hushrec.data import Interactions
from hushrec.errors import DivergedError, HushrecError
from hushrec.experiments.drift_time import Clock, preprocessing_seconds, timed, warm_up, with_seconds
from hushrec.experiments.measures import measured
from hushrec.experiments.probes import PROBES, all_of
from hushrec.experiments.published import Row, Table
from hushrec.experiments.rounding import METRIC_DECIMALS, is_met
from hushrec.protocol import AnySystem
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Run, read_run, write_run
from hushrec.runs.run_settings import NUM_FOLDS, RunSettings, settings_for
from hushrec.runs.suiting import stopped_at_best
from hushrec.runs.watching import FoldProgress, Watch
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import to_dict

_DIVERGED = "diverged.txt"  # in the folder of a run that did, with the words of the error
NEAR = 0.1  # of a published number without a spread: so much off, as a share of it, counts as near


@dataclass(frozen=True)
class Cell:
    """One number of a table, published and ours."""

    metric: str
    ours: float
    ours_std: float
    published: float | None
    published_std: float | None
    decimals: int = METRIC_DECIMALS  # as it is printed
    unit: float | None = None  # of a count: so much off is within, where the paper gives no spread

    @property
    def difference(self) -> float | None:
        """Ours less published."""
        return None if self.published is None else self.ours - self.published

    @property
    def is_within(self) -> bool | None:
        """Whether ours lies within the published spread; of a count: within one unit; None: there is no spread."""
        spread = self.unit if self.published_std is None else self.published_std
        if self.published is None or spread is None:
            return None
        return is_met(self.ours, self.published, spread, self.decimals)

    @property
    def is_near(self) -> bool | None:
        """Whether ours lies within a tenth of the published number."""
        if self.published is None:
            return None
        return is_met(self.ours, self.published, NEAR * abs(self.published), self.decimals)


@dataclass(frozen=True)
class Reproduced:
    """One row of a table, with our runs, one per seed; or the reason why there is none."""

    row: Row
    cells: list[Cell]
    runs: list[Run]
    preset: str = ""
    missing: str = ""  # why there is no number
    remark: str = ""  # what else is to be said of the runs
    tried: list[Run] = field(default_factory=list)  # on validation data, to choose the number of rounds

    @property
    def run(self) -> Run:
        """The one of the first seed."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """The row's label, with the preset if there are several."""
        return f"{self.row.label}, {self.preset}" if self.preset else self.row.label

    @property
    def cpu_seconds(self) -> float:
        """What all runs took."""
        return sum(fold.cpu_seconds for done in (*self.tried, *self.runs) for fold in done.folds)

    def cell(self, metric: str) -> Cell:
        """The number of a metric."""
        return next(cell for cell in self.cells if cell.metric == metric)


@dataclass(frozen=True)
class Experiment:
    """What is run for a row: a system with its settings on a part of the data, and what is measured inside."""

    system: AnySystem
    config: Any
    settings: RunSettings
    probes: tuple[str, ...] = ()
    timed_from: str = ""  # the name of the dataset, if the time of all steps is taken, that of reading it included

    def folder(self, out: Path | None, data: Interactions) -> Path | None:
        """Where its run is kept: the same experiment has the same folder, whatever table asks for it.

        Only what differs from a default counts, so that a setting that comes with a later version changes nothing.
        """
        if out is None:
            return None
        chosen = {
            "config": _not_usual(to_dict(self.config), to_dict(self.system.configure({}))),
            "settings": _not_usual(asdict(replace(self.settings, num_folds=1)), asdict(RunSettings())),
            "data": data.sha256,
            "probes": sorted(self.probes),
            "is timed": bool(self.timed_from),
        }
        digest = hashlib.sha256(msgspec.json.encode(chosen, order="deterministic")).hexdigest()[:12]
        return out / "runs" / f"{re.sub(r'[^a-z0-9.+]+', '-', f'{data.name} {self.system.name}'.lower())}-{digest}"

    def is_kept(self, out: Path | None, data: Interactions) -> bool:
        """Whether all of it was run before."""
        folder = self.folder(out, data)
        if folder is None or not (folder / "run.json").exists():
            return False
        kept = read_run(folder)
        if self._has_diverged(folder, kept):
            return True
        if to_dict(self.system.configure(kept.config)) != to_dict(self.config) or (
            self.timed_from and not has_times(kept)
        ):
            return False
        return len(kept.folds) >= self.settings.num_folds

    def _has_diverged(self, folder: Path, kept: Run) -> bool:
        """Whether one of the wished-for folds did."""
        return (folder / _DIVERGED).exists() and len(kept.folds) < self.settings.num_folds

    def run(
        self, data: Interactions, options: RuntimeOptions, out: Path | None, watch: Watch | None, command: str = ""
    ) -> Run:
        """Run it, or go on where it was interrupted. That a run diverged is kept, too."""
        folder = self.folder(out, data)
        if self.timed_from:
            return _timed_run(self, data, folder, watch, command)
        if folder and (folder / _DIVERGED).exists() and self._has_diverged(folder, read_run(folder)):
            raise DivergedError((folder / _DIVERGED).read_text(encoding="utf-8"))
        probe = all_of(list(self.probes)) if self.probes else None
        try:
            return run(
                self.system, self.config, data, self.settings, options, folder, True, watch, probe, command=command
            )
        except DivergedError as error:
            if folder:
                (folder / _DIVERGED).write_text(str(error), encoding="utf-8")
            raise


def _not_usual(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What differs from the usual, also within what has parts of its own."""
    return {
        name: _not_usual(value, usual[name]) if isinstance(value, dict) else value
        for name, value in values.items()
        if value != usual.get(name)
    }


def run_settings(row: Row, data: Interactions, seed: int, num_folds: int) -> RunSettings:
    """The split of a row, with as many of its folds as are wished for."""
    if not 1 <= num_folds <= NUM_FOLDS:
        raise HushrecError(f"--folds {num_folds}: choose 1 to {NUM_FOLDS}")
    settings = settings_for(
        system_named(row.system), seed, split=row.split, deal=row.deal, owners=row.owners,
        passed_over=row.passed_over, data=data,
    )  # fmt: skip
    return replace(settings, num_folds=num_folds) if settings.most_folds > 1 else settings


def experiments(table: Table, row: Row, preset: str, num_users: int, settings: RunSettings) -> list[Experiment]:
    """What is run for a row, once for each seed."""
    system = system_named(row.system)
    values = row.settings(num_users) | ({"preset": preset} if preset else {})
    if table.num_rounds is not None:
        values = values | {"num_rounds": table.num_rounds}
    of_ratio = [table.ratio.of, table.ratio.to] if table.ratio else []
    probes = [*row.probes, *(metric for metric in (*table.metrics, *of_ratio) if probe_of(metric))]
    names = tuple(dict.fromkeys(name if name in PROBES else probe_of(name) for name in probes))
    return [
        Experiment(
            system, system.configure(values), replace(settings, seed=settings.seed + place), names,
            row.data if table.kind == "time" else "",
        )
        for place in range(table.num_seeds)
    ]  # fmt: skip


def probe_of(metric: str) -> str:
    """The probe that measures a metric, if one does; of "F1, best" it is that of F1."""
    name = metric.partition(", ")[0]
    return metric if metric in PROBES else name if name in PROBES else ""


def reproduce_row(
    table: Table,
    row: Row,
    preset: str,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    out: Path | None,
    watch: Watch | None,
    command: str = "",
) -> Reproduced:
    """Run one row; with a folder, go on where it stopped. A seed that diverges is left out, and said so."""
    done, tried, faults = list[Run](), list[Run](), list[str]()
    planned = experiments(table, row, preset, data.num_users, settings)
    for place, experiment in enumerate(planned):
        told = _watch_seed(watch, place, table.num_seeds) if watch else None
        try:
            if row.stop_by:
                tried.append(_on_validation(experiment).run(data, options, out, told, command))
                experiment = _stopped(experiment, row.stop_by, tried[-1])
            done.append(experiment.run(data, options, out, told, command))
        except DivergedError as error:
            faults.append(str(error))
    if not done:
        return Reproduced(row, [], [], preset, f"diverged: {faults[0]}")
    remarks = [f"{len(faults)} of {len(planned)} seeds diverged"] if faults else []
    if row.stop_by:
        rounds = ", ".join(str(one.config["num_rounds"]) for one in done)
        remarks.append(f"{rounds} rounds, as chosen on validation data by {row.stop_by}")
    cells = [] if table.ratio else [_cell(table, row, metric, done) for metric in table.metrics]
    return Reproduced(row, cells, done, preset, remark="; ".join(remarks), tried=tried)


def _on_validation(experiment: Experiment) -> Experiment:
    return replace(experiment, settings=replace(experiment.settings, measure="validation"), probes=())


def _stopped(experiment: Experiment, metric: str, tried: Run) -> Experiment:
    """The experiment with as many rounds as were best on validation data."""
    config, curve = experiment.config, tried.folds[0].curve[metric]
    choice = stopped_at_best(experiment.system, config, curve, metric)
    return replace(experiment, config=replace(config, **{choice.setting: choice.value}))


def is_kept(
    table: Table, row: Row, preset: str, data: Interactions, settings: RunSettings, out: Path | None
) -> bool:
    """Whether a row was run before, whole."""
    for experiment in experiments(table, row, preset, data.num_users, settings):
        if row.stop_by:
            tried = _on_validation(experiment)
            if not tried.is_kept(out, data):
                return False
            try:
                experiment = _stopped(experiment, row.stop_by, tried.run(data, RuntimeOptions(), out, None))
            except DivergedError:
                continue
        if not experiment.is_kept(out, data):
            return False
    return True


def _watch_seed(watch: Watch, place: int, num_seeds: int) -> Watch:
    """Tell of the runs of all seeds as of one."""

    def told(now: FoldProgress) -> None:
        fold, num_folds = place * now.num_folds + now.fold, num_seeds * now.num_folds
        watch(replace(now, fold=fold, num_folds=num_folds))

    return told


def _timed_run(
    experiment: Experiment, data: Interactions, folder: Path | None, watch: Watch | None, command: str
) -> Run:
    """A run of DRIFT with the time of its steps, in one thread."""
    config, settings = experiment.config, experiment.settings
    if folder and (folder / "run.json").exists():
        kept = read_run(folder)
        if has_times(kept):
            return kept
        write_run(folder, replace(kept, folds=[]))  # its end was interrupted before the times were written
    warm_up(config)
    preprocessing, clock = preprocessing_seconds(experiment.timed_from, config, settings), Clock()
    options = RuntimeOptions(threads=1)
    done = run(
        timed(clock), config, data, settings, options, folder, True, watch, keeps_checkpoint=False, command=command
    )
    done = with_seconds(done, clock, preprocessing, config.plan.form)
    if folder:
        write_run(folder, done)
    return done


def has_times(done: Run) -> bool:
    """Whether the time of its steps is kept with a run."""
    return bool(done.folds) and bool(done.folds[0].seconds)


def _cell(table: Table, row: Row, metric: str, done: Sequence[Run]) -> Cell:
    values = [value for one in done for value in measured(table, metric, one)]
    return _beside(table, row, metric, statistics.fmean(values), statistics.pstdev(values))


def _beside(table: Table, row: Row, metric: str, ours: float, ours_std: float) -> Cell:
    published = row.published.get(metric)
    return Cell(
        metric,
        ours,
        ours_std,
        published[0] if published else None,
        published[1] if published and len(published) > 1 else None,
        table.decimals(metric),
        table.unit(metric),
    )


def with_ratios(table: Table, done: Sequence[Reproduced]) -> list[Reproduced]:
    """In a table of ratios: what each row lost of one metric for what it lost of the other."""
    ratio = table.ratio
    if ratio is None:
        return list(done)
    baselines = {(entry.row.where, entry.preset): entry for entry in done if entry.row.label == ratio.baseline}
    found = []
    for entry in done:
        baseline = baselines.get((entry.row.where, entry.preset))
        if entry is baseline:
            continue
        if entry.runs and (baseline is None or not baseline.runs):
            entry = replace(
                entry, runs=[], missing=f"it is held against the row {ratio.baseline}, which is missing"
            )
        elif entry.runs and baseline is not None:
            of, to = (_mean(table, baseline, name) - _mean(table, entry, name) for name in (ratio.of, ratio.to))
            if to <= 0:
                entry = replace(
                    entry, runs=[], missing=f"it has lost nothing of {ratio.to}, but gained {abs(to):.4f}"
                )
            else:
                entry = replace(entry, cells=[_beside(table, entry.row, table.metrics[0], of / to, 0.0)])
        found.append(entry)
    return found


def _mean(table: Table, entry: Reproduced, metric: str) -> float:
    return statistics.fmean(value for done in entry.runs for value in measured(table, metric, done))
