"""`hushrec card RUN`: a model card."""

from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, RunFolder


def card(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="The file to write; default: it is printed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model card: what was trained, on how many people, how good it is, what it reveals to whom."""
    work("card").write_card(run, out, as_json)
