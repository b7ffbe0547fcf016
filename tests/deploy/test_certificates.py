import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from hushrec.deploy.certificates import Authority, issue, new_authority


def kept(folder: Path, authority: Authority, name: str, hosts: tuple[str, ...] = ()) -> tuple[Path, Path]:
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path, content in zip(paths, issue(authority, name, hosts), strict=True):
        path.write_bytes(content)
    return paths


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bytes:
    """One byte from the server to the client over mutual TLS."""
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as end:
                end.sendall(b"!")
        except OSError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near, server_hostname=host) as end:
            return end.recv(1)
    finally:
        thread.join()


def contexts(
    folder: Path, authority: Authority, node_authority: Authority
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.root.decode())
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(*kept(folder, authority, "server", ("shop.example", "127.0.0.1")))
    client = ssl.create_default_context(cadata=authority.root.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    client.load_cert_chain(*kept(folder, node_authority, "north"))
    return server, client


@pytest.mark.parametrize("host", ["shop.example", "127.0.0.1"])
def test_members_of_a_federation_trust_each_other(tmp_path: Path, host: str) -> None:
    authority = new_authority("hushrec")
    assert shake_hands(*contexts(tmp_path, authority, authority), host) == b"!"


def test_another_host_is_not_the_server(tmp_path: Path) -> None:
    authority = new_authority("hushrec")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(*contexts(tmp_path, authority, authority), "other.example")


def test_a_foreign_authority_is_refused(tmp_path: Path) -> None:
    """Both are called the same; their keys differ."""
    with pytest.raises(ssl.SSLError):
        shake_hands(*contexts(tmp_path, new_authority("hushrec"), new_authority("hushrec")), "127.0.0.1")


def test_a_node_cannot_pose_as_the_server(tmp_path: Path) -> None:
    authority = new_authority("hushrec")
    server, client = contexts(tmp_path, authority, authority)
    server.load_cert_chain(*kept(tmp_path, authority, "127.0.0.1"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "127.0.0.1")


def test_a_node_cannot_sign_further_nodes(tmp_path: Path) -> None:
    authority = new_authority("hushrec")
    server, client = contexts(tmp_path, authority, authority)
    certificate, key = (path.read_bytes() for path in kept(tmp_path, authority, "north"))
    signer: Any = load_pem_private_key(key, None)
    path, key_path = kept(tmp_path, Authority(load_pem_x509_certificate(certificate), signer), "south")
    path.write_bytes(path.read_bytes() + certificate)
    client.load_cert_chain(path, key_path)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client, "127.0.0.1")
