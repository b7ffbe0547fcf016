"""The summary of all tables of a dataset: a few lines for the terminal, a page in Markdown for the docs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushrec.experiments.published import tables
from hushrec.experiments.reproduction import Cell
from hushrec.experiments.summary import (
    NOT_RUN,
    ClaimRecord,
    RowRecord,
    Summary,
    TableRecord,
    measured_summaries,
    to_json,
)
from hushrec.files import write_file
from hushrec.report.numbers import format_figure, format_seconds


def picture_name(data: str, system: str, table: str) -> str:
    """The file of a figure, beside the page."""
    return f"{data}-{system.replace('+', 'p')}-{table}.png"


def write_page(summary: Summary, path: Path) -> None:
    """Write the page, and beside it the record that it is made from."""
    write_file(path.with_suffix(".json"), msgspec.json.format(to_json(summary), indent=1), "--page")
    write_file(path, page(summary, path.parent).encode(), "--page")


def summary_lines(summary: Summary) -> Iterator[str]:
    """The counts, the claims that do not hold with our reasons, and what is missing."""
    yield f"{summary.data}, {summary.date}, {format_seconds(summary.cpu_seconds)} of CPU"
    for name, count in summary.counts().items():
        yield f"  {name}: {count:,}"
    for heading, answers in (("claims that do not hold:", ("no",)), ("claims that hold in part:", ("in part",))):
        found = _alike(summary, answers)
        if found:
            yield heading
        for (name, text, why), claims in found.items():
            yield f"  {name}: {text}"
            for claim in claims:
                yield f"    {_place(claim.where, claim.preset)}{_figures(claim)}"
            if why:
                yield f"    why: {why}"
    missing = [(table, row) for table in summary.tables for row in table.rows if row.missing]
    if missing:
        yield "rows without a number:"
    for table in summary.tables:
        for line in _said_of_rows(table):
            yield f"  {_named(table)}, {line}"
    if any(row.missing == NOT_RUN for _, row in missing):
        yield "the same command goes on with the rows that were not run yet"


class ClaimRow(NamedTuple):
    """A claim about a system, as it was found when all tables were measured."""

    answer: str
    claim: str
    where: str
    why: str


def claims_about(systems: Iterable[str]) -> list[ClaimRow]:
    """All claims of the tables that have rows of these systems, from the records that come with hushrec."""
    wanted, known = set(systems), tables()
    return [
        ClaimRow(
            claim.answer, f"{_named(table)}: {claim.text}",
            f"{_place(claim.where, claim.preset)}, {summary.date}",
            " ".join(part for part in (_figures(claim).strip(), claim.why) if part),
        )
        for summary in measured_summaries().values()
        for table in summary.tables
        for claim in table.claims
        if (table.system, table.name) in known
        and wanted & {row.system for row in known[table.system, table.name].rows}
    ]  # fmt: skip


def _alike(summary: Summary, answers: tuple[str, ...]) -> dict[tuple[str, str, str], list[ClaimRecord]]:
    """Claims with one of these answers, by table, text and reason: the same on several splits and with presets."""
    found: dict[tuple[str, str, str], list[ClaimRecord]] = {}
    for table in summary.tables:
        for claim in table.claims:
            if claim.answer in answers:
                found.setdefault((_named(table), claim.text, claim.why), []).append(claim)
    return found


def _said_of_rows(table: TableRecord) -> Iterator[str]:
    """Why rows have no number; those with the same reason together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        if row.missing:
            alike.setdefault((row.where, row.missing), []).append(row.name)
    for (where, reason), names in alike.items():
        yield f"{where}, {'; '.join(names)}: {reason}"


def _named(table: TableRecord) -> str:
    return table.title.partition(":")[0]


def _place(where: str, preset: str) -> str:
    return f"{where}, {preset}" if preset else where


def _figures(claim: ClaimRecord) -> str:
    """By which measures it does not hold, with what the rows have; and where it does not on all folds."""
    told = []
    for name, values in claim.failed.items():
        numbers = ", ".join(format_figure(value) for value in values)
        told.append(f"{name} {numbers}{_on_folds(claim, name)}" if numbers else name)
    told += [f"{name}{_on_folds(claim, name)}" for name in claim.held if not _is_on_all(claim, name)]
    return f" ({'; '.join(told)})" if told else ""


def _on_folds(claim: ClaimRecord, name: str) -> str:
    folds = claim.folds.get(name)
    return f", on {folds[0]} of {folds[1]} folds" if folds else ""


def _is_on_all(claim: ClaimRecord, name: str) -> bool:
    held, every = claim.folds.get(name, (1, 1))
    return held == every


# --- The page ----------------------------------------------------------------------------------------------


def page(summary: Summary, folder: Path | None = None) -> str:
    """The page as text; pictures that lie in the folder are shown."""
    counts = "\n".join(f"| {name} | {count:,} |" for name, count in summary.counts().items())
    command = (
        f"hushrec reproduce --all --data {summary.data} --out runs --page {summary.data}.md {summary.options}"
    )
    parts = [
        f"# Published tables and claims on {summary.data}",
        f"Measured on {summary.date} with hushrec {summary.version}, {format_seconds(summary.cpu_seconds)} of "
        f"CPU. Made by `{command.strip()}`, which goes on where it was interrupted.",
        "Within: ours lies within the published standard deviation, or within one unit of a published count. "
        "Where a paper gives no deviation, ours is called near if it is within 10% of the published number. A "
        "claim is decided by the means of our folds and seeds.",
        f"| what | how many |\n|---|---|\n{counts}",
        *_failed_claims(summary),
    ]
    papers = dict.fromkeys(table.paper for table in summary.tables)
    for paper in papers:
        parts.append(f"## {paper}")
        for table in summary.tables:
            if table.paper == paper:
                parts += _table_parts(summary, table, folder)
    return "\n\n".join(parts) + "\n"


def _failed_claims(summary: Summary) -> Iterator[str]:
    found = _alike(summary, ("no", "in part"))
    if found:
        yield "## Claims that do not hold, or only in part"
    for (name, text, why), claims in found.items():
        reason = f" Why: {_escaped(why)}." if why else ""
        lines = [f"- {_escaped(f'{name}: {text}')}.{reason}"]
        lines += [
            f"  - **{claim.answer}** · {_escaped(f'{_place(claim.where, claim.preset)}{_figures(claim)}')}"
            for claim in claims
        ]
        yield "\n".join(lines)


def _claim_line(claim: ClaimRecord) -> str:
    where = _place(claim.where, claim.preset)
    return f"- **{claim.answer}** · {_escaped(f'{where}: {claim.text}{_figures(claim)}')}"


def _table_parts(summary: Summary, table: TableRecord, folder: Path | None) -> Iterator[str]:
    yield f"### {_escaped(table.title)}"
    picture = picture_name(summary.data, table.system, table.name)
    if folder and (folder / picture).exists():
        yield f"![{_escaped(table.title)}]({picture})"
    if table.measured not in ("", summary.date):
        yield f"Measured on {table.measured}."
    rows = [row for row in table.rows if row.cells]
    if rows:
        yield _markdown_grid(table, rows)
    for name, is_equal in table.bits.items():
        yield f"{_escaped(name)}: identical to the last bit: {'yes' if is_equal else 'no'}"
    said = [*_said_of_rows(table), *(f"{row.where}, {row.name}: {row.remark}" for row in table.rows if row.remark)]
    if said:
        yield "\n".join(f"- {_escaped(line)}" for line in said)
    notes = dict.fromkeys(row.note for row in table.rows if row.note)
    if notes:
        yield "\n".join(f"- note: {_escaped(note)}" for note in notes)
    if table.claims:
        yield "\n".join(_claim_line(claim) for claim in table.claims)


def _markdown_grid(table: TableRecord, rows: list[RowRecord]) -> str:
    """A line per row with ours, published and the verdict per metric; or a line per number, if they are many."""
    metrics = list(dict.fromkeys(cell.metric for row in rows for cell in row.cells))
    has_published = {cell.metric for row in rows for cell in row.cells if cell.published is not None}
    if len(metrics) > 4:
        lines = ["| data | row | measure | ours | published | |", "|---|---|---|---|---|---|"]
        for row in rows:
            lines += [
                f"| {row.where} | {_escaped(row.name)} | {_escaped(cell.metric)} | {' | '.join(_texts(cell))} |"
                for cell in row.cells
            ]
        return "\n".join(lines)
    heads = [head for name in metrics for head in ((name, "published", "") if name in has_published else (name,))]
    lines = [f"| data | row | {' | '.join(map(_escaped, heads))} |", "|---" * (2 + len(heads)) + "|"]
    for row in rows:
        texts = []
        for name in metrics:
            cell = next((cell for cell in row.cells if cell.metric == name), None)
            shown = _texts(cell) if cell else ["", "", ""]
            texts += shown if name in has_published else shown[:1]
        lines.append(f"| {row.where} | {_escaped(row.name)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _texts(cell: Cell) -> list[str]:
    ours = f"{cell.ours:,.{cell.decimals}f}" + (f" ± {cell.ours_std:.{cell.decimals}f}" if cell.ours_std else "")
    if cell.published is None:
        return [ours, "", ""]
    spread = "" if cell.published_std is None else f" ± {cell.published_std:.{cell.decimals}f}"
    published = f"{cell.published:,.{cell.decimals}f}{spread}"
    if cell.is_within is not None:
        return [ours, published, "within" if cell.is_within else f"{cell.difference or 0:+,.{cell.decimals}f}"]
    return [ours, published, "near" if cell.is_near else f"{cell.difference or 0:+,.{cell.decimals}f}"]


def _escaped(text: str) -> str:
    """Text within a line of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")
