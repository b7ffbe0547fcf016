"""The parts of hushrec that run inside an NVFlare job: one on each node, one on the server."""

import base64
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path

from nvflare.collab import collab
from nvflare.collab.api.exceptions import CollabCallError, RunAborted
from nvflare.collab.api.proxy import Proxy

from hushrec.deploy.driver import drive
from hushrec.deploy.site import Site, open_site
from hushrec.errors import HushrecError
from hushrec.runtime.transport import Delivery

LOGGER = logging.getLogger(__name__)
ABORT_SECONDS = 3.0
SIGN_SECONDS = 2.0
SILENCE_SECONDS = 15.0


class NodeFailure(Exception):
    """What the server is told of an exception on a node: one line, nothing private."""


class Node:
    """Answers the server's calls with what this node's site says."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._site: Site | None = None

    @collab.publish
    def is_alive(self) -> bool:
        """Answered also while a packet is being worked on."""
        return True

    @collab.publish
    def handle(self, packet: bytes) -> bytes:
        """The site's reply; an exception becomes an error reply, and the worker lives on."""
        with self._lock:
            try:
                if self._site is None:
                    # The kit is named by this node's own environment, never by the job.
                    self._site = open_site(Path(os.environ["HUSHREC_KIT"]))
                return self._site.handle(packet)
            except Exception as error:
                # Messages may speak of the node's own files and values: they stay here.
                reason = f"{type(error).__name__} at {_place(error)}"
                LOGGER.error("a call failed: %s", error if isinstance(error, HushrecError) else reason)
        raise NodeFailure(f"{reason}; see the node's log")


def _place(error: Exception) -> str:
    """File and line where an exception was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


class CollabTransport:
    """Packets to nodes and back as Collab calls."""

    def __init__(self, nodes: Mapping[str, Proxy], is_aborted: Callable[[], bool]) -> None:
        self._nodes = nodes
        self._is_aborted = is_aborted

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        """Call every node at once. NVFlare's own timeout starts anew with each frame; ours is the wall clock."""
        deadline = time.monotonic() + timeout_seconds
        pool = ThreadPoolExecutor(max(1, 2 * len(requests)), thread_name_prefix="call")
        calls = {
            node: pool.submit(self._nodes[node](timeout=timeout_seconds + SIGN_SECONDS).handle, packet=packet)
            for node, packet in requests.items()
        }
        signs = self._wait(pool, calls, deadline)
        pool.shutdown(wait=False)
        ended = {node: call for node, call in calls.items() if call.done()}
        failures = {node: error for node, call in ended.items() if (error := call.exception()) is not None}
        replies = {node: call.result() for node, call in ended.items() if node not in failures}
        lost = dict.fromkeys(calls.keys() - ended.keys(), f"no reply within {timeout_seconds:g} s")
        lost |= {node: "no sign of life" for node in lost if _has_failed(signs.get(node))}
        lost |= {node: _reason(error) for node, error in failures.items()}
        if not all(node in failures and _is_answer(failures[node]) for node in lost):
            self._leave_if_aborted(deadline)
        return Delivery(replies, lost)

    def _wait(
        self, pool: ThreadPoolExecutor, calls: Mapping[str, "Future[bytes]"], deadline: float
    ) -> dict[str, "Future[bool]"]:
        """Wait for replies, and ask those who take long for signs of life: NVFlare does not tell of the dead."""
        signs: dict[str, Future[bool]] = {}
        waiting = set(calls)
        while waiting and (left := deadline - time.monotonic()) > 0:
            wait_for([calls[node] for node in waiting], min(left, SIGN_SECONDS))
            waiting = {node for node in waiting if not calls[node].done() and not _has_failed(signs.get(node))}
            for node in waiting:
                if node not in signs or signs[node].done():
                    signs[node] = pool.submit(self._nodes[node](timeout=SILENCE_SECONDS).is_alive)
        return signs

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
        nodes = {proxy.name: proxy for proxy in collab.clients}
        folder = Path(os.environ["HUSHREC_PROJECT"])
        transport = CollabTransport(nodes, collab.context.is_aborted)
        drive(transport, sorted(nodes), folder, base64.b64decode(self._job))
