"""The section of the page on what attackers learn: of these runs, if they were audited, and of their systems."""

from collections.abc import Sequence
from html import escape

from hushrec.audit.kept import KeptAudit
from hushrec.report.audit_figure import audit_figure
from hushrec.report.canvas import to_inline_svg
from hushrec.report.html import Cell, Cells, html_figure, html_table, name_cell, paragraph, table_row
from hushrec.report.survey_figures import drawable, leakage_figure
from hushrec.report.survey_table import HEADINGS, cells_of
from hushrec.report.tables import labels
from hushrec.runs.record import Run
from hushrec.survey.record import Row, Survey, measured_surveys

Audits = Sequence[KeptAudit | None]  # one for each run, or none at all
_NUMBERS = ("accuracy", "up", "down", "CPU")


def leakage_section(runs: Sequence[Run], audits: Audits, compared: Survey | None) -> str:
    """Curves of the audits that were kept, then accuracy against leakage of each system on the data."""
    parts = [*_curves(runs, audits), *_systems(runs, compared)]
    if not parts:
        return paragraph(
            "These runs were not audited, and no comparison of systems on their data is at hand. "
            "hushrec audit RUN attacks a run and keeps what it finds; hushrec compare --data NAME --out DIR "
            "compares systems, and hushrec report --compared DIR shows it here."
        )
    return "\n".join(parts)


def _curves(runs: Sequence[Run], audits: Audits) -> list[str]:
    found = []
    for place, (label, audit) in enumerate(zip(labels(runs), audits or [None] * len(runs), strict=True)):
        if audit is None:
            continue
        if not any(value is not None for one in audit.findings for value in one.curve()):
            found.append(paragraph(f"{label}: no attack tried learned anything of it (audit of {audit.date})."))
            continue
        title = f"{label}: what attacks learn, round after round"
        svg = to_inline_svg(audit_figure(audit.findings), f"audit-{place}", title)
        found.append(html_figure(svg, f"{title}. Audit of {audit.date}, {audit.num_rounds} rounds."))
    return found


def _systems(runs: Sequence[Run], compared: Survey | None) -> list[str]:
    """A picture and a table for each system that a comparison on its data has."""
    found = []
    surveys = measured_surveys() | ({compared.data_sha256: compared} if compared else {})
    keys = dict.fromkeys((run.system, run.data, run.provenance.data_sha256) for run in runs)
    for place, (system, data, sha256) in enumerate(keys):
        survey = surveys.get(sha256)
        rows = survey.of_system(system) if survey else []
        if survey is None or not drawable(rows):
            continue
        title = f"{rows[0].title} on {data}: accuracy against leakage, as published and repaired"
        svg = to_inline_svg(leakage_figure(rows, is_brief=False), f"leakage-{place}", title)
        origin = f"Measured by hushrec compare --data {data} on {survey.date}, not in these runs."
        found.append(f"<h3>{escape(rows[0].title)}</h3>\n{html_figure(svg, f'{title}. {origin}')}\n{_table(rows)}")
    return found


def _table(rows: Sequence[Row]) -> str:
    head: Cells = [Cell(name, "number") if name in _NUMBERS else name for name in HEADINGS[1:]]
    body = []
    for row in rows:
        cells: list[Cell | str] = [name_cell(cells_of(row)[1])]
        for name, text in list(zip(HEADINGS, cells_of(row), strict=True))[2:]:
            cells.append(Cell(text, "number" if name in _NUMBERS else "prose"))
        body.append(table_row(cells))
    return html_table(head, body)
