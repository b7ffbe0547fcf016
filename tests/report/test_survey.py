"""The table and the pictures of a comparison of systems, and the record that comes with hushrec."""

from dataclasses import replace
from pathlib import Path

import pytest

from hushrec.audit.kept import KeptAudit, KeptFinding
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.report.audit_figure import audit_figure
from hushrec.report.canvas import to_png
from hushrec.report.leakage_section import leakage_section
from hushrec.report.page import page
from hushrec.report.survey_figures import leakage_figure
from hushrec.report.survey_table import HEADINGS, cells_of, lines_below, markdown_table, missing_lines
from hushrec.runs.record import Run
from hushrec.settings import switches_of
from hushrec.survey.record import Leak, Look, Row, Survey, measured_surveys

DOCS = Path(__file__).parents[2] / "docs"
READ = Look(3, Leak("listed items", "server", "F1", 1.0, 0.5, 1.0), 5, 200)


def row(system: str = "fedrec", switches: str = "", leak: float = 1.0, accuracy: float = 0.9) -> Row:
    best = Leak("listed items", "server", "F1", 0.5 + leak / 2, 0.5, leak)
    return Row(
        system, system.upper(), switches, metric="RMSE", accuracy=accuracy, up_bytes=2e3, down_bytes=1e5,
        per="client and round", cpu_seconds=0.002, has_repair=True, server=Look(2, best, 5, 200),
    )  # fmt: skip


def cells(one: Row) -> dict[str, str]:
    return dict(zip(HEADINGS, cells_of(one), strict=True))


def test_cells() -> None:
    told = cells(row())
    assert (told["system"], told["settings"], told["accuracy"]) == ("fedrec", "published", "RMSE 0.9000")
    assert (told["up"], told["down"], told["CPU"]) == ("2.00 KB", "100 KB", "2.00 ms")
    assert (told["server"], told["others"], told["audit"]) == ("1.00 listed items", "–", "5 rounds, 200 users")


def test_cells_of_what_is_not_usual() -> None:
    all_rows = Row("pmf", "PMF", metric="RMSE", accuracy=0.9, has_all_rows=True)
    assert cells(all_rows)["server"] == "has all rows"
    assert cells(all_rows)["settings"] == "published"
    alone = Row("metamf", "MetaMF", metric="NDCG@20", accuracy=0.1, server=Look(4), active=Look(0))
    assert cells(alone)["settings"] == "published; repair: none"
    assert cells(alone)["server"] == "0.00 nothing to read"
    assert cells(alone)["active server"] == "–"
    assert cells(Row("sdcf", "SDCF", fault="no ratings"))["accuracy"] == "not measured"
    noise = Leak("noise match", "server+denoiser", "F1", 1.0, 0.4, 1.0)
    chance = Leak("noise match", "server+denoiser", "F1", 0.4, 0.4, 0.0)
    shares = Row(
        "x", "X", "--shares 2", metric="RMSE", accuracy=1, others=Look(1, chance), together=Look(1, noise)
    )
    assert cells(shares)["others"] == "0.00 at chance; 1.00 noise match, server+all denoisers"


def test_what_is_missing_is_said() -> None:
    rows = [Row("sdcf", "SDCF", fault="no ratings"), Row("fcf", "FCF", "--secure-sums", left_out=["too slow"])]
    assert missing_lines(rows) == ["sdcf: not measured: no ratings", "fcf --secure-sums: too slow"]


def _texts_meet(rows: list[Row], is_brief: bool) -> list[tuple[str, str]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = leakage_figure(rows, is_brief)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = []
    for axes in figure.axes:
        texts = [one for one in axes.get_children() if isinstance(one, Text)]
        texts += [axes.xaxis.label, *axes.get_yticklabels(), *axes.get_xticklabels()]
        boxes += [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text()]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, second in boxes[place + 1 :]
        if box.overlaps(second)
    ]


@pytest.mark.parametrize("is_brief", [True, False])
def test_labels_do_not_overlap(is_brief: bool) -> None:
    """Many dots in one place, on both sides."""
    names = [f"system-{number}" for number in range(9 if is_brief else 1)]
    rows = [row(name, accuracy=0.9 + 0.0001 * place) for place, name in enumerate(names)]
    rows += [row(name, "--secure-sums", 0.02, 0.9) for name in names]
    assert _texts_meet(rows, is_brief) == []


def test_a_long_title_leaves_the_panel_its_room() -> None:
    """The short name stands for it: else tick labels met."""
    rows = [
        replace(row("mine"), title="A system whose title is a sentence of its own"),
        row("mine", "--shares 2", 0),
    ]
    assert _texts_meet(rows, is_brief=True) == []
    assert [text.get_text() for text in leakage_figure(rows).axes[0].texts][-1].startswith("mine ")


def test_picture_has_a_panel_per_metric_and_what_it_needs() -> None:
    implicit = Row("fcf", "FCF", metric="NDCG@20", accuracy=0.2, server=READ)
    figure = leakage_figure([row(), implicit, Row("sdcf", "SDCF", fault="no ratings")])
    assert [axes.get_title(loc="left").partition(" ")[0] for axes in figure.axes] == ["RMSE", "NDCG@20"]
    bottom, top = figure.axes[0].get_ylim()
    assert bottom > top, "a small error is on top"
    assert to_png(figure).startswith(b"\x89PNG")
    with pytest.raises(HushrecError, match="to draw"):
        leakage_figure([Row("sdcf", "SDCF", fault="no ratings")])


# --- Audits ------------------------------------------------------------------------------------------------------


def finding(name: str = "intersection") -> KeptFinding:
    return KeptFinding(name, "server", "precision", 0.75, 0.5, None, [0.4, None, 0.75])


def test_curves_of_an_audit() -> None:
    assert finding().curve() == pytest.approx([-0.2, None, 0.5])
    figure = audit_figure([finding(), finding("listed items")])
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [1, 3]
    assert list(line.get_ydata()) == [0, 0.5], "worse than a blind guess is nothing learned"
    with pytest.raises(HushrecError, match="nothing to draw"):
        audit_figure([])


def test_report_shows_audits_and_comparisons(runs: dict[str, Run]) -> None:
    both = [runs["plain"], runs["denoised"]]
    survey = Survey(
        both[0].data, both[0].provenance.data_sha256, 1, 1, 1, 0, "2026-01-02", "0", "", 200,
        rows=[row("fedrec"), row("fedrec", "--secure-sums", 0.0)],
    )  # fmt: skip
    text = page(both, (), [KeptAudit(3, "2026-02-03", [finding()]), None], survey)
    assert "what attacks learn, round after round. Audit of 2026-02-03, 3 rounds." in text
    assert "on 2026-01-02, not in these runs" in text
    assert "1.00 listed items" in text
    assert "were not audited" in leakage_section(both, (), None)


# --- The record that comes with hushrec --------------------------------------------------------------------------


@pytest.mark.parametrize("survey", measured_surveys().values(), ids=lambda survey: survey.data)
def test_record_has_no_settings_that_nobody_declares(survey: Survey) -> None:
    for name in dict.fromkeys(one.system for one in survey.rows):
        declared = ["", *map(switches_of, system_named(name).about.repairs)]
        recorded = [one.switches for one in survey.of_system(name)]
        assert recorded == [switches for switches in declared if switches in recorded]
        assert recorded[0] == ""
    assert lines_below(survey)


@pytest.mark.parametrize("survey", measured_surveys().values(), ids=lambda survey: survey.data)
def test_docs_have_the_record(survey: Survey) -> None:
    assert markdown_table(survey) in (DOCS / "compare.md").read_text(encoding="utf-8")
