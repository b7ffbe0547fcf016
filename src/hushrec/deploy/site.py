"""A node's side of a run: packets in and out, each answered or refused.

A kit's folder has `startup/` (certificates, from `deploy init`) and `private/` (readable by its user only): the
settings that `deploy node` wrote, the keys, the log, and a folder for each run (`deploy/node_run.py`). State is on
disk before a reply leaves, so a node can die at any moment and answer again.
"""

import json
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hushrec.deploy.charter import Agreement, CharterError
from hushrec.deploy.consent import Keeper, NotAgreed
from hushrec.deploy.enrolment import read_settings
from hushrec.deploy.node_ledger import OverBudget
from hushrec.deploy.node_run import NodeRun, Refused
from hushrec.deploy.orders import Assignment, Hosts, Invitation, Measure
from hushrec.errors import DivergedError, HushrecError, LostForGoodError, PublicError
from hushrec.runtime.guard import Declined
from hushrec.runtime.packets import Kind, Packet, Refusal, about, decode_packet, encode_packet
from hushrec.runtime.post import BadLetter
from hushrec.runtime.wire import WireError


class Site:
    """One node, behind packets."""

    def __init__(self, kit: Path) -> None:
        self._kit = kit
        self._settings = read_settings(kit)
        self._keeper = Keeper(kit, self._settings)
        self._root = (kit / "startup" / "rootCA.pem").read_bytes()
        self._runs: dict[bytes, NodeRun] = {}

    def handle(self, data: bytes) -> bytes:
        """The reply to one packet; whatever is wrong with it, a refusal."""
        try:
            packet = decode_packet(data, self._settings.max_packet_bytes)
        except WireError as error:
            self._log("refused", reason=str(error))
            raise
        try:
            with self._keeper.over(packet, lambda: self._runs[packet.run_id].spent()):
                reply = self._answer(packet, data)
            self._log("served", packet)
        except Exception as error:
            reply = packet.refusal(_refusal(error))
            known = error.__cause__ if isinstance(error, DivergedError) and error.__cause__ else error
            self._log("refused", packet, reason=str(known) if isinstance(known, HushrecError) else _place(known))
        return encode_packet(reply)

    def _answer(self, packet: Packet, data: bytes) -> Packet:
        folder = self._kit / "private" / "runs" / packet.run_id.hex()
        if packet.kind == Kind.ENROL:
            run = NodeRun.enrol(self._kit, folder, self._settings, about(packet, Invitation))
            run.check_not_older(self._keeper.last_round(folder.name))
            self._runs[packet.run_id] = run
        if packet.run_id not in self._runs:
            run = NodeRun.reopen(self._kit, folder, self._settings)
            run.check_not_older(self._keeper.last_round(folder.name))
            self._runs[packet.run_id] = run
        run = self._runs[packet.run_id]
        mark = run.check_new(packet, data)
        steps: dict[Kind, Callable[[], Packet]] = {
            Kind.ENROL: lambda: packet.reply(run.enrolled()),
            Kind.ASSIGN: lambda: packet.reply(run.assign(packet.run_id, about(packet, Assignment))),
            Kind.START: lambda: packet.reply(run.start(packet.run_id, about(packet, Hosts), self._root)),
            Kind.AGREE: lambda: packet.reply(run.agree(packet.run_id, about(packet, Agreement))),
            Kind.ASK: lambda: run.answer(packet, mark),
            Kind.RELAY: lambda: run.answer(packet, mark),
            Kind.EVALUATE: lambda: packet.reply(run.measure(about(packet, Measure))),
        }
        if packet.kind not in steps:
            raise Refused("a packet that only a node sends")
        reply = steps[packet.kind]()
        run.last = mark
        return reply

    def _log(self, event: str, packet: Packet | None = None, reason: str = "") -> None:
        """One line of JSON in the node's own log, without anything private."""
        entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        if packet is not None:
            entry |= {
                "kind": packet.kind.name.lower(),
                "round": packet.round_number,
                "run": packet.run_id.hex()[:8],
            }
        if reason:
            entry["reason"] = reason
        path = self._kit / "private" / "node.log"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as log:
            log.write(json.dumps(entry) + "\n")


def open_site(kit: Path) -> Site:
    """The site that a kit's folder describes."""
    return Site(kit)


def _place(error: BaseException) -> str:
    """Kind and place of an unforeseen error; its words may quote private values."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def _refusal(error: Exception) -> Refusal:
    """What the server is told. Words about the node's own files stay on the node."""
    if isinstance(error, DivergedError | Refused | CharterError | NotAgreed | OverBudget):
        return Refusal(str(error), is_final=True)
    if isinstance(error, LostForGoodError):
        return Refusal("has lost what it had kept; its own log (private/node.log) says more", is_final=True)
    if isinstance(error, BadLetter):
        return Refusal(str(error), letter=error.place)
    if isinstance(error, Declined):
        return Refusal(str(error), declined=error.numbers)
    if isinstance(error, PublicError):
        return Refusal(str(error))
    return Refusal("cannot; its own log (private/node.log) says why")
