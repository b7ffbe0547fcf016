import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from hushrec.errors import HushrecError
from hushrec.report.canvas import to_inline_svg, to_png, to_svg
from hushrec.report.figures import (
    Box,
    accuracy_against_bytes,
    bytes_by_message,
    curves_of,
    is_log_better,
    learning_curves,
    spread_out,
)
from hushrec.runs.record import Run

DRAW: dict[str, Callable] = {
    "curves": lambda runs: learning_curves(runs, "RMSE"),
    "bytes": bytes_by_message,
    "dots": lambda runs: accuracy_against_bytes(runs, "RMSE"),
}


@pytest.mark.parametrize("name", DRAW)
def test_svg_is_well_formed_and_the_same_each_time(runs: dict[str, Run], name: str) -> None:
    one, other = (to_svg(DRAW[name](list(runs.values()))) for _ in range(2))
    assert one == other
    assert "<dc:date>" not in one
    root = ElementTree.fromstring(one)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.findall(".//{http://www.w3.org/2000/svg}path")
    assert not root.findall(".//{http://www.w3.org/2000/svg}text")


@pytest.mark.parametrize("name", DRAW)
def test_png_is_one_and_the_same_each_time(runs: dict[str, Run], name: str) -> None:
    one, other = (to_png(DRAW[name](list(runs.values()))) for _ in range(2))
    assert one.startswith(b"\x89PNG\r\n")
    assert one == other


@pytest.mark.parametrize("name", DRAW)
def test_inline_svg_takes_the_colours_of_the_page(runs: dict[str, Run], name: str) -> None:
    text = to_inline_svg(DRAW[name](list(runs.values())), "here", 'a "title" & <more>')
    root = ElementTree.fromstring(text)
    assert root.tag == "svg"
    assert root.get("aria-label") == 'a "title" & <more>'
    assert "http" not in text
    assert "var(--ink)" in text
    assert "#24292f" not in text
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(str(one).startswith("here-") for one in ids)
    used = [element.get("href") for element in root.iter() if element.get("href")]
    assert used
    assert {str(one)[1:] for one in used} <= set(ids)


def test_names_that_look_like_mathematics_are_drawn(hostile: Run, runs: dict[str, Run]) -> None:
    for draw in DRAW.values():
        ElementTree.fromstring(to_svg(draw([hostile, runs["noisy"]])))


def test_curves_are_means_between_the_folds(runs: dict[str, Run]) -> None:
    (curve,) = curves_of([runs["noisy"]], "MAE")
    first, second = (fold.curve["MAE"] for fold in runs["noisy"].folds)
    assert curve.mean == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])
    assert curve.low == [min(pair) for pair in zip(first, second, strict=True)]
    assert curve.high == [max(pair) for pair in zip(first, second, strict=True)]


def test_coinciding_curves_take_turns(runs: dict[str, Run]) -> None:
    axes = learning_curves([runs["plain"], runs["denoised"], runs["noisy"]], "RMSE").axes[0]
    plain, denoised, noisy = axes.lines[:3]
    assert plain.get_ydata() == pytest.approx(denoised.get_ydata())
    assert plain.get_linestyle() == denoised.get_linestyle() == "--"
    assert plain._dash_pattern[0] != denoised._dash_pattern[0]
    assert noisy.get_linestyle() == "-"


def test_bars_are_as_long_as_the_bytes(runs: dict[str, Run]) -> None:
    run = runs["denoised"]
    axes = bytes_by_message([run]).axes[0]
    fold_bytes = [sum(fold.sent_bytes.values()) / 80 / fold.num_rounds for fold in run.folds]
    assert max(bar.get_x() + bar.get_width() for bar in axes.patches) == pytest.approx(sum(fold_bytes) / 2)


def test_nothing_to_draw_is_said(runs: dict[str, Run]) -> None:
    bare = replace(runs["pmf"], folds=[replace(fold, curve={}, metrics={}) for fold in runs["pmf"].folds])
    with pytest.raises(HushrecError, match="no run has a learning curve of RMSE"):
        learning_curves([bare], "RMSE")
    with pytest.raises(HushrecError, match="no run has RMSE"):
        accuracy_against_bytes([bare], "RMSE")


def test_without_matplotlib_the_error_names_the_command(
    runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in DRAW.values():
        with pytest.raises(HushrecError, match=r"figures need matplotlib; .*: pip install '\.\[report\]'"):
            draw([runs["pmf"]])


def test_labels_are_spread_out_within_limits() -> None:
    places = spread_out([0.0, 0.0, 0.01, 0.5, 1.0, 1.0], gap=0.1, low=0, high=1)
    ordered = sorted(places)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(ordered))
    assert ordered[0] >= 0
    assert ordered[-1] <= 1 + 1e-9
    assert places[3] == 0.5
    assert places[0] > places[1]


def test_scale_follows_the_values() -> None:
    assert not is_log_better([0, 1, 10])
    assert not is_log_better([5, 5])
    assert is_log_better([1, 10, 1000])


def test_boxes_meet_or_not() -> None:
    assert Box(0, 0, 2, 2).meets(Box(1, 1, 3, 3))
    assert not Box(0, 0, 2, 2).meets(Box(2, 0, 3, 2))
