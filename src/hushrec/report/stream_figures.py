"""Figures of systems that learn from a stream, epoch by epoch: loss, quality by epoch, CPU time by step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.report.canvas import PALETTE, PAPER, new_figure, style
from hushrec.report.figures import curves_of
from hushrec.report.numbers import format_number
from hushrec.report.tables import labels
from hushrec.runs.record import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.8  # of the room for a group of bars
_MOST_LABELLED = 3  # bars of a group that have room for their numbers
_GAP_INCHES = 0.6  # between two panels, one above the other


def is_stream(run: Run) -> bool:
    """Whether the run learned from a stream."""
    return system_named(run.system).about.is_online


def stream_figures(runs: Sequence[Run]) -> dict[str, "Figure"]:
    """What there is to draw of those runs that learned from a stream, by title."""
    curved = [run for run in runs if is_stream(run) and any(run.folds[0].curve.values())]
    timed = [run for run in runs if run.folds[0].seconds]
    figures = {}
    if curved:
        names, lengths = labels(curved), set.intersection(*(set(run.at) for run in curved))
        losses = [name for name in ("train loss", "test loss") if curves_of(curved, name)]
        if losses:  # small data has no completed block
            figures["Mean loss of blocks after every epoch"] = curve_panels(curved, losses, names)
        if lengths:
            ranked = (f"MAP@{max(lengths)}", f"NDCG@{max(lengths)}")
            figures["Quality of recommendations after every epoch"] = curve_panels(curved, ranked, names)
            figures["Quality by length of list, after the first epoch and after the last"] = first_and_last(
                curved, names
            )
    if timed:
        figures["CPU time of one epoch by step and by owner"] = time_by_step(timed, labels(timed))
    return figures


def curve_panels(runs: Sequence[Run], metrics: Sequence[str], names: Sequence[str]) -> "Figure":
    """A panel per metric with the curves of all runs, by epoch."""
    with style():
        figure = new_figure(3.7)
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            curves = curves_of(runs, metric)
            if not curves:
                raise HushrecError(f"no run has a learning curve of {metric}; choose another metric")
            for curve in curves:
                epochs = range(1, len(curve.mean) + 1)
                axes.plot(epochs, curve.mean, color=curve.colour, linewidth=1.9, marker="o", markersize=4)
            axes.set(title=metric, xlabel="epoch")
            _whole_numbers(axes)
        _legend(figure, names)
        figure.subplots_adjust(left=0.06, right=0.985, top=0.82, bottom=0.14, wspace=0.16)
        return figure


def _whole_numbers(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _legend(figure: "Figure", names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(place), linewidth=4) for place in range(len(names))]
    figure.legend(handles, list(names), loc="upper left", bbox_to_anchor=(0.05, 1.0), ncols=4, handlelength=1.1)


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def first_and_last(runs: Sequence[Run], names: Sequence[str], prefix: str = "") -> "Figure":
    """MAP and NDCG by length of list: after the first epoch above, after the last one below.

    `prefix` is "held-back " for those of held-back items alone.
    """
    lengths = sorted(set.intersection(*(set(run.at) for run in runs)))
    if not lengths:
        raise HushrecError("these runs have no length of lists in common; run them with the same --at")
    with style():
        figure = new_figure(5.4)
        grid = figure.subplots(2, 2, sharey="col")
        for row, (when, place) in enumerate((("after epoch 1", 0), ("at the end", -1))):
            for column, metric in enumerate(("MAP", "NDCG")):
                heights = [[run.folds[0].curve[f"{prefix}{metric}@{k}"][place] for k in lengths] for run in runs]
                _draw_groups(grid[row][column], heights, [f"@{k}" for k in lengths])
                grid[row][column].set_title(f"{prefix}{metric} {when}")
        _legend(figure, names)
        figure.subplots_adjust(left=0.06, right=0.985, top=0.88, bottom=0.06, wspace=0.16, hspace=0.28)
        return figure


def _draw_groups(axes: "Axes", heights: Sequence[Sequence[float]], ticks: Sequence[str]) -> None:
    """Bars side by side, a group for each tick."""
    width = _BAR / len(heights)
    for place, values in enumerate(heights):
        middles = [group + width * (place - (len(heights) - 1) / 2) for group in range(len(ticks))]
        bars = axes.bar(middles, values, width=0.94 * width, color=_colour(place))
        if len(heights) <= _MOST_LABELLED:
            axes.bar_label(
                bars, [format_number(value).removeprefix("0") for value in values], fontsize=8, padding=1
            )
    axes.set_xticks(range(len(ticks)), list(ticks))
    axes.grid(False, axis="x")
    axes.margins(y=0.12)


def time_by_step(runs: Sequence[Run], names: Sequence[str]) -> "Figure":
    """CPU seconds of steps, a bar per run above, and a bar per owner of the first run below."""
    first = runs[0].folds[0].seconds
    if not all(run.folds[0].seconds for run in runs):
        raise HushrecError("these runs kept no times of steps; make them with: hushrec reproduce drift figure6.3")
    owner_names = runs[0].provenance.names
    whole = [{step: sum(parts.values()) for step, parts in run.folds[0].seconds.items()} for run in runs]
    by_owner = [{step: parts.get(name, 0.0) for step, parts in first.items()} for name in owner_names]
    with style():
        rows = len(runs) + len(owner_names)
        figure = new_figure(1.1 + _GAP_INCHES + 0.28 * rows)
        above, below = figure.subplots(2, 1, height_ratios=[len(runs), len(owner_names)])
        _draw_stacks(above, whole, names)
        _draw_stacks(below, by_owner, owner_names)
        above.set_title("all parties")
        below.set_title(f"{names[0]}: by owner")
        below.set_xlabel("seconds of CPU")
        handles, steps = above.get_legend_handles_labels()
        figure.legend(handles, steps, loc="upper left", bbox_to_anchor=(0.005, 1.0), ncols=7, fontsize=8.5,
                      handlelength=1.0, columnspacing=1.2)  # fmt: skip
        height = figure.get_figheight()
        left = 0.02 + 0.0074 * max(map(len, (*names, *owner_names)))
        gap = 2 * _GAP_INCHES / (height - 1.1 - _GAP_INCHES)  # as a share of the mean height of the two
        figure.subplots_adjust(left=left, right=0.97, top=1 - 0.6 / height, bottom=0.5 / height, hspace=gap)
        return figure


def _draw_stacks(axes: "Axes", bars: Sequence[dict[str, float]], names: Sequence[str]) -> None:
    starts = [0.0] * len(bars)
    for place, step in enumerate(bars[0]):
        widths = [bar[step] for bar in bars]
        if any(widths):
            axes.barh(range(len(bars)), widths, left=starts, height=0.66, color=_colour(place), label=step,
                      edgecolor=PAPER, linewidth=0.5)  # fmt: skip
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    for place, total in enumerate(starts):
        axes.annotate(
            format_number(total), (total, place), (5, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_yticks(range(len(names)), list(names))
    axes.set(xlim=(0, 1.08 * max(starts)), ylim=(len(names) - 0.5, -0.5))
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
