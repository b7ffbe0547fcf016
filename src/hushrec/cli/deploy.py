"""`hushrec deploy`: a federation on a real network, from its certificates to its runs."""

import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.table import Table

from hushrec.cli import deploy_run
from hushrec.cli.commands import joined
from hushrec.cli.console import note, print_json, results, show
from hushrec.cli.groups import made_when_needed
from hushrec.cli.options import AsJson, ColumnNames, WhatOfDuplicates, complete_system, parse_columns
from hushrec.cli.said import Said
from hushrec.data.holdings import described
from hushrec.data.holdings.node_files import NodeFiles
from hushrec.deploy.apart import Apart
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.engines import EngineName
from hushrec.deploy.enrolment import NodeSettings, check_required, write_settings
from hushrec.deploy.identity import fingerprint, mail_key
from hushrec.deploy.kits import find_kit, make_kits, read_federation, read_kit
from hushrec.deploy.local import node_process, server_process
from hushrec.deploy.processes import Kept, WaitingForServer, refuse_taken
from hushrec.errors import HushrecError
from hushrec.files import locked, refuse_unwritable
from hushrec.privacy.sealing import public_key_of
from hushrec.registry import SYSTEMS
from hushrec.report.numbers import format_bytes

_MOST_NODES = 10_000
_MOST_PACKET_MB = 2048
_STATUS_SECONDS = 5.0  # for an answer of the server

app = typer.Typer(
    cls=made_when_needed(
        ["local"], lambda: {"local": deploy_run.deploy_here.__doc__ or ""}, lambda _: deploy_run.local()
    ),
    help="Run systems over a real network: a server, nodes that keep their ratings, mutual TLS.",
    no_args_is_help=True,
    epilog="Start with: hushrec deploy local --nodes 5 --system fedrec++ --data ml-100k",
)
app.add_typer(deploy_run.app, name="run")


@app.command("init", epilog="Example: hushrec deploy init fed --name shop-a --name shop-b --host server.example")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder, for the kits of all machines.")],
    nodes: Annotated[int | None, typer.Option(help="How many nodes: node-1, node-2, ...")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Or the name of each node.")] = None,
    host: Annotated[str, typer.Option(help="The server's name, as nodes reach it.")] = "localhost",
    port: Annotated[int, typer.Option(help="The server's only open port.")] = 8002,
    engine: Annotated[EngineName, typer.Option(help="What carries the packets.")] = "nvflare",
) -> None:
    """Make certificates, keys and kits: one folder per machine."""
    if (nodes is None) == (not name):
        raise HushrecError("say which nodes: --nodes 3, or --name for each of them")
    if nodes is not None and nodes > _MOST_NODES:
        raise HushrecError(f"--nodes {nodes} is too many; use at most {_MOST_NODES}")
    refuse_unwritable(folder, "DIR")
    names = name or [f"node-{number}" for number in range(1, (nodes or 0) + 1)]
    make_kits(folder, engine_named(engine), names, host, port)
    table = Table(box=None, pad_edge=False)
    for heading in ("kit", "goes to", "then"):
        table.add_column(heading)
    table.add_row(str(folder), "stays with the server and its operator", f"hushrec deploy server {folder}")
    for node in names:
        table.add_row(str(folder / node), f"the machine of {node}", f"hushrec deploy node {node} --data RATINGS")
    show(table)
    note("a kit holds its owner's private key: copy it over a safe way, then delete it here")


@app.command("server", epilog="Example: hushrec deploy server fed")
def server(folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")]) -> None:
    """Run the server in the foreground until Ctrl-C."""
    federation = read_federation(folder)
    process = server_process(folder, federation.engine, note)
    with locked(folder / "server" / "lock", f"the server of {folder} runs already; end that process first"):
        refuse_taken(federation.port)
        note(f"server for {len(federation.nodes)} nodes on {federation.host}:{federation.port}; Ctrl-C ends it")
        _keep(process)


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
        typer.Option(help="Of a partner: its own items, lines of item, tab, title; default: the rated."),
    ] = None
    owned: Annotated[
        Path | None, typer.Option(help="Of owners, in place of --data: what they hold, lines of item, tab, owner.")
    ] = None
    columns: ColumnNames = None
    duplicates: WhatOfDuplicates = "error"

    def node_files(self) -> NodeFiles:
        """The same, found from any folder."""
        if (self.data is None) == (self.owned is None):
            raise HushrecError(
                "say what this node has: --data with ratings or events, or --owned with items of owners"
            )
        if self.owned is not None and (self.test or self.numbers or self.visitors or self.items):
            raise HushrecError(
                "--owned goes without --test, --numbers, --visitors and --items: owners have no ratings"
            )
        paths = {name: str(path.resolve()) for name, path in vars(self).items() if isinstance(path, Path)}
        return NodeFiles(**paths, columns=parse_columns(self.columns), duplicates=self.duplicates)


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
    max_packet_mb: Annotated[int, typer.Option(help="Refuse larger packets.")] = _MOST_PACKET_MB

    def settings(self, files: NodeFiles) -> NodeSettings:
        """The settings of a node with these files."""
        for system in self.allow or []:
            if system not in SYSTEMS:
                raise HushrecError(f"--allow {system}: no such system; choose from {', '.join(SYSTEMS)}")
        if not 1 <= self.max_packet_mb <= _MOST_PACKET_MB:
            raise HushrecError(f"--max-packet-mb {self.max_packet_mb} is not within 1 to {_MOST_PACKET_MB}")
        settings = NodeSettings(
            files,
            required=dict(_named_value(text) for text in self.require or []),
            accepts_shared_seed=self.accept_shared_seed,
            max_packet_bytes=self.max_packet_mb << 20,
        )
        settings = replace(settings, systems=list(self.allow)) if self.allow else settings
        check_required(settings.required, settings.systems)
        return settings


def node(
    folder: Annotated[Path, typer.Argument(help="The node's kit, or the folder that it is in.")],
    own: OwnFiles,
    consent: Consent,
    said: Said,
    name: Annotated[str | None, typer.Option(help="Which kit, if the folder holds several.")] = None,
) -> None:
    """Run a node in the foreground until Ctrl-C."""
    files = own.node_files()
    kit = find_kit(folder, name)
    card, settings = read_kit(kit), consent.settings(files)
    has = described(files, card.name)
    with locked(kit / "lock", f"{card.name} runs already from {kit}; end that process first"):
        write_settings(kit, settings)
        note(f"{card.name}: {has}, which stay here; Ctrl-C ends it")
        note(f"mail key {fingerprint(public_key_of(mail_key(kit)))}")
        waiting = WaitingForServer(card.host, card.port, note) if card.host else None
        _keep(node_process(kit, card.name, card.engine, note), waiting)


app.command("node", epilog="Example: hushrec deploy node fed --name node-1 --data ratings.csv")(joined(node))


def _named_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise HushrecError(f"--require {text!r}: write setting=value, as in --require rho=3")
    return name.strip().replace("-", "_"), value.strip()


def _keep(process: Kept, waiting: WaitingForServer | None = None) -> None:
    """Keep a process alive until we are told to end."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        process.start()
        while True:
            time.sleep(0.2)
            process.keep()
            if waiting is not None:
                waiting.look()
    finally:
        process.stop()


@app.command("status", epilog="Example: hushrec deploy status fed")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder that deploy init made.")],
    as_json: AsJson = False,
) -> None:
    """Show who is there, and how the runs are doing."""
    federation = read_federation(folder)
    engine = engine_named(federation.engine)
    try:
        session = Apart(lambda: engine.session(folder, _STATUS_SECONDS))
        connected = session.connected()
        session.close()
        is_up = True
    except HushrecError:
        connected, is_up = set(), False
    runs = {path.parent.name: read_report(path.parent) for path in sorted(folder.glob("runs/*/order.json"))}
    if as_json:
        told = {
            "server": {"host": federation.host, "port": federation.port, "is_up": is_up},
            "nodes": {node: node in connected for node in federation.nodes},
            "runs": runs,
        }
        print_json(told)
        return
    out = results()
    out.print(f"server {federation.host}:{federation.port} {'is up' if is_up else 'does not answer'}")
    for node in federation.nodes:
        out.print(f"  {node}  {'connected' if node in connected else 'not connected'}")
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "status", "round", "sent", "attempt", ""):
        table.add_column(heading, justify="right" if heading in ("round", "sent", "attempt") else "left")
    for name, report in runs.items():
        if report is None:
            table.add_row(name, "ordered", "0", "0 B", "0", "")
        else:
            rounds = f"{report.round_number}/{report.num_rounds}"
            sent = format_bytes(report.sent_bytes)
            table.add_row(name, report.status, rounds, sent, str(report.attempt), report.reason)
    if runs:
        show(table)
