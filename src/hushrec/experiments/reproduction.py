"""Published tables beside our own numbers."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hushrec.attacks.top_guess import top_guess_f1
from hushrec.data import Interactions
from hushrec.experiments.probes import all_of
from hushrec.experiments.published import Row, Table
from hushrec.experiments.record import FoldResult, Run
from hushrec.experiments.runs import RunSettings, Watch, run
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.systems import system_named


@dataclass(frozen=True)
class Cell:
    """One number of a table, published and ours."""

    metric: str
    ours: float
    ours_std: float
    published: float | None
    published_std: float | None

    @property
    def difference(self) -> float | None:
        """Ours less published."""
        return None if self.published is None else self.ours - self.published

    @property
    def is_within(self) -> bool | None:
        """Whether ours lies within the published spread, or, where none is given, within one unit."""
        if self.difference is None:
            return None
        return abs(self.difference) <= (1.0 if self.published_std is None else self.published_std)


@dataclass(frozen=True)
class Reproduced:
    """One row of a table, with our run (the first one, where several seeds are averaged)."""

    row: Row
    cells: list[Cell]
    run: Run
    preset: str = ""

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
    attacks = {"top guess F1": top_guess_f1} if "top guess F1" in table.metrics else {}
    done = [
        run(
            system,
            config,
            data,
            replace(settings, seed=seed),
            options,
            _of_seed(folder, seed, settings),
            True,
            watch,
            attacks,
            all_of(row.probes) if row.probes else None,
        )
        for seed in range(settings.seed, settings.seed + table.num_seeds)
    ]
    cells = [_cell(table, row, metric, done) for metric in table.metrics]
    return Reproduced(row, cells, done[0], preset)


def _of_seed(folder: Path | None, seed: int, settings: RunSettings) -> Path | None:
    return folder if folder is None or seed == settings.seed else folder.with_name(f"{folder.name}-seed-{seed}")


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
    )


def _measure(table: Table, metric: str) -> Callable[[Run, FoldResult], float]:
    if table.kind == "communication":
        return lambda _run, fold: _COMMUNICATION[metric](fold)
    if table.kind == "bytes":
        return lambda done, fold: sum(fold.sent_bytes.values()) / fold.num_rounds / done.num_parties / 1000
    return lambda _run, fold: fold.metrics[metric]


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
        (reference, other, _digests(reference.run) == _digests(other.run))
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


def _digests(done: Run) -> list[tuple[str, str | None]]:
    return [(fold.model_sha256, fold.clients_sha256) for fold in done.folds]
