"""A node on Flower's Fleet API: it asks the server for packets, lets its site answer them, and runs nothing else.

Flower's own node downloads a bundle of code with every run and executes it. This one never asks for the bundle: it
uses Flower's client for the connection, for messages and for the proof of who it is. It opens no port.
"""

import logging
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable import inflatable_object
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError, push_objects
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from hushrec.deploy.flower_job import NO_MESSAGE, SHORTEST_PAUSE_SECONDS, packed, unpacked, whole_message
from hushrec.deploy.membership import refusal_file
from hushrec.deploy.site import Site, open_site
from hushrec.errors import HushrecError
from hushrec.files import locked, write_private_file

LOGGER = logging.getLogger(__name__)
LONGEST_PAUSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 4.0  # the server misses a node after twice HEARTBEAT_MIN_INTERVAL, which is 20 s


def serve(kit: Path, address: str) -> None:
    """Answer packets until the process is told to end."""
    with ExitStack() as stack:
        # Two processes of one kit would take each other's packets.
        in_use = f"{kit} is in use by another process; stop that one first"
        stack.enter_context(locked(kit / "flower.lock", in_use))
        site = open_site(kit)
        link = stack.enter_context(_connection(kit, address))
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            try:
                is_busy = link.answer_next(site)
                pause = SHORTEST_PAUSE_SECONDS if is_busy else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
            except httpx.TransportError:
                LOGGER.warning("the server does not answer; trying again")
                pause = LONGEST_PAUSE_SECONDS
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.FORBIDDEN:
                    link.activate()  # the server has forgotten that this node is here
                LOGGER.warning("a call was given up by the server")
            time.sleep(pause)


class _Link:
    """A node's way to the server."""

    def __init__(self, kit: Path, client: FleetHttpClient, key: Any) -> None:
        self._kit, self._client, self._key = kit, client, key
        self._node_id, self._place = kit / "flower.id", kit / "flower.place"
        self.node = Node()

    def activate(self) -> None:
        """Report for work; wait for a server that is not there yet."""
        public_key = public_key_to_bytes(self._key.public_key())
        request = ActivateNodeRequest(public_key=public_key, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
        is_told = False
        while True:
            try:
                # Flower turns away a node that seems to be there already, as one that was killed does. A copy of
                # the kit in another place does not speak for the original, and is turned away while that is there.
                if self._place.exists() and self._place.read_text() == place_of(self._kit):
                    self.leave()
                self.node = Node(node_id=self._client.ActivateNode(request).node_id)
                self._node_id.write_text(str(self.node.node_id))
                self._place.write_text(place_of(self._kit))
                return
            except httpx.TransportError as error:
                if any(word in str(error) for word in ("CERTIFICATE", "UNKNOWN_CA")):
                    raise HushrecError(
                        f"{self._kit} is no kit of this server's federation; check its address"
                    ) from None
                if not is_told:
                    LOGGER.warning("no server yet; waiting for it")
                is_told = True
                time.sleep(LONGEST_PAUSE_SECONDS)
            except httpx.HTTPStatusError as error:
                reason = (
                    "another process is connected with its certificate, or that was revoked; a copy is refused "
                    f"while the original is there ({error.response.status_code})"
                )
                write_private_file(refusal_file(self._kit), reason.encode())
                raise HushrecError(f"the server does not know {self._kit}: {reason}") from None

    def leave(self) -> None:
        """Say that this node goes; in another life, if this one has not begun."""
        if self._node_id.exists():
            with suppress(httpx.HTTPStatusError):
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=int(self._node_id.read_text())))

    def send_heartbeats(self, ended: threading.Event) -> None:
        """Show that this node is there, also while its site computes."""
        while not ended.wait(HEARTBEAT_SECONDS):
            with suppress(httpx.HTTPError):
                self._client.SendNodeHeartbeat(
                    SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
                )

    def answer_next(self, site: Site) -> bool:
        """Answer the packet that waits, if there is one."""
        pulled = self._client.PullMessages(PullMessagesRequest(node=self.node))
        if not pulled.messages_list:
            return False
        head, tree = pulled.messages_list[0].metadata, pulled.message_object_trees[0]
        deadline = time.monotonic() + head.ttl
        try:
            self._send(_reply(site, whole_message(self._client, self.node, head.run_id, tree, deadline)))
        except (ObjectPullError, ObjectPushError, *NO_MESSAGE):
            LOGGER.warning("a call was given up by the server, or was no message")
        return True

    def _send(self, reply: Message) -> None:
        """Announce a reply, then send those of its parts that the server does not have."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with inflatable_object.no_object_id_recompute():
            wanted = self._client.PushMessages(
                PushMessagesRequest(
                    node=self.node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[inflatable_object.get_object_tree(reply)],
                    clientapp_runtime_list=[0.0],
                )
            )
            push_objects(
                inflatable_object.get_all_nested_objects(reply),
                make_push_object_fn_protobuf(
                    self._client.PushObject, self.node, reply.metadata.run_id, wanted.session_id
                ),
                object_ids_to_push=set(wanted.objects_to_push),
            )


def _reply(site: Site, message: Message) -> Message:
    """What the site says; of an exception only what cannot be private."""
    try:
        return Message(packed(site.handle(unpacked(message))), reply_to=message)
    except HushrecError as error:
        reason = str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
    LOGGER.error("a call failed: %s", reason)
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def place_of(kit: Path) -> str:
    """A mark of this folder on this machine; a copy has another one."""
    machine, folder = Path("/etc/machine-id"), kit.stat()
    known = machine.read_text() if machine.exists() else ""
    return sha256(f"{known}:{folder.st_dev}:{folder.st_ino}".encode()).hexdigest()


@contextmanager
def _connection(kit: Path, address: str) -> Iterator[_Link]:
    ended = threading.Event()
    client, key = _client(kit, address)
    with client:
        link = _Link(kit, client, key)
        link.activate()
        LOGGER.info("connected to %s", address)
        threading.Thread(target=link.send_heartbeats, args=(ended,), daemon=True).start()
        try:
            yield link
        finally:
            ended.set()
            with suppress(httpx.TransportError):
                link.leave()


def _client(kit: Path, address: str) -> tuple[FleetHttpClient, Any]:
    """Flower's client, and the key of the node's certificate, with which it signs each request."""
    startup = kit / "startup"
    tls = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    tls.load_cert_chain(startup / "client.crt", startup / "client.key")
    key: Any = load_pem_private_key((startup / "client.key").read_bytes(), password=None)
    signer = NodeAuthHttpInterceptor(key, key.public_key())
    return FleetHttpClient(f"https://{address}", interceptors=[signer], verify=tls), key
