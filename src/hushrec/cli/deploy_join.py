"""`hushrec deploy join`, `approve`, `admit`, `leave`, `revoke`: who is a node of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from hushrec.choices import EngineName
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson

Authority = Annotated[
    Path, typer.Argument(help="The folder that deploy init made, or its folder authority alone.")
]
Federation = Annotated[Path, typer.Argument(help="The server's folder.")]


def join(
    folder: Annotated[Path, typer.Argument(help="The node's folder, new at first; its name is the node's name.")],
    answer: Annotated[Path | None, typer.Option(help="What the operator wrote for the request.")] = None,
    engine: Annotated[EngineName, typer.Option(help="What carries the packets: the federation's.")] = "nvflare",
    as_json: AsJson = False,
) -> None:
    """Make this machine a node: a key that stays here, and a request; then, with --answer, the node's kit."""
    if answer is None:
        work("deploy_join").ask(folder, engine, as_json)
    else:
        work("deploy_join").take(folder, answer, as_json)


def approve(
    folder: Authority,
    request: Annotated[Path, typer.Argument(help="What a node made with deploy join.")],
    fingerprint: Annotated[
        str | None, typer.Option(help="Of the node's key, as its owner reads it out; any other is refused.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a node's request, at any time: it takes part from the next run on."""
    work("deploy_join").approve(folder, request, fingerprint, as_json)


def admit(
    folder: Federation,
    answer: Annotated[Path, typer.Argument(help="What deploy approve wrote on the authority's machine.")],
    as_json: AsJson = False,
) -> None:
    """Count on a node that an authority on another machine has approved."""
    work("deploy_join").admit(folder, answer, as_json)


def leave(
    folder: Annotated[Path, typer.Argument(help="The node's kit.")],
    as_json: AsJson = False,
) -> None:
    """Stop being a node: destroy its keys, and write a wish to be revoked. Its runs and data stay."""
    work("deploy_join").leave(folder, as_json)


def revoke(
    folder: Annotated[Path, typer.Argument(help="The folder that deploy init made, authority, or the server's.")],
    who: Annotated[
        str | None, typer.Argument(help="A node's name, or the file that its deploy leave made.")
    ] = None,
    revoked: Annotated[
        Path | None, typer.Option("--list", help="On the server: the list that the authority's revoke wrote.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a node's certificate back: the server and all nodes refuse it from then on."""
    work("deploy_join").revoke(folder, who, revoked, as_json)


def add_to(app: typer.Typer) -> None:
    """The verbs, with an example each."""
    for verb, example in (
        (join, "deploy join shop-a"),
        (approve, "deploy approve fed shop-a.request"),
        (admit, "deploy admit fed shop-a.answer"),
        (leave, "deploy leave shop-a"),
        (revoke, "deploy revoke fed shop-a, or: hushrec deploy revoke fed --list revoked.pem"),
    ):
        app.command(verb.__name__, epilog=f"Example: hushrec {example}")(verb)
