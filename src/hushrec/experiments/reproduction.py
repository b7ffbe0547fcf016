"""Published tables beside our own numbers."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.experiments.drift_time import CIPHER, Clock, preprocessing_seconds, timed, warm_up, with_seconds
from hushrec.experiments.probes import PROBES, all_of
from hushrec.experiments.published import METRIC_DECIMALS, Claim, Row, Table, is_met
from hushrec.registry import system_named
from hushrec.runs.folds import FoldProgress, Watch, run
from hushrec.runs.record import FoldResult, Run, write_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions


@dataclass(frozen=True)
class Cell:
    """One number of a table, published and ours."""

    metric: str
    ours: float
    ours_std: float
    published: float | None
    published_std: float | None
    decimals: int = METRIC_DECIMALS  # as it is printed

    @property
    def difference(self) -> float | None:
        """Ours less published."""
        return None if self.published is None else self.ours - self.published

    @property
    def is_within(self) -> bool | None:
        """Whether ours lies within the published spread, or, where none is given, within one unit."""
        if self.published is None:
            return None
        spread = 1.0 if self.published_std is None else self.published_std
        return is_met(self.ours, self.published, spread, self.decimals)


@dataclass(frozen=True)
class Reproduced:
    """One row of a table, with our runs, one per seed."""

    row: Row
    cells: list[Cell]
    runs: list[Run]
    preset: str = ""

    @property
    def run(self) -> Run:
        """The one of the first seed."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """The row's label, with the preset if there are several."""
        return f"{self.row.label}, {self.preset}" if self.preset else self.row.label

    def cell(self, metric: str) -> Cell:
        """The number of a metric."""
        return next(cell for cell in self.cells if cell.metric == metric)


def reproduce_row(
    table: Table,
    row: Row,
    preset: str,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None,
    watch: Watch | None,
) -> Reproduced:
    """Run one row; with a folder, go on where it stopped."""
    system = system_named(row.system)
    values = row.settings(data.num_users) | ({"preset": preset} if preset else {})
    if table.num_rounds is not None:
        values = values | {"num_rounds": table.num_rounds}
    config = system.configure(values)
    probes = [*row.probes, *(metric for metric in table.metrics if metric in PROBES)]
    if table.kind == "time":
        only = _timed_run(row.data, config, data, settings, folder, watch)
        return Reproduced(row, [_cell(table, row, metric, [only]) for metric in table.metrics], [only], preset)
    done = [
        run(
            system,
            config,
            data,
            replace(settings, seed=settings.seed + place),
            options,
            folder.with_name(f"{folder.name}-seed-{settings.seed + place}") if folder and place else folder,
            True,
            _watch_seed(watch, place, table.num_seeds) if watch else None,
            all_of(probes) if probes else None,
        )
        for place in range(table.num_seeds)
    ]
    cells = [_cell(table, row, metric, done) for metric in table.metrics]
    return Reproduced(row, cells, done, preset)


def _watch_seed(watch: Watch, place: int, num_seeds: int) -> Watch:
    """Tell of the runs of all seeds as of one."""

    def told(now: FoldProgress) -> None:
        fold, num_folds = place * now.num_folds + now.fold, num_seeds * now.num_folds
        watch(replace(now, fold=fold, num_folds=num_folds))

    return told


def _timed_run(
    name: str, config: Any, data: Interactions, settings: RunSettings, folder: Path | None, watch: Watch | None
) -> Run:
    """A run of DRIFT with the time of its steps, in one thread."""
    warm_up(config)
    preprocessing, clock = preprocessing_seconds(name, config, settings), Clock()
    options = RuntimeOptions(threads=1)
    done = run(timed(clock), config, data, settings, options, folder, True, watch, keeps_checkpoint=False)
    if clock.seconds:  # else it was run before
        done = with_seconds(done, clock, preprocessing, config.plan.form)
        if folder:
            write_run(folder, done)
    elif not done.folds[0].seconds:
        raise HushrecError(f"{folder} has a run without its times, as its end was interrupted; delete the folder")
    return done


def _cell(table: Table, row: Row, metric: str, done: Sequence[Run]) -> Cell:
    measure = _measure(table, metric)
    values = [measure(one, fold) for one in done for fold in one.folds]
    published = row.published.get(metric)
    return Cell(
        metric,
        statistics.fmean(values),
        statistics.pstdev(values),
        published[0] if published else None,
        published[1] if published and len(published) > 1 else None,
        table.decimals(metric),
    )


def _measure(table: Table, metric: str) -> Callable[[Run, FoldResult], float]:
    if table.kind == "communication":
        return lambda _run, fold: _COMMUNICATION[metric](fold)
    if table.kind == "bytes":
        return lambda done, fold: sum(fold.sent_bytes.values()) / fold.num_rounds / done.num_parties / 1000
    if table.kind == "curve" or (table.kind == "cost" and ", " in metric):
        return lambda _run, fold: _of_curve(fold, metric)
    if table.kind == "time":
        return lambda _run, fold: sum(fold.seconds[metric].values())
    if table.kind == "cost" and metric in _COST:
        return lambda done, fold: _COST[metric](fold) / done.config["epochs"]
    return lambda _run, fold: fold.metrics[metric]


def _of_curve(fold: FoldResult, metric: str) -> float:
    """A value of a learning curve ("NDCG@10, epoch 1", "end", "best"), or how it grew ("end over epoch 1")."""
    name, _, when = metric.partition(", ")
    curve = fold.curve[name]
    if when == "end over epoch 1":
        return curve[-1] / curve[0]
    if when == "best":
        return min(curve) if "loss" in name else max(curve)
    return curve[-1 if when == "end" else int(when.removeprefix("epoch ")) - 1]


_COST: dict[str, Callable[[FoldResult], float]] = {
    "deliveries": lambda fold: fold.facts["interactions accepted"],
    "vectors": lambda fold: _vectors(fold, "Vectors"),
    "MB": lambda fold: sum(fold.sent_bytes.values()) / 1e6,
    "CPU s": lambda fold: fold.cpu_seconds,
}


# --- Claims ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A claim held against ours, measure by measure."""

    claim: Claim
    data: str
    measures: dict[str, tuple[list[float], bool]]  # what each row has (or share and seconds); does it hold

    @property
    def num_held(self) -> int:
        """Measures of which the claim is true."""
        return sum(holds for _, holds in self.measures.values())


def verdicts(table: Table, done: Sequence[Reproduced]) -> list[Verdict]:
    """All claims on each dataset of which the rows were run."""
    found = []
    for data in dict.fromkeys(entry.row.data for entry in done):
        entries = {entry.row.label: entry for entry in done if entry.row.data == data}
        for claim in table.claims:
            if claim.rows and set(claim.rows) <= entries.keys():
                rows = [entries[label] for label in claim.rows]
                found.append(Verdict(claim, data, {name: _held(claim, name, rows) for name in claim.metrics}))
    return found


def _held(claim: Claim, metric: str, rows: Sequence[Reproduced]) -> tuple[list[float], bool]:
    if claim.relation in ("at most", "at least"):
        seconds = time_spent(rows)
        share = seconds[metric] / seconds["all"]
        is_right = share <= claim.limit if claim.relation == "at most" else share >= claim.limit
        return [share, seconds[metric]], is_right
    values = [statistics.fmean(_of_curve(done.folds[0], metric) for done in entry.runs) for entry in rows]
    first, second = values
    if claim.relation == "close":
        return values, abs(first - second) <= claim.limit * abs(second)
    return values, first > second if claim.relation == "above" else first < second


def time_spent(rows: Sequence[Reproduced]) -> dict[str, float]:
    """CPU seconds of an epoch with encryption, preprocessing included, with the same without it beside.

    The security layer is all that an epoch takes longer with encryption. AES-GCM: its calls by themselves.
    """
    sealed, plain = ({cell.metric: cell.ours for cell in entry.cells} for entry in rows)
    learned = [sum(steps.values()) - steps["preprocessing"] for steps in (sealed, plain)]
    return {
        "all": sum(sealed.values()),
        "security layer": learned[0] - learned[1],
        "AES-GCM": rows[0].run.folds[0].facts[CIPHER],
        "gradients and update": sealed["gradients"] + sealed["update"],
    }


def order_changes(done: Sequence[Reproduced], metric: str) -> list[tuple[Reproduced, Reproduced]]:
    """Pairs of rows on the same data that the paper ranks the other way round: ours puts the first above."""
    return [
        (above, below)
        for above in done
        for below in done
        if above.row.data == below.row.data
        and (above.preset == below.preset or "" in (above.preset, below.preset))
        and above.cell(metric).ours > below.cell(metric).ours
        and _is_published_below(above.cell(metric), below.cell(metric))
    ]


def _is_published_below(one: Cell, other: Cell) -> bool:
    return one.published is not None and other.published is not None and one.published < other.published


# --- Table 3 of FedRec++: the unit is one vector; see the paper's caption ---------------------------------


def _vectors(fold: FoldResult, message: str) -> int:
    return sum(count.rows for count in fold.messages if count.type == message)


def _senders(fold: FoldResult, message: str) -> int:
    return max(1, sum(count.messages for count in fold.messages if count.type == message))


def _of_denoiser(fold: FoldResult) -> float:
    """Noise received and sums sent, per denoiser and round."""
    return (_vectors(fold, "Noise") + _vectors(fold, "DenoisingSums")) / _senders(fold, "DenoisingSums")


def _of_ordinary(fold: FoldResult) -> float:
    """Gradients and noise sent, per ordinary client and round."""
    return (_vectors(fold, "ItemGradients") + _vectors(fold, "Noise")) / _senders(fold, "ItemGradients")


def _of_client(fold: FoldResult) -> float:
    """All that is sent, per client and round; a sum's count is one unit more."""
    sent = _vectors(fold, "ItemGradients") + _vectors(fold, "Noise") + 2 * _vectors(fold, "DenoisingSums")
    has_denoisers = any(count.type == "DenoisingSums" and count.messages for count in fold.messages)
    senders = _senders(fold, "ItemGradients") + (_senders(fold, "DenoisingSums") if has_denoisers else 0)
    return sent / senders


_COMMUNICATION: dict[str, Callable[[FoldResult], float]] = {
    "denoising": _of_denoiser,
    "ordinary": _of_ordinary,
    "client": _of_client,
}


def lossless_pairs(rows: Sequence[Reproduced]) -> list[tuple[Reproduced, Reproduced, bool]]:
    """Rows that must be equal, and whether all their bits are.

    FedRec++ with every client equals FedRec with rho 0. With fewer, FedRec++ makes sure that a denoiser takes
    part, so its rows equal each other.
    """
    return [
        (reference, other, _digests(reference) == _digests(other))
        for other in rows
        if other.row.system == "fedrec++"
        for reference in rows[: rows.index(other)]
        if _circumstances(other) == _circumstances(reference) and _is_reference(reference)
    ]


def _circumstances(entry: Reproduced) -> tuple[str, float]:
    return entry.row.data, entry.run.config.get("participation", 1.0)


def _is_reference(entry: Reproduced) -> bool:
    rho, participation = entry.run.config.get("rho"), entry.run.config.get("participation")
    if participation == 1.0:
        return entry.row.system == "fedrec" and rho == 0
    return entry.row.system == "fedrec++" and rho == 1


def _digests(entry: Reproduced) -> list[tuple[str, str | None]]:
    return [(fold.model_sha256, fold.clients_sha256) for done in entry.runs for fold in done.folds]
