"""The report's verdict: runs beside baselines, warm and cold rows apart, what lists are like, and some of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from hushrec.report.html import Cells, html_table, name_cell, number_cell, paragraph, table_of_runs, table_row
from hushrec.report.numbers import ABSENT, format_count, format_metric, format_number, format_share
from hushrec.report.tables import labels
from hushrec.report.verdict import alike_line, judged_metrics, shown_beside, verdict_lines
from hushrec.runs.beside import THIRDS, main_length
from hushrec.runs.record import Run

_APART = (", warm", ", cold")


@dataclass(frozen=True)
class SampleList:
    """What is recommended to one person, who is not named."""

    run: str
    num_rated: int  # training ratings of that person
    entries: tuple[str, ...]  # titles, or ids where there are none; best first


Samples = Sequence[SampleList]


def is_apart(metric: str) -> bool:
    """Whether it is of warm or of cold rows only."""
    return metric.endswith(_APART)


def verdict_section(runs: Sequence[Run], samples: Samples = ()) -> str:
    """All of it; what no run has is left out."""
    names = labels(runs)
    parts = [_sentences(runs, names), _baselines(runs, names), _warm_and_cold(runs, names), _lists(runs, names)]
    return "\n".join([*(part for part in parts if part), *([_samples(samples)] if samples else [])])


def _sentences(runs: Sequence[Run], names: Sequence[str]) -> str:
    items = []
    for run, name in zip(runs, names, strict=True):
        alike = alike_line(run)
        lines = [*verdict_lines(run), *([alike] if alike else [])]
        if not run.baselines:
            lines.insert(0, "no baseline was measured; hushrec run ... --baselines does")
        items += [f"<li>{escape(f'{name}: {line}')}</li>" for line in lines]
    return "\n".join(["<ul>", *items, "</ul>"])


def _baselines(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Runs and their baselines, of all users, and of thirds of them by their number of training ratings."""
    having = [(run, name) for run, name in zip(runs, names, strict=True) if run.baselines]
    if not having:
        return ""
    metrics = list(dict.fromkeys(metric for run, _ in having for metric in shown_beside(run)))
    judged = dict.fromkeys(metric for run, _ in having for metric in judged_metrics(run))
    thirds = {f"{metric}, {word}": f"{metric}, {word.split()[0]}" for metric in judged for word in THIRDS}
    thirds = {name: short for name, short in thirds.items() if any(name in run.thirds for run, _ in having)}
    note = (
        "Baselines are centralised: they see all training rows. They are measured on the same test rows, with the "
        "same candidates."
    )
    parts = [_beside(having, {name: name for name in metrics}), paragraph(note, "soft")]
    if thirds:
        whom = "Few, some, many: thirds of the users, by their number of training ratings."
        parts += [_beside(having, thirds), paragraph(whom, "soft")]
    return "\n".join(parts)


def _beside(having: Sequence[tuple[Run, str]], headings: Mapping[str, str]) -> str:
    """A row per run, with a row below for each of its baselines; a column per metric."""
    rows: list[Cells] = []
    for run, label in having:
        for name, values in {label: run.mean | run.thirds, **run.baselines}.items():
            shown = name if name == label else f"{name}, centralised"
            cells = [number_cell(format_metric(values.get(metric))) for metric in headings]
            rows.append([name_cell(shown), *cells])
    return table_of_runs(["", *(number_cell(heading) for heading in headings.values())], rows)


def _warm_and_cold(runs: Sequence[Run], names: Sequence[str]) -> str:
    metrics = list(dict.fromkeys(name for run in runs for name in run.mean if is_apart(name)))
    if not metrics:
        return ""
    rows: list[Cells] = []
    for run, label in zip(runs, names, strict=True):
        num_cold = sum(fold.num_cold or 0 for fold in run.folds)
        num_warm = sum(fold.num_test for fold in run.folds) - num_cold
        counts = [number_cell(format_count(count)) for count in (num_warm, num_cold)]
        cells = [number_cell(format_metric(run.mean.get(metric))) for metric in metrics]
        rows.append([name_cell(label), *counts, *cells])
    head: Cells = ["", *(number_cell(name) for name in ("warm rows", "cold rows", *metrics))]
    note = "A test row is cold if its user or its item has no training row."
    return table_of_runs(head, rows) + paragraph(note, "soft")


def _lists(runs: Sequence[Run], names: Sequence[str]) -> str:
    having = [(run, name) for run, name in zip(runs, names, strict=True) if run.lists]
    if not having:
        return ""
    formats = {
        "lists": format_count,
        "distinct items": format_count,
        "coverage": format_share,
        "popularity": format_share,
        "novelty": format_number,
        "diversity": format_metric,
        "diversity within": format_metric,
        "most listed": format_share,
    }
    rows: list[Cells] = []
    for run, label in having:
        cells = [
            number_cell(write(run.lists[name]) if name in run.lists else ABSENT) for name, write in formats.items()
        ]
        raters = number_cell(str(run.provenance.min_raters or 0))
        rows.append([name_cell(label), number_cell(str(main_length(run.at))), raters, *cells])
    head: Cells = ["", *(number_cell(name) for name in ("length", "raters needed", *formats))]
    note = (
        "Popularity: the share of users who have a listed item in training. Novelty: in bits. Diversity: 0 where "
        "all lists are the same, 1 where no item is in two. Diversity within: 1 - the mean cosine of two items of "
        "a list, by who has them in training. Most listed: the share of lists with the same item."
    )
    return table_of_runs(head, rows) + paragraph(note, "soft")


def _samples(samples: Samples) -> str:
    """A column per person."""
    head: Cells = ["", *(f"{one.run}: a person with {format_count(one.num_rated)} ratings" for one in samples)]
    longest = max(len(one.entries) for one in samples)
    rows = [
        table_row([str(place + 1), *(one.entries[place] if place < len(one.entries) else "" for one in samples)])
        for place in range(longest)
    ]
    return html_table(head, rows)
