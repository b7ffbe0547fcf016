"""The comparison of systems on one dataset: a table, JSON, a picture."""

import os
from pathlib import Path

import msgspec
from rich.table import Table

from hushrec.cli.compare import SurveyOptions
from hushrec.cli.console import counting, note, print_json, results, show
from hushrec.cli.endings import if_interrupted
from hushrec.errors import HushrecError
from hushrec.report.canvas import check_picture, write_picture
from hushrec.report.survey_figures import drawable, leakage_figure
from hushrec.report.survey_table import HEADINGS, cells_of, heading_of, lines_below, missing_lines
from hushrec.survey.bench import Bench
from hushrec.survey.record import Survey
from hushrec.survey.study import Wanted, survey, systems_named

_WORDS = ("system", "settings", "server", "others", "active server", "audit")  # columns of words


def compare_systems(options: SurveyOptions, picture: Path | None, as_json: bool) -> None:
    """Measure what is missing, print the table, and draw it if that is asked for."""
    assert options.data is not None
    check_picture(picture)
    systems = systems_named(options.systems)
    data = options.reading.load(options.data)
    bench = Bench(data, options.seed, options.audit_users, options.audit_rounds, options.budget)
    wanted = Wanted(bench, systems, options.jobs or min(_num_cores(), len(systems)))
    if options.out is None:
        note("nothing is kept if this is interrupted; add --out DIR to be able to go on with --resume")
    with (
        if_interrupted(_left_of(options)),
        counting(f"compare on {data.name}", len(wanted.keys), "rows") as tell,
    ):
        found = survey(wanted, options.out, options.resume, lambda done, _all, last: tell(done, last))
    if all(row.fault for row in found.rows):
        raise HushrecError(f"no system could be measured on {data.name}: {missing_lines(found.rows)[0]}")
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print_survey(found)
    if picture is not None:
        _draw(found, picture)


def print_survey(found: Survey) -> None:
    """The table, and what its numbers are."""
    out = results()
    out.print(heading_of(found))
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in _WORDS else "right")
    for row in found.rows:
        table.add_row(*cells_of(row))
    show(table, num_keys=2)
    for line in lines_below(found):
        out.print(line, soft_wrap=True)


def _draw(found: Survey, picture: Path) -> None:
    shown = drawable(found.rows)
    left_out = [row.name for row in found.rows if row not in shown]
    if left_out:
        note(f"not in the picture, as nothing was measured or no attack is known: {', '.join(left_out)}")
    is_brief = len({row.system for row in shown}) > 1
    write_picture(leakage_figure(found.rows, is_brief), picture)
    note(f"picture: {picture}")


def _left_of(options: SurveyOptions) -> str:
    """What an interrupted comparison leaves."""
    if options.out is None:
        return "interrupted; nothing is kept, as there was no --out"
    return f"interrupted; finished rows are in {options.out}; the same command goes on with --resume"


def _num_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
