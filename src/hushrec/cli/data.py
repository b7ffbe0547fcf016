"""`hushrec data`: list the known data sets, fetch one, describe one or a file of your own."""

from typing import Annotated

import typer

from hushrec.cli.commands import joined
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, ReadingOptions, complete_data

app = typer.Typer(help="Data sets: list the known ones, fetch one, describe one or a file.", no_args_is_help=True)


@app.command("list", epilog="Example: hushrec data list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the known data sets and where each would come from now."""
    work("data").list_datasets(as_json)


@app.command(epilog="Example: hushrec data fetch ml-100k")
def fetch(
    name: Annotated[str, typer.Argument(help="A name of `hushrec data list`.", autocompletion=complete_data)],
    as_json: AsJson = False,
) -> None:
    """Get a data set into the cache, check it, and say where it lies."""
    work("data").fetch(name, as_json)


def describe(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME-or-FILE", help="A known data set, or a file.", autocompletion=complete_data),
    ],
    reading: ReadingOptions,
    as_json: AsJson = False,
) -> None:
    """Describe a data set or a file: size, ratings, times, digest, source, licence."""
    work("data").describe(name, reading, as_json)


app.command("describe", epilog="Example: hushrec data describe synthetic:users=100,items=50,ratings=2000")(
    joined(describe)
)
