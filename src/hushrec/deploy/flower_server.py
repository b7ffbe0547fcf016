"""The server: Flower's SuperLink behind a fence.

Since 1.41 Flower serves nodes, jobs and operators on one port, and whoever reaches the operators' part can have
the server run any code. So that port is on the loopback; an operator there needs the token of `deploy init`, and
the process that starts jobs a secret of its own. The port that nodes see passes their part only, over mutual TLS.
Flower's state is in memory: `startup/nodes` says who is a node, and a job goes on from our own checkpoint.

Not protected: who has the operator's token, or can read the server's kit, can have the server run any code; nodes
run none of it, they ask for packets only. Flower starts a job with its token in the command line: users of the
server's machine can read it there and speak as the job, so let it have no others. A node of the federation can
fill the server's memory with parts of a reply.
"""

import hmac
import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.x509 import load_pem_x509_certificate
from flwr.common.constant import ACCESS_TOKEN_KEY, HEARTBEAT_MIN_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from hushrec.files import write_private_file

LOGGER = logging.getLogger(__name__)
NODES_PART = "/v1/fleet/"
LOOK_SECONDS = 1.0  # between two looks for nodes that joined or were revoked
LARGEST_REQUEST_BYTES = 8 * 2**20  # packets travel in parts of 4 MB
App = Callable[[MutableMapping[str, Any], Any, Callable[[Any], Awaitable[None]]], Awaitable[None]]


def serve(kit: Path, host: str, port: int) -> None:
    """Serve nodes at this address, and the operator on the loopback, until the process is told to end."""
    inside, outside = socket.create_server(("127.0.0.1", 0)), socket.create_server((host, port))
    control_port = inside.getsockname()[1]
    secret = kit / "flower" / "executor.secret"
    write_private_file(secret, secrets.token_bytes(32))
    app = _superlink(kit, control_port, secret)
    members = Members(kit / "startup" / "nodes", app.state.linkstate_factory.state())
    members.look()
    operators = uvicorn.Server(_settings(app, kit))
    nodes = uvicorn.Server(_settings(fenced(app), kit, lifespan="off", ssl_cert_reqs=ssl.CERT_REQUIRED))
    nodes.config.load()
    assert nodes.config.ssl is not None
    nodes.config.ssl.sslobject_class = _Handshake
    ending = threading.Event()
    helpers = [
        threading.Thread(target=nodes.run, kwargs={"sockets": [outside]}),
        threading.Thread(target=_keep_executor, args=(kit, control_port, secret, ending)),
        threading.Thread(target=members.watch, args=(ending,)),
    ]
    for helper in helpers:
        helper.start()
    write_private_file(kit / "control.port", str(control_port).encode())
    LOGGER.info("serving nodes on %s:%d", host, port)
    try:
        operators.run(sockets=[inside])
    finally:
        ending.set()
        nodes.should_exit = True
        for helper in helpers:
            helper.join()


def fenced(app: App) -> App:
    """The nodes' part of an app, for requests of bearable size. Every refusal is one line of log."""

    async def guard(scope: MutableMapping[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async def send_and_tell(message: Any) -> None:
            if message.get("status", 200) >= 400:
                client = (scope.get("client") or ["?"])[0]
                LOGGER.warning("refused %s: %d to %.64r", client, message["status"], scope["path"])
            await send(message)

        status = _refusal(scope["path"], dict(scope["headers"]).get(b"content-length", b""))
        if status is None:
            await app(scope, receive, send_and_tell)
        else:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send_and_tell({"type": "http.response.start", "status": status, "headers": headers})
            await send_and_tell({"type": "http.response.body"})

    return guard


def _refusal(path: str, length: bytes) -> int | None:
    """The HTTP status that a request is refused with."""
    if not path.startswith(NODES_PART):
        return 404
    if not length.isdigit():
        return 411
    return 413 if int(length) > LARGEST_REQUEST_BYTES else None


class _Handshake(ssl.SSLObject):
    """Tells of strangers: the event loop drops them without a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            LOGGER.warning("refused a connection: %s", error.reason)
            raise


class _OperatorOnly(NoOpControlAuthnPlugin):  # type: ignore[misc]
    """Lets in whoever has the operator's token."""

    def __init__(self, token_digest: str) -> None:
        self._token_digest = token_digest

    def validate_tokens_in_metadata(self, metadata: Sequence[tuple[str, str | bytes]]) -> tuple[bool, Any]:
        """Flower's account of the only operator, or none."""
        token = str(dict(metadata).get(ACCESS_TOKEN_KEY, ""))
        if hmac.compare_digest(sha256(token.encode()).hexdigest(), self._token_digest):
            account: tuple[bool, Any] = super().validate_tokens_in_metadata(metadata)
            return account
        LOGGER.warning("refused an operator: wrong token")
        return False, None


def _superlink(kit: Path, control_port: int, secret: Path) -> Any:
    """Flower's app, where the kit's nodes are known by their keys."""
    startup = kit / "startup"
    sys.argv = [
        "flower-superlink", "--host", "127.0.0.1", "--port", str(control_port), "--enable-supernode-auth",
        "--ssl-ca-certfile", str(startup / "rootCA.pem"), "--ssl-certfile", str(startup / "server.crt"),
        "--ssl-keyfile", str(startup / "server.key"), "--database", ":flwr-in-memory:",
        "--isolation", "process", "--superexec-auth-secret-file", str(secret),
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    operator = _OperatorOnly((startup / "operator.sha256").read_text())
    app = create_app(replace(_parse_superlink_lifespan_config(), authn_plugin=operator), SuperLinkLifespan)
    return app


class Members:
    """The nodes that Flower knows: those whose certificates are in a folder, also while the server runs."""

    def __init__(self, folder: Path, state: Any) -> None:
        self._folder, self._state = folder, state
        self._known: dict[tuple[str, bytes], int] = {}  # names and public keys, and Flower's numbers of them

    def look(self) -> None:
        """Know who has joined, and forget who was revoked: Flower refuses requests that a forgotten key signs."""
        found = {(path.stem, _public_key(path)) for path in self._folder.glob("*.crt")}
        for member in self._known.keys() - found:
            with suppress(ValueError, TypeError):  # of a node that was never there, Flower stumbles over its times
                self._state.delete_node(NOOP_FLWR_AID, self._known[member])
            del self._known[member]
            LOGGER.info("%s is no longer a node", member[0])
        for name, public_key in found - self._known.keys():
            number = self._state.create_node(
                NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key, HEARTBEAT_MIN_INTERVAL, name=name
            )
            self._known[name, public_key] = number

    def watch(self, ending: threading.Event) -> None:
        """Look every second."""
        while not ending.wait(LOOK_SECONDS):
            with suppress(OSError, ValueError):  # a file that is just being replaced
                self.look()


def _public_key(path: Path) -> bytes:
    key: Any = load_pem_x509_certificate(path.read_bytes()).public_key()
    found: bytes = public_key_to_bytes(key)
    return found


def _settings(app: Any, kit: Path, **more: Any) -> uvicorn.Config:
    startup = kit / "startup"
    return uvicorn.Config(
        app,
        ssl_certfile=startup / "server.crt",
        ssl_keyfile=startup / "server.key",
        ssl_ca_certs=str(startup / "rootCA.pem"),
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        **more,
    )


def _keep_executor(kit: Path, control_port: int, secret: Path, ending: threading.Event) -> None:
    """Keep Flower's process that starts jobs running; it ends its jobs when it ends."""
    command = [
        "flower-superexec", "--runtime-api-address", f"127.0.0.1:{control_port}",
        "--root-certificates", str(kit / "startup" / "rootCA.pem"), "--superexec-auth-secret-file", str(secret),
        "--parent-pid", str(os.getpid()),
    ]  # fmt: skip
    while not ending.is_set():
        process = subprocess.Popen(command, env=os.environ | {"HUSHREC_PROJECT": str(kit.parent)})
        while process.poll() is None and not ending.wait(0.5):
            pass
        process.kill()  # told to end, it would first try for seconds to reach the server
        process.wait()
