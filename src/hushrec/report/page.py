"""One HTML page about runs that needs nothing else: no script, no network, no other file."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from hushrec.errors import HushrecError, option
from hushrec.files import write_file
from hushrec.protocol import AnySystem
from hushrec.protocol.declared import reveals, threat_model
from hushrec.registry import system_named
from hushrec.report.canvas import to_inline_svg
from hushrec.report.deviations import Deviation, deviations
from hushrec.report.figures import bytes_by_message, curves_of, learning_curves
from hushrec.report.findings import caveats, summary, test_set
from hushrec.report.html import (
    Cell,
    Cells,
    class_of,
    html_figure,
    html_table,
    name_cell,
    number_cell,
    paragraph,
    prose,
    table_of_runs,
    table_row,
)
from hushrec.report.leakage_section import Audits, leakage_section
from hushrec.report.numbers import (
    ABSENT,
    format_bytes,
    format_count,
    format_difference,
    format_metric,
    format_spread,
)
from hushrec.report.properties import PropertyRow, digest_rows, provenance_rows, setting_rows
from hushrec.report.stream_figures import is_stream, stream_figures
from hushrec.report.summary_page import claims_about
from hushrec.report.tables import (
    MetricCell,
    MetricRow,
    best_text,
    labels,
    metric_rows,
    per_party,
    role_rows,
    short_title,
    shown_metrics,
    traffic_rows,
)
from hushrec.report.verdict_section import Samples, is_apart, verdict_section
from hushrec.runs.record import Run
from hushrec.survey.record import Survey

SECTIONS = {  # id: heading, and name in the list at the top
    "summary": ("Summary", "Summary"),
    "verdict": ("Is it worth it: baselines, and what lists are like", "Verdict"),
    "accuracy": ("Accuracy", "Accuracy"),
    "curves": ("Learning curves", "Learning curves"),
    "bytes": ("Bytes sent", "Bytes sent"),
    "leakage": ("What attackers learn", "Leakage"),
    "systems": ("Systems, and what their messages reveal", "What is revealed"),
    "claims": ("What the papers claim, and what we found", "Claims"),
    "deviations": ("Departures from the papers", "Departures"),
    "settings": ("Settings", "Settings"),
    "provenance": ("Provenance", "Provenance"),
}


def write_report(
    runs: Sequence[Run], path: Path, samples: Samples = (), audits: Audits = (), compared: Survey | None = None
) -> Path:
    """Write the page about these runs; the same runs give the same page."""
    write_file(path, page(runs, samples, audits, compared).encode(), option("out"))
    return path


def page(runs: Sequence[Run], samples: Samples = (), audits: Audits = (), compared: Survey | None = None) -> str:
    """The page as text; with lists of some people, if they are given.

    `audits`: what was found of each run, None where nobody looked. `compared`: a comparison of systems on the data
    of these runs; without it, the one that comes with hushrec, if there is one.
    """
    finished = [run for run in runs if run.folds]
    if not finished:
        raise HushrecError("no run has a finished fold to report; finish one with: hushrec run ... --resume")
    bodies = {
        "summary": _summary(runs, finished),
        "verdict": verdict_section(finished, samples),
        "accuracy": _accuracy(finished),
        "curves": _curves(finished),
        "bytes": _bytes(finished),
        "leakage": leakage_section(runs, audits, compared),
        "systems": _systems(finished),
        "claims": _claims(finished),
        "deviations": _deviations(finished),
        "settings": _properties(setting_rows(finished), labels(finished)),
        "provenance": _provenance(finished),
    }
    sections = "\n".join(
        f'<section id="{name}">\n<h2>{escape(SECTIONS[name][0])}</h2>\n{body}\n</section>'
        for name, body in bodies.items()
    )
    links = "".join(f'<a href="#{name}">{escape(title)}</a> ' for name, (_, title) in SECTIONS.items())
    title = _title(finished)
    style = files("hushrec.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{escape(title)}{_synthetic_tag(finished)}</h1>\n<nav>{links}</nav>\n</header>\n"
        f"<main>\n{sections}\n</main>\n"
        f"<footer>Made by hushrec. Nothing here names a user or shows a rating.{_shown_lists(samples)}</footer>\n"
        "</body>\n</html>\n"
    )


def _shown_lists(samples: Samples) -> str:
    return " The lists of some people are shown: they are private; mind who sees them." if samples else ""


def _title(runs: Sequence[Run]) -> str:
    systems = list(dict.fromkeys(short_title(system_named(run.system)) for run in runs))
    data = list(dict.fromkeys(run.data for run in runs))
    return f"{_listed(systems)} on {_listed(data)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _synthetic_tag(runs: Sequence[Run]) -> str:
    return ' <span class="tag">synthetic data</span>' if any(run.provenance.is_synthetic for run in runs) else ""


# --- Settings and the like -------------------------------------------------------------------------------


def _properties(rows: Sequence[PropertyRow], names: Sequence[str], kind: str = "") -> str:
    """A row per property and a column per run; one wide cell where all runs have the same."""
    has_meanings = any(row.meaning for row in rows)
    found = []
    for row in rows:
        texts, span = (row.values[:1], len(names)) if row.is_shared else (row.values, 1)
        wide = f' colspan="{span}"' if span > 1 else ""
        cells = "".join(f"<td{wide}{class_of(kind or _kind_of(row))}>{escape(text)}</td>" for text in texts)
        meaning = f'<td class="soft">{escape(row.meaning)}</td>' if has_meanings else ""
        found.append(f'<tr><th class="name">{escape(row.name)}</th>{cells}{meaning}</tr>')
    return html_table(["", *names, *(["meaning"] if has_meanings else [])], found)


def _kind_of(row: PropertyRow) -> str:
    return "digest" if "SHA-256" in row.name else ""


# --- Sections --------------------------------------------------------------------------------------------


def _summary(runs: Sequence[Run], finished: Sequence[Run]) -> str:
    sentences = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in summary(finished))
    lines = caveats(runs)
    warnings = "".join(f"<li>Note: {escape(line)}</li>" for line in lines)
    extra = f'<ul class="caveats">{warnings}</ul>' if lines else ""
    return f'<div class="summary"><ul>\n{sentences}</ul>{extra}</div>'


def _accuracy(runs: Sequence[Run]) -> str:
    names, rows = [name for name in shown_metrics(runs) if not is_apart(name)], metric_rows(runs)
    if not names:
        return paragraph("These runs were fitted on all data, without a test, so there is no accuracy to show.")
    is_fair = len({test_set(run) for run in runs}) == 1
    best = {name: best_text(rows, name) if is_fair else None for name in names}
    head: Cells = ["run", number_cell("folds"), *(number_cell(name) for name in names)]
    body: list[Cells] = [
        [
            name_cell(row.label),
            number_cell(str(row.num_folds)),
            *(_metric_cell(row.cells.get(name), best[name]) for name in names),
        ]
        for row in rows
    ]
    note = "Mean over the folds, and standard deviation where there are several."
    note += " Bold: the best value as printed." if is_fair and len(runs) > 1 else ""
    is_graded = [
        run.relevant_from is None and run.provenance.rating_range is not None and not is_stream(run)
        for run in runs
    ]
    if any(graded and any("@" in name for name in run.mean) for graded, run in zip(is_graded, runs, strict=True)):
        note += " Ranking metrics count ratings in the upper quarter of the range as relevant."
    return table_of_runs(head, body) + paragraph(note, "soft") + _published(rows)


def _metric_cell(cell: MetricCell | None, best: str | None) -> Cell:
    if cell is None:
        return number_cell(ABSENT)
    mean = format_metric(cell.mean)
    below = "" if cell.std is None else f"± {format_metric(cell.std)}"
    return Cell(mean, "number best" if mean == best else "number", below)


def _published(rows: Sequence[MetricRow]) -> str:
    found = []
    for row in rows:
        has_begun = False
        for name, cell in row.cells.items():
            if cell.published is not None and cell.difference is not None:
                verdict = {True: "within", False: "outside", None: ABSENT}[cell.is_within_spread]
                cells: Cells = [
                    name_cell("" if has_begun else row.label),
                    name,
                    number_cell(cell.text),
                    number_cell(format_spread(cell.published, cell.published_std)),
                    number_cell(format_difference(cell.difference)),
                    Cell(verdict, verdict if verdict != ABSENT else ""),
                    "" if has_begun else row.source or "",
                ]
                has_begun = True
                found.append(table_row(cells))
    title = "<h3>Beside the published values</h3>\n"
    if not found:
        return title + paragraph(
            "No published table that comes with hushrec has a row with these settings and data."
        )
    head: Cells = [
        "run",
        "metric",
        number_cell("ours"),
        number_cell("published"),
        number_cell("difference"),
        "spread",
        "where",
    ]
    note = (
        "Spread: whether the mean of our folds lies within one published standard deviation of the published mean."
    )
    return title + html_table(head, found) + paragraph(note, "soft")


def _curves(runs: Sequence[Run]) -> str:
    drawn = [
        html_figure(to_inline_svg(figure, f"stream-{place}", title), f"{title}.")
        for place, (title, figure) in enumerate(stream_figures(runs).items())
    ]
    runs = [run for run in runs if not is_stream(run)]
    if drawn and not runs:
        return "\n".join(drawn)
    metrics = dict.fromkeys(name for run in runs for name in run.folds[0].curve)
    for metric in sorted(metrics, key=lambda name: name != "RMSE"):
        if curves_of(runs, metric):
            title = f"{metric} on the test part after every round"
            svg = to_inline_svg(learning_curves(runs, metric), f"curve-{len(drawn)}", title)
            drawn.append(
                html_figure(svg, f"{title}: mean over the folds, in a band from the least to the greatest fold.")
            )
    note = (
        "Curves that coincide are drawn in turns of their colours. The number is the value after the last round."
    )
    return (
        "\n".join(drawn) + paragraph(note, "soft") if drawn else paragraph("These runs kept no learning curves.")
    )


def _bytes(runs: Sequence[Run]) -> str:
    if not any(traffic_rows(run) for run in runs):
        return paragraph(
            "No bytes were counted here. What the nodes of a deployment send is counted by its server."
        )
    each = per_party(runs)
    title = f"Bytes sent {each}, by type of message"
    svg = to_inline_svg(bytes_by_message(runs), "bytes", title)
    caption = f"{title}: all bytes of a fold, divided. What the driving side sends comes last in each bar."
    roles = []
    for run, label in zip(runs, labels(runs), strict=True):
        for place, row in enumerate(role_rows(run)):
            sizes = (row.sent, row.received, row.sent_per_client_round, row.received_per_client_round)
            numbers = [number_cell(format_bytes(size)) for size in sizes]
            roles.append(table_row([name_cell("" if place else label), row.role, *numbers]))
    columns = ("send", "get", f"send {each}", f"get {each}")
    by_role = html_table(["run", "role", *map(number_cell, columns)], roles)
    return (
        html_figure(svg, caption)
        + "<h3>By role</h3>\n"
        + by_role
        + "<h3>By type of message</h3>\n"
        + _traffic(runs)
        + paragraph(
            _BYTES_NOTE,
            "soft",
        )
    )


_BYTES_NOTE = (
    "Messages, vectors and bytes of one fold, the mean where there are several. Vectors are those in lists of a "
    "party's own length. Per party and round: divided by all of them and all rounds. 1 KB is 1000 bytes."
)


def _traffic(runs: Sequence[Run]) -> str:
    columns = ("messages", "vectors", "bytes", per_party(runs))
    body = []
    for run, label in zip(runs, labels(runs), strict=True):
        rows = traffic_rows(run)
        totals = [sum(row.bytes for row in rows), sum(row.per_client_round for row in rows)]
        cells: Cells = [name_cell(label), "", "", "", *(number_cell(format_bytes(total)) for total in totals)]
        body.append(table_row(cells, num_heads=len(cells), kind="group"))
        for row in rows:
            vectors = format_count(row.vectors) if row.vectors else ABSENT
            counts = [number_cell(format_count(row.messages)), number_cell(vectors)]
            sizes = [number_cell(format_bytes(size)) for size in (row.bytes, row.per_client_round)]
            body.append(table_row([row.type, row.way, *counts, *sizes], num_heads=0))
    return html_table(["message", "way", *map(number_cell, columns)], body)


def _systems(runs: Sequence[Run]) -> str:
    systems = [system_named(name) for name in dict.fromkeys(run.system for run in runs)]
    return "\n".join(_system(system, [run for run in runs if run.system == system.name]) for system in systems)


def _system(system: AnySystem, runs: Sequence[Run]) -> str:
    paper = system.about.paper
    citation = f"{paper.authors}: {paper.title}. {paper.venue} {paper.year}."
    head = ["message", "from", "to", "reveals to its receiver"]
    sent = {row.type for run in runs for row in traffic_rows(run)}
    rows = [
        table_row([name_cell(message.__name__), message.sender, message.receiver, Cell(reveals(message), "prose")])
        for message in system.messages
        if message.__name__ in sent
    ]
    others = [message.__name__ for message in system.messages if message.__name__ not in sent]
    threat = threat_model(system)
    return (
        f"<h3>{escape(system.about.title)}</h3>\n"
        + paragraph(citation, "soft")
        + (f"<p><strong>Threat model:</strong> {prose(threat)}</p>" if threat else "")
        + html_table(head, rows)
        + (paragraph(f"Not sent with these settings: {', '.join(others)}.", "soft") if others else "")
    )


def _claims(runs: Sequence[Run]) -> str:
    found = claims_about(dict.fromkeys(run.system for run in runs))
    if not found:
        return paragraph("No table that comes with hushrec decides a claim about these systems.")
    rows = [
        table_row([Cell(answer, "name"), Cell(claim, "prose"), where, Cell(why, "prose")])
        for answer, claim, where, why in found
    ]
    note = "Measured by hushrec reproduce --all on the date given, not in these runs."
    return html_table(["holds", "claim", "where", "figures and reason, if it does not"], rows) + paragraph(
        note, "soft"
    )


def _deviations(runs: Sequence[Run]) -> str:
    users: dict[Deviation, list[str]] = {}
    for name in dict.fromkeys(run.system for run in runs):
        for found in deviations(system_named(name)):
            users.setdefault(found, []).append(short_title(system_named(name)))
    if not users:
        return paragraph("The code of these systems marks no departure from their papers.")
    rows = [
        table_row([name_cell(f"{found.file}:{found.line}"), Cell(found.text, "prose"), ", ".join(systems)])
        for found, systems in users.items()
    ]
    return html_table(["in the code", "departure", "systems that use it"], rows)


def _provenance(runs: Sequence[Run]) -> str:
    names = labels(runs)
    note = "Cold test cases: test ratings whose user or item has no training rating. Lists go fold by fold."
    return (
        _properties(provenance_rows(runs), names)
        + paragraph(note, "soft")
        + "<h3>Digests of the final models</h3>\n"
        + _properties(digest_rows(runs), names, "digest")
        + paragraph("First 12 digits of SHA-256 over the arrays. Equal digests: equal to the last bit.", "soft")
    )
