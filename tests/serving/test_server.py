import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from threadpoolctl import threadpool_info

from hushrec.errors import HushrecError
from hushrec.serving.limits import Connections
from hushrec.serving.server import TLS, _log_as_json, address_of, is_loopback, listen, serve


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def test_a_free_port_is_found() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening, None) == f"http://127.0.0.1:{port}"
        assert is_loopback(listening)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_everyones_address_is_no_loopback() -> None:
    with listen("0.0.0.0", 0) as listening:
        assert not is_loopback(listening)


def test_a_port_that_is_taken() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(HushrecError, match=rf"^port {port} of 127\.0\.0\.1 is taken; choose another --port$"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "", "a" * 300])
def test_no_address_of_this_machine(host: str) -> None:
    with pytest.raises(HushrecError, match=r"use --host 127\.0\.0\.1$"):
        listen(host, 0)


def test_certificates_are_looked_at_before_they_are_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    assert TLS.of(cert, key) == TLS(cert, key)
    assert TLS.of(None, None) is None
    for pair in ((cert, None), (None, key)):
        with pytest.raises(HushrecError, match="--tls-cert and --tls-key go together; give both"):
            TLS.of(*pair)
    (tmp_path / "other").mkdir()
    locked = tmp_path / "locked.pem"
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    for bad in (tmp_path / "missing", cert, certificate(tmp_path / "other")[1], locked, tmp_path):
        with pytest.raises(HushrecError, match="cannot be used; give a PEM certificate and its key") as caught:
            TLS.of(cert, bad)
        assert "\n" not in str(caught.value)


def test_certificates_are_those_that_ssl_takes(tmp_path: Path) -> None:
    ssl.create_default_context(cafile=certificate(tmp_path)[0])


def test_warnings_of_the_server_are_lines_of_json() -> None:
    lines: list[bytes] = []
    logger = logging.getLogger("uvicorn.error")
    kept = logger.handlers, logger.propagate
    try:
        _log_as_json(lines.append)
        logger.warning("Invalid HTTP request received.")
        logger.info("not this")
    finally:
        logger.handlers, logger.propagate = kept
    (line,) = lines
    assert b'"level":"WARNING","message":"Invalid HTTP request received."}' in line


def test_blas_has_no_threads_of_its_own_while_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each list is small they only wait for each other: a newcomer took thirty times as long."""

    def num_threads() -> list[int]:
        return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]

    seen: list[list[int]] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _server, sockets: seen.append(num_threads()))
    logger, before = logging.getLogger("uvicorn.error"), num_threads()
    kept = logger.handlers, logger.propagate
    try:
        with listen("127.0.0.1", 0) as listening:
            serve(None, listening, None, None, lambda line: None, Connections(9, 9))
    finally:
        logger.handlers, logger.propagate = kept
    assert seen
    assert set(seen[0]) == {1}
    assert num_threads() == before
