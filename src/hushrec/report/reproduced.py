"""The picture of a reproduced table: published and ours, row by row."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hushrec.experiments.published import Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.report.canvas import INK, PALETTE, PAPER, new_figure, style
from hushrec.report.numbers import format_count, format_metric
from hushrec.report.stream_figures import curve_panels, first_and_last, time_by_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def table_picture(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """The picture that suits the kind of table."""
    runs = [entry.run for entry in done if entry.row.data == done[0].row.data]
    names = [entry.row.label for entry in done if entry.row.data == done[0].row.data]
    if table.kind == "curve" and "loss" in table.metrics[0]:
        return curve_panels(runs, ("train loss", "test loss"), names)
    if table.kind == "curve":
        return first_and_last(runs, names)
    if table.kind == "time":
        return time_by_step(runs, names)
    return cost_bars(table, done) if table.kind == "cost" else published_and_ours(table, done)


def cost_bars(table: Table, done: Sequence[Reproduced]) -> "Figure":
    """A line of panels per dataset, a panel per measure, a bar per row."""
    datasets = list(dict.fromkeys(entry.row.data for entry in done))
    metrics = [metric for metric in table.metrics if "@" in metric or metric in ("vectors", "MB")]
    with style():
        height = 0.45 * len(datasets) + 0.26 * len(done) + 0.15
        figure = new_figure(height)
        grid = figure.subplots(len(datasets), len(metrics), squeeze=False)
        for panels, data in zip(grid, datasets, strict=True):
            rows = [entry for entry in done if entry.row.data == data]
            for axes, metric in zip(panels, metrics, strict=True):
                values = [entry.cell(metric).ours for entry in rows]
                bars = axes.barh(range(len(rows)), values, height=0.66, color=PALETTE[0])
                axes.bar_label(bars, fmt=format_metric if "@" in metric else format_count, padding=3, fontsize=8.5)
                axes.set(title=metric if data == datasets[0] else "", xticks=[], yticks=[])
                axes.set(xlim=(0, 1.5 * max(values)), ylim=(len(rows) - 0.5, -0.5))
            panels[0].set_yticks(range(len(rows)), [f"{data}: {row.name}" for row in rows])
            panels[0].tick_params(axis="y", length=0)
            panels[0].grid(False)
        left = _left_margin(f"{entry.row.data}: {entry.name}" for entry in done)
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
    datasets = list(dict.fromkeys(entry.row.data for entry in done))
    with style():
        tallest = max(sum(entry.row.data == data for entry in done) for data in datasets)
        figure = new_figure(len(datasets) * (0.24 * tallest + 1.0) + 0.3)
        grid = figure.subplots(len(datasets), len(table.metrics), squeeze=False)
        for panels, data in zip(grid, datasets, strict=True):
            rows = [entry for entry in done if entry.row.data == data]
            for place, (axes, metric) in enumerate(zip(panels, table.metrics, strict=True)):
                _draw(axes, rows, metric)
                if table.kind == "bytes":
                    axes.set_xscale("log")
                    axes.xaxis.set_major_formatter("{x:g}")
                    axes.xaxis.set_minor_formatter("")
                axes.set_title(f"{data}: {metric}")
                axes.set_yticks(range(len(rows)), [row.name for row in rows] if place == 0 else [])
        grid[0][-1].legend(loc="lower right", bbox_to_anchor=(1.0, 1.02), ncols=2, borderaxespad=0)
        left = _left_margin(entry.name for entry in done)
        figure.subplots_adjust(left=left, right=0.985, top=0.9, bottom=0.08, hspace=0.35, wspace=0.06)
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
