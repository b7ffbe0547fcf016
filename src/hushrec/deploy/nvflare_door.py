"""The door of NVFlare's server: one process per node, none whose certificate is revoked, no copy of a kit.

By itself NVFlare takes any number of connections under a node's name and deals its messages out among them, so a
copied kit would get every other packet. Here a second connection under a name is refused while the first one
lives; whoever was killed is gone at once, as its connection is closed, and whoever lost its network is after
some seconds.

At its first start a node makes a secret, `private/instance`, and shows it in the handshake, inside TLS. The
server keeps a digest of the first one that it sees with a certificate (`server/instances.json`): a copy of a kit
without `private/` is refused from then on, also while the original is not there. A refused process is told why.

Not protected: a copy with all of `private/` that connects while the original is away is let in, and the original
is refused when it comes back: its owner is told, and has it revoked.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.identity import is_mtls_connection
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

from hushrec.deploy.certificates import common_name
from hushrec.deploy.membership import newest_revoked, refusal_file
from hushrec.errors import HushrecError
from hushrec.files import make_private_folder, write_private_file

LOGGER = logging.getLogger(__name__)
SILENT_SECONDS = 12.0  # a connection without a frame for so long is dead: nodes send heartbeats every 4 s
GIVE_UP_SECONDS = 14.0  # so long a node that is started again may be taken for its own copy
LOOK_SECONDS = 1.0  # between two looks at the list of revoked certificates
CLOSE_SECONDS = 0.5  # for the reason to arrive
REFUSED_CODE = 3  # of a process that was refused
_INSTANCE, _REASON, _IS_FINAL = "hushrec_instance", "hushrec_refused", "hushrec_is_final"
_TAKEN = "another process is connected with its certificate; if that is a copy, have the certificate revoked"
_COPIED = (
    "its certificate is that of a kit on another machine: this is a copy, and join makes a kit for this machine"
)
_REVOKED = "its certificate was revoked; to come back, join with a new folder"


# --- On the server ---------------------------------------------------------------------------------------------


class Door:
    """Who may connect to the server of a kit."""

    def __init__(self, kit: Path, is_operator: Callable[[str], bool]) -> None:
        self._kit, self._is_operator = kit, is_operator
        self._root = (kit / "startup" / "rootCA.pem").read_bytes()
        self._pins = kit / "instances.json"
        self._lock = threading.Lock()
        self._connections: dict[str, tuple[Any, int]] = {}  # of certificates with these serial numbers

    def guard(self) -> None:
        """Stand at every connection that this process accepts over mutual TLS, from now on."""
        let_in, leave = ConnManager.update_endpoint, ConnManager.close_connection

        def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
            connector = connection.conn.connector
            if connector.mode == Mode.PASSIVE and is_mtls_connection(connector.params):
                with self._lock:
                    refusal = self._refusal(manager, connection, data)
                    data.pop(_INSTANCE, None)
                    if refusal is None:
                        let_in(manager, connection, data)
                        return
                name = str(data.get(HandshakeKeys.ENDPOINT_NAME))[:64]
                LOGGER.warning("refused a connection as %r: %s", name, refusal[0])
                told = {HandshakeKeys.ENDPOINT_NAME: manager.local_endpoint.name}
                connection.send_dict(Types.READY, 1, told | {_REASON: refusal[0], _IS_FINAL: refusal[1]})
                threading.Timer(CLOSE_SECONDS, connection.conn.close).start()
            else:
                let_in(manager, connection, data)

        def close_connection(manager: Any, connection: Any) -> None:
            self._connections.pop(connection.name, None)
            leave(manager, connection)

        ConnManager.update_endpoint, ConnManager.close_connection = update_endpoint, close_connection
        threading.Thread(target=self._watch, daemon=True).start()

    def _refusal(self, manager: Any, connection: Any, data: dict[str, Any]) -> tuple[str, bool] | None:
        """Why a connection is refused, and whether trying again is of no use; None: it is not."""
        certificate = peer_certificate(connection.conn)
        if certificate is None:
            return "it shows no certificate", True
        serial = certificate.serial_number
        if serial in newest_revoked(self._kit, self._root).serials:
            return _REVOKED, True
        if not self._is_operator(common_name(certificate.subject)):
            if not self._is_original(serial, data.get(_INSTANCE)):
                return _COPIED, True
            if self._is_taken(manager, str(data.get(HandshakeKeys.ENDPOINT_NAME))):
                return _TAKEN, False
        self._connections[connection.conn.name] = connection.conn, serial
        return None

    def _is_original(self, serial: int, instance: object) -> bool:
        """Whether this is the first instance that was seen with a certificate."""
        if not isinstance(instance, str) or len(instance) != 64:
            return False
        pins = msgspec.json.decode(self._pins.read_bytes(), type=dict[str, str]) if self._pins.exists() else {}
        digest = sha256(instance.encode()).hexdigest()
        if f"{serial:x}" not in pins:
            pins[f"{serial:x}"] = digest
            write_private_file(self._pins, msgspec.json.encode(pins))
        return secrets.compare_digest(pins[f"{serial:x}"], digest)

    @staticmethod
    def _is_taken(manager: Any, name: str) -> bool:
        """Whether a connection under this name lives; one that does not is closed."""
        endpoint = manager.sfm_endpoints.get(FQCN.normalize(name))
        others = list(endpoint.connections) if endpoint else []
        if any(time.time() - other.last_activity < SILENT_SECONDS for other in others):
            return True
        for other in others:
            endpoint.remove_connection(other)
            other.conn.close()
        return False

    def _watch(self) -> None:
        """Cut those off who are revoked while they are connected."""
        path, seen = self._kit / "revoked.pem", 0
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(OSError, HushrecError):
                if (changed := path.stat().st_mtime_ns) == seen:
                    continue
                gone, seen = newest_revoked(self._kit, self._root).serials, changed
                for connection, serial in list(self._connections.values()):
                    if serial in gone:
                        LOGGER.warning("cut off %s: its certificate was revoked", connection.name)
                        connection.close()


def peer_certificate(connection: Any) -> x509.Certificate | None:
    """The certificate that the other end of a connection over gRPC has shown."""
    context = connection.context
    if context is None or not connection.get_conn_properties().get(DriverParams.PEER_CN.value):
        return None
    shown = context.auth_context().get("x509_pem_cert")
    return x509.load_pem_x509_certificate(shown[0]) if shown else None


# --- On a node -------------------------------------------------------------------------------------------------


def instance_of(kit: Path) -> str:
    """The node's secret by which the server tells it from a copy; made at the first call."""
    path = kit / "private" / "instance"
    if not path.exists():
        make_private_folder(path.parent)
        path.parent.chmod(0o700)
        write_private_file(path, secrets.token_hex(32).encode())
    return path.read_text()


def show_instance(kit: Path, is_worker: bool) -> None:
    """Have every connection of this process to the server show whose it is; end when it is refused."""
    instance, shake, update = instance_of(kit), SfmConnection.send_handshake, ConnManager.update_endpoint
    first_refused: list[float] = []

    def send_handshake(connection: Any, frame_type: int) -> None:
        if is_mtls_connection(connection.conn.connector.params):
            connection.local_endpoint.properties[_INSTANCE] = instance
        shake(connection, frame_type)
        connection.local_endpoint.properties.pop(_INSTANCE, None)

    def update_endpoint(manager: Any, connection: Any, data: dict[str, Any]) -> None:
        reason = data.get(_REASON)
        if reason is None:
            update(manager, connection, data)
            return
        first_refused.append(time.monotonic())
        LOGGER.warning("the server refuses this node: %.300s", reason)
        if is_worker or data.get(_IS_FINAL) or time.monotonic() - first_refused[0] > GIVE_UP_SECONDS:
            if not is_worker:
                write_private_file(refusal_file(kit), str(reason)[:300].encode())
            os._exit(REFUSED_CODE)
        connection.conn.close()

    SfmConnection.send_handshake, ConnManager.update_endpoint = send_handshake, update_endpoint
