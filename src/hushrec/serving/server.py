"""The process that listens: its socket, its TLS, its log, its end."""

import errno
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from hushrec.errors import HushrecError
from hushrec.serving.gate import now
from hushrec.serving.http import BoundedHttp
from hushrec.serving.limits import Connections

_GRACE_SECONDS = 5


@dataclass(frozen=True)
class TLS:
    """Files of a certificate chain and its key."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None) -> "TLS | None":
        """Both files, after a look at them before anything listens; or none."""
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise HushrecError("--tls-cert and --tls-key go together; give both")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        except (OSError, ValueError):
            raise HushrecError(
                f"--tls-cert {certificate} and --tls-key {key} cannot be used; "
                "give a PEM certificate and its key, without a password"
            ) from None
        return cls(certificate, key)


def listen(host: str, port: int) -> socket.socket:
    """A socket on an address of this machine; port 0 is any free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=2048)
    except (socket.gaierror, UnicodeError, OverflowError):
        raise HushrecError(f"--host {host} --port {port} is not an address; use --host 127.0.0.1") from None
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"port {port} of {host} is taken; choose another --port",
            errno.EACCES: f"port {port} needs more rights; choose a --port from 1024 up",
            errno.EADDRNOTAVAIL: f"{host} is not an address of this machine; use --host 127.0.0.1",
        }
        fallback = f"cannot listen on {host} port {port} ({error.strerror}); choose another --host or --port"
        raise HushrecError(reasons.get(error.errno or 0, fallback)) from None
    # Connections inherit it; else a body waits for the acknowledgement of its head, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket, tls: TLS | None) -> str:
    """Where a socket listens, as an address to call."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def serve(
    app: ASGIApp,
    listening: socket.socket,
    tls: TLS | None,
    trusted_proxy: str | None,
    log: Callable[[bytes], None],
    connections: Connections,
    ending: threading.Event | None = None,
) -> None:
    """Answer until a signal comes; then finish what is under way. `ending` is set first: streams heed it.

    BLAS works without threads of its own: for products as small as those of one list they only wait for each
    other, most of all where other processes are busy.
    """
    _log_as_json(log)
    config = uvicorn.Config(
        app,
        http=partial(BoundedHttp, connections_open=connections),  # type: ignore[arg-type]  # called, nothing else
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=trusted_proxy is not None,
        forwarded_allow_ips=trusted_proxy,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config, ending or threading.Event())
    with threadpool_limits(1, user_api="blas"):
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Says at once that it was told to end."""

    def __init__(self, config: uvicorn.Config, ending: threading.Event) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Heed a signal."""
        self._ending.set()
        super().handle_exit(sig, frame)


def _log_as_json(log: Callable[[bytes], None]) -> None:
    """Let uvicorn's own warnings be lines like all others; they hold nothing of a request."""

    class AsJson(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log(msgspec.json.encode({"time": now(), "level": record.levelname, "message": record.getMessage()}))

    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [AsJson(logging.WARNING)], False
