"""The picture of a reproduced table: published and ours, row by row."""

from collections.abc import Iterable, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING

from hushrec.experiments.published import Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.report.canvas import INK, PALETTE, PAPER, new_figure, style
from hushrec.report.numbers import format_count, format_metric
from hushrec.report.stream_figures import curve_panels, first_and_last, time_by_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_PANELS_PER_LINE = 2
_LEAST_GAP = 0.05  # between two ticks, as a share of the axis


def is_figure(table: Table) -> bool:
    """Whether the paper draws it, or we would rather look at it than read it."""
    return bool(table.x_label) or table.kind in ("curve", "time") or "igure" in table.name


def table_picture(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """The picture that suits the kind of table."""
    if table.x_label:
        return series_panels(table, done)
    runs = [entry.run for entry in done if entry.row.where == done[0].row.where]
    names = [entry.row.label for entry in done if entry.row.where == done[0].row.where]
    if table.kind == "curve" and "loss" in table.metrics[0]:
        return curve_panels(runs, ("train loss", "test loss"), names)
    if table.kind == "curve":
        return first_and_last(runs, names, "held-back " if table.metrics[0].startswith("held-back ") else "")
    if table.kind == "time":
        return time_by_step(runs, names)
    return cost_bars(table, done) if table.kind == "cost" else published_and_ours(table, done)


def series_panels(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """A panel per dataset and metric, a line per series; what is published has rings."""
    panels = [
        (where, metric) for where in dict.fromkeys(entry.row.where for entry in done) for metric in table.metrics
    ]
    names = list(dict.fromkeys(_series(entry) for entry in done))
    num_lines = -(-len(panels) // _PANELS_PER_LINE)
    with style():
        legend_height = 0.2 * ((len(names) - 1) // 4)
        height = 2.9 * num_lines + 0.3 + legend_height
        figure = new_figure(height)
        grid = figure.subplots(num_lines, min(_PANELS_PER_LINE, len(panels)), squeeze=False)
        for axes, (where, metric) in zip(grid.flat, panels, strict=False):
            here = [entry for entry in done if entry.row.where == where]
            at = _places_on_axis(entry.row.x for entry in here)
            for colour, name in zip(cycle(PALETTE), names):
                points = sorted((entry for entry in here if _series(entry) == name), key=lambda one: one.row.x)
                _line(axes, [(at[entry.row.x], entry.cell(metric)) for entry in points], colour, name)
            axes.set_xticks(list(at.values()), [f"{tick:g}" for tick in at])
            axes.set_title(f"{where}: {metric}")
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel(table.x_label, y=0.08 / height, fontsize="medium", color=INK)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=min(4, len(names)), borderaxespad=0.2)
        top, bottom = 1 - (0.55 + legend_height) / height, 0.5 / height
        figure.subplots_adjust(left=0.06, right=0.985, top=top, bottom=bottom, hspace=0.42, wspace=0.18)
        return figure


def _series(entry: Reproduced) -> str:
    return f"{entry.row.series}, {entry.preset}" if entry.preset else entry.row.series


def _places_on_axis(values: Iterable[float]) -> dict[float, float]:
    """Where values are drawn: to scale, or one step apart where some would be too close to be told apart."""
    ticks = sorted(set(values))
    gaps = [later - earlier for earlier, later in pairwise(ticks)]
    is_tight = bool(gaps) and min(gaps) < _LEAST_GAP * (ticks[-1] - ticks[0])
    return {tick: float(place) if is_tight else tick for place, tick in enumerate(ticks)}


def _line(axes: "Axes", points: Sequence[tuple[float, Cell]], colour: str, name: str) -> None:
    """A series; one of a single point is a level, drawn from side to side."""
    if len(points) == 1:
        axes.axhline(points[0][1].ours, color=colour, linestyle="--", linewidth=1.2, label=name)
    if len(points) < 2:
        return
    spread = [cell.ours_std for _, cell in points]
    axes.errorbar(
        [place for place, _ in points], [cell.ours for _, cell in points], yerr=spread if any(spread) else None,
        color=colour, marker="o", markersize=4, linewidth=1.7, elinewidth=0.9, label=name,
    )  # fmt: skip
    known = [(place, cell.published) for place, cell in points if cell.published is not None]
    if known:
        axes.plot(*zip(*known, strict=True), linestyle=":", color=colour, marker="o", markerfacecolor=PAPER)


def cost_bars(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """A line of panels per dataset, a panel per measure, a bar per row."""
    datasets = list(dict.fromkeys(entry.row.where for entry in done))
    metrics = [metric for metric in table.metrics if "@" in metric or metric in ("vectors", "MB")]
    with style():
        height = 0.45 * len(datasets) + 0.26 * len(done) + 0.15
        figure = new_figure(height)
        grid = figure.subplots(len(datasets), len(metrics), squeeze=False)
        for panels, data in zip(grid, datasets, strict=True):
            rows = [entry for entry in done if entry.row.where == data]
            for axes, metric in zip(panels, metrics, strict=True):
                values = [entry.cell(metric).ours for entry in rows]
                bars = axes.barh(range(len(rows)), values, height=0.66, color=PALETTE[0])
                axes.bar_label(bars, fmt=format_metric if "@" in metric else format_count, padding=3, fontsize=8.5)
                axes.set(title=metric if data == datasets[0] else "", xticks=[], yticks=[])
                axes.set(xlim=(0, 1.5 * max(values)), ylim=(len(rows) - 0.5, -0.5))
            panels[0].set_yticks(range(len(rows)), [f"{data}: {row.name}" for row in rows])
            panels[0].tick_params(axis="y", length=0)
            panels[0].grid(False)
        left = _left_margin(f"{entry.row.where}: {entry.name}" for entry in done)
        top, bottom = 1 - 0.4 / height, 0.1 / height
        figure.subplots_adjust(left=left, right=0.99, top=top, bottom=bottom, hspace=0.4)
        return figure


def _left_margin(names: Iterable[str]) -> float:
    """Room for the longest name, as a share of the width."""
    return 0.02 + 0.0074 * max(map(len, names))


def published_and_ours(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """A panel per dataset and metric: a dot with its spread for ours, a ring with its spread for the paper's.

    Bytes differ by orders of magnitude, so their axis is logarithmic.
    """
    datasets = list(dict.fromkeys(entry.row.where for entry in done))
    is_published = {cell.metric for entry in done for cell in entry.cells if cell.published is not None}
    metrics = [metric for metric in table.metrics if metric in is_published or not is_published]
    with style():
        tallest = max(sum(entry.row.where == data for entry in done) for data in datasets)
        height = len(datasets) * (0.24 * tallest + 0.85) + 0.45
        figure = new_figure(height)
        grid = figure.subplots(len(datasets), len(metrics), squeeze=False)
        for panels, data in zip(grid, datasets, strict=True):
            rows = [entry for entry in done if entry.row.where == data]
            for place, (axes, metric) in enumerate(zip(panels, metrics, strict=True)):
                _draw(axes, rows, metric)
                if table.kind == "bytes":
                    axes.set_xscale("log")
                    axes.xaxis.set_major_formatter("{x:g}")
                    axes.xaxis.set_minor_formatter("")
                axes.set_title(f"{data}: {metric}" if len(metrics) < 3 or place == 0 else metric)
                axes.set_yticks(range(len(rows)), [row.name for row in rows] if place == 0 else [])
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=2, borderaxespad=0.2)
        left = _left_margin(entry.name for entry in done)
        room = 0.75 / (0.24 * tallest + 0.1)  # between two lines of panels, in heights of one
        top, bottom = 1 - 0.6 / height, 0.35 / height
        figure.subplots_adjust(left=left, right=0.985, top=top, bottom=bottom, hspace=room, wspace=0.06)
        return figure


def _draw(axes: "Axes", rows: Sequence[Reproduced], metric: str) -> None:
    for place, entry in enumerate(rows):
        cell = next(cell for cell in entry.cells if cell.metric == metric)
        _dot(axes, cell, place, is_first=place == 0)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _dot(axes: "Axes", cell: Cell, place: int, is_first: bool) -> None:
    if cell.published is not None:
        axes.errorbar(
            cell.published, place + 0.16, xerr=cell.published_std, fmt="o", markersize=5, color=INK,
            markerfacecolor=PAPER, elinewidth=1, label="published" if is_first else None,
        )  # fmt: skip
    axes.errorbar(
        cell.ours, place - 0.16, xerr=cell.ours_std, fmt="o", markersize=5, color=PALETTE[0], elinewidth=1,
        label="hushrec" if is_first else None,
    )  # fmt: skip
