"""The parts of hushrec that run inside an NVFlare job: one on each node, one on the server."""

import base64
import ctypes
import gc
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from nvflare.collab import collab
from nvflare.collab.api.exceptions import CollabCallError, RunAborted
from nvflare.collab.api.proxy import Proxy

from hushrec.deploy.driver import drive
from hushrec.deploy.site import Site, open_site
from hushrec.errors import HushrecError
from hushrec.files import clear_leftovers, locked, make_private_folder
from hushrec.runtime.packets import MAX_PACKET_BYTES
from hushrec.runtime.transport import Buffer, Delivery, Requests

LOGGER = logging.getLogger(__name__)
ABORT_SECONDS = 3.0
SIGN_SECONDS = 2.0
SILENCE_SECONDS = 15.0
PART_BYTES = 8 << 20  # of a long packet, both ways; NVFlare keeps a thread for a while after each
PART_SECONDS = 30.0
WORKER_SECONDS = 20.0  # for an earlier worker to end
WHOLE_BYTES = 16 << 20  # replies up to this travel at once: to ask for parts costs more time than it saves memory


class NodeFailure(Exception):
    """What the server is told of an exception on a node: one line, nothing private."""


class Node:
    """Answers the server's calls with what this node's site says. Long packets come and go in parts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = ExitStack()  # as long as this process lives
        self._site: Site | None = None
        self._brought = bytearray()  # of a long packet, what is there
        self._reply = b""  # which the server fetches

    @collab.publish
    def is_alive(self) -> bool:
        """Answered also while a packet is being worked on."""
        return True

    @collab.publish
    def bring(self, start: int, part: bytes) -> None:
        """Take a part of a long packet, which `handle` then gets."""
        with self._lock:
            if start == 0:
                self._brought.clear()
            if start != len(self._brought) or start + len(part) > MAX_PACKET_BYTES:
                raise NodeFailure("parts of a packet that do not fit together, or that are too many")
            self._brought += part

    @collab.publish
    def handle(self, packet: bytes, start: int = 0) -> bytes | int:
        """The site's reply, or its length if it is long; an exception becomes an error reply."""
        with self._lock:
            self._reply = b""
            brought, self._brought = self._brought if start else b"", bytearray()
            if start != len(brought):
                raise NodeFailure("parts of a packet that do not fit together")
            packet = b"".join((brought, packet))
            try:
                if self._site is None:
                    # The kit is named by this node's own environment, never by the job.
                    self._site = self._open(Path(os.environ["HUSHREC_KIT"]))
                reply = self._site.handle(packet)
                if len(reply) <= WHOLE_BYTES:
                    return reply
                self._reply = reply
                return len(reply)
            except Exception as error:
                # Messages may speak of the node's own files and values: they stay here.
                reason = f"{type(error).__name__} at {_place(error)}"
                LOGGER.error("a call failed: %s", error if isinstance(error, HushrecError) else reason)
        raise NodeFailure(f"{reason}; see the node's log")

    def _open(self, kit: Path) -> Site:
        """The site, for this process alone: a worker whose parent was killed may still be at its last call."""
        deadline = time.monotonic() + WORKER_SECONDS
        make_private_folder(kit / "private")
        while True:
            try:
                taken = "another process serves this node; end it"
                self._held.enter_context(locked(kit / "private" / "worker.lock", taken))
                break
            except HushrecError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        clear_leftovers(kit / "private")
        return open_site(kit)

    @collab.publish
    def fetch(self, start: int) -> bytes:
        """A part of the last reply, which is let go with its last part."""
        with self._lock:
            part = self._reply[start : start + PART_BYTES]
            if start + len(part) >= len(self._reply):
                self._reply = b""
            return part


def _place(error: Exception) -> str:
    """File and line where an exception was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _let_go() -> None:
    """Give memory back after a long packet: what NVFlare leaves of calls refers to itself, and holds parts."""
    gc.collect()
    if os.name == "posix":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc
            libc.malloc_trim(0)


_FAILURES = (CollabCallError, RunAborted)  # of a call; mistakes of ours are no loss of a node


class CollabTransport:
    """Packets to nodes and back as Collab calls.

    Short packets travel to and from all nodes at once. Long ones are sent and fetched in parts, of one node after
    the other: so the server holds one of them, and NVFlare no more than a part.
    """

    def __init__(self, nodes: Mapping[str, Proxy], is_aborted: Callable[[], bool]) -> None:
        self._nodes = nodes
        self._is_aborted = is_aborted

    def call(self, phase: str, requests: Requests, round_number: int, timeout_seconds: float) -> Delivery:
        """Call every node at once. NVFlare's own timeout starts anew with each frame; ours is the wall clock."""
        lost: dict[str, str] = {}
        return Delivery(self._replies(requests, timeout_seconds, lost), lost)

    def _replies(
        self, requests: Requests, timeout_seconds: float, lost: dict[str, str]
    ) -> Iterator[tuple[str, Buffer]]:
        pool = ThreadPoolExecutor(max(1, 2 * len(requests)), thread_name_prefix="call")
        failures: dict[str, BaseException] = {}
        try:
            calls: dict[str, Future[bytes | int]] = {}
            for node in requests:
                try:
                    calls[node] = self._send(pool, requests, node, timeout_seconds)
                except _FAILURES as error:
                    failures[node] = error
            deadline = time.monotonic() + timeout_seconds
            for node in self._ended(pool, calls, deadline, lost):
                try:
                    # Popped, so that the reply is gone when whoever takes it lets it go.
                    yield node, self._fetched(node, calls.pop(node).result(), timeout_seconds)
                except _FAILURES as error:
                    failures[node] = error
        finally:
            pool.shutdown(wait=False)
        lost |= dict.fromkeys(calls.keys() - lost.keys(), f"no reply within {timeout_seconds:g} s")
        lost |= {node: _reason(error) for node, error in failures.items()}
        if not all(node in failures and _is_answer(failures[node]) for node in lost):
            self._leave_if_aborted(deadline)

    def _send(
        self, pool: ThreadPoolExecutor, requests: Requests, node: str, timeout_seconds: float
    ) -> "Future[bytes | int]":
        """Have a packet handled, whose parts were brought before if there are several."""
        parts, start = requests.parts(node, PART_BYTES), 0
        part, second = next(parts), next(parts, None)
        if second is not None:
            for brought in chain((part, second), parts):
                self._nodes[node](timeout=min(timeout_seconds, PART_SECONDS)).bring(start=start, part=brought)
                start, part = start + len(brought), b""
            _let_go()
        proxy = self._nodes[node](timeout=timeout_seconds + SIGN_SECONDS)
        return pool.submit(proxy.handle, packet=part, start=start)

    def _fetched(self, node: str, reply: object, timeout_seconds: float) -> Buffer:
        """A reply, of which the node may have sent its length only; what is neither, is for others to refuse."""
        if isinstance(reply, bytes):
            return reply
        if type(reply) is not int or not 0 < reply <= MAX_PACKET_BYTES:
            return b""
        whole, place = memoryview(bytearray(reply)), 0  # zeros cost nothing before they are written over
        deadline = time.monotonic() + timeout_seconds
        while place < reply:
            if time.monotonic() > deadline:
                raise CollabCallError(node, "fetch", "too slow")
            part = self._nodes[node](timeout=min(timeout_seconds, PART_SECONDS)).fetch(start=place)
            if not isinstance(part, bytes) or not 0 < len(part) <= min(PART_BYTES, reply - place):
                return b""
            whole[place : place + len(part)] = part
            place += len(part)
        _let_go()
        return whole

    def _ended(
        self,
        pool: ThreadPoolExecutor,
        calls: Mapping[str, "Future[bytes | int]"],
        deadline: float,
        lost: dict[str, str],
    ) -> Iterator[str]:
        """Nodes whose calls have ended, as they end.

        Those who take long are asked for signs of life: NVFlare does not tell of the dead.
        """
        signs: dict[str, Future[bool]] = {}
        waiting, look_at = set(calls), time.monotonic() + SIGN_SECONDS
        while waiting:
            if ended := [node for node in waiting if calls[node].done()]:
                waiting.remove(ended[0])
                yield ended[0]
                continue
            now = time.monotonic()
            if now >= deadline:
                return
            if now >= look_at:
                dead = {node for node in waiting if _has_failed(signs.get(node))}
                waiting -= dead
                lost |= dict.fromkeys(dead, "no sign of life")
                for node in waiting:
                    if node not in signs or signs[node].done():
                        signs[node] = pool.submit(self._nodes[node](timeout=SILENCE_SECONDS).is_alive)
                look_at = now + SIGN_SECONDS
            until = max(0.0, min(deadline, look_at) - now)
            wait_for([calls[node] for node in waiting], until, FIRST_COMPLETED)

    def _leave_if_aborted(self, deadline: float) -> None:
        """When a job is ended, its nodes go seconds before the server's part hears of it: these are no losses."""
        deadline = min(deadline, time.monotonic() + ABORT_SECONDS)
        while not self._is_aborted():
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        raise RunAborted("the job was ended")


def _has_failed(sign: "Future[bool] | None") -> bool:
    return sign is not None and sign.done() and sign.exception() is not None


def _is_answer(error: BaseException) -> bool:
    """Whether the node itself told of the failure."""
    return isinstance(error, CollabCallError) and error.cause_type == NodeFailure.__name__


def _reason(error: BaseException) -> str:
    """Why a call failed, in one line."""
    if isinstance(error, CollabCallError) and _is_answer(error):
        return str(error.cause).removeprefix(f"{NodeFailure.__name__}: ")
    return "a message is too long" if "streaming_max_blob_size" in str(error) else "not reachable"


class Driver:
    """Runs the server's side of a job over the nodes that the job was sent to."""

    def __init__(self, job: str) -> None:
        self._job = job

    @collab.main
    def run(self) -> None:
        """Drive the job to its end."""
        gc.collect()
        gc.freeze()  # what is there now stays: to look for garbage among it would take a second each time
        nodes = {proxy.name: proxy for proxy in collab.clients}
        folder = Path(os.environ["HUSHREC_PROJECT"])
        transport = CollabTransport(nodes, collab.context.is_aborted)
        drive(transport, sorted(nodes), folder, base64.b64decode(self._job))
