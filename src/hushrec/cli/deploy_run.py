"""`hushrec deploy run SYSTEM DIR` and `hushrec deploy local`: order a run on a federation, or on one made here."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hushrec.choices import EngineName, Relay
from hushrec.cli.commands import alone, joined, length_of, of_system, settings_of_all
from hushrec.cli.declared import Declared, all_declared
from hushrec.cli.groups import per_system, work
from hushrec.cli.options import AsJson, Lengths, Owners, RelevantFrom, Seed, Source, complete_system
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.files import check_folder_to_write
from hushrec.registry import system_named

Relays = Annotated[Relay, typer.Option(help="How sealed mail travels; onion: padded, via a third node.")]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How long to wait for nodes, and for how many of them."""

    min_nodes: Annotated[int | None, typer.Option(help="Go on with no fewer; default: all.")] = None
    patience: Annotated[float, typer.Option(help="Seconds to wait for a lost node or server.")] = 60.0
    timeout: Annotated[float, typer.Option(help="Seconds that a node has for an answer.")] = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.patience < math.inf:
            raise HushrecError(f"--patience {self.patience:g} is no time to wait; say so many seconds, as in 60")
        if not 0 < self.timeout < math.inf:
            raise HushrecError(f"--timeout {self.timeout:g} leaves no time; say so many seconds, as in 60")


NodeRaters = Annotated[
    int | None,
    typer.Option(
        help="Only items with so many raters on a node can be listed there, in metrics as in recommend; default: "
        "10, 1 without ratings, fewer on a node with few users; 0: every item, as in most papers.",
        min=0,
    ),
]


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """Options of `hushrec deploy run`, whatever the system."""

    waiting: Waiting
    said: Said
    items: Annotated[
        Path | None,
        typer.Option(
            help="The catalogue that all know: lines of item, tab, title. Not for partners: theirs differ."
        ),
    ] = None
    run_name: Annotated[str | None, typer.Option(help="Default: the system's name.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False
    seed: Annotated[int, typer.Option(help="Of the server's draws.")] = 0
    seeds: Annotated[
        Literal["secret", "shared"],
        typer.Option(help="Of the nodes' draws: their own secrets, or --seed, which shows them to the server."),
    ] = "secret"
    rating_range: Annotated[str | None, typer.Option(help="LOW,HIGH of ratings on all nodes.")] = None
    at: Lengths = None
    relevant_from: RelevantFrom = None
    min_raters: NodeRaters = None
    relay: Relays = "direct"
    data_name: Annotated[str, typer.Option(help="What to call the data in reports.")] = "federation"
    as_json: AsJson = False


def command_of(system: Declared) -> typer.Typer:
    """`hushrec deploy run SYSTEM`."""

    def order(
        values: dict[str, Any],
        folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")],
        options: OrderOptions,
    ) -> None:
        work("deploy_run").order_run(system_named(system.name), values, folder, options)

    items = " --items items.tsv" if system.knows_all_items else ""
    scale = " --rating-range 1,5" if system.needs_ratings else ""
    return of_system(system, order, f"deploy run {system.name} fed{items}{scale} {length_of(system)}")


app = typer.Typer(
    cls=per_system(f"{__name__}:command_of"),
    help="Order a run of a system on a federation, and watch over it.",
    no_args_is_help=True,
    epilog="Example: hushrec deploy run fedrec++ fed --items items.tsv --rating-range 1,5 --rounds 50",
)


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Options of `hushrec deploy local`."""

    source: Source
    waiting: Waiting
    said: Said
    nodes: Annotated[int, typer.Option(help="How many nodes: users, partners or owners are dealt to them.")] = 3
    owners: Owners = ""
    engine: Annotated[EngineName, typer.Option(help="What carries the packets.")] = "nvflare"
    seed: Seed = 0
    relay: Relays = "direct"
    at: Lengths = None
    relevant_from: RelevantFrom = None
    min_raters: NodeRaters = None
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the server's folder of the run here, and in nodes/ below it those of the nodes."),
    ] = None
    keep: Annotated[Path | None, typer.Option(help="Make the federation in this folder, and keep it.")] = None
    as_json: AsJson = False

    def __post_init__(self) -> None:
        for flag, place in (("--out", self.out), ("--keep", self.keep)):
            if place is not None:
                check_folder_to_write(place, flag)
        if self.out is not None and self.out.exists():
            raise HushrecError(f"{self.out} exists; choose a new folder for --out")


def deploy_here(
    system: Annotated[str, typer.Option(help="Which system (hushrec systems).", autocompletion=complete_system)],
    options: LocalOptions,
    values: dict[str, Any],
) -> None:
    """Deal a dataset to nodes on this machine, and run a system over loopback with all that belongs to it."""
    work("deploy_run").deploy_here(system_named(system), values, options)


def local() -> typer.Typer:
    """The command `deploy local`, which takes the settings of every system."""
    example = "deploy local --nodes 3 --system fedrec++ --data ml-100k --rounds 10"
    return alone(joined(deploy_here, values=settings_of_all(all_declared())), "local", example)
