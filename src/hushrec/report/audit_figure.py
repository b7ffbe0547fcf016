"""The picture of an audit: how much each attack learns, round after round."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hushrec.audit.kept import KeptFinding
from hushrec.errors import HushrecError
from hushrec.report.canvas import INK, PALETTE, WIDTH_INCHES, new_figure, style
from hushrec.report.figures import spread_out
from hushrec.report.numbers import format_score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LETTER_POINTS = 5.2  # width of a letter of size 8.5, on average
_LABEL_INCHES = 0.19
_MOST_ROUNDS_MARKED = 25


def audit_figure(findings: Sequence[KeptFinding], title: str = "") -> "Figure":
    """A curve for each attack: 0 is a blind guess, 1 is knowing all. What is worse than blind is drawn at 0."""
    shown = [one for one in findings if any(value is not None for value in one.curve())]
    if not shown:
        raise HushrecError("no attack told anything of a round; there is nothing to draw")
    with style():
        from matplotlib.ticker import MaxNLocator

        height = max(2.6, (len(shown) + 1) * _LABEL_INCHES)
        total = height + 0.95
        figure = new_figure(total)
        letters = max(len(_text(one)) for one in shown)
        right = (letters * _LETTER_POINTS + 30) / 72 / WIDTH_INCHES
        axes = figure.add_axes((0.055, 0.52 / total, 0.945 - right, height / total))
        ends = [_draw(axes, one, place) for place, one in enumerate(shown)]
        last = max(len(one.rounds) for one in shown)
        axes.set(ylim=(-0.03, 1.03), xlim=(1, last) if last > 1 else (0.5, 1.5), xlabel="round")
        axes.set_title(f"{title}what attacks learn: 0 is a blind guess, 1 is all")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        _label_ends(axes, shown, ends, height)
        return figure


def _text(finding: KeptFinding) -> str:
    return f"{finding.name} ({finding.role})  {finding.measure} {format_score(finding.score)}"


def _draw(axes: "Axes", finding: KeptFinding, place: int) -> float:
    """The curve, clipped to what can be shown; where it ends."""
    points = [(number, value) for number, value in enumerate(finding.curve(), 1) if value is not None]
    heights = [min(max(value, 0.0), 1.0) for _, value in points]
    dashes = ("solid", (0, (4, 1.5)), (0, (1, 1)))[place // len(PALETTE) % 3]
    axes.plot(
        [number for number, _ in points], heights, color=PALETTE[place % len(PALETTE)], linewidth=1.7,
        linestyle=dashes, marker="o" if len(points) <= _MOST_ROUNDS_MARKED else None, markersize=4, clip_on=False,
    )  # fmt: skip
    return heights[-1]


def _label_ends(axes: "Axes", shown: Sequence[KeptFinding], ends: Sequence[float], inches: float) -> None:
    """Names beside the ends, moved apart where these are near each other."""
    wanted = [(end + 0.03) / 1.06 for end in ends]
    places = spread_out(wanted, gap=_LABEL_INCHES / inches, low=0.0, high=1.0)
    for number, (finding, end, place) in enumerate(zip(shown, wanted, places, strict=True)):
        colour = PALETTE[number % len(PALETTE)]
        axes.plot([1.0, 1.025], [end, place], transform=axes.transAxes, color=colour, linewidth=0.7, clip_on=False)
        axes.plot(1.025, place, marker="o", markersize=3.5, color=colour, transform=axes.transAxes, clip_on=False)
        axes.text(1.037, place, _text(finding), transform=axes.transAxes, va="center", fontsize=8.5, color=INK)
