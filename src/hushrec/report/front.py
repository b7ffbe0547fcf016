"""The figure of a search with several measures: what each trial gives for what it costs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hushrec.report.canvas import FAINT, INK, PALETTE, new_figure, style
from hushrec.report.numbers import format_bytes
from hushrec.tuning.measures import BYTES, LEAKAGE, is_small_good
from hushrec.tuning.results import Row, Tuned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEAR = 0.03  # of the width and height of a panel: nearer numbers would lie on each other
_NAMES = {BYTES: "bytes per party and round", LEAKAGE: "leakage: best attack above chance"}


def front_figure(tuned: Tuned) -> "Figure":
    """The first measure against each of the others; with two measures, trials of the front are joined."""
    with style():
        from matplotlib.ticker import MaxNLocator

        first, others = tuned.measures[0], tuned.measures[1:]
        figure = new_figure(4.4)
        panels = figure.subplots(1, len(others), squeeze=False)[0]
        done = [row for row in tuned.rows if row.measured]
        rest = [row for row in done if row not in tuned.front]
        low, high = _shown_range(tuned, done)
        margin = 0.08 * (high - low) or 0.1
        num_outside = sum(not low - margin <= row.measured[first] <= high + margin for row in done)
        outside = f"; {num_outside} worse ones are not shown" if num_outside else ""
        for axes, other in zip(panels, others, strict=True):
            _scatter(
                axes, rest, other, first, color=FAINT, s=26, label="other trials", edgecolors=INK, linewidths=0.4
            )
            if len(others) == 1:
                points = sorted((row.measured[other], row.measured[first]) for row in tuned.front)
                axes.plot(*zip(*points, strict=True), color=PALETTE[0], linewidth=1, alpha=0.6)
            _scatter(axes, tuned.front, other, first, color=PALETTE[0], s=42, label="front: none is better in all")
            if tuned.default is not None and tuned.default.measured:
                _scatter(axes, [tuned.default], other, first, facecolors="none", edgecolors=PALETTE[1], s=130,
                         linewidths=1.6, label="default")  # fmt: skip
            shown = [row for row in tuned.front if low - margin <= row.measured[first] <= high + margin]
            for point, label in _labels(shown, other, first, axes.get_xlim(), high - low + 2 * margin):
                axes.annotate(label, point, (5, 4), textcoords="offset points", fontsize=7.5)
            axes.set_xlabel(_NAMES.get(other, other))
            axes.set_ylabel(first)
            axes.set_ylim(low - margin, high + margin)
            if other == BYTES:
                axes.xaxis.set_major_formatter(lambda value, _place: format_bytes(value))
                axes.xaxis.set_major_locator(MaxNLocator(5))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper left", ncols=3, bbox_to_anchor=(0.01, 1.0))
        figure.suptitle(
            f"{tuned.system}, validation data; numbers are trials{outside}", x=0.99, ha="right", fontsize=9.5
        )
        figure.tight_layout(rect=(0, 0, 1, 0.93))
        return figure


def _scatter(axes: Any, rows: Sequence[Row], other: str, first: str, **looks: Any) -> None:
    axes.scatter([row.measured[other] for row in rows], [row.measured[first] for row in rows], **looks)


def _labels(
    rows: Sequence[Row], other: str, first: str, ends: tuple[float, float], height: float
) -> list[tuple[tuple[float, float], str]]:
    """Where the numbers of trials go; those whose points lie on each other share one place."""
    width = ends[1] - ends[0]
    groups: list[list[Row]] = []
    for row in rows:
        for group in groups:
            is_near = abs(group[0].measured[other] - row.measured[other]) <= _NEAR * width
            if is_near and abs(group[0].measured[first] - row.measured[first]) <= _NEAR * height:
                group.append(row)
                break
        else:
            groups.append([row])
    return [
        ((own[0].measured[other], own[0].measured[first]), ", ".join(str(row.number) for row in own))
        for own in groups
    ]


def _shown_range(tuned: Tuned, done: Sequence[Row]) -> tuple[float, float]:
    """From the best to what three of four trials reach, and the default: one that fails would hide all others."""
    name = tuned.measures[0]
    values = sorted((row.measured[name] for row in done), reverse=not is_small_good(name))
    ends = [values[0], values[int(0.75 * (len(values) - 1))]]
    if tuned.default is not None and tuned.default.measured:
        ends.append(tuned.default.measured[name])
    return min(ends), max(ends)
