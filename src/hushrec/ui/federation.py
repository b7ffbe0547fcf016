"""The page of a federation: who is there, what runs and what waits, what nodes consented to. It only reads."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hushrec.deploy.apart import Apart
from hushrec.deploy.consent import ledger_of
from hushrec.deploy.driver import Report, read_report
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.enrolment import read_settings
from hushrec.deploy.kits import Federation, read_federation, read_kit
from hushrec.deploy.membership import refusal_file
from hushrec.deploy.node_told import told_of_node
from hushrec.deploy.orders import Order, nodes_of
from hushrec.errors import HushrecError, MissingExtraError
from hushrec.serving.gate import Problem
from hushrec.ui.site import Site

_SECONDS = 2.0  # between two looks
_ASK_SECONDS = 5.0  # for an answer of the server
_ASK_EVERY = 10.0
_LOG_BYTES = 32_768
_LOG_LINES = 12


def routes(site: Site) -> list[Route]:
    """What the page asks for."""
    presences: dict[Path, Presence] = {}

    def named(request: Request) -> Path:
        name = request.query_params.get("id", "")
        for folder in folders_of(site):
            if str(folder) == name:
                return folder
        raise Problem(404, "there is no such federation; start the page with: hushrec ui RUNS --federation DIR")

    def list_all(_request: Request) -> Response:
        return site.answer({"federations": [{"id": str(one), "kind": kind_of(one)} for one in folders_of(site)]})

    def look(folder: Path) -> dict[str, Any]:
        if kind_of(folder) == "node":
            return shown_node(folder)
        return shown(folder, presences.setdefault(folder, Presence(folder)))

    def show(request: Request) -> Response:
        return site.answer(look(named(request)))

    async def events(request: Request) -> Response:
        folder = await run_in_threadpool(named, request)

        async def told() -> AsyncIterator[bytes]:
            last: bytes | None = None
            while not site.ending.is_set():
                now = b"data: " + msgspec.json.encode(await run_in_threadpool(look, folder)) + b"\n\n"
                yield now if now != last else b": the same\n\n"
                last = now
                waited = 0.0
                while waited < _SECONDS and not site.ending.is_set():
                    await asyncio.sleep(0.2)
                    waited += 0.2

        return StreamingResponse(told(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    return [
        Route("/api/federation/list", list_all),
        Route("/api/federation/show", show),
        Route("/api/federation/events", events),
    ]


def folders_of(site: Site) -> list[Path]:
    """Those that were named, and those directly below the folder of runs."""
    found = list(site.federations)
    with suppress(OSError):
        found += sorted(path.parent for path in site.runs_folder.glob("*/federation.json"))
    return list(dict.fromkeys(found))


def kind_of(folder: Path) -> str:
    """What a folder is."""
    return "node" if (folder / "startup" / "nodes.json").exists() else "federation"


class Presence:
    """Who is connected to a server, asked for now and then in a thread: an answer may take seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._asked_at, self._is_asking = float("-inf"), False
        self.connected: set[str] | None = None  # None: nobody knows
        self.is_up: bool | None = None
        self.fault = ""

    def ask_soon(self) -> None:
        """Ask again, unless that was done a moment ago."""
        with self._lock:
            if self._is_asking or time.monotonic() - self._asked_at < _ASK_EVERY:
                return
            self._is_asking = True
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            engine = engine_named(read_federation(self._folder).engine)
            session = Apart(lambda: engine.session(self._folder, _ASK_SECONDS))
            self.connected, self.is_up, self.fault = session.connected(), True, ""
            session.close()
        except MissingExtraError as error:
            self.connected, self.is_up, self.fault = None, None, str(error)
        except HushrecError as error:
            self.connected, self.is_up, self.fault = None, False, str(error)
        except Exception as error:  # an engine's own
            self.connected, self.is_up, self.fault = None, None, f"the engine failed: {type(error).__name__}"
        finally:
            with self._lock:
                self._asked_at, self._is_asking = time.monotonic(), False


def shown(folder: Path, presence: Presence) -> dict[str, Any]:
    """All that the operator's machine knows of a federation."""
    federation = read_federation(folder)
    presence.ask_soon()
    runs = [_run(path.parent, federation, presence) for path in folder.glob("runs/*/order.json")]
    runs.sort(key=lambda one: -one["changed"])
    return {
        "kind": "federation",
        "folder": str(folder),
        "server": {
            "host": federation.host,
            "port": federation.port,
            "engine": federation.engine,
            "is_up": presence.is_up,
            "fault": presence.fault,
        },
        "nodes": [_node(folder, name, presence, runs) for name in federation.nodes],
        "runs": runs,
        "waiting": _waiting(federation, presence, runs),
        "errors": _errors(folder, federation, runs),
    }


def _run(folder: Path, federation: Federation, presence: Presence) -> dict[str, Any]:
    report = read_report(folder)
    changed = [
        path.stat().st_mtime for name in ("order.json", "progress.json") if (path := folder / name).exists()
    ]
    try:
        order = msgspec.json.decode((folder / "order.json").read_bytes(), type=Order)
        system, settings = order.system, order.config
        nodes = nodes_of(folder, federation.nodes)
    except (OSError, msgspec.MsgspecError):
        system, settings, nodes = "", {}, []
    told = report or Report("running", 0)
    return {
        "name": folder.name,
        "system": system,
        "settings": settings,
        "status": "ordered" if report is None else told.status,
        "round_number": told.round_number,
        "num_rounds": told.num_rounds or settings.get("num_rounds", 0),
        "sent_bytes": told.sent_bytes,
        "attempt": told.attempt,
        "seconds": told.seconds,
        "timed_rounds": told.timed_rounds,
        "lost": told.lost,
        "proven": told.proven,
        "silent": told.silent,
        "consents": told.consents,
        "reason": told.reason,
        "nodes": nodes,
        "changed": max(changed, default=0.0),
    }


def _node(folder: Path, name: str, presence: Presence, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A node as the server knows it; with what its owner decided, if its kit is on this machine (a rehearsal)."""
    consents = [(one["name"], one["consents"][name]) for one in runs if name in one["consents"]]
    lost = [(one["name"], one["lost"][name]) for one in runs if name in one["lost"]]
    return {
        "name": name,
        "is_connected": None if presence.connected is None else name in presence.connected,
        "consents": [{"run": run, "words": words} for run, words in consents],
        "lost": [{"run": run, "reason": reason} for run, reason in lost],
        "own": _own(folder / name),
    }


def _own(kit: Path) -> dict[str, Any] | None:
    if not (kit / "private" / "node.json").exists():
        return None
    try:
        return told_of_node(read_kit(kit).name, read_settings(kit), ledger_of(kit).entries())
    except (HushrecError, OSError):
        return None


def _waiting(federation: Federation, presence: Presence, runs: list[dict[str, Any]]) -> list[str]:
    """What does not go on by itself, and for whom it waits."""
    found = []
    connected = presence.connected
    for one in runs:
        if one["status"] == "ordered":
            found.append(f"{one['name']} is ordered and has not begun")
        elif one["status"] == "paused":
            whom = ", ".join(one["lost"]) or "its nodes"
            found.append(f"{one['name']} is paused after round {one['round_number']}; it waits for {whom}")
    if connected is not None and (missing := [name for name in federation.nodes if name not in connected]):
        found.append(f"not connected: {', '.join(missing)}")
    return found


def _errors(folder: Path, federation: Federation, runs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What went wrong last: in runs, on the server, and on nodes whose kits are here."""
    found = [{"where": one["name"], "what": one["reason"]} for one in runs if one["reason"]]
    for one in runs:
        found += [{"where": f"{one['name']}, {node}", "what": why} for node, why in one["lost"].items()]
    for name in federation.nodes:
        found += [{"where": name, "what": what} for what in node_errors(folder / name)]
    return found


def node_errors(kit: Path) -> list[str]:
    """The last refusals and faults in a node's own log, and why the server does not want it."""
    found = []
    with suppress(OSError):
        found.append(f"the server refuses it: {refusal_file(kit).read_text(errors='replace')}")
    for line in _end_of(kit / "private" / "node.log"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            entry = msgspec.json.decode(line, type=dict[str, Any])
            if entry.get("reason"):
                found.append(f"{entry.get('time', '')[:19]} {entry.get('event', '')}: {entry['reason']}")
    return found[-_LOG_LINES:]


def _end_of(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            return file.read().splitlines()
    except OSError:
        return []


def shown_node(kit: Path) -> dict[str, Any]:
    """What the owner of a node sees."""
    card = read_kit(kit)
    return {
        "kind": "node",
        "folder": str(kit),
        "server": {"host": card.host, "port": card.port, "engine": card.engine},
        "own": told_of_node(card.name, read_settings(kit), ledger_of(kit).entries()),
        "errors": [{"where": card.name, "what": what} for what in node_errors(kit)],
    }
