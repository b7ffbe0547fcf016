import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.experiments.published import Row, Table
from hushrec.experiments.reproduction import Cell, Reproduced
from hushrec.registry import system_named
from hushrec.report.canvas import to_svg
from hushrec.report.findings import summary
from hushrec.report.numbers import ABSENT, format_bytes
from hushrec.report.page import page
from hushrec.report.properties import provenance_rows
from hushrec.report.reproduced import table_picture
from hushrec.report.stream_figures import curve_panels, first_and_last, stream_figures, time_by_step
from hushrec.report.tables import main_metric, per_party, shown_metrics, up_and_down
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions

STEPS = {
    "preprocessing": {"all": 1.0},
    "encryption": {"owner1": 2.0, "owner2": 3.0},
    "update": {"orchestrator": 0.5},
}


@pytest.fixture(scope="module")
def streams() -> list[Run]:
    """DRIFT with two owners and SAROS, on synthetic data."""
    data = hushrec.load("synthetic:users=60,items=40,ratings=1500")
    made = []
    for name, owners in (("drift", "2"), ("saros", "")):
        system = system_named(name)
        config = system.configure({"epochs": 3, "parts": 2, "num_factors": 3})
        settings = RunSettings(split="random", at=(1, 5), owners=owners)
        made.append(run(system, config, data, settings, RuntimeOptions(threads=1)))
    return made


def test_curves_go_by_epoch_though_rounds_are_shorter(streams: list[Run]) -> None:
    assert streams[0].folds[0].num_rounds == 6
    figure = curve_panels(streams, ("train loss", "test loss"), ("one", "two"))
    train, test = figure.axes
    assert [axes.get_title(loc="left") for axes in (train, test)] == ["train loss", "test loss"]
    assert {axes.get_xlabel() for axes in (train, test)} == {"epoch"}
    for line, done in zip(test.lines, streams, strict=True):
        assert line.get_xdata().tolist() == [1, 2, 3]
        assert line.get_ydata().tolist() == done.folds[0].curve["test loss"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


@pytest.mark.parametrize("prefix", ["", "held-back "])
def test_bars_are_the_first_and_the_last_epoch(streams: list[Run], prefix: str) -> None:
    axes = {panel.get_title(loc="left"): panel for panel in first_and_last(streams, ("one", "two"), prefix).axes}
    for metric in ("MAP", "NDCG"):
        for when, place in (("after epoch 1", 0), ("at the end", -1)):
            heights = [bar.get_height() for bar in axes[f"{prefix}{metric} {when}"].patches]
            expected = [done.folds[0].curve[f"{prefix}{metric}@{k}"][place] for done in streams for k in (1, 5)]
            assert heights == expected


def with_times(done: Run) -> Run:
    return replace(done, folds=[replace(done.folds[0], seconds=STEPS)])


def test_times_are_stacked_by_step_and_by_owner(streams: list[Run]) -> None:
    above, below = time_by_step([with_times(streams[0])], ["drift"]).axes
    assert [(bar.get_x(), bar.get_width()) for bar in above.patches] == [(0, 1), (1, 5), (6, 0.5)]
    assert [bar.get_width() for bar in below.patches] == [2, 3]
    assert [label.get_text() for label in below.get_yticklabels()] == ["owner1", "owner2"]
    with pytest.raises(HushrecError, match=r"hushrec reproduce drift figure6\.3"):
        time_by_step(streams, ["one", "two"])


def test_costs_are_bars_by_dataset_and_measure(streams: list[Run]) -> None:
    rows = [Row(label, "drift", data, {}) for data in ("here", "there") for label in ("one", "two")]
    names = ["NDCG@10", "deliveries", "MB"]
    done = [
        Reproduced(row, [Cell(name, place + 1.0, 0, None, None) for name in names], [streams[0]])
        for place, row in enumerate(rows)
    ]
    table = Table("costs", "Costs", "Nobody (2026)", "cost", "none", names, rows)
    panels = table_picture(table, done).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["NDCG@10", "MB", "", ""]
    widths = [[bar.get_width() for bar in panel.patches] for panel in panels]
    assert widths == [[1, 2], [1, 2], [3, 4], [3, 4]]
    assert [text.get_text() for text in panels[2].get_yticklabels()] == ["there: one", "there: two"]


def test_the_page_has_what_there_is(streams: list[Run], runs: dict[str, Run]) -> None:
    assert len(stream_figures(streams)) == 3
    assert len(stream_figures([with_times(streams[0])])) == 4
    assert stream_figures([runs["pmf"]]) == {}
    for figure in stream_figures([with_times(streams[0])]).values():
        ElementTree.fromstring(to_svg(figure))
    mixed = page([streams[0], runs["pmf"]])
    assert "Mean loss of blocks after every epoch" in mixed
    assert "RMSE on the test part after every round" in mixed
    assert "MAP@5 on the test part after every round" not in mixed
    assert "per party and round" in mixed


def test_what_is_said_of_streams(streams: list[Run], runs: dict[str, Run]) -> None:
    """Bytes of one owner and of two are compared as they are, not divided by owners."""
    assert per_party(streams) == "per round, all together"
    assert per_party([runs["pmf"]]) == "per client and round"
    assert per_party([streams[0], runs["pmf"]]) == "per party and round"
    totals = [sum(done.folds[0].sent_bytes.values()) for done in streams]
    sent = [f"{format_bytes(total)} with {name}" for total, name in zip(totals, ("DRIFT", "SAROS"), strict=True)]
    for done, total in zip(streams, totals, strict=True):
        assert sum(up_and_down(done)) == pytest.approx(total / 6)
    assert f"All parties together send {' and '.join(sent)}." in summary(streams)
    told = {row.name: row.values for row in provenance_rows(streams)}
    assert told["parties"] == ["2 owners", "1 owner"]
    assert re.fullmatch(r"2 owners: owner1, owner2; 1\.\d\d owners per item and .*", told["who holds what"][0])
    assert told["who holds what"][1] == ABSENT


def test_streams_show_map_and_ndcg_only(streams: list[Run], runs: dict[str, Run]) -> None:
    assert shown_metrics(streams) == ["NDCG@1", "MAP@1", "NDCG@5", "MAP@5"]
    assert "HR@10" in shown_metrics([runs["pmf"]])
    assert main_metric(streams) == "NDCG@1"
    longer = {"NDCG@1": 0.1, "NDCG@10": 0.2}
    assert main_metric([replace(streams[0], folds=[replace(streams[0].folds[0], metrics=longer)])]) == "NDCG@10"
