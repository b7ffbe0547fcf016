"""`hushrec report RUN...`: one HTML page about runs."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.console import note, print_json
from hushrec.cli.options import RunFolders
from hushrec.report.findings import caveats
from hushrec.report.page import write_report
from hushrec.report.samples import sample_lists_of
from hushrec.report.tables import labels
from hushrec.runs.record import read_run


def report(
    runs: RunFolders,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    sample_lists: Annotated[
        int,
        typer.Option(help="Show the lists of so many people of each run, unnamed. They are private.", min=0),
    ] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the file's name.")] = False,
) -> None:
    """Write one HTML page about runs: a verdict, accuracy, learning curves, bytes, what is revealed, provenance.

    The page needs no network and no other file: send it by mail or print it.

    \b
    Example:
      hushrec run fedrec++ --data synthetic --rho 3 --out runs/one
      hushrec report runs/one --out report.html --open
    """
    kept = [read_run(folder) for folder in runs]
    samples = [one for folder in runs for one in sample_lists_of(folder, sample_lists)] if sample_lists else []
    path = write_report(kept, out, samples)
    for line in caveats(kept):
        note(line)
    if as_json:
        print_json({"report": str(path), "runs": labels(kept)})
    else:
        print(path)
    if open_page:
        webbrowser.open(path.resolve().as_uri())
