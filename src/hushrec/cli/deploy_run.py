"""`hushrec deploy run SYSTEM DIR` and `hushrec deploy local`: order a run, watch over it, print what came out."""

import math
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from hushrec.cli.commands import alone, joined, length_of, of_system, settings_of_all
from hushrec.cli.console import note, print_json, show, warn, watching
from hushrec.cli.endings import if_interrupted
from hushrec.cli.groups import per_system
from hushrec.cli.options import (
    AsJson,
    Lengths,
    Owners,
    RelevantFrom,
    Seed,
    Source,
    complete_system,
    configured,
    parse_lengths,
    parse_rating_range,
)
from hushrec.cli.run import print_run
from hushrec.cli.said import Said
from hushrec.data.holdings.node_files import Catalogue, read_catalogue
from hushrec.deploy.apart import Apart
from hushrec.deploy.driver import Report, read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.engines import EngineName
from hushrec.deploy.kits import read_federation
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, Relay, place_order
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.errors import HushrecError
from hushrec.files import refuse_unwritable
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS, system_named
from hushrec.report.numbers import format_number
from hushrec.runs.folds import FoldProgress
from hushrec.runs.record import keep_command, read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.settings import to_dict

_CONNECT_SECONDS = 20.0

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

    def terms(self, num_nodes: int) -> Terms:
        """The terms of a federation of so many nodes."""
        if self.min_nodes is not None and not 1 <= self.min_nodes <= num_nodes:
            raise HushrecError(f"--min-nodes {self.min_nodes}: this federation has {num_nodes} nodes")
        return Terms(self.min_nodes or num_nodes, self.patience)


def order_run(
    system: AnySystem,
    values: dict[str, Any],
    folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")],
    waiting: Waiting,
    said: Said,
    items: Annotated[
        Path | None,
        typer.Option(
            help="The catalogue that all know: lines of item, tab, title. Not for partners: theirs differ."
        ),
    ] = None,
    run_name: Annotated[str | None, typer.Option(help="Default: the system's name.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    seed: Annotated[int, typer.Option(help="Of the server's draws.")] = 0,
    seeds: Annotated[
        Literal["secret", "shared"],
        typer.Option(help="Of the nodes' draws: their own secrets, or --seed, which shows them to the server."),
    ] = "secret",
    rating_range: Annotated[str | None, typer.Option(help="LOW,HIGH of ratings on all nodes.")] = None,
    at: Lengths = None,
    relevant_from: RelevantFrom = None,
    relay: Relays = "direct",
    data_name: Annotated[str, typer.Option(help="What to call the data in reports.")] = "federation",
    as_json: AsJson = False,
) -> None:
    """Order a run on a federation, and watch over it."""
    catalogue = _catalogue(system, items)
    if rating_range is None and system.feedback.needs_ratings:
        raise HushrecError(f"{system.name} learns ratings; say their scale on all nodes, as in --rating-range 1,5")
    federation = read_federation(folder)
    config = to_dict(configured(system, values, data_name))
    order = Order(
        run_id=secrets.token_hex(16), run_name=run_name or system.name, system=system.name, config=config,
        seed=seed, shares_seed=seeds == "shared", data_name=data_name,
        rating_range=parse_rating_range(rating_range), at=settings_for(system, at=parse_lengths(at)).at,
        relevant_from=relevant_from, relay=relay, timeout_seconds=waiting.timeout,
    )  # fmt: skip
    terms = waiting.terms(len(federation.nodes))
    with if_interrupted(
        "interrupted; the nodes may go on without us: the same command with --resume is told how far"
    ):
        run = _supervised(folder, order, catalogue, federation.nodes, federation.engine, terms, resume)
    keep_command(run, said.command)
    _print(run, len(federation.nodes), as_json)
    note(f"kept in {run}")


def command_of(system: AnySystem) -> typer.Typer:
    """`hushrec deploy run SYSTEM`."""
    items = " --items items.tsv" if system.holders.knows_all_items else ""
    scale = " --rating-range 1,5" if system.feedback.needs_ratings else ""
    example = f"deploy run {system.name} fed{items}{scale} {length_of(system)}"
    return of_system(system, partial(order_run, system), example)


app = typer.Typer(
    cls=per_system(f"{__name__}:command_of"),
    help="Order a run of a system on a federation, and watch over it.",
    no_args_is_help=True,
    epilog="Example: hushrec deploy run fedrec++ fed --items items.tsv --rating-range 1,5 --rounds 50",
)


def _catalogue(system: AnySystem, items: Path | None) -> Catalogue:
    """What all parties know of the items."""
    if not system.holders.knows_all_items:
        if items is not None:
            word = system.holders.word
            raise HushrecError(f"--items: {word}s of {system.name} have items of their own; leave it out")
        return Catalogue([], False)
    if items is None:
        raise HushrecError(f"{system.name} needs --items, a file with all items that its nodes know")
    return read_catalogue(items)


def _supervised(
    folder: Path,
    order: Order,
    catalogue: Catalogue,
    nodes: list[str],
    engine: EngineName,
    terms: Terms,
    resume: bool,
) -> Path:
    """Place the order and see it through."""
    run = place_order(folder, order, catalogue, resume)
    driver = engine_named(engine)
    label = f"{order.system} on {len(nodes)} nodes"
    system = system_named(order.system)
    config = system.configure(order.config)
    for line in system.result.warnings(config):
        warn(line)
    with watching(label, config.num_rounds, 1) as watch:

        def on_report(report: Report) -> None:
            watch(FoldProgress(1, 1, report.round_number, report.num_rounds, {}, report.sent_bytes))

        def connect() -> Apart:
            return Apart(lambda: driver.session(folder, _CONNECT_SECONDS))

        Supervisor(run, nodes, connect, terms, _log_to(run), on_report).run()
    return run


def _log_to(run: Path) -> Callable[[str], None]:
    """Events go to standard error and to the run's log."""

    def tell(text: str) -> None:
        note(text)
        with (run / "events.log").open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    return tell


def _print(folder: Path, num_nodes: int, as_json: bool) -> None:
    done, report = read_run(folder), read_report(folder)
    assert report is not None
    rounds = report.timed_rounds
    if as_json:
        times = {"seconds": report.seconds, "timed_rounds": rounds}
        print_json(done.summary() | {"deployment": {"nodes": num_nodes, "attempts": report.attempt} | times})
        return
    print_run(done)
    if not rounds:  # an earlier attempt did all of them
        return
    per_round = {what: seconds / rounds for what, seconds in report.seconds.items() if what != "enrol"}
    table = Table(box=None, pad_edge=False)
    for what in ("seconds per round", *per_round):
        table.add_column(what, justify="right")
    table.add_row(*(format_number(seconds) for seconds in (sum(per_round.values()), *per_round.values())))
    show(table)


# --- A federation on this machine ------------------------------------------------------------------------


def deploy_here(
    system: Annotated[str, typer.Option(help="Which system (hushrec systems).", autocompletion=complete_system)],
    source: Source,
    waiting: Waiting,
    said: Said,
    values: dict[str, Any],
    nodes: Annotated[int, typer.Option(help="How many nodes: users, partners or owners are dealt to them.")] = 3,
    owners: Owners = "",
    engine: Annotated[EngineName, typer.Option(help="What carries the packets.")] = "nvflare",
    seed: Seed = 0,
    relay: Relays = "direct",
    at: Lengths = None,
    relevant_from: RelevantFrom = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the server's folder of the run here, and in nodes/ below it those of the nodes."),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Make the federation in this folder, and keep it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Deal a dataset to nodes on this machine, and run a system over loopback with all that belongs to it."""
    chosen = system_named(system)
    chosen.configure(values)  # for what it refuses, before data is read
    deal = chosen.holders.deal_for(nodes)
    if out is not None and out.exists():
        raise HushrecError(f"{out} exists; choose a new folder for --out")
    for flag, place in (("--out", out), ("--keep", keep)):
        if place is not None:
            refuse_unwritable(place, flag)
    data = source.load()
    settings = settings_for(
        chosen, seed, at=parse_lengths(at), relevant_from=relevant_from, deal=deal, owners=owners, data=data
    )
    config = configured(chosen, values, data.name)
    split = next(splits_for(chosen, data, settings, config))
    order = Order(
        run_id=secrets.token_hex(16), run_name=system, system=system, config=to_dict(config), seed=seed,
        shares_seed=True, data_name=data.name, is_synthetic=data.is_synthetic, data_sha256=data.sha256,
        rating_range=split.train.rating_range, at=settings.at, relevant_from=relevant_from, relay=relay,
        timeout_seconds=waiting.timeout,
    )  # fmt: skip
    catalogue = chosen.holders.catalogue(split.train)
    with tempfile.TemporaryDirectory(prefix="hushrec-") as temporary:
        folder = (keep or Path(temporary) / "federation").absolute()  # nodes have other working directories
        federation, names = prepare(folder, engine, chosen, nodes, split, seed)
        terms = waiting.terms(len(names))
        with running(folder, federation, note):
            run = _supervised(folder, order, catalogue, names, engine, terms, resume=False)
        keep_command(run, said.command)
        if out is not None:
            _keep_all(run, order.run_id, [(name, folder / name) for name in names], out)
        _print(run, len(names), as_json)


def _keep_all(run: Path, run_id: str, kits: list[tuple[str, Path]], out: Path) -> None:
    """Copy the server's folder of a run, and below it those of the nodes, which have what it has not."""
    shutil.copytree(run, out)
    for name, kit in kits:
        own = kit / "private" / "runs" / run_id
        if (own / "run.json").exists():
            shutil.copytree(own, out / "nodes" / name)
            note(f"kept in {out / 'nodes' / name}: what {name} has, to recommend to its users")
    note(f"kept in {out}: what the server has")


def local() -> typer.Typer:
    """The command `deploy local`, which takes the settings of every system."""
    example = "deploy local --nodes 3 --system fedrec++ --data ml-100k --rounds 10"
    return alone(joined(deploy_here, values=settings_of_all(SYSTEMS.values())), "local", example)
