"""The table of a comparison of systems, as cells of text: for the terminal, for docs and for pages."""

from collections.abc import Sequence

from hushrec.report.numbers import ABSENT, format_bytes, format_leakage, format_metric, format_seconds
from hushrec.survey.record import Look, Row, Survey

HEADINGS = ("system", "settings", "accuracy", "up", "down", "CPU", "server", "others", "active server", "audit")
_KEYS = 2  # of the headings: what a row is of


def cells_of(row: Row) -> list[str]:
    """A row, by `HEADINGS`."""
    settings = row.switches or "published"
    if not row.switches and not row.has_repair and not row.has_all_rows:
        settings += "; repair: none"
    if row.fault:
        return [row.system, settings, "not measured", *[ABSENT] * (len(HEADINGS) - _KEYS - 1)]
    sizes = (format_bytes(row.up_bytes), format_bytes(row.down_bytes), format_seconds(row.cpu_seconds))
    accuracy = f"{row.metric} {format_metric(row.accuracy)}"
    if row.has_all_rows:
        return [row.system, settings, accuracy, *sizes, "has all rows", ABSENT, ABSENT, ABSENT]
    num_rounds = row.server.num_rounds
    each = f"{num_rounds} round{'s' if num_rounds > 1 else ''}"
    audit = f"{each}, {row.server.num_users} users" if num_rounds else ABSENT
    looks = (look_text(row.server), _others(row), look_text(row.active))
    return [row.system, settings, accuracy, *sizes, *looks, audit]


def look_text(look: Look) -> str:
    """How far the strongest attack is from a blind guess, and which it is."""
    if look.advantage is None:
        return ABSENT
    if look.best is None:
        return "0.00 nothing to read"
    if not look.advantage:
        return "0.00 at chance"
    by = "" if look.best.role in ("server", "orchestrator", "active-server") else f", {look.best.role}"
    clear = ", stand-in" if look.best.is_of_stand_in else ""
    return f"{format_leakage(look.advantage)} {look.best.attack}{by}{clear}"


def _others(row: Row) -> str:
    """One of each role; if all together learn more, that too."""
    together, one = row.together.advantage or 0.0, row.others.advantage or 0.0
    if row.together.best is None or format_leakage(together) == format_leakage(one) or together < one:
        return look_text(row.others)
    best = row.together.best
    return f"{look_text(row.others)}; {format_leakage(together)} {best.attack}, {best.role.replace('+', '+all ')}s"


def heading_of(survey: Survey) -> str:
    """What the table is of, in a line."""
    made_up = " (synthetic)" if survey.is_synthetic else ""
    return (
        f"{survey.data}{made_up}: {survey.num_users:,} users, {survey.num_items:,} items, "
        f"{survey.num_ratings:,} rows; seed {survey.seed}, first fold"
    )


def lines_below(survey: Survey) -> list[str]:
    """What the numbers are, and what is missing."""
    told = [
        f"up, down, CPU: {_per(survey.rows)}; CPU of all parties and the server, one thread, with real masks and "
        "ciphertexts",
        "server, others, active server: what the strongest attack of each learns: 0 is a blind guess, 1 is all; "
        "others: another party, or one of each role together",
    ]
    if any(row.server.num_users for row in survey.rows):
        told.append(
            f"audits are of runs with up to {survey.audit_users} users, drawn; lies are told after two rounds"
        )
    return told + missing_lines(survey.rows)


def _per(rows: Sequence[Row]) -> str:
    """What bytes and CPU time are divided by."""
    usual = "client and round"
    others = [f"{row.system}: {row.per}" for row in rows if row.per not in ("", usual) and not row.switches]
    return f"per {usual}" + (f" ({', '.join(others)})" if others else "")


def missing_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each thing that was not measured."""
    faults = [f"{row.name}: not measured: {row.fault}" for row in rows if row.fault]
    return faults + [f"{row.name}: {line}" for row in rows for line in row.left_out]


def markdown_table(survey: Survey) -> str:
    """The table for a page of the docs."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for row in survey.rows:
        system, settings, *others = cells_of(row)
        settings = f"`{settings}`" if row.switches else settings
        lines.append(f"| `{system}` | {settings} | {' | '.join(others)} |")
    return "\n".join(lines)
