"""Figures of runs, drawn with matplotlib, as SVG text or PNG bytes. The same runs give the same bytes.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; lines differ in dashes and dots in labels,
too. Text is drawn as paths of a font that comes with matplotlib.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from hushrec.errors import HushrecError
from hushrec.experiments.runs import Run
from hushrec.report.tables import TrafficRow, format_bytes, is_error, labels, traffic_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7a7a7a")
INK, FAINT, PAPER = "#24292f", "#c9ced6", "#ffffff"
# What the page's style sheet puts in place of them, light or dark.
_THEME = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "var(--paper)"}

_WIDTH_INCHES = 10.4
_DASHES = ("solid", (0, (5, 3)), (0, (1.5, 2)), (0, (8, 2, 1.5, 2)))
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "hushrec",
    "text.color": INK,
    "text.usetex": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise HushrecError(
            "figures need matplotlib; install it with: pip install 'hushrec[report]'"
        ) from None
    with matplotlib.rc_context(_STYLE):
        yield


def _new_figure(height_inches: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH_INCHES, height_inches), layout="none", facecolor=PAPER)


def to_png(figure: "Figure") -> bytes:
    """The figure as a PNG file."""
    with _style():
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
        return file.getvalue()


def to_svg(figure: "Figure") -> str:
    """The figure as an SVG file of its own."""
    with _style():
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return file.getvalue()


def to_inline_svg(figure: "Figure", name: str, title: str) -> str:
    """The figure as an element within a page, in the page's colours. `name` keeps ids apart, `title` is spoken."""
    text = to_svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = re.sub(r'\bid="|(?<=href=")#|(?<=url\()#', lambda found: f"{found[0]}{name}-", text)
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    spoken = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{spoken}"', 1).strip()


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
    for place, (run, label) in enumerate(zip(runs, labels(runs), strict=True)):
        by_round = list(zip(*(fold.curve.get(metric, []) for fold in run.folds), strict=False))
        if by_round:
            low, high = [min(values) for values in by_round], [max(values) for values in by_round]
            colour = PALETTE[place % len(PALETTE)]
            found.append(Curve(label, colour, [fmean(values) for values in by_round], low, high))
    return found


def learning_curves(runs: Sequence[Run], metric: str) -> "Figure":
    """The metric against the round: mean over folds in a band from the least to the greatest fold."""
    with _style():
        curves = curves_of(runs, metric)
        if not curves:
            raise HushrecError(f"no run has a learning curve of {metric}; choose another metric")
        figure = _new_figure(max(3.9, 0.24 * len(curves) + 1.4))
        whole, close = _limits(curves)
        is_split = whole[1] - whole[0] > 2.5 * (close[1] - close[0])
        axes = figure.subplots(1, 2 if is_split else 1, squeeze=False, width_ratios=[1, 1.45] if is_split else [1])[0]
        figure.subplots_adjust(left=0.06, right=0.77, top=0.92, bottom=0.13, wspace=0.16)
        for panel, limits in zip(axes, (whole, close) if is_split else (whole,), strict=True):
            _draw_curves(panel, curves)
            panel.set(xlabel="round", ylim=limits, xlim=(0, max(len(curve.mean) for curve in curves)))
        axes[0].set_title(metric)
        if is_split:
            axes[1].set_title(f"{metric}, close-up of the same curves")
        _label_ends(axes[-1], curves)
        return figure


def _limits(curves: Sequence[Curve]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of the vertical axis: for all rounds, and for the later half."""
    later = [value for curve in curves for part in (curve.low, curve.high) for value in part[len(part) // 2 :]]
    every = [value for curve in curves for part in (curve.low, curve.high) for value in part]
    return _padded(every), _padded(later)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _draw_curves(axes: "Axes", curves: Sequence[Curve]) -> None:
    for place, curve in enumerate(curves):
        rounds = range(1, len(curve.mean) + 1)
        alike = [other for other, drawn in enumerate(curves) if drawn.mean == curve.mean]
        order = alike.index(place)
        # Curves that coincide: the first is broad and solid, those on top are narrower and dashed.
        width = 1.7 + 1.8 * (len(alike) - 1 - order)
        axes.fill_between(rounds, curve.low, curve.high, color=curve.colour, alpha=0.13, linewidth=0)
        axes.plot(
            rounds,
            curve.mean,
            color=curve.colour,
            linewidth=width,
            linestyle=_DASHES[order % len(_DASHES)],
            marker="o" if len(curve.mean) == 1 else None,
        )


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
            1.045, height, f"{curve.label}  {curve.mean[-1]:.4f}", transform=axes.transAxes, va="center", fontsize=9
        )
        axes.plot(1.035, height, marker="o", markersize=4, color=curve.colour, transform=axes.transAxes, clip_on=False)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as keeps them a gap apart, in the same order.

    >>> [round(place, 2) for place in spread_out([0.5, 0.5, 0.9], gap=0.1, low=0, high=1)]
    [0.45, 0.55, 0.9]
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
    with _style():
        names, traffic = labels(runs), [traffic_rows(run) for run in runs]
        totals = [sum(row.per_client_round for row in rows) for rows in traffic]
        parts = _parts(traffic, max(totals, default=0.0))
        figure = _new_figure(1.35 + 0.36 * len(runs) + 0.24 * (len(parts) // 3))
        axes = figure.subplots()
        for place, part in enumerate(parts):
            widths = [sum(row.per_client_round for row in rows if part.has(row)) for rows in traffic]
            starts = [sum(row.per_client_round for row in rows if part.comes_after(row, parts[:place])) for rows in traffic]
            axes.barh(names, widths, left=starts, height=0.62, color=part.colour, label=part.label,
                      edgecolor=PAPER, linewidth=0.7, hatch=part.hatch)  # fmt: skip
        for place, total in enumerate(totals):
            axes.text(total, place, f"  {format_bytes(total)}", va="center", fontsize=9)
        _finish_bars(figure, axes, max(totals, default=0.0))
        return figure


@dataclass(frozen=True)
class Part:
    """One colour of the bars: a type of message, or all small ones together."""

    label: str
    colour: str
    keys: tuple[tuple[str, str], ...]
    hatch: str | None = None

    def has(self, row: TrafficRow) -> bool:
        """Whether a type of message is in it."""
        return (row.way, row.type) in self.keys

    @staticmethod
    def comes_after(row: TrafficRow, earlier: Sequence["Part"]) -> bool:
        """Whether the type is in one of the earlier parts."""
        return any(part.has(row) for part in earlier)


def _parts(traffic: Sequence[Sequence[TrafficRow]], longest: float) -> list[Part]:
    largest: dict[tuple[str, str], float] = {}
    is_up: dict[tuple[str, str], bool] = {}
    for row in (row for rows in traffic for row in rows):
        key = (row.way, row.type)
        largest[key] = max(largest.get(key, 0.0), row.per_client_round)
        is_up[key] = row.is_up
    visible = sorted((key for key in largest if largest[key] > 0.004 * longest), key=lambda key: not is_up[key])
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


def _finish_bars(figure: "Figure", axes: "Axes", longest: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set(xlim=(0, 1.13 * (longest or 1)), xlabel="bytes per client and round")
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: format_bytes(value)))
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


def accuracy_against_bytes(runs: Sequence[Run], metric: str) -> "Figure":
    """One dot per run: the metric, with its deviation over folds, against bytes sent per client and round."""
    with _style():
        dots = [
            (label, place, sum(row.per_client_round for row in traffic_rows(run)), run.mean[metric], run.std[metric])
            for place, (run, label) in enumerate(zip(runs, labels(runs), strict=True))
            if metric in run.mean
        ]
        if not dots:
            raise HushrecError(f"no run has {metric}; there is nothing to draw")
        figure = _new_figure(max(4.4, 0.26 * len(dots) + 1.2))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.085, right=0.74, top=0.92, bottom=0.12)
        sent = [dot[2] for dot in dots]
        axes.set_xscale("log" if is_log_better(sent) else "linear")
        for _, place, x, y, deviation in dots:
            axes.errorbar(
                x, y, yerr=deviation or None, color=PALETTE[place % len(PALETTE)], marker="o", markersize=8,
                markeredgecolor=PAPER, capsize=3, elinewidth=1, zorder=3,
            )  # fmt: skip
        better = "lower" if is_error(metric) else "higher"
        axes.set_title(f"{metric} ({better} is better)")
        _finish_dots(axes, sent, [(y - deviation, y + deviation) for *_, y, deviation in dots])
        _label_dots(axes, [(label, PALETTE[place % len(PALETTE)], x, y) for label, place, x, y, _ in dots])
        return figure


def is_log_better(values: Sequence[float]) -> bool:
    """Whether the median value is nearer to the middle of a logarithmic axis than to that of a plain one.

    >>> is_log_better([1, 10, 100, 1000]), is_log_better([7, 141e3, 163e3, 185e3])
    (True, False)
    """
    low, middle, high = min(values), median(values), max(values)
    if low <= 0 or low == high:
        return False
    import math

    plain = (middle - low) / (high - low)
    logarithmic = math.log(middle / low) / math.log(high / low)
    return abs(logarithmic - 0.5) < abs(plain - 0.5)


def _finish_dots(axes: "Axes", sent: Sequence[float], spans: Sequence[tuple[float, float]]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel("bytes sent per client and round, both ways")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: format_bytes(value)))
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.set_xlim(0, 1.06 * max(sent) or 1)
    else:
        axes.set_xlim(min(sent) / 1.6, max(sent) * 1.6)
    axes.set_ylim(_padded([value for span in spans for value in span]))


def _label_dots(axes: "Axes", dots: Sequence[tuple[str, str, float, float]]) -> None:
    """Names in a column at the right, each tied to its dot."""
    bottom, top = axes.get_ylim()
    wanted = [(y - bottom) / (top - bottom) for *_, y in dots]
    heights = spread_out(wanted, gap=min(0.07, 1 / max(1, len(dots))), low=0.02, high=0.98)
    for (label, colour, x, y), height in zip(dots, heights, strict=True):
        axes.annotate(
            f"{label}  {y:.4f}", xy=(x, y), xytext=(1.03, height), textcoords="axes fraction", va="center", fontsize=9,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkB": 4, "shrinkA": 2},
        )  # fmt: skip
