"""What a Flower job is to us: packets in Flower's messages, the transport over them, and the server's app."""

import base64
import json
import os
import secrets
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import UnexpectedObjectContentError
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_and_inflate_object_from_tree

from hushrec.deploy.driver import drive
from hushrec.files import locked_as
from hushrec.runtime.transport import Delivery

PART_BYTES = 4 * 2**20
# A question to Flower's server costs it 5 to 10 ms of CPU: impatience slows everybody down.
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
PRESENCE_POLL_SECONDS = 2.0
CLOCK_TOLERANCE_SECONDS = 60.0  # Flower drops a message by the clocks of both ends
FLOWERS_REASONS = {
    ErrorCode.MESSAGE_UNAVAILABLE: "no reply in time",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no reply in time",
    ErrorCode.NODE_UNAVAILABLE: "the connection broke",
}
NO_MESSAGE = (KeyError, TypeError, ValueError, RecursionError, UnexpectedObjectContentError)

server_app = ServerApp()


@server_app.main()
def run_job(grid: Grid, context: Context) -> None:
    """Drive a job, once the job before it has ended."""
    folder = Path(os.environ["HUSHREC_PROJECT"])
    job, nodes = base64.b64decode(context.run_config["job"]), json.loads(context.run_config["nodes"])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with locked_as(folder / "server" / "job.lock", str(context.run_id)):
        try:
            drive(FlowerTransport(grid), nodes, folder, job)
        except Exception:
            # Flower keeps no output of this process.
            (folder / "server" / "failure.log").write_text(traceback.format_exc())
            raise


def _end_with(parent: int) -> None:
    """End this process when its parent has ended: Flower's own watch fails while the main thread waits."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


class FlowerTransport:
    """Packets to nodes and back as Flower messages. The server knows a node by its key, and so by its name."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        """Send all packets, one after the other, then hand replies over as they come."""
        lost: dict[str, str] = {}
        return Delivery(self._replies(requests, timeout_seconds, lost), lost)

    def _replies(
        self, requests: Mapping[str, bytes], timeout_seconds: float, lost: dict[str, str]
    ) -> Iterator[tuple[str, bytes]]:
        """Ask for replies until they are there, the node is gone or the time is up."""
        deadline = time.monotonic() + timeout_seconds
        present = self._present()
        lost |= {node: "not connected" for node in requests if node not in present}
        waiting: dict[str, str] = {}
        for node in requests:
            if node in present:
                message = _message(requests[node], present[node].node_id, timeout_seconds)
                waiting |= dict.fromkeys(self._grid.push_messages([message]), node)
                del message
        next_look, pause = time.monotonic() + PRESENCE_POLL_SECONDS, SHORTEST_PAUSE_SECONDS
        while waiting and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
            for message_id, reply in self._arrived(list(waiting), deadline):
                node, pause = waiting.pop(message_id), SHORTEST_PAUSE_SECONDS
                if isinstance(reply, bytes):
                    yield node, reply
                else:
                    lost[node] = reply
                del reply
            if time.monotonic() > next_look:
                gone = self._gone(waiting.values(), present)
                waiting = {message_id: node for message_id, node in waiting.items() if node not in gone}
                next_look = time.monotonic() + PRESENCE_POLL_SECONDS
                lost |= gone
        lost |= dict.fromkeys(waiting.values(), "no reply in time")

    def _present(self) -> dict[str, Any]:
        return {info.name: info for info in self._grid.get_nodes()}

    def _gone(self, nodes: Iterable[str], before: Mapping[str, Any]) -> dict[str, str]:
        """Nodes that left, or started anew: Flower delivers a message once, so those have lost it."""
        now = self._present()
        restarted = {
            node: "started anew during the call"
            for node in nodes
            if node in now and now[node].last_activated_at != before[node].last_activated_at
        }
        return restarted | {node: "the connection broke" for node in nodes if node not in now}

    def _arrived(self, message_ids: list[str], deadline: float) -> Iterator[tuple[str, bytes | str]]:
        """Replies by the message that they answer: a packet, or why there is none."""
        client = self._grid._runtime_client
        pulled = client.PullMessages(PullAppMessagesRequest(message_ids=message_ids))
        for head, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
            # Of a head the server has checked who sent it; the message itself says what its sender likes.
            yield head.metadata.reply_to_message_id, self._reply(head.metadata.run_id, tree, deadline)

    def _reply(self, run_id: int, tree: Any, deadline: float) -> bytes | str:
        try:
            message = whole_message(self._grid._runtime_client, self._grid.node, run_id, tree, deadline)
            if message.has_content():
                return unpacked(message)
            return FLOWERS_REASONS.get(message.error.code) or " ".join(message.error.reason.split())[:200]
        except ObjectPullError:
            return "broke off while it sent its reply"
        except NO_MESSAGE:
            return "sent something that is no message"


def _message(packet: bytes, node_id: int, timeout_seconds: float) -> Message:
    """A message whose id, a digest, nobody can guess: so nobody else can answer it."""
    seconds = timeout_seconds + CLOCK_TOLERANCE_SECONDS
    return Message(packed(packet), node_id, "query", ttl=seconds, group_id=secrets.token_hex(16))


def packed(packet: bytes) -> RecordDict:
    """A packet as a message's content. A request per part: fewer records are faster, smaller ones safer."""
    parts = range(0, max(1, len(packet)), PART_BYTES)
    return RecordDict({str(start): ConfigRecord({"part": packet[start : start + PART_BYTES]}) for start in parts})


def unpacked(message: Message) -> bytes:
    """The packet of a message."""
    return b"".join(message.content[start]["part"] for start in sorted(message.content, key=int))


def whole_message(client: Any, node: Any, run_id: int, tree: Any, deadline: float) -> Message:
    """Fetch all parts of a message; they may still be on their way."""
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run_id),
        return_type=Message,
        max_time=max(0.0, deadline - time.monotonic()),
        max_tries_per_object=None,
        initial_backoff=SHORTEST_PAUSE_SECONDS,
        backoff_cap=LONGEST_PAUSE_SECONDS,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # no part of the digested message
    return message
