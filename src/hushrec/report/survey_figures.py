"""Pictures of a comparison of systems: accuracy against leakage, a dot for each set of settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushrec.errors import HushrecError
from hushrec.report.canvas import INK, PALETTE, PAPER, WIDTH_INCHES, new_figure, style
from hushrec.report.figures import spread_out
from hushrec.report.numbers import format_bytes, format_metric
from hushrec.report.tables import is_error
from hushrec.survey.record import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTER_POINTS = 5.0  # width of a letter of size 8.5, on average
_MOST_LETTERS = 24  # of a name beside a panel
_LABEL_INCHES = 0.19  # height of a label
_PANEL_INCHES = 1.9  # of a panel at least
_ROOM_INCHES = 0.75  # above and below a panel
_LEAST_SPAN = 0.1  # of a value: on a shorter axis, a difference that nobody would notice looked large
_TICKS_INCHES = 0.6  # left of a panel
_SIZES = (1e3, 1e4, 1e5, 1e6)  # of the legend, in bytes


@dataclass(frozen=True)
class Dot:
    """A row of the table as it is drawn."""

    row: Row
    label: str
    colour: str

    @property
    def x(self) -> float:
        """Leakage."""
        return self.row.leakage or 0.0

    @property
    def y(self) -> float:
        """Accuracy."""
        return self.row.accuracy or 0.0

    @property
    def is_left(self) -> bool:
        """Whether its name is on the left side."""
        return self.x < 0.5


def drawable(rows: Sequence[Row]) -> list[Row]:
    """The rows with accuracy and leakage."""
    return [row for row in rows if row.accuracy is not None and row.leakage is not None]


def leakage_figure(rows: Sequence[Row], is_brief: bool = True) -> "Figure":
    """Accuracy against leakage, a panel for each metric; an arrow from published settings to their repairs.

    `is_brief`: repaired settings are called so; else by their switches.
    """
    shown = drawable(rows)
    if not shown:
        raise HushrecError("no row has accuracy and leakage to draw")
    by_metric = [
        _dots([row for row in shown if row.metric == metric], is_brief)
        for metric in dict.fromkeys(row.metric for row in shown)
    ]
    with style():
        heights = [_panel_height(dots) for dots in by_metric]
        top = 0.5
        total = top + sum(height + _ROOM_INCHES for height in heights)
        figure = new_figure(total)
        sides = (_margin(by_metric, is_left) for is_left in (True, False))
        left, right = sides if is_brief else (_TICKS_INCHES / WIDTH_INCHES, 0.02)
        above = top
        for dots, height in zip(by_metric, heights, strict=True):
            above += 0.3
            bottom = 1 - (above + height) / total
            axes = figure.add_axes((left, bottom, 1 - left - right, height / total))
            _draw_panel(axes, dots)
            if is_brief:
                for is_left in (True, False):
                    _label_side(axes, [dot for dot in dots if dot.is_left == is_left], is_left, height)
            else:
                _label_inside(axes, dots, height)
            above += height + _ROOM_INCHES - 0.3
        _size_legend(figure, total)
        return figure


def _dots(rows: Sequence[Row], is_brief: bool) -> list[Dot]:
    """The dots of a panel, in a colour for each system."""
    systems = list(dict.fromkeys(row.system for row in rows))
    return [
        Dot(row, _label(row, rows, is_brief), PALETTE[systems.index(row.system) % len(PALETTE)]) for row in rows
    ]


def _label(row: Row, rows: Sequence[Row], is_brief: bool) -> str:
    """The system's name, or a short one where it is long; of a repair, that it is one, or its switches."""
    title = row.title if len(row.title) <= _MOST_LETTERS else row.system
    if not row.switches:
        return title if is_brief else f"{title}, published"
    if not is_brief:
        return row.switches
    repairs = [one.switches for one in rows if one.system == row.system and one.switches]
    number = f" {repairs.index(row.switches) + 1}" if len(repairs) > 1 else ""
    return f"{title}, repaired{number}"


def _panel_height(dots: Sequence[Dot]) -> float:
    most = max(sum(dot.is_left for dot in dots), sum(not dot.is_left for dot in dots))
    return max(_PANEL_INCHES, (most + 1) * _LABEL_INCHES)


def _margin(panels: Sequence[Sequence[Dot]], is_left: bool) -> float:
    """The share of the width that names on one side need; on the left there are numbers, too."""
    letters = max((len(_text(dot)) for dots in panels for dot in dots if dot.is_left == is_left), default=0)
    return (letters * _LETTER_POINTS + (62 if is_left else 24)) / 72 / WIDTH_INCHES


def _text(dot: Dot) -> str:
    return f"{dot.label}  {format_metric(dot.y)}"


def _draw_panel(axes: "Axes", dots: Sequence[Dot]) -> None:
    metric = dots[0].row.metric
    values = [dot.y for dot in dots]
    low, high = min(values), max(values)
    lacking = max(0.0, _LEAST_SPAN * max(abs(low), abs(high)) - (high - low))
    low, high = low - lacking / 2, high + lacking / 2
    margin = 0.12 * (high - low) or 1.0
    ends = (high + margin, low - margin) if is_error(metric) else (low - margin, high + margin)
    axes.set(ylim=ends, xlim=(-0.06, 1.06), xlabel="leakage to curious parties: 0 is a blind guess, 1 is all")
    axes.set_title(f"{metric} ({'lower' if is_error(metric) else 'higher'} is better; better is up)")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.tick_params(axis="y", labelsize=8)
    for dot in dots:
        published = next((one for one in dots if one.row.key == (dot.row.system, "")), None)
        if dot.row.switches and published is not None:
            axes.annotate(
                "", (dot.x, dot.y), (published.x, published.y), zorder=2,
                arrowprops={"arrowstyle": "-|>", "color": dot.colour, "lw": 1.2, "shrinkA": 4, "shrinkB": 6},
            )  # fmt: skip
    for dot in sorted(dots, key=lambda dot: -dot.row.sent_bytes):
        is_plain = dot.row.has_all_rows
        axes.scatter(
            dot.x, dot.y, s=_area(dot.row.sent_bytes), color=PAPER if is_plain else dot.colour, alpha=0.85,
            edgecolors=dot.colour if is_plain else PAPER, linewidths=1.4 if is_plain else 0.8, zorder=3,
            clip_on=False,
        )  # fmt: skip


def _area(sent_bytes: float) -> float:
    """In square points: a step for each factor of ten, so that a kilobyte is seen beside a megabyte."""
    return 18 + 45 * max(0.0, math.log10(max(sent_bytes, 1.0)) - 2)


def _label_side(axes: "Axes", dots: Sequence[Dot], is_left: bool, inches: float) -> None:
    """Names beside the panel, each tied to its dot, moved apart where dots are near each other."""
    bottom, top = axes.get_ylim()
    start, end = axes.get_xlim()
    heights = [(dot.y - bottom) / (top - bottom) for dot in dots]
    places = spread_out(heights, gap=_LABEL_INCHES / inches, low=0.02, high=0.98)
    edge = -0.0 if is_left else 1.0
    ticks_points = 34 if is_left else 0
    for dot, height, place in zip(dots, heights, places, strict=True):
        x = (dot.x - start) / (end - start)
        axes.plot(
            [x, edge, edge], [height, place, place], transform=axes.transAxes, color=dot.colour, linewidth=0.6,
            alpha=0.7, clip_on=False, zorder=1.5,
        )  # fmt: skip
        axes.annotate(
            _text(dot), (edge, place), (-6 - ticks_points if is_left else 8, 0), xycoords="axes fraction",
            textcoords="offset points", ha="right" if is_left else "left", va="center", fontsize=8.5, color=INK,
        )  # fmt: skip


def _label_inside(axes: "Axes", dots: Sequence[Dot], inches: float) -> None:
    """Names above the dots, within the panel: for few of them."""
    bottom, top = axes.get_ylim()
    gap = 1.2 * _LABEL_INCHES / inches
    for is_left in (True, False):
        side = [dot for dot in dots if dot.is_left == is_left]
        wanted = [(dot.y - bottom) / (top - bottom) + gap for dot in side]
        places = spread_out(wanted, gap, low=gap, high=0.96)
        up = max(
            (one - place for one, place in zip(wanted, places, strict=True)), default=0.0
        )  # clear of the dots
        places = [place + up for place in places]
        for dot, place in zip(side, places, strict=True):
            axes.text(
                min(max(dot.x, 0.0), 1.0), bottom + place * (top - bottom), _text(dot), fontsize=8.5, va="center",
                ha="left" if is_left else "right", color=INK,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8}, zorder=4,
            )  # fmt: skip


def _size_legend(figure: "Figure", height_inches: float) -> None:
    from matplotlib.lines import Line2D

    sizes = [
        Line2D([], [], marker="o", linestyle="", color="#7a7a7a", markersize=math.sqrt(_area(size)))
        for size in _SIZES
    ]
    plain = Line2D([], [], marker="o", linestyle="", color=PAPER, markeredgecolor="#7a7a7a", markersize=8)
    names = [*(format_bytes(size).replace(".00", "").replace(".0", "") for size in _SIZES), "server has all rows"]
    figure.legend(
        [*sizes, plain], names, loc="upper left", ncols=len(names),
        bbox_to_anchor=(0.005, 1 - 0.02 / height_inches),
        fontsize=8.5, handletextpad=0.5, columnspacing=1.6, title="bytes sent per client and round, both ways",
        title_fontsize=8.5, alignment="left", borderpad=0.1,
    )  # fmt: skip
