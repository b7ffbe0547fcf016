"""`hushrec deploy run SYSTEM DIR` and `hushrec deploy local`: order a run, watch over it, print what came out."""

import inspect
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import typer
from rich.table import Table

from hushrec.cli.console import note, results, watching
from hushrec.cli.data import parse_columns, parse_duplicates, parse_rating_range
from hushrec.cli.run import Go, command_for, flags, length_of, parse_lengths, print_run
from hushrec.data import Deal, load
from hushrec.data.holdings.node_files import Catalogue, catalogue_of, read_catalogue
from hushrec.deploy.driver import Report, read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.engines import EngineName
from hushrec.deploy.kits import read_federation
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, Relay, place_order
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.folds import FoldProgress
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.settings import to_dict

_CONNECT_SECONDS = 20.0

app = typer.Typer(
    help="Order a run of a system on a federation, and watch over it.",
    no_args_is_help=True,
    epilog="Example: hushrec deploy run fedrec++ fed --items items.tsv --rounds 50",
)


def common(
    folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")],
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
    at: Annotated[str | None, typer.Option(help="Lengths of ranked lists; default: the papers'.")] = None,
    relevant_from: Annotated[float | None, typer.Option(help="Ratings that count as relevant.")] = None,
    relay: Annotated[
        Relay, typer.Option(help="How sealed mail travels; onion: padded, via a third node.")
    ] = "direct",
    min_nodes: Annotated[int | None, typer.Option(help="Go on with no fewer; default: all.")] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a lost node or server.")] = 60.0,
    timeout: Annotated[float, typer.Option(help="Seconds that a node has for an answer.")] = 60.0,
    data_name: Annotated[str, typer.Option(help="What to call the data in reports.")] = "federation",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> Go:
    """Options of every system."""

    def go(system: AnySystem, values: dict[str, Any]) -> None:
        catalogue = _catalogue(system, items)
        federation = read_federation(folder)
        config = to_dict(system.configure(values))
        order = Order(
            run_id=secrets.token_hex(16), run_name=run_name or system.name, system=system.name, config=config,
            seed=seed, shares_seed=seeds == "shared", data_name=data_name,
            rating_range=parse_rating_range(rating_range), at=settings_for(system, at=parse_lengths(at)).at,
            relevant_from=relevant_from, relay=relay, timeout_seconds=timeout,
        )  # fmt: skip
        terms = Terms(_checked_least(min_nodes, len(federation.nodes)), patience)
        run = _supervised(folder, order, catalogue, federation.nodes, federation.engine, terms, resume)
        _print(run, len(federation.nodes), as_json)
        note(f"kept in {run}")

    return go


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


for _system in SYSTEMS.values():
    _items = " --items items.tsv" if _system.holders.knows_all_items else ""
    _words = f"{_system.name} fed{_items} {length_of(_system)}"
    app.command(_system.name, epilog=f"Example: hushrec deploy run {_words}")(command_for(_system, common))


def _checked_least(min_nodes: int | None, num_nodes: int) -> int:
    if min_nodes is not None and not 1 <= min_nodes <= num_nodes:
        raise HushrecError(f"--min-nodes {min_nodes}: this federation has {num_nodes} nodes")
    return min_nodes or num_nodes


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
    with watching(label, system_named(order.system).configure(order.config).num_rounds, 1) as watch:

        def on_report(report: Report) -> None:
            watch(FoldProgress(1, 1, report.round_number, report.num_rounds, {}, report.sent_bytes))

        Supervisor(
            run, nodes, lambda: driver.session(folder, _CONNECT_SECONDS), terms, _told(run), on_report
        ).run()
    return run


def _told(run: Path) -> Callable[[str], None]:
    """Events go to standard error and to the run's log."""

    def tell(text: str) -> None:
        note(text)
        with (run / "events.log").open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    return tell


def _print(folder: Path, num_nodes: int, as_json: bool) -> None:
    done, report = read_run(folder), read_report(folder)
    assert report is not None
    rounds = report.num_rounds
    per_round = {what: seconds / rounds for what, seconds in report.seconds.items() if what != "enrol"}
    if as_json:
        deployment = {"nodes": num_nodes, "attempts": report.attempt, "seconds": report.seconds}
        print(msgspec.json.encode(done.summary() | {"deployment": deployment}).decode())
        return
    print_run(done)
    table = Table(box=None, pad_edge=False)
    for what in ("seconds per round", *per_round):
        table.add_column(what, justify="right")
    table.add_row(f"{sum(per_round.values()):.3f}", *(f"{seconds:.3f}" for seconds in per_round.values()))
    results().print(table)


# --- A federation on this machine ------------------------------------------------------------------------


def _local(
    system: Annotated[str, typer.Option(help="Which system (hushrec systems).")],
    data: Annotated[str, typer.Option(help="A dataset's name (hushrec data list) or a file.")],
    nodes: Annotated[int, typer.Option(help="How many nodes: users, partners or owners are dealt to them.")] = 3,
    owners: Annotated[
        str, typer.Option(help="For drift: genre, a number, or a file of items and owners; default: genre or 5.")
    ] = "",
    engine: Annotated[EngineName, typer.Option(help="What carries the packets.")] = "nvflare",
    seed: Annotated[int, typer.Option(help="Of everything random: split, start, draws.")] = 0,
    relay: Annotated[
        Relay, typer.Option(help="How sealed mail travels; onion: padded, via a third node.")
    ] = "direct",
    at: Annotated[str | None, typer.Option(help="Lengths of ranked lists; default: the papers'.")] = None,
    relevant_from: Annotated[float | None, typer.Option(help="Ratings that count as relevant.")] = None,
    columns: Annotated[str | None, typer.Option(help="Of a file: user=..,item=..,rating=..,timestamp=..")] = None,
    duplicates: Annotated[str, typer.Option(help="Of a file: error, last or mean.")] = "error",
    rating_range: Annotated[str | None, typer.Option(help="Of a file: LOW,HIGH.")] = None,
    min_nodes: Annotated[int | None, typer.Option(help="Go on with no fewer; default: all.")] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a lost node or server.")] = 60.0,
    timeout: Annotated[float, typer.Option(help="Seconds that a node has for an answer.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Keep the server's folder of the run here.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Make the federation in this folder, and keep it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    preset: Annotated[str | None, typer.Option(help="Named settings of the system, if it has some.")] = None,
    **values: Any,
) -> None:
    """Deal a dataset to nodes on this machine, and run a system over loopback with all that belongs to it."""
    chosen = system_named(system)
    given = {name: value for name, value in {**values, "preset": preset}.items() if value is not None}
    config = to_dict(chosen.configure(given))
    if nodes < chosen.holders.least_nodes:
        raise HushrecError(f"--nodes must be at least {chosen.holders.least_nodes}")
    if out is not None and out.exists():
        raise HushrecError(f"{out} exists; choose a new folder for --out")
    interactions = load(
        data,
        columns=parse_columns(columns),
        duplicates=parse_duplicates(duplicates),
        rating_range=parse_rating_range(rating_range),
        notify=note,
    )
    deal = Deal(num_partners=nodes) if chosen.holders.usual_split == "partners" else None
    settings = settings_for(
        chosen,
        seed,
        at=parse_lengths(at),
        relevant_from=relevant_from,
        deal=deal,
        owners=owners,
        data=interactions,
    )
    split = next(splits_for(chosen, interactions, settings))
    order = Order(
        run_id=secrets.token_hex(16), run_name=system, system=system, config=config, seed=seed, shares_seed=True,
        data_name=interactions.name, is_synthetic=interactions.is_synthetic, data_sha256=interactions.sha256,
        rating_range=split.train.rating_range, at=settings.at, relevant_from=relevant_from, relay=relay,
        timeout_seconds=timeout,
    )  # fmt: skip
    catalogue = catalogue_of(split.train) if chosen.holders.knows_all_items else Catalogue([], False)
    with tempfile.TemporaryDirectory(prefix="hushrec-") as temporary:
        folder = (keep or Path(temporary) / "federation").absolute()  # nodes have other working directories
        federation, names = prepare(folder, engine, chosen, nodes, split, seed)
        terms = Terms(_checked_least(min_nodes, len(names)), patience)
        with running(folder, federation, note):
            run = _supervised(folder, order, catalogue, names, engine, terms, resume=False)
        if out is not None:
            shutil.copytree(run, out)
        _print(run, len(names), as_json)


def _settings_of_all() -> list[inspect.Parameter]:
    """Every setting of any system; one that is not given has the system's own default."""
    known: dict[str, inspect.Parameter] = {}
    for system in SYSTEMS.values():
        hints = get_type_hints(system.config)
        for entry in fields(system.config):
            kind = hints[entry.name] if hints[entry.name] in (int, float, bool, tuple[int, int]) else str
            option = typer.Option(*flags(entry.name), help=entry.metadata["help"], rich_help_panel="Settings")
            known[entry.name] = inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[kind | None, option],
            )
    return list(known.values())


def local(**values: Any) -> None:
    """Deal a dataset to nodes on this machine, and run a system over loopback with all that belongs to it."""
    _local(**values)


_own = [
    parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for parameter in inspect.signature(_local).parameters.values()
    if parameter.kind != inspect.Parameter.VAR_KEYWORD
]
_parameters = [*_own, *_settings_of_all()]
local.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]
local.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters}
