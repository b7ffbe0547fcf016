"""What a switch costs, as it was measured when all systems were compared."""

from hushrec.survey.record import Row, measured_surveys


def cost_of(system: str, switch: str, data_sha256: str) -> str:
    """What changes with a switch on data, with the date, to be put behind its name; empty: no record has it."""
    survey = measured_surveys().get(data_sha256)
    rows = [row for row in survey.of_system(system) if not row.fault] if survey else []
    published = next((row for row in rows if not row.switches), None)
    repaired = next((row for row in rows if has_switch(row, switch)), None)
    if survey is None or published is None or repaired is None:
        return ""
    what = "" if repaired.switches == switch else f"with {repaired.switches} "
    return f" ({what}on {survey.data}: {changes(published, repaired)}; measured {survey.date})"


def has_switch(row: Row, switch: str) -> bool:
    """Whether a switch, or all of several, are among those of a row."""
    wanted, has = (set(text.split("--")[1:]) for text in (f"{switch} ", f"{row.switches} "))
    return bool(wanted) and wanted <= has


def changes(published: Row, repaired: Row) -> str:
    """Accuracy, bytes, CPU time and leakage, before and after."""
    told = [f"{published.metric} {published.accuracy:.4f} to {repaired.accuracy:.4f}"]
    told += [
        f"{name} {_times(before, after)}"
        for name, before, after in (
            ("upload", published.up_bytes, repaired.up_bytes),
            ("CPU", published.cpu_seconds, repaired.cpu_seconds),
        )
        if before > 0
    ]
    if published.leakage is not None and repaired.leakage is not None:
        told.append(f"leakage {published.leakage:.2f} to {repaired.leakage:.2f}")
    return ", ".join(told)


def _times(before: float, after: float) -> str:
    """By how much something grew.

    >>> _times(2, 3), _times(10, 475), _times(4, 4.001)
    ('x1.5', 'x48', 'x1.0')
    """
    ratio = after / before
    return f"x{ratio:.0f}" if ratio >= 9.95 else f"x{ratio:.1f}"
