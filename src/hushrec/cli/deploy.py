"""`hushrec deploy`: a federation on a real network, from its certificates to its runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hushrec.choices import EngineName
from hushrec.cli import deploy_join, deploy_run
from hushrec.cli.commands import joined
from hushrec.cli.groups import made_when_needed, work
from hushrec.cli.options import AsJson, ColumnNames, WhatOfDuplicates, complete_system
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.files import check_folder_to_write

_MOST_NODES = 10_000
MOST_PACKET_MB = 2048

app = typer.Typer(
    cls=made_when_needed(
        ["local"], lambda: {"local": deploy_run.deploy_here.__doc__ or ""}, lambda _: deploy_run.local()
    ),
    help="Run systems over a real network: a server, nodes that keep their ratings, mutual TLS.",
    no_args_is_help=True,
    epilog="Start with: hushrec deploy local --nodes 5 --system fedrec++ --data ml-100k",
)
app.add_typer(deploy_run.app, name="run")
deploy_join.add_to(app)


@app.command("init", epilog="Example: hushrec deploy init fed --host server.example")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder, for the server and the authority.")],
    nodes: Annotated[
        int | None, typer.Option(help="To rehearse: make so many nodes here, with keys: node-1, node-2, ...")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Or the name of each node to make here, with keys.")
    ] = None,
    host: Annotated[str, typer.Option(help="The server's name, as nodes reach it.")] = "localhost",
    port: Annotated[int, typer.Option(help="The server's only open port.")] = 8002,
    engine: Annotated[EngineName, typer.Option(help="What carries the packets.")] = "nvflare",
) -> None:
    """Make a federation: the server's certificate and keys, and an authority that approves nodes."""
    if nodes is not None and name:
        raise HushrecError("--nodes and --name are two ways to say which nodes; use one of them")
    if nodes is not None and not 1 <= nodes <= _MOST_NODES:
        raise HushrecError(f"--nodes {nodes} is not within 1 to {_MOST_NODES}; without it, nodes join later")
    check_folder_to_write(folder, "DIR")
    names = name or [f"node-{number}" for number in range(1, (nodes or 0) + 1)]
    work("deploy").make_federation(folder, names, host, port, engine)


@app.command("server", epilog="Example: hushrec deploy server fed")
def server(folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")]) -> None:
    """Run the server in the foreground until Ctrl-C."""
    work("deploy").run_server(folder)


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """What a node has, by the paths of its files."""

    data: Annotated[
        Path | None, typer.Option(help="This node's ratings, or the users' events. They do not leave the machine.")
    ] = None
    test: Annotated[Path | None, typer.Option(help="Ratings to measure on; the server is told means.")] = None
    numbers: Annotated[Path | None, typer.Option(help="Agreed numbers of clients: user, tab, number.")] = None
    visitors: Annotated[
        Path | None, typer.Option(help="Of a partner: users to be served who have no rating here, one per line.")
    ] = None
    items: Annotated[
        Path | None,
        typer.Option(
            help="Lines of item, tab, title. Of a partner: its own; default: the rated. Else: those of runs."
        ),
    ] = None
    owned: Annotated[
        Path | None, typer.Option(help="Of owners, in place of --data: what they hold, lines of item, tab, owner.")
    ] = None
    columns: ColumnNames = None
    duplicates: WhatOfDuplicates = "error"


@dataclass(frozen=True, kw_only=True)
class Consent:
    """What a node takes part in."""

    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Systems to take part in; default: those that keep ratings here.", autocompletion=complete_system
        ),
    ] = None
    require: Annotated[
        list[str] | None, typer.Option(help="Take part only with this setting, as in --require rho=3.")
    ] = None
    accept_shared_seed: Annotated[
        bool, typer.Option("--accept-shared-seed", help="Let the server know this node's draws. For tests only.")
    ] = False
    max_packet_mb: Annotated[int, typer.Option(help="Refuse larger packets.")] = MOST_PACKET_MB
    accept: Annotated[
        list[str] | None,
        typer.Option(help="What may be exposed, in the words of a refusal. Said once, it stays until --withdraw."),
    ] = None
    withdraw: Annotated[
        list[str] | None, typer.Option(help="Words that are accepted no longer; or all, for all of them.")
    ] = None
    budget: Annotated[
        list[str] | None,
        typer.Option(help="The most of all runs together: epsilon=8, rounds=500, fedrec:rounds=100."),
    ] = None
    close: Annotated[
        list[str] | None,
        typer.Option(help="A run that was given up, by its id: what it did not use of the budget is free again."),
    ] = None


def node(
    folder: Annotated[Path, typer.Argument(help="The node's kit, or the folder that it is in.")],
    own: OwnFiles,
    consent: Consent,
    said: Said,
    name: Annotated[str | None, typer.Option(help="Which kit, if the folder holds several.")] = None,
) -> None:
    """Run a node in the foreground until Ctrl-C."""
    work("deploy").run_node(folder, name, own, consent)


app.command("node", epilog="Example: hushrec deploy node fed --name node-1 --data ratings.csv")(joined(node))


@app.command("status", epilog="Example: hushrec deploy status fed")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder that deploy init made, or a node's kit.")],
    as_json: AsJson = False,
) -> None:
    """Show who is there and how the runs are doing; of a node's kit, what it agreed to and gave away."""
    work("deploy").show_status(folder, as_json)
