"""`hushrec ui RUNS`: a page in the browser over a folder of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.serve import TOKEN_VARIABLE

RunsFolder = Annotated[Path, typer.Argument(help="The folder below which runs are; new ones are made there.")]


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Where to listen, who may ask, and what is shown besides runs."""

    federation: Annotated[
        list[Path] | None,
        typer.Option(help="A federation's folder, or a node's kit, to show as well; may be given several times."),
    ] = None
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8090
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file of tokens, one per line, for all who ask; default: {TOKEN_VARIABLE}, else a new one "
            "where others can reach the page, and none on this machine."
        ),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM), for https.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in the browser.")] = False


def ui(options: PageOptions, runs: RunsFolder = Path("runs")) -> None:
    """Show runs, their privacy, audits and models in the browser; start runs and watch them."""
    work("ui").show_pages(runs, options)
