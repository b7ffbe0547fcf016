"""`hushrec serve RUN`: recommendations over HTTP."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import Fold, RunFolder

TOKEN_VARIABLE = "HUSHREC_TOKEN"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where to listen, who may ask, and how often."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8080
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file of tokens, one per line; default: {TOKEN_VARIABLE}, else a new one."),
    ] = None
    no_token: Annotated[bool, typer.Option("--no-token", help="Let anyone on this machine ask.")] = False
    rate: Annotated[str, typer.Option(help="Requests per client address, and per token.")] = "50/second"
    max_request_bytes: Annotated[int, typer.Option(min=1, help="Largest body of a request.")] = 65536
    max_connections: Annotated[int, typer.Option(min=1, help="Open connections in all; more are refused.")] = 1000
    max_connections_per_address: Annotated[int, typer.Option(min=1, help="The same, from one address.")] = 100
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM), for https.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None
    proxy: Annotated[
        str | None, typer.Option(help="Address of a proxy whose X-Forwarded-For tells the client's address.")
    ] = None
    fold: Fold = None
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Take up a newer run when the folder's files change, or its link moves."),
    ] = False
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Serve clients' vectors that a simulation holds in one place.")
    ] = False


def serve(run: RunFolder, options: ServeOptions) -> None:
    """Serve recommendations over HTTP: lists for users and newcomers, behind a token and limits."""
    work("serve").serve_run(run, options)
