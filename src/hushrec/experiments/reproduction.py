"""Published tables beside our own numbers."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hushrec.data import Interactions
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


def reproduce_row(
    table: Table,
    row: Row,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None,
    watch: Watch | None,
) -> Reproduced:
    """Run one row; with a folder, go on where it stopped."""
    system = system_named(row.system)
    values = row.settings(data.num_users)
    if table.num_rounds is not None:
        values = values | {"num_rounds": table.num_rounds}
    config = system.configure(values)
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
        )
        for seed in range(settings.seed, settings.seed + table.num_seeds)
    ]
    folds = [fold for each in done for fold in each.folds]
    return Reproduced(row, [_cell(table, row, metric, folds) for metric in table.metrics], done[0])


def _of_seed(folder: Path | None, seed: int, settings: RunSettings) -> Path | None:
    return folder if folder is None or seed == settings.seed else folder.with_name(f"{folder.name}-seed-{seed}")


def _cell(table: Table, row: Row, metric: str, folds: Sequence[FoldResult]) -> Cell:
    measure = _COMMUNICATION[metric] if table.kind == "communication" else _metric(metric)
    values = [measure(fold) for fold in folds]
    published = row.published.get(metric)
    return Cell(
        metric,
        statistics.fmean(values),
        statistics.pstdev(values),
        published[0] if published else None,
        published[1] if published and len(published) > 1 else None,
    )


def _metric(name: str) -> Callable[[FoldResult], float]:
    return lambda fold: fold.metrics[name]


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
