"""The picture of a search: every trial of the front has its number, and none lies on another."""

from hushrec.report.front import front_figure
from hushrec.tuning.bench import Outcome
from hushrec.tuning.results import Row, Tuned

POINTS = {0: (1.5, 800.0), 4: (1.4, 900.0), 7: (1.401, 899.0), 9: (1.6, 200.0), 11: (9.0, 100.0), 12: (1.7, 950.0)}


def tuned() -> Tuned:
    rows = [Row(number, {}, Outcome({"RMSE": rmse, "bytes": size})) for number, (rmse, size) in POINTS.items()]
    return Tuned("pmf", ("RMSE", "bytes"), {}, tuple(rows))


def test_numbers_of_points_that_lie_on_each_other_stand_side_by_side() -> None:
    figure = front_figure(tuned())
    (axes,) = figure.axes
    assert sorted(text.get_text() for text in axes.texts) == ["0", "4, 7", "9"]
    assert axes.get_ylim()[1] < 9, "one that fails would hide all others"
    assert figure.get_suptitle() == "pmf, validation data; numbers are trials; 2 worse ones are not shown"


def test_all_words_are_within_the_picture() -> None:
    figure = front_figure(tuned())
    figure.canvas.draw()
    (axes,) = figure.axes
    words = [*axes.texts, axes.xaxis.label, axes.yaxis.label, *figure.texts]
    frame = figure.bbox
    for text in words:
        box = text.get_window_extent()
        if text.get_text():
            assert frame.x0 <= box.x0, text
            assert box.x1 <= frame.x1, text
            assert frame.y0 <= box.y0, text
            assert box.y1 <= frame.y1, text
