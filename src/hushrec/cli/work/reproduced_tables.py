"""How a reproduced table is printed: ours beside the published, what is missing, and the verdict on each claim."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table as RichTable

from hushrec.cli.console import results, show
from hushrec.experiments.claims import Held, Verdict, lossless_pairs, order_changes, verdicts
from hushrec.experiments.published import Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.report.numbers import format_figure, format_number, format_seconds, format_share

_WITH_SPREAD = ("accuracy", "counts", "communication")
_OURS_ONLY = ("curve", "time", "cost")  # published in words or not at all
_MOST_COLUMNS = 4
_MOST_NUMBERS = 8  # beside each other in one line


def print_table(table: Table, done: Sequence[Reproduced]) -> None:
    """Numbers, notes, and what they say of the paper."""
    out, finished = results(), [entry for entry in done if entry.cells]
    out.print(f"{table.title}\n{table.paper}")
    for grid in _grids(table, finished) if finished else ():
        show(grid, sum(column.justify == "left" for column in grid.columns))
    for entry in done:
        if entry.missing or entry.remark:
            out.print(f"{entry.row.where}, {entry.name}: {entry.missing or entry.remark}", soft_wrap=True)
    for remark in dict.fromkeys(entry.row.note for entry in done if entry.row.note):
        out.print(f"note: {remark}", soft_wrap=True)
    for reference, other, is_equal in lossless_pairs(done) if table.kind == "accuracy" else ():
        verdict = "yes" if is_equal else "no"
        where = f"{other.row.where}: {other.row.label} and {reference.row.label}"
        out.print(f"{where}: identical to the last bit: {verdict}")
    if table.kind not in (*_WITH_SPREAD, *_OURS_ONLY):
        _print_order(table, finished)
    for found in verdicts(table, done):
        out.print(verdict_text(found), soft_wrap=True)
        if found.claim.why and found.answer != "yes":
            out.print(f"  why: {found.claim.why}", soft_wrap=True)
    out.print(f"claim: {table.claim}")


def _grids(table: Table, done: Sequence[Reproduced]) -> Iterator[RichTable]:
    num_numbers = len(table.metrics) * (1 + len(table.presets))
    if table.kind in _OURS_ONLY:
        yield from _own_grids(table, done)
    elif len(table.metrics) > _MOST_COLUMNS:
        yield _long_grid(table, done)
    elif table.kind in _WITH_SPREAD:
        yield _spread_grid(table, done)
    elif num_numbers > _MOST_NUMBERS:
        yield _preset_grid(table, done)
    else:
        yield _order_grid(table, done)


def _spread_grid(table: Table, done: Sequence[Reproduced]) -> RichTable:
    """Ours with spread, and where the paper gives numbers, its own with spread and the verdict."""
    has_published = any(entry.row.published for entry in done)
    beside = ("published", "within") if has_published else ()
    grid = _grid(["data", "row"], (head for metric in table.metrics for head in (f"{metric} ours", *beside)))
    for entry in done:
        texts = [_texts(cell) if has_published else _texts(cell)[:1] for cell in entry.cells]
        grid.add_row(entry.row.where, entry.name, *(text for cell in texts for text in cell))
    return grid


def _preset_grid(table: Table, done: Sequence[Reproduced]) -> RichTable:
    """A line per row and preset, where presets are too many for columns."""
    published = {metric for entry in done for metric in entry.row.published}
    heads = [
        head for metric in table.metrics for head in (metric, *(["published"] if metric in published else []))
    ]
    grid = _grid(["data", "row", "preset"], heads)
    for entry in done:
        texts = []
        for cell in entry.cells:
            texts.append(_ours(table, cell))
            texts += [_spread(cell.published, None, cell.decimals)] if cell.metric in published else []
        grid.add_row(entry.row.where, entry.row.label, entry.preset, *texts)
    return grid


def _long_grid(table: Table, done: Sequence[Reproduced]) -> RichTable:
    """A line per number, where there are too many for columns."""
    has_spread = table.kind in _WITH_SPREAD
    grid = _grid(["data", "row", "measure"], ("ours", "published", *(("within",) if has_spread else ())))
    for entry in done:
        for cell in entry.cells:
            texts = _texts(cell) if has_spread else _texts(cell)[:2]
            grid.add_row(entry.row.where, entry.name, cell.metric, *texts)
    return grid


def _order_grid(table: Table, done: Sequence[Reproduced]) -> RichTable:
    """Published, and ours with each preset; a row whose system has none shows the same number for all."""
    names = table.presets or ["ours"]
    heads = (head for metric in table.metrics for head in (f"{metric} published", *names))
    grid = _grid(["data", "row"], heads)
    for row in dict.fromkeys((entry.row.where, entry.row.label) for entry in done):
        entries = [entry for entry in done if (entry.row.where, entry.row.label) == row]
        texts = []
        for metric in table.metrics:
            by_preset = {entry.preset: _ours(table, entry.cell(metric)) for entry in entries}
            texts.append(_spread(entries[0].cell(metric).published, None, table.decimals(metric)))
            texts += [by_preset.get(name, by_preset.get("", "")) for name in names]
        grid.add_row(*row, *texts)
    return grid


def _print_order(table: Table, done: Sequence[Reproduced]) -> None:
    """Where ours ranks rows otherwise than the paper."""
    out = results()
    has_order = len({entry.row.label for entry in done if entry.row.published}) > 1
    for metric in table.metrics if has_order else ():
        changes: dict[str, list[str]] = {}
        for above, below in order_changes(done, metric):
            where = ", ".join(part for part in (above.row.where, metric, above.preset or below.preset) if part)
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


def _own_grids(table: Table, done: Sequence[Reproduced]) -> Iterator[RichTable]:
    if table.kind == "cost":
        yield _cost_grid(table, done)
        return
    for data in dict.fromkeys(entry.row.where for entry in done):
        entries = [entry for entry in done if entry.row.where == data]
        yield _curve_grid(table, data, entries) if table.kind == "curve" else _time_grid(table, data, entries)
        if table.kind == "time":
            yield _owner_grid(entries[0])


def _grid(left: Iterable[str], right: Iterable[str]) -> RichTable:
    """Columns of text, which say what a row is of, and columns of numbers."""
    grid = RichTable(box=None, pad_edge=False)
    for heading in left:
        grid.add_column(heading)
    for heading in right:
        grid.add_column(heading, justify="right")
    return grid


def _curve_grid(table: Table, data: str, entries: Sequence[Reproduced]) -> RichTable:
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


def _time_grid(table: Table, data: str, entries: Sequence[Reproduced]) -> RichTable:
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


def _cost_grid(table: Table, done: Sequence[Reproduced]) -> RichTable:
    """A line per row of the table, a column per measure."""
    grid = _grid(["data", "row"], table.metrics)
    for entry in done:
        grid.add_row(entry.row.where, entry.row.label, *(_ours(table, cell) for cell in entry.cells))
    return grid


def verdict_text(verdict: Verdict) -> str:
    """Whether a claim is true of ours: by which measures, and what the rows have where it is not."""
    num_held, num_all = verdict.num_held, len(verdict.measures)
    answer: str = verdict.answer
    if num_all > 1:
        held = [name for name, one in verdict.measures.items() if one.is_true]
        some = f": {'; '.join(held)}" if 0 < num_held < num_all else ""
        answer += f", by {num_held or 'none'} of {num_all} measures{some}"
    told = [
        _told(name, held)
        for name, held in verdict.measures.items()
        if not held.is_true or num_all == 1 or (held.num_folds and held.num_folds[0] < held.num_folds[1])
    ]
    figures = "; ".join(text for text in told if text)
    where = f"{verdict.where}, {verdict.preset}" if verdict.preset else verdict.where
    return f"{where}: {verdict.claim.text}: {answer}{f' ({figures})' if figures else ''}"


def _told(name: str, held: Held) -> str:
    """The numbers behind a verdict."""
    if name in ("security layer", "AES-GCM", "gradients and update"):  # shares of the time
        share, seconds = held.values
        return f"{format_share(share)}, {format_seconds(seconds)}"
    folds = f"on {held.num_folds[0]} of {held.num_folds[1]} folds" if held.num_folds else ""
    values = f"{name} {', '.join(format_figure(value) for value in held.values)}" if held.values else ""
    return ", ".join(part for part in (values, folds) if part)


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    measures = {
        name: {"ours": held.values, "holds": held.is_true, "folds": held.num_folds}
        for name, held in verdict.measures.items()
    }
    return {
        "claim": verdict.claim.text,
        "data": verdict.where,
        "preset": verdict.preset,
        "answer": verdict.answer,
        "measures": measures,
        "why": verdict.claim.why if verdict.answer != "yes" else "",
    }


def table_json(table: Table, done: Sequence[Reproduced]) -> dict[str, Any]:
    """The object that `reproduce --json` prints."""
    return {
        "table": table.name,
        "title": table.title,
        "claim": table.claim,
        "rows": [_row_json(entry) for entry in done],
        **({"claims": [_verdict_json(verdict) for verdict in verdicts(table, done)]} if table.claims else {}),
    }


def _row_json(entry: Reproduced) -> dict[str, Any]:
    return {
        "data": entry.row.data,
        "where": entry.row.where,
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
        **({"run": entry.run.summary(), "seeds": [run.seed for run in entry.runs]} if entry.runs else {}),
        **({"missing": entry.missing} if entry.missing else {}),
        **({"remark": entry.remark} if entry.remark else {}),
    }
