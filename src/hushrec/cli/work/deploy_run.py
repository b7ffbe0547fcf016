"""Order a run on a federation, watch over it, print what came out; and a federation on this machine."""

import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from hushrec.choices import EngineName
from hushrec.cli.console import note, print_json, show, warn, watching
from hushrec.cli.deploy_run import LocalOptions, OrderOptions, Waiting
from hushrec.cli.endings import if_interrupted
from hushrec.cli.options import configured, parse_lengths, parse_rating_range
from hushrec.cli.work.run import print_run
from hushrec.data.holdings.node_files import Catalogue, read_catalogue
from hushrec.deploy.apart import Apart
from hushrec.deploy.driver import Report, read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.kits import read_federation
from hushrec.deploy.local import prepare, running
from hushrec.deploy.orders import Order, nodes_of, place_order
from hushrec.deploy.supervisor import Supervisor, Terms
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem
from hushrec.registry import system_named
from hushrec.report.numbers import format_number
from hushrec.runs.record import keep_command, read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runs.watching import FoldProgress
from hushrec.settings import to_dict

_CONNECT_SECONDS = 20.0


def order_run(system: AnySystem, values: dict[str, Any], folder: Path, options: OrderOptions) -> None:
    """Order a run on a federation, and watch over it."""
    catalogue = _catalogue(system, options.items)
    if options.rating_range is None and system.feedback.needs_ratings:
        raise HushrecError(f"{system.name} learns ratings; say their scale on all nodes, as in --rating-range 1,5")
    federation = read_federation(folder)
    order = Order(
        run_id=secrets.token_hex(16),
        run_name=options.run_name or system.name,
        system=system.name,
        config=to_dict(system.in_full(configured(system, values, options.data_name))),
        seed=options.seed,
        shares_seed=options.seeds == "shared",
        data_name=options.data_name,
        rating_range=parse_rating_range(options.rating_range),
        at=settings_for(system, at=parse_lengths(options.at)).at,
        relevant_from=options.relevant_from,
        min_raters=options.min_raters,
        relay=options.relay,
        timeout_seconds=options.waiting.timeout,
    )
    nodes = nodes_of(folder / "runs" / order.run_name, federation.nodes)
    if not nodes:
        raise HushrecError(f"{folder} has no nodes yet; approve one with: hushrec deploy approve {folder} REQUEST")
    terms = _terms(options.waiting, len(nodes))
    left = "interrupted; the nodes may go on without us: the same command with --resume is told how far"
    with if_interrupted(left):
        run = _supervised(folder, order, catalogue, nodes, federation.engine, terms, options.resume)
    keep_command(run, options.said.command)
    _print(run, len(nodes), options.as_json)
    note(f"kept in {run}")


def _terms(waiting: Waiting, num_nodes: int) -> Terms:
    """The terms of a federation of so many nodes."""
    if waiting.min_nodes is not None and not 1 <= waiting.min_nodes <= num_nodes:
        raise HushrecError(f"--min-nodes {waiting.min_nodes}: this federation has {num_nodes} nodes")
    return Terms(waiting.min_nodes or num_nodes, waiting.patience)


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


def deploy_here(system: AnySystem, values: dict[str, Any], options: LocalOptions) -> None:
    """Deal a dataset to nodes on this machine, and run a system over loopback with all that belongs to it."""
    system.configure(values)  # for what it refuses, before data is read
    at = parse_lengths(options.at)
    deal = system.holders.deal_for(options.nodes)
    data = options.source.load()
    settings = settings_for(
        system, options.seed, at=at, relevant_from=options.relevant_from, deal=deal,
        owners=options.owners, data=data,
    )  # fmt: skip
    config = system.in_full(configured(system, values, data.name))
    split = next(splits_for(system, data, settings, config))
    order = Order(
        run_id=secrets.token_hex(16),
        run_name=system.name,
        system=system.name,
        config=to_dict(config),
        seed=options.seed,
        shares_seed=True,
        data_name=data.name,
        is_synthetic=data.is_synthetic,
        data_sha256=data.sha256,
        rating_range=split.train.rating_range,
        at=settings.at,
        relevant_from=options.relevant_from,
        min_raters=options.min_raters,
        relay=options.relay,
        timeout_seconds=options.waiting.timeout,
    )
    catalogue = system.holders.catalogue(split.train)
    with tempfile.TemporaryDirectory(prefix="hushrec-") as temporary:
        # Nodes have other working directories.
        folder = (options.keep or Path(temporary) / "federation").absolute()
        federation, names = prepare(folder, options.engine, system, options.nodes, split, options.seed)
        terms = _terms(options.waiting, len(names))
        with running(folder, federation, note):
            run = _supervised(folder, order, catalogue, names, options.engine, terms, resume=False)
        keep_command(run, options.said.command)
        if options.out is not None:
            _keep_all(run, order.run_id, [(name, folder / name) for name in names], options.out)
        _print(run, len(names), options.as_json)


def _keep_all(run: Path, run_id: str, kits: list[tuple[str, Path]], out: Path) -> None:
    """Copy the server's folder of a run, and below it those of the nodes, which have what it has not."""
    shutil.copytree(run, out)
    for name, kit in kits:
        own = kit / "private" / "runs" / run_id
        if (own / "run.json").exists():
            shutil.copytree(own, out / "nodes" / name)
            note(f"kept in {out / 'nodes' / name}: what {name} has, to recommend to its users")
    note(f"kept in {out}: what the server has")
