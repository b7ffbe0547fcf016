"""A federation on a real network: its kits, its server, its nodes, and how they are doing."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.table import Table

from hushrec.choices import EngineName
from hushrec.cli.console import note, print_json, results, show
from hushrec.cli.deploy import MOST_PACKET_MB, Consent, OwnFiles
from hushrec.cli.options import parse_columns
from hushrec.cli.work.node_status import show_node
from hushrec.data.holdings import described
from hushrec.data.holdings.node_files import NodeFiles
from hushrec.deploy.apart import Apart
from hushrec.deploy.authority import FOLDER
from hushrec.deploy.consent import accepted_with, check_words, ledger_of
from hushrec.deploy.driver import read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.enrolment import NodeSettings, accepted_before, check_required, write_settings
from hushrec.deploy.identity import fingerprint, mail_key
from hushrec.deploy.kits import find_kit, make_kits, read_federation, read_kit
from hushrec.deploy.local import node_process, server_process
from hushrec.deploy.membership import check_welcome, refusal_file
from hushrec.deploy.node_ledger import parse_budget
from hushrec.deploy.processes import Kept, WaitingForServer, refuse_taken
from hushrec.errors import HushrecError
from hushrec.files import locked
from hushrec.privacy.sealing import public_key_of
from hushrec.registry import SYSTEMS
from hushrec.report.numbers import format_bytes

_STATUS_SECONDS = 5.0  # for an answer of the server


def make_federation(folder: Path, names: list[str], host: str, port: int, engine: EngineName) -> None:
    """Make certificates, keys and kits, and say where each goes."""
    authority = folder / FOLDER
    make_kits(folder, engine_named(engine), names, host, port)
    table = Table(box=None, pad_edge=False)
    for heading in ("kit", "goes to", "then"):
        table.add_column(heading)
    table.add_row(str(folder), "stays with the server and its operator", f"hushrec deploy server {folder}")
    table.add_row(str(authority), "a machine that is not the server's", f"hushrec deploy approve {folder} REQUEST")
    for node in names:
        table.add_row(str(folder / node), f"the machine of {node}", f"hushrec deploy node {node} --data RATINGS")
    show(table)
    note(f"whoever has {authority} says who is a node")
    if names:
        note("a node's kit that was made here holds its private key: better, let nodes use hushrec deploy join")


def run_server(folder: Path) -> None:
    """Run the server in the foreground until Ctrl-C."""
    federation = read_federation(folder)
    process = server_process(folder, federation.engine, note)
    with locked(folder / "server" / "lock", f"the server of {folder} runs already; end that process first"):
        refuse_taken(federation.port)
        note(f"server for {len(federation.nodes)} nodes on {federation.host}:{federation.port}; Ctrl-C ends it")
        _keep(process)


def run_node(folder: Path, name: str | None, own: OwnFiles, consent: Consent) -> None:
    """Run a node in the foreground until Ctrl-C."""
    files = node_files(own)
    kit = find_kit(folder, name)
    card, settings = read_kit(kit), _settings(consent, files, accepted_before(kit))
    has = described(files, card.name)
    ledger_of(kit).entries()  # a damaged one is refused here
    with locked(kit / "lock", f"{card.name} runs already from {kit}; end that process first"):
        for run in consent.close or []:
            ledger_of(kit).close(run, datetime.now(UTC).isoformat(timespec="seconds"))
        write_settings(kit, settings)
        for words in settings.accepted:
            note(f"accepted: {words}")
        note(f"{card.name}: {has}, which stay here; Ctrl-C ends it")
        note(f"mail key {fingerprint(public_key_of(mail_key(kit)))}")
        waiting = WaitingForServer(card.host, card.port, note) if card.host else None
        refusal_file(kit).unlink(missing_ok=True)
        _keep(node_process(kit, card.name, card.engine, note), waiting, lambda: check_welcome(kit, card.name))


def node_files(own: OwnFiles) -> NodeFiles:
    """What a node has, found from any folder."""
    if (own.data is None) == (own.owned is None):
        raise HushrecError(
            "say what this node has: --data with ratings or events, or --owned with items of owners"
        )
    if own.owned is not None and (own.test or own.numbers or own.visitors or own.items):
        raise HushrecError(
            "--owned goes without --test, --numbers, --visitors and --items: owners have no ratings"
        )
    paths = {name: str(path.resolve()) for name, path in vars(own).items() if isinstance(path, Path)}
    return NodeFiles(**paths, columns=parse_columns(own.columns), duplicates=own.duplicates)


def _settings(consent: Consent, files: NodeFiles, before: Mapping[str, str]) -> NodeSettings:
    """The settings of a node with these files, and with what its owner accepted before."""
    for system in consent.allow or []:
        if system not in SYSTEMS:
            raise HushrecError(f"--allow {system}: no such system; choose from {', '.join(SYSTEMS)}")
    if not 1 <= consent.max_packet_mb <= MOST_PACKET_MB:
        raise HushrecError(f"--max-packet-mb {consent.max_packet_mb} is not within 1 to {MOST_PACKET_MB}")
    settings = NodeSettings(
        files,
        required=dict(_named_value(text) for text in consent.require or []),
        accepts_shared_seed=consent.accept_shared_seed,
        max_packet_bytes=consent.max_packet_mb << 20,
        accepted=accepted_with(before, consent.accept or [], consent.withdraw or []),
    )
    settings = replace(settings, systems=list(consent.allow)) if consent.allow else settings
    check_required(settings.required, settings.systems)
    check_words(consent.accept or [])
    return replace(settings, budget=parse_budget(consent.budget or [], settings.systems))


def _named_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise HushrecError(f"--require {text!r}: write setting=value, as in --require rho=3")
    return name.strip().replace("-", "_"), value.strip()


def _keep(
    process: Kept, waiting: WaitingForServer | None = None, check: Callable[[], None] = lambda: None
) -> None:
    """Keep a process alive until we are told to end, or a check fails."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        process.start()
        while True:
            time.sleep(0.2)
            check()
            process.keep()
            if waiting is not None:
                waiting.look()
    finally:
        process.stop()


def show_status(folder: Path, as_json: bool) -> None:
    """Show who is there and how the runs are doing; of a node's kit, what it agreed to and gave away."""
    if (folder / "startup" / "nodes.json").exists():
        show_node(folder, as_json)
    else:
        show_federation(folder, as_json)


def show_federation(folder: Path, as_json: bool) -> None:
    """Show who is there, how the runs are doing, and why nodes take part in them."""
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
    for name, report in runs.items():
        consents = {} if report is None else report.consents
        for words in dict.fromkeys(consents.values()):
            agreed = ", ".join(node for node, said in consents.items() if said == words)
            out.print(f"{name}  {agreed}  {words}", markup=False, highlight=False)
