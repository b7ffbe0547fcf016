import pytest

from hushrec.experiments.published import Row, Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.report.reproduced import table_picture
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
