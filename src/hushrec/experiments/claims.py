"""What a paper claims, held against ours: its sentences, the order of its rows, rows that must be the same."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from hushrec.experiments.drift_time import CIPHER
from hushrec.experiments.measures import measured
from hushrec.experiments.published import Claim, Table
from hushrec.experiments.reproduction import Cell, Reproduced

Answer = Literal["yes", "in part", "no"]


@dataclass(frozen=True)
class Held:
    """A claim by one measure: what each row has (of times: the share, and the seconds), and whether it is true."""

    values: list[float]
    is_true: bool
    num_folds: tuple[int, int] | None = None  # folds and seeds on which it is true, of how many; None: not known


@dataclass(frozen=True)
class Verdict:
    """A claim held against ours, measure by measure."""

    claim: Claim
    where: str
    preset: str
    measures: dict[str, Held]

    @property
    def num_held(self) -> int:
        """Measures of which the claim is true."""
        return sum(held.is_true for held in self.measures.values())

    @property
    def answer(self) -> Answer:
        """Whether the claim holds, by all measures or by some."""
        return "yes" if self.num_held == len(self.measures) else "in part" if self.num_held else "no"


def verdicts(table: Table, done: Sequence[Reproduced]) -> list[Verdict]:
    """All claims on each dataset and split, with each preset, of which the rows were run."""
    found: list[Verdict] = []
    for where, preset, entries in _comparisons(done):
        for claim in table.claims:
            is_about = not claim.data or where.partition(",")[0] in claim.data
            if is_about and claim.rows and set(claim.rows) <= entries.keys():
                rows = [entries[label] for label in claim.rows]
                measures = {name: _held(table, claim, name, rows) for name in claim.metrics}
                verdict = Verdict(claim, where, preset if any(entry.preset for entry in rows) else "", measures)
                if verdict not in found:  # of rows without presets, the same with each
                    found.append(verdict)
    return found


def _comparisons(done: Sequence[Reproduced]) -> Iterator[tuple[str, str, dict[str, Reproduced]]]:
    """Rows by label that may be compared; a row without presets stands beside each of them."""
    finished = [entry for entry in done if entry.runs]
    for where in dict.fromkeys(entry.row.where for entry in finished):
        here = [entry for entry in finished if entry.row.where == where]
        for preset in dict.fromkeys(entry.preset for entry in here if entry.preset) or [""]:
            yield where, preset, {entry.row.label: entry for entry in here if entry.preset in ("", preset)}


def _held(table: Table, claim: Claim, metric: str, rows: Sequence[Reproduced]) -> Held:
    if claim.relation == "identical":
        return Held([], len({tuple(_digests(entry)) for entry in rows}) == 1)
    if table.kind == "time":
        seconds = time_spent(rows)
        share = seconds[metric] / seconds["all"]
        return Held([share, seconds[metric]], _is_true(claim, [share]))
    if table.ratio:
        values = [entry.cell(metric).ours for entry in rows]
        return Held(values, _is_true(claim, values))
    by_fold = [
        {
            (run.seed, place): value
            for run in entry.runs
            for place, value in enumerate(measured(table, metric, run))
        }
        for entry in rows
    ]
    means = [statistics.fmean(values.values()) for values in by_fold]
    common = set.intersection(*(set(values) for values in by_fold))
    true_folds = sum(_is_true(claim, [values[fold] for values in by_fold]) for fold in common)
    return Held(means, _is_true(claim, means), (true_folds, len(common)) if len(common) > 1 else None)


def _is_true(claim: Claim, values: Sequence[float]) -> bool:
    first, *others = values
    match claim.relation:
        case "above":
            return all(one > other for one, other in pairwise(values))
        case "below":
            return all(one < other for one, other in pairwise(values))
        case "highest":
            return all(first > other for other in others)
        case "lowest":
            return all(first < other for other in others)
        case "close":
            return all(abs(first - other) <= claim.limit * abs(other) for other in others)
        case "narrower":
            one, another, far, farther = values
            return abs(one - another) < abs(far - farther)
        case "times below":
            return all(other >= claim.limit * first for other in others)
        case "at most":
            return all(value <= claim.limit for value in values)
        case "at least":
            return all(value >= claim.limit for value in values)
    raise AssertionError(f"{claim.relation} is not about numbers")


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
    finished = [entry for entry in done if entry.runs]
    return [
        (above, below)
        for above in finished
        for below in finished
        if above.row.where == below.row.where
        and (above.preset == below.preset or "" in (above.preset, below.preset))
        and above.cell(metric).ours > below.cell(metric).ours
        and _is_published_below(above.cell(metric), below.cell(metric))
    ]


def _is_published_below(one: Cell, other: Cell) -> bool:
    return one.published is not None and other.published is not None and one.published < other.published


def lossless_pairs(rows: Sequence[Reproduced]) -> list[tuple[Reproduced, Reproduced, bool]]:
    """Rows that must be equal, and whether all their bits are.

    FedRec++ with every client equals FedRec with rho 0. With fewer, FedRec++ makes sure that a denoiser takes
    part, so its rows equal each other.
    """
    rows = [entry for entry in rows if entry.runs]
    return [
        (reference, other, _digests(reference) == _digests(other))
        for other in rows
        if other.row.system == "fedrec++"
        for reference in rows[: rows.index(other)]
        if _circumstances(other) == _circumstances(reference) and _is_reference(reference)
    ]


def _circumstances(entry: Reproduced) -> tuple[str, float]:
    return entry.row.where, entry.run.config.get("participation", 1.0)


def _is_reference(entry: Reproduced) -> bool:
    rho, participation = entry.run.config.get("rho"), entry.run.config.get("participation")
    if participation == 1.0:
        return entry.row.system == "fedrec" and rho == 0
    return entry.row.system == "fedrec++" and rho == 1


def _digests(entry: Reproduced) -> list[tuple[str, str | None]]:
    return [(fold.model_sha256, fold.clients_sha256) for done in entry.runs for fold in done.folds]
