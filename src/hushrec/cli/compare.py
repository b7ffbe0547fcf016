"""`hushrec compare RUN...`: accuracy and bytes of runs in one table and one picture."""

from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, RunFolders
from hushrec.cli.said import Said


def compare(
    runs: RunFolders,
    said: Said,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png|svg", help="Draw accuracy against bytes into this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: accuracy, bytes, CPU time, and which of them end with the same model, bit for bit.

    Bytes are per client and round, with owners of all of them: up is what they send, down what the server sends.

    \b
    Example:
      hushrec run fedrec --data synthetic --rho 0 --out runs/one
      hushrec run fedrec++ --data synthetic --rho 3 --out runs/two
      hushrec compare runs/one runs/two --picture compare.png
    """
    work("compare").compare_runs(runs, picture, as_json)
