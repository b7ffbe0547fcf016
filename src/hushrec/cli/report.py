"""`hushrec report RUN...`: one HTML page about runs."""

from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import RunFolders


def report(
    runs: RunFolders,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    sample_lists: Annotated[
        int,
        typer.Option(
            help="Show the lists of so many people of each run, unnamed. They are private.", min=0, max=100
        ),
    ] = 0,
    compared: Annotated[
        Path | None,
        typer.Option(
            help="The folder of a comparison of systems on the same data: hushrec compare --data ... --out; "
            "default: the one that comes with hushrec, if there is one."
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the file's name.")] = False,
) -> None:
    """Write one HTML page about runs: a verdict, accuracy, learning curves, bytes, what is revealed, provenance.

    Of a run that was audited (hushrec audit RUN) it shows what attacks learned, round after round.

    The page needs no network and no other file: send it by mail or print it.

    \b
    Example:
      hushrec run fedrec++ --data synthetic --rho 3 --out runs/one
      hushrec report runs/one --out report.html --open
    """
    work("report").report_runs(runs, out, sample_lists, compared, open_page, as_json)
