import pytest

from hushrec.experiments.published import Row, Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.report.reproduced import is_figure, table_picture
from hushrec.runs.record import Run

pytest.importorskip("matplotlib")


def drawn(kind: str, runs: dict[str, Run], *labels: str) -> list:
    """The panels of a table with these rows: ours 2, 4, ..., published 100 times as much."""
    rows = [Row(label, "pmf", "here", {}) for label in labels]
    done = [
        Reproduced(row, [Cell("kB", 2.0 * place, 0, 200.0 * place, None)], [runs["pmf"]])
        for place, row in enumerate(rows, 1)
    ]
    return table_picture(Table("t", "Title", "Nobody (2026)", kind, "none", ["kB"], rows), done).axes


def test_bytes_are_drawn_by_orders_of_magnitude(runs: dict[str, Run]) -> None:
    (panel,) = drawn("bytes", runs, "one", "two")
    assert panel.get_xscale() == "log"
    assert {panel.xaxis.get_major_formatter()(value) for value in (1, 1000)} == {"1", "1000"}
    assert panel.xaxis.get_minor_formatter()(3) == ""
    (panel,) = drawn("ranking", runs, "one", "two")
    assert panel.get_xscale() == "linear"
    assert sorted(float(line.get_xdata()[0]) for line in panel.lines) == [2, 4, 200, 400]


def test_long_names_have_room(runs: dict[str, Run]) -> None:
    short, long = (drawn("ranking", runs, label)[0].get_position().x0 for label in ("one", "one" * 10))
    assert short < 0.05 < 0.2 < long


def test_series_are_lines_over_the_axis_with_published_points(runs: dict[str, Run]) -> None:
    """Two series of two points, one of which is published, and one of a single point: a level."""
    rows = [
        Row("a 1", "pmf", "here", {}, series="a", x=1), Row("a 2", "pmf", "here", {}, series="a", x=2),
        Row("b 2", "pmf", "here", {}, series="b", x=2), Row("b 1", "pmf", "here", {}, series="b", x=1),
        Row("c", "pmf", "here", {}, series="c", x=2),
    ]  # fmt: skip
    values = [(0.1, 0.15), (0.2, None), (0.4, None), (0.3, None), (0.5, None)]
    done = [
        Reproduced(row, [Cell("M", ours, 0.0, published, None)], [runs["pmf"]])
        for row, (ours, published) in zip(rows, values, strict=True)
    ]
    table = Table("figure1", "T", "Nobody (2026)", "ranking", "none", ["M"], rows, x_label="epsilon")
    assert is_figure(table)
    figure = table_picture(table, done)
    (panel,) = figure.axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.lines]
    assert ([1, 2], [0.1, 0.2]) in drawn
    assert ([1, 2], [0.3, 0.4]) in drawn, "in the order of the axis"
    assert ([1], [0.15]) in drawn, "published"
    assert ([0, 1], [0.5, 0.5]) in drawn, "from side to side"
    assert figure.get_supxlabel() == "epsilon", "once, whatever the number of panels"


def test_values_too_close_to_be_told_apart_are_a_step_apart(runs: dict[str, Run]) -> None:
    rows = [Row(f"a {x}", "pmf", "here", {}, series="a", x=x) for x in (0.2, 0.5, 15)]
    done = [Reproduced(row, [Cell("M", row.x, 0.0, None, None)], [runs["pmf"]]) for row in rows]
    table = Table("figure1", "T", "Nobody (2026)", "ranking", "none", ["M"], rows, x_label="epsilon")
    (panel,) = table_picture(table, done).axes
    assert list(panel.lines[0].get_xdata()) == [0, 1, 2]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0.2", "0.5", "15"]
