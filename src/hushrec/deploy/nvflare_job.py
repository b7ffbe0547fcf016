"""The parts of hushrec that run inside an NVFlare job: one on each node, one on the server."""

import base64
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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


class NodeFailure(Exception):
    """What the server is told of an exception on a node: one line, nothing private."""


class Node:
    """Answers the server's calls with what this node's site says."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._site: Site | None = None

    @collab.publish
    def handle(self, packet: bytes) -> bytes:
        """The site's reply; an exception becomes an error reply, and the worker lives on."""
        with self._lock:
            try:
                if self._site is None:
                    # The kit is named by this node's own environment, never by the job.
                    self._site = open_site(Path(os.environ["HUSHREC_KIT"]))
                return self._site.handle(packet)
            except HushrecError as error:
                reason = str(error)
            except Exception as error:
                reason = f"{type(error).__name__} at {_place(error)}"
        LOGGER.error("a call failed: %s", reason)
        raise NodeFailure(reason)


def _place(error: Exception) -> str:
    """File and line of an unforeseen exception; its message may quote private values and stays out."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


class CollabTransport:
    """Packets to nodes and back as Collab calls."""

    def __init__(self, nodes: Mapping[str, Proxy]) -> None:
        self._nodes = nodes

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        """Call every node at once. NVFlare's own timeout starts anew with each byte, so ours is the wall clock."""
        pool = ThreadPoolExecutor(max(1, len(requests)), thread_name_prefix="call")
        calls = {
            node: pool.submit(lambda n, p: self._nodes[n](timeout=timeout_seconds).handle(packet=p), node, packet)
            for node, packet in requests.items()
        }
        wait_for(calls.values(), timeout_seconds)
        pool.shutdown(wait=False)
        replies: dict[str, bytes] = {}
        lost: dict[str, str] = {}
        for node, call in calls.items():
            if not call.done():
                lost[node] = f"no reply within {timeout_seconds:g} s"
            elif (error := call.exception()) is None:
                replies[node] = call.result()
            elif isinstance(error, RunAborted):
                raise error
            else:
                lost[node] = _reason(error)
        return Delivery(replies, lost)


def _reason(error: BaseException) -> str:
    """Why a call failed, in one line."""
    cause = error.cause if isinstance(error, CollabCallError) else error
    return " ".join(str(cause).split()) or type(cause).__name__


class Driver:
    """Runs the server's side of a job over the nodes that the job was sent to."""

    def __init__(self, job: str) -> None:
        self._job = job

    @collab.main
    def run(self) -> None:
        """Drive the job to its end."""
        nodes = {proxy.name: proxy for proxy in collab.clients}
        folder = Path(os.environ["HUSHREC_PROJECT"])
        drive(CollabTransport(nodes), sorted(nodes), folder, base64.b64decode(self._job))
