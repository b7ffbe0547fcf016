"""`hushrec compare RUN...`: runs side by side. `hushrec compare --data NAME`: all systems on one dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, ReadingOptions, Seed, complete_data
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.files import check_folder_to_write


@dataclass(frozen=True, kw_only=True)
class SurveyOptions:
    """Options of a comparison of systems."""

    reading: ReadingOptions
    data: Annotated[
        str | None,
        typer.Option(
            help="Compare systems on this dataset or file, as published and repaired, instead of runs.",
            autocompletion=complete_data,
        ),
    ] = None
    systems: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="With --data: only these systems, as in fedrec,fcf.")
    ] = None
    seed: Seed = 0
    jobs: Annotated[
        int | None,
        typer.Option(help="With --data: systems at once, each in a process; default: all cores.", min=1, max=256),
    ] = None
    audit_users: Annotated[
        int, typer.Option(help="With --data: audited runs have the rows of so many users, drawn.", min=2)
    ] = 200
    audit_rounds: Annotated[
        int | None,
        typer.Option(help="With --data: rounds of an audit; default: as many as tell most, 5 to 50.", min=1),
    ] = None
    budget: Annotated[
        float,
        typer.Option(help="With --data: seconds of CPU for the training of a row, and for its audit.", min=1),
    ] = 300.0
    out: Annotated[Path | None, typer.Option(help="With --data: folder to keep the rows in.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the rows in --out.")] = False

    def __post_init__(self) -> None:
        if self.resume and self.out is None:
            raise HushrecError("--resume needs --out, the folder of the comparison to go on with")
        if self.out is not None:
            check_folder_to_write(self.out, "--out")


def compare(
    said: Said,
    survey: SurveyOptions,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, as `hushrec run --out` makes them.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png|svg",
            help="Draw into this file: of runs accuracy against bytes, of systems accuracy against leakage.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs, or with --data all systems: accuracy, bytes, CPU time, and what attackers learn.

    Of runs: accuracy, bytes, CPU time, and which of them end with the same model, bit for bit. Bytes are per
    client and round, with owners of all of them: up is what they send, down what the server sends.

    With --data: every system with its published settings and with those that repair it: accuracy, bytes, CPU time,
    and how much the server, other parties and a server that lies learn. Rows are kept in --out as they are done.

    \b
    Example:
      hushrec run fedrec --data synthetic --rho 0 --out runs/one
      hushrec run fedrec++ --data synthetic --rho 3 --out runs/two
      hushrec compare runs/one runs/two --picture compare.png
      hushrec compare --data ml-100k --out compared --picture systems.png
    """
    if survey.data is None:
        if not runs:
            raise HushrecError("nothing to compare; name folders of runs, or a dataset: --data ml-100k")
        if survey != SurveyOptions(reading=ReadingOptions()):
            raise HushrecError(
                "all options but --picture and --json are for a dataset; add --data, or leave them out"
            )
        work("compare").compare_runs(runs, picture, as_json)
    elif runs:
        raise HushrecError(f"--data {survey.data} compares systems, not runs; leave one of both out")
    else:
        work("compare_systems").compare_systems(survey, picture, as_json)
