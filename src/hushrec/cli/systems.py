"""`hushrec systems`: what there is, with paper, roles, messages, and what each message reveals."""

from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, complete_system


def systems(
    name: Annotated[
        str | None,
        typer.Argument(help="A system, to see its messages and settings.", autocompletion=complete_system),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the systems, or show one: paper, roles, messages and what each reveals, settings."""
    work("systems").show_systems(name, as_json)
