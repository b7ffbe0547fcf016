"""`hushrec reproduce SYSTEM TABLE`: a published table, ours beside it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table as RichTable

from hushrec.cli.console import announce_compilation, note, results, watching
from hushrec.cli.options import AsJson, Threads, runtime_options
from hushrec.data import load
from hushrec.errors import HushrecError
from hushrec.experiments.published import Row, Table, table_named
from hushrec.experiments.reproduction import (
    Cell,
    Reproduced,
    Verdict,
    lossless_pairs,
    order_changes,
    reproduce_row,
    verdicts,
)
from hushrec.registry import system_named
from hushrec.report.canvas import check_picture, write_picture
from hushrec.report.numbers import format_number, format_seconds, format_share
from hushrec.report.reproduced import table_picture
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions

_WITH_SPREAD = ("accuracy", "counts", "communication")
_OURS_ONLY = ("curve", "time", "cost")  # published in words or not at all
_MOST_COLUMNS = 4


def reproduce(
    system: Annotated[str, typer.Argument(help="A system.")],
    table: Annotated[str, typer.Argument(help="Its table or figure, as table2.")],
    data: Annotated[str | None, typer.Option(help="Only the rows on this dataset.")] = None,
    row: Annotated[str | None, typer.Option(help="Only rows whose name holds this text.")] = None,
    preset: Annotated[str | None, typer.Option(help="Only this preset, where a table has several.")] = None,
    seed: Annotated[int, typer.Option(help="Of the folds and everything else.")] = 0,
    folds: Annotated[int, typer.Option(help="How many of the five folds.")] = 5,
    seeds: Annotated[
        int | None,
        typer.Option(help="Average over so many, from --seed on, and tell the spread. Default: 1 for most."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to keep the runs in; an interrupted table goes on from it.")
    ] = None,
    threads: Threads = None,
    picture: Annotated[Path | None, typer.Option(help="Draw ours and published into a PNG or SVG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a published table's experiments and print ours beside the paper's, with spread and verdict."""
    chosen = _with_seeds(table_named(system_named(system).name, table), seeds)
    tasks = _tasks(chosen, data, row, preset)
    check_picture(picture)
    announce_compilation()
    options = runtime_options(threads)
    done = [
        _reproduced(chosen, entry, name, f"{place}/{len(tasks)}", (seed, folds), options, out)
        for place, (entry, name) in enumerate(tasks, 1)
    ]
    if picture:
        write_picture(table_picture(chosen, done), picture)
        of_one = f", of seed {seed}" if chosen.kind == "curve" and chosen.num_seeds > 1 else ""
        note(f"picture: {picture}{of_one}")
    if as_json:
        print(msgspec.json.encode(_as_json(chosen, done)).decode())
    else:
        _print(chosen, done)


def _with_seeds(table: Table, seeds: int | None) -> Table:
    if seeds is None:
        return table
    if seeds < 1:
        raise HushrecError(f"--seeds {seeds}: choose at least 1")
    if table.kind == "time":
        raise HushrecError(f"--seeds {seeds}: the times of {table.name} are of one run; leave it out")
    return replace(table, num_seeds=seeds)


def _tasks(table: Table, data: str | None, row: str | None, preset: str | None) -> list[tuple[Row, str]]:
    """The rows that were asked for, once for each of their presets."""
    rows = [entry for entry in table.rows if data in (None, entry.data)]
    if not rows:
        known = ", ".join(dict.fromkeys(entry.data for entry in table.rows))
        raise HushrecError(f"{table.name} has no row on {data}; it has {known}")
    named = [entry for entry in rows if (row or "").lower() in entry.label.lower()]
    if not named:
        raise HushrecError(
            f"no row of {table.name} is named {row!r}; it has {', '.join(entry.label for entry in rows)}"
        )
    if preset not in (None, *table.presets):
        raise HushrecError(f"{table.name} has no preset {preset!r}; it has {', '.join(table.presets) or 'none'}")
    return [
        (entry, name) for entry in named for name in table.presets_of(entry) if preset in (None, name) or not name
    ]


def _reproduced(
    table: Table,
    row: Row,
    preset: str,
    place: str,
    seed_and_folds: tuple[int, int],
    options: RuntimeOptions,
    out: Path | None,
) -> Reproduced:
    system, interactions = system_named(row.system), load(row.data, notify=note)
    seed, folds = seed_and_folds
    settings = settings_for(
        system, seed, split=row.split, deal=row.deal, owners=row.owners, passed_over=row.passed_over,
        data=interactions,
    )  # fmt: skip
    if settings.most_folds > 1:
        settings = replace(settings, num_folds=folds)
    name = " ".join(part for part in (row.data, row.label, preset) if part)
    folder = out / table.name / re.sub(r"[^a-z0-9.+]+", "-", name.lower()) if out else None
    num_rounds = table.num_rounds or system.configure(row.settings(interactions.num_users)).num_rounds
    with watching(f"{place} {name}", num_rounds, settings.num_folds * table.num_seeds) as watch:
        done = reproduce_row(table, row, preset, interactions, settings, options, folder, watch)
    cpu_seconds = sum(fold.cpu_seconds for run in done.runs for fold in run.folds)
    note(f"{place} {name}: done, {format_seconds(cpu_seconds)} of CPU")
    return done


def _print(table: Table, done: list[Reproduced]) -> None:
    out = results()
    out.print(f"{table.title}\n{table.paper}")
    has_spread = table.kind in _WITH_SPREAD
    is_wide = len(table.metrics) > _MOST_COLUMNS
    if table.kind in _OURS_ONLY:
        for grid in _own_grids(table, done):
            out.print(grid)
    else:
        out.print((_long_grid if is_wide else _spread_grid if has_spread else _order_grid)(table, done))
    for remark in dict.fromkeys(entry.row.note for entry in done if entry.row.note):
        out.print(f"note: {remark}")
    for reference, other, is_equal in lossless_pairs(done) if table.kind == "accuracy" else ():
        verdict = "yes" if is_equal else "no"
        where = f"{other.row.data}: {other.row.label} and {reference.row.label}"
        out.print(f"{where}: identical to the last bit: {verdict}")
    if table.kind in _OURS_ONLY:
        _print_verdicts(verdicts(table, done))
    elif not has_spread:
        _print_order(table, done)
    out.print(f"claim: {table.claim}")


def _spread_grid(table: Table, done: list[Reproduced]) -> RichTable:
    """Ours with spread, and where the paper gives numbers, its own with spread and the verdict."""
    has_published = any(entry.row.published for entry in done)
    grid = RichTable(box=None, pad_edge=False)
    for heading in ("data", "row"):
        grid.add_column(heading, overflow="fold")
    for metric in table.metrics:
        for heading in (f"{metric} ours", *(("published", "within") if has_published else ())):
            grid.add_column(heading, justify="right", overflow="fold")
    for entry in done:
        texts = [_texts(cell) if has_published else _texts(cell)[:1] for cell in entry.cells]
        grid.add_row(entry.row.data, entry.row.label, *(text for cell in texts for text in cell))
    return grid


def _long_grid(table: Table, done: list[Reproduced]) -> RichTable:
    """A line per number, where there are too many for columns."""
    grid = RichTable(box=None, pad_edge=False)
    for heading in ("data", "row", "measure"):
        grid.add_column(heading, overflow="fold")
    for heading in ("ours", "published", *(("within",) if table.kind in _WITH_SPREAD else ())):
        grid.add_column(heading, justify="right", overflow="fold")
    for entry in done:
        for cell in entry.cells:
            texts = _texts(cell) if table.kind in _WITH_SPREAD else _texts(cell)[:2]
            grid.add_row(entry.row.data, entry.row.label, cell.metric, *texts)
    return grid


def _order_grid(table: Table, done: list[Reproduced]) -> RichTable:
    """Published, and ours with each preset; a row whose system has none shows the same number for all."""
    grid, names = RichTable(box=None, pad_edge=False), table.presets or ["ours"]
    for heading in ("data", "row"):
        grid.add_column(heading, overflow="fold")
    for metric in table.metrics:
        for heading in (f"{metric} published", *names):
            grid.add_column(heading, justify="right", overflow="fold")
    for row in dict.fromkeys((entry.row.data, entry.row.label) for entry in done):
        entries = [entry for entry in done if (entry.row.data, entry.row.label) == row]
        texts = []
        for metric in table.metrics:
            by_preset = {entry.preset: _ours(table, entry.cell(metric)) for entry in entries}
            texts.append(_spread(entries[0].cell(metric).published, None, table.decimals(metric)))
            texts += [by_preset.get(name, by_preset.get("", "")) for name in names]
        grid.add_row(*row, *texts)
    return grid


def _print_order(table: Table, done: list[Reproduced]) -> None:
    """Where ours ranks rows otherwise than the paper."""
    out = results()
    has_order = len({entry.row.label for entry in done if entry.row.published}) > 1
    for metric in table.metrics if has_order else ():
        changes: dict[str, list[str]] = {}
        for above, below in order_changes(done, metric):
            where = ", ".join(part for part in (above.row.data, metric, above.preset or below.preset) if part)
            one, other = above.cell(metric), below.cell(metric)
            is_near = one.ours - other.ours <= one.ours_std + other.ours_std
            pair = f"{above.row.label} above {below.row.label}"
            changes.setdefault(where, []).append(pair + (" (within the spread)" if is_near else ""))
        for where, pairs in changes.items():
            out.print(f"order differs ({where}): {'; '.join(pairs)}", soft_wrap=True)
        if not changes:
            out.print(f"order of {metric} as published")


def _ours(table: Table, cell: Cell) -> str:
    """Ours, with the spread if there are several seeds."""
    return _spread(cell.ours, cell.ours_std if table.num_seeds > 1 else None, cell.decimals)


def _texts(cell: Cell) -> list[str]:
    within = {True: "yes", False: f"{cell.difference or 0:+.{cell.decimals}f}", None: ""}[cell.is_within]
    ours = _spread(cell.ours, cell.ours_std, cell.decimals)
    return [ours, _spread(cell.published, cell.published_std, cell.decimals), within]


def _spread(value: float | None, std: float | None, decimals: int) -> str:
    text = "" if value is None else f"{value:,.{decimals}f}"
    return text if std is None else f"{text} ± {std:.{decimals}f}"


# --- What is published in words only -----------------------------------------------------------------------


def _own_grids(table: Table, done: list[Reproduced]) -> Iterator[RichTable]:
    if table.kind == "cost":
        yield _cost_grid(table, done)
        return
    for data in dict.fromkeys(entry.row.data for entry in done):
        entries = [entry for entry in done if entry.row.data == data]
        yield _curve_grid(table, data, entries) if table.kind == "curve" else _time_grid(table, data, entries)
        if table.kind == "time":
            yield _owner_grid(entries[0])


def _grid(left: Iterable[str], right: Iterable[str]) -> RichTable:
    grid = RichTable(box=None, pad_edge=False)
    for heading in left:
        grid.add_column(heading, overflow="fold")
    for heading in right:
        grid.add_column(heading, justify="right", overflow="fold")
    return grid


def _curve_grid(table: Table, data: str, entries: list[Reproduced]) -> RichTable:
    """Measures, times of measuring and rows; whichever there is more of, measures or times, goes down."""
    parts = [metric.split(", ") for metric in table.metrics]
    names, times = list(dict.fromkeys(name for name, _ in parts)), list(dict.fromkeys(when for _, when in parts))
    is_times_down = len(times) > len(names)
    down, across = (times, names) if is_times_down else (names, times)
    grid = _grid([data], (f"{one}\n{entry.row.label}" for one in across for entry in entries))
    for line in down:
        metrics = [f"{one}, {line}" if is_times_down else f"{line}, {one}" for one in across]
        grid.add_row(line, *(_ours(table, entry.cell(metric)) for metric in metrics for entry in entries))
    return grid


def _time_grid(table: Table, data: str, entries: list[Reproduced]) -> RichTable:
    """Seconds of CPU and shares, a line per step."""
    grid = _grid([data], (heading for entry in entries for heading in (f"{entry.row.label}, s", "share")))
    totals = [sum(cell.ours for cell in entry.cells) for entry in entries]
    for metric in table.metrics:
        seconds = [entry.cell(metric).ours for entry in entries]
        pairs = zip(seconds, totals, strict=True)
        cells = ((format_number(own), format_share(own / total)) for own, total in pairs)
        grid.add_row(metric, *(text for pair in cells for text in pair))
    grid.add_row("all", *(text for total in totals for text in (format_number(total), format_share(1))))
    return grid


def _owner_grid(entry: Reproduced) -> RichTable:
    """Seconds of CPU of each owner, a column per step that owners have a part in."""
    steps, names = entry.run.folds[0].seconds, entry.run.provenance.names
    shared = [step for step, by_party in steps.items() if set(names) & set(by_party)]
    grid = _grid([f"{entry.row.label}, by owner"], (*(f"{step}, s" for step in shared), "all, s"))
    for name in names:
        seconds = [steps[step].get(name, 0.0) for step in shared]
        grid.add_row(name, *(format_number(own) for own in (*seconds, sum(seconds))))
    return grid


def _cost_grid(table: Table, done: list[Reproduced]) -> RichTable:
    """A line per row of the table, a column per measure."""
    grid = _grid(["data", "row"], table.metrics)
    for entry in done:
        grid.add_row(entry.row.data, entry.row.label, *(_ours(table, cell) for cell in entry.cells))
    return grid


def _print_verdicts(found: list[Verdict]) -> None:
    """Each claim, and whether it is true of ours."""
    for verdict in found:
        results().print(_verdict_text(verdict), soft_wrap=True)


def _verdict_text(verdict: Verdict) -> str:
    num_held, num_all = verdict.num_held, len(verdict.measures)
    answer = "yes" if num_held == num_all else "in part" if num_held else "no"
    if verdict.claim.relation in ("at most", "at least"):
        ((share, seconds), _) = next(iter(verdict.measures.values()))
        answer += f", {format_share(share)} ({format_seconds(seconds)})"
    elif num_all > 1:
        held = [name for name, (_, holds) in verdict.measures.items() if holds]
        some = f": {'; '.join(held)}" if 0 < num_held < num_all else ""
        answer += f", by {num_held or 'none'} of {num_all} measures{some}"
    return f"{verdict.data}: {verdict.claim.text}: {answer}"


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    measures = {name: {"ours": ours, "holds": holds} for name, (ours, holds) in verdict.measures.items()}
    return {"claim": verdict.claim.text, "data": verdict.data, "measures": measures}


def _as_json(table: Table, done: list[Reproduced]) -> dict[str, Any]:
    return {
        "table": table.name,
        "title": table.title,
        "claim": table.claim,
        "rows": [
            {
                "data": entry.row.data,
                "label": entry.row.label,
                "preset": entry.preset,
                "cells": [
                    {
                        "metric": cell.metric,
                        "ours": cell.ours,
                        "ours_std": cell.ours_std,
                        "published": cell.published,
                        "published_std": cell.published_std,
                        "within": cell.is_within,
                    }
                    for cell in entry.cells
                ],
                "run": entry.run.summary(),
                "seeds": [run.seed for run in entry.runs],
            }
            for entry in done
        ],
        **({"claims": [_verdict_json(verdict) for verdict in verdicts(table, done)]} if table.claims else {}),
    }
