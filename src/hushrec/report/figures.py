"""Figures of runs, drawn with matplotlib."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from hushrec.errors import HushrecError
from hushrec.report.canvas import PALETTE, PAPER, WIDTH_INCHES, new_figure, style
from hushrec.report.numbers import format_bytes, format_metric
from hushrec.report.tables import TrafficRow, is_error, labels, per_party, traffic_rows, up_and_down
from hushrec.runs.record import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import LineStyleType

_VISIBLE = 0.004  # of the longest bar
_MOST_LETTERS = 42
_LETTER_POINTS = 5.4  # width of a letter of size 9, on average
_DASH = 3.5  # times the width of the line
_SEEN_APART = 1e-6  # of values: less is no difference to draw


def _short_labels(runs: Sequence[Run]) -> list[str]:
    """Labels that have room beside a figure; long ones lose their middle."""
    return [label if len(label) <= _MOST_LETTERS else f"{label[:20]}…{label[-20:]}" for label in labels(runs)]


# --- Learning curves -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A metric against the round: mean over folds, and the least and greatest fold."""

    label: str
    colour: str
    mean: list[float]
    low: list[float]
    high: list[float]


def curves_of(runs: Sequence[Run], metric: str) -> list[Curve]:
    """The curves of the runs that have this metric for every round."""
    found = []
    for place, (run, label) in enumerate(zip(runs, _short_labels(runs), strict=True)):
        by_round = list(zip(*(fold.curve.get(metric, []) for fold in run.folds), strict=False))
        if by_round:
            low, high = [min(values) for values in by_round], [max(values) for values in by_round]
            colour = PALETTE[place % len(PALETTE)]
            found.append(Curve(label, colour, [fmean(values) for values in by_round], low, high))
    return found


def learning_curves(runs: Sequence[Run], metric: str) -> "Figure":
    """The metric against the round: mean over folds in a band from the least to the greatest fold."""
    with style():
        curves = curves_of(runs, metric)
        if not curves:
            raise HushrecError(f"no run has a learning curve of {metric}; choose another metric")
        figure = new_figure(max(3.9, 0.24 * len(curves) + 1.4))
        whole, close = _limits(curves)
        is_split = whole[1] - whole[0] > 2.5 * (close[1] - close[0])
        axes = figure.subplots(
            1, 2 if is_split else 1, squeeze=False, width_ratios=[1, 1.45] if is_split else [1]
        )[0]
        letters = max(len(curve.label) for curve in curves) + 8
        right = max(0.55, 0.955 - letters * _LETTER_POINTS / 72 / WIDTH_INCHES)
        figure.subplots_adjust(left=0.06, right=right, top=0.92, bottom=0.13, wspace=0.16)
        for panel, limits in zip(axes, (whole, close) if is_split else (whole,), strict=True):
            _draw_curves(panel, curves)
            panel.set(xlabel="round", ylim=limits, xlim=(0, max(len(curve.mean) for curve in curves)))
            panel.ticklabel_format(axis="y", useOffset=False, style="plain")
        axes[0].set_title(metric)
        if is_split:
            axes[1].set_title(f"{metric}, close-up of the same curves")
        _label_ends(axes[-1], curves)
        return figure


def _limits(curves: Sequence[Curve]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of the vertical axis: for all rounds, and for the last third."""
    later = [value for curve in curves for part in (curve.low, curve.high) for value in part[len(part) * 2 // 3 :]]
    every = [value for curve in curves for part in (curve.low, curve.high) for value in part]
    return _padded(every), _padded(later)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low < _SEEN_APART * max(abs(low), abs(high)):  # ticks could not tell them apart
        low = high = (low + high) / 2
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _draw_curves(axes: "Axes", curves: Sequence[Curve]) -> None:
    for place, curve in enumerate(curves):
        rounds = range(1, len(curve.mean) + 1)
        alike = [other for other, drawn in enumerate(curves) if drawn.mean == curve.mean]
        axes.fill_between(rounds, curve.low, curve.high, color=curve.colour, alpha=0.15 / len(alike), linewidth=0)
        axes.plot(
            rounds,
            curve.mean,
            color=curve.colour,
            linewidth=1.9,
            linestyle=_interleaved(alike.index(place), len(alike)),
            dash_capstyle="butt",
            marker="o" if len(curve.mean) == 1 else None,
        )


def _interleaved(place: int, count: int) -> "LineStyleType":
    """Dashes of one of several curves that coincide, so that all their colours are seen in turn."""
    if count == 1:
        return "solid"
    return ((count - place) * _DASH % (count * _DASH), (_DASH, (count - 1) * _DASH))


def _label_ends(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Each curve's name beside its end, moved apart where ends are near each other."""
    bottom, top = axes.get_ylim()
    ends = [min(max((curve.mean[-1] - bottom) / (top - bottom), 0), 1) for curve in curves]
    heights = spread_out(ends, gap=min(0.065, 1 / max(1, len(curves))), low=0.02, high=0.98)
    right = axes.get_xlim()[1]
    for curve, end, height in zip(curves, ends, heights, strict=True):
        start = len(curve.mean) / right
        axes.plot(
            [start, max(start, 1.0), 1.035], [end, end, height], transform=axes.transAxes, color=curve.colour,
            linewidth=0.8, clip_on=False,
        )  # fmt: skip
        axes.text(
            1.052,
            height,
            f"{curve.label}  {format_metric(curve.mean[-1])}",
            transform=axes.transAxes,
            va="center",
            fontsize=9,
        )
        axes.plot(
            1.035, height, marker="o", markersize=4, color=curve.colour, transform=axes.transAxes, clip_on=False
        )


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as keeps them a gap apart; of equal ones, the first is on top.

    >>> [round(place, 2) for place in spread_out([0.5, 0.5, 0.9], gap=0.1, low=0, high=1)]
    [0.55, 0.45, 0.9]
    """
    order = sorted(range(len(wanted)), key=lambda place: (wanted[place], -place))
    groups: list[list[int]] = []
    centres: list[float] = []
    for place in order:
        groups.append([place])
        centres.append(wanted[place])
        while len(groups) > 1 and centres[-1] - centres[-2] < gap * (len(groups[-1]) + len(groups[-2])) / 2:
            last = groups.pop()
            groups[-1] += last
            centres.pop()
            centres[-1] = fmean(wanted[member] for member in groups[-1])
        half = gap * (len(groups[-1]) - 1) / 2
        centres[-1] = min(max(centres[-1], low + half), high - half)
    places = dict[int, float]()
    for members, centre in zip(groups, centres, strict=True):
        for number, member in enumerate(members):
            places[member] = centre + gap * (number - (len(members) - 1) / 2)
    return [places[place] for place in range(len(wanted))]


# --- Bytes -----------------------------------------------------------------------------------------------


def bytes_by_message(runs: Sequence[Run]) -> "Figure":
    """Bytes per client and round, a stacked bar per run: what clients send first, then what the server sends.

    The axis is plain: on a logarithmic one, the parts of a stack could not be compared. Totals are printed.
    """
    with style():
        names, traffic = _short_labels(runs), [traffic_rows(run) for run in runs]
        totals = [sum(row.per_client_round for row in rows) for rows in traffic]
        longest, places = max(totals, default=0.0), range(len(runs))
        parts = _parts(traffic, longest)
        figure = new_figure(1.35 + 0.36 * len(runs) + 0.24 * (len(parts) // 3))
        axes = figure.subplots()
        for place, part in enumerate(parts):
            widths = [sum(row.per_client_round for row in rows if part.has(row)) for rows in traffic]
            earlier = parts[:place]
            starts = [sum(row.per_client_round for row in rows if _is_in(row, earlier)) for rows in traffic]
            edges = [0.7 if width > _VISIBLE * longest else 0.0 for width in widths]
            axes.barh(places, widths, left=starts, height=0.62, color=part.colour, label=part.label,
                      edgecolor=PAPER, linewidth=edges)  # fmt: skip
        for place, total in enumerate(totals):
            axes.annotate(
                format_bytes(total), (total, place), (6, 0), textcoords="offset points", va="center", fontsize=9,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        axes.set_yticks(places, names)
        _finish_bars(figure, axes, longest, per_party(runs))
        return figure


@dataclass(frozen=True)
class Part:
    """One colour of the bars: a type of message, or all small ones together."""

    label: str
    colour: str
    keys: tuple[tuple[str, str], ...]

    def has(self, row: TrafficRow) -> bool:
        """Whether a type of message is in it."""
        return (row.way, row.type) in self.keys


def _is_in(row: TrafficRow, parts: Sequence[Part]) -> bool:
    return any(part.has(row) for part in parts)


def _parts(traffic: Sequence[Sequence[TrafficRow]], longest: float) -> list[Part]:
    largest: dict[tuple[str, str], float] = {}
    is_up: dict[tuple[str, str], bool] = {}
    for row in (row for rows in traffic for row in rows):
        key = (row.way, row.type)
        largest[key] = max(largest.get(key, 0.0), row.per_client_round)
        is_up[key] = row.is_up
    visible = sorted((key for key in largest if largest[key] > _VISIBLE * longest), key=lambda key: not is_up[key])
    colours = {"up": iter(("#0072b2", "#56b4e9", "#009e73", "#cc79a7")), "down": iter(("#e69f00", "#d55e00"))}
    parts = []
    for way, kind in visible:
        colour = next(colours["up" if is_up[way, kind] else "down"], "#7a7a7a")
        parts.append(Part(f"{way}: {kind}", colour, ((way, kind),)))
    small = tuple(key for key in largest if key not in visible and largest[key] > 0)
    if small:
        named = ", ".join(dict.fromkeys(kind for _, kind in small))
        parts.append(Part(f"too small to see: {named}", "#7a7a7a", small))
    return parts


def _tick(value: float) -> str:
    """Bytes on an axis.

    >>> [_tick(value) for value in (0, 50_000, 2_500)]
    ['0', '50 KB', '2.5 KB']
    """
    number, unit = format_bytes(value).split()
    return f"{float(number):g} {unit}" if value else "0"


def _finish_bars(figure: "Figure", axes: "Axes", longest: float, each: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set(xlim=(0, 1.13 * (longest or 1)), xlabel=f"bytes {each}")
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: _tick(value)))
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    height = figure.get_figheight()
    names = [label.get_text() for label in axes.get_yticklabels()]
    left = min(0.34, 0.02 + 0.0074 * max(map(len, names), default=0))
    rows = -(-len(axes.get_legend_handles_labels()[1]) // 2)
    figure.subplots_adjust(left=left, right=0.985, bottom=0.55 / height, top=1 - (0.12 + 0.22 * rows) / height)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.005, 1.0), ncols=2, fontsize=9, handlelength=1.1, handleheight=0.9,
        borderpad=0.2,
    )  # fmt: skip


# --- Accuracy against bytes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dot:
    """One run in the figure of accuracy against bytes."""

    label: str
    colour: str
    sent: float
    value: float
    deviation: float


def accuracy_against_bytes(runs: Sequence[Run], metric: str) -> "Figure":
    """One dot per run: the metric, with its deviation over folds, against bytes sent per client and round."""
    with style():
        dots = [
            Dot(label, PALETTE[place % len(PALETTE)], sum(up_and_down(run)), run.mean[metric], run.std[metric])
            for place, (run, label) in enumerate(zip(runs, _short_labels(runs), strict=True))
            if metric in run.mean
        ]
        if not dots:
            raise HushrecError(f"no run has {metric}; there is nothing to draw")
        figure = new_figure(4.6)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.075, right=0.985, top=0.92, bottom=0.12)
        for dot in dots:
            axes.errorbar(
                dot.sent, dot.value, yerr=dot.deviation or None, color=dot.colour, marker="o", markersize=8,
                markeredgecolor=PAPER, capsize=3, elinewidth=1, zorder=3,
            )  # fmt: skip
        better = "lower" if is_error(metric) else "higher"
        axes.set_title(f"{metric} ({better} is better)")
        _finish_dots(axes, dots, per_party(runs))
        _label_dots(axes, dots)
        return figure


def is_log_better(values: Sequence[float]) -> bool:
    """Whether the median value is nearer to the middle of a logarithmic axis than to that of a plain one.

    >>> is_log_better([1, 10, 100, 1000]), is_log_better([7, 141e3, 163e3, 185e3])
    (True, False)
    """
    low, middle, high = min(values), median(values), max(values)
    if low <= 0 or low == high:
        return False
    plain = (middle - low) / (high - low)
    logarithmic = math.log(middle / low) / math.log(high / low)
    return abs(logarithmic - 0.5) < abs(plain - 0.5)


def _finish_dots(axes: "Axes", dots: Sequence[Dot], each: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    sent = [dot.sent for dot in dots]
    axes.set_xlabel(f"bytes sent {each}, both ways")
    if is_log_better(sent):
        axes.set_xscale("log")
        axes.set_xlim(min(sent) / 1.5, max(sent) * 1.5 * (max(sent) / min(sent)) ** 0.2)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
        axes.set_xlim(-0.02 * max(sent), 1.2 * max(sent) or 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: _tick(value) if value >= 0 else ""))
    axes.set_ylim(_padded([dot.value + sign * dot.deviation for dot in dots for sign in (-1, 1)]))


class Box(NamedTuple):
    """A rectangle that is taken, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )


def _label_dots(axes: "Axes", dots: Sequence[Dot]) -> None:
    """Each run's name beside its dot, where nothing else is; a line ties it to the dot if it is far."""
    to_points = 72 / axes.figure.dpi
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)]) * to_points
    middles = axes.transData.transform([(dot.sent, dot.value) for dot in dots]) * to_points
    ends = axes.transData.transform([(dot.sent, dot.value + dot.deviation) for dot in dots]) * to_points
    taken = []
    for (x, y), (_, end) in zip(middles, ends, strict=True):
        taken += [Box(x - 6, y - 6, x + 6, y + 6), Box(x - 4, 2 * y - end - 2, x + 4, end + 2)]
    for dot, (x, y) in zip(dots, middles, strict=True):
        width = _LETTER_POINTS * len(dot.label)
        boxes = {}
        for side, shift in _offsets():
            start = x + 10 if side > 0 else x - 10 - width
            box = Box(start, y + shift - 6, start + width, y + shift + 6)
            is_inside = left < box.left and box.right < right and bottom + 4 < box.bottom and box.top < top
            if is_inside and not any(box.meets(other) for other in taken):
                boxes[box] = side, shift
        box, (side, shift) = next(iter(boxes.items()), (Box(x, y, x, y), (1, 0.0)))
        taken.append(box)
        tie = {"arrowstyle": "-", "color": dot.colour, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4}
        axes.annotate(
            dot.label,
            (dot.sent, dot.value),
            (10 * side, shift),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=9,
            zorder=4,
            arrowprops=tie | {"relpos": (0 if side > 0 else 1, 0.5)} if shift else None,
        )


def _offsets() -> Iterator[tuple[int, float]]:
    """Where a label may be, best first: side of the dot, and points above it."""
    yield from ((1, 0), (-1, 0))
    for steps in range(1, 16):
        for way in (-1, 1):
            yield from ((1, way * 12.0 * steps), (-1, way * 12.0 * steps))
