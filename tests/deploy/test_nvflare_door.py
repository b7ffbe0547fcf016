"""Who is let in at the door of NVFlare's server: connections of our own making, certificates that are real."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from federation import OURS, _authority, certificate

pytest.importorskip("nvflare")

from cryptography.x509 import load_pem_x509_certificate
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.constants import HandshakeKeys

from hushrec.deploy import nvflare_door
from hushrec.deploy.certificates import sign_revoked
from hushrec.deploy.nvflare_door import SILENT_SECONDS, Door, instance_of, peer_certificate
from hushrec.files import write_private_file

ORIGINAL, COPY = "1" * 64, "2" * 64


@pytest.fixture
def door(tmp_path: Path) -> Door:
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "rootCA.pem").write_bytes(_authority(OURS).root)
    return Door(tmp_path, lambda name: name == "operator")


class Connection:
    """One end of a connection whose other end has shown a certificate."""

    def __init__(self, name: str, last_activity: float | None = None) -> None:
        shown = {"x509_pem_cert": [certificate(name)[0]]}
        self.name, self.is_open = f"connection of {name}", True
        self.context: Any = SimpleNamespace(auth_context=lambda: shown)
        self.last_activity = time.time() if last_activity is None else last_activity
        self.conn = self

    def get_conn_properties(self) -> dict[str, str]:
        return {DriverParams.PEER_CN.value: "somebody"}

    def close(self) -> None:
        self.is_open = False


class Endpoint:
    """Connections under one name."""

    def __init__(self, *connections: Connection) -> None:
        self.connections = list(connections)

    def remove_connection(self, connection: Connection) -> None:
        self.connections.remove(connection)


def refusal(door: Door, name: str, instance: str | None = ORIGINAL, *others: Connection) -> str:
    """Why somebody with the certificate of `name` is refused; empty: he is not."""
    manager = SimpleNamespace(sfm_endpoints={name: Endpoint(*others)})
    shown = {HandshakeKeys.ENDPOINT_NAME: name, "hushrec_instance": instance}
    found = door._refusal(manager, Connection(name), shown)
    return "" if found is None else found[0]


def test_a_second_process_is_refused_while_the_first_one_lives(door: Door) -> None:
    first = Connection("shop-a")
    assert refusal(door, "shop-a") == ""
    assert "another process is connected" in refusal(door, "shop-a", ORIGINAL, first)
    assert first.is_open
    assert refusal(door, "shop-b", ORIGINAL) == ""


def test_a_connection_that_is_silent_gives_way(door: Door) -> None:
    """A machine without power does not close its connections."""
    dead = Connection("shop-a", time.time() - SILENT_SECONDS - 1)
    assert refusal(door, "shop-a", ORIGINAL, dead) == ""
    assert not dead.is_open


def test_a_kit_without_the_secret_of_the_first_one_is_a_copy(door: Door, tmp_path: Path) -> None:
    assert refusal(door, "shop-a", ORIGINAL) == ""
    for wrong in (COPY, None, "", ORIGINAL[:-1]):
        assert "this is a copy" in refusal(door, "shop-a", wrong)
    assert refusal(door, "shop-a", ORIGINAL) == ""
    assert "this is a copy" in refusal(Door(tmp_path, lambda _: False), "shop-a", COPY), "a new process remembers"
    assert ORIGINAL not in (tmp_path / "instances.json").read_text()


def test_a_revoked_certificate_is_refused_and_others_are_not(door: Door, tmp_path: Path) -> None:
    assert refusal(door, "shop-a") == ""
    serial = load_pem_x509_certificate(certificate("shop-a")[0]).serial_number
    write_private_file(tmp_path / "revoked.pem", sign_revoked(_authority(OURS), 2, [serial]))
    assert "was revoked" in refusal(door, "shop-a")
    assert refusal(door, "shop-b") == ""


def test_who_is_connected_when_he_is_revoked_is_cut_off(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvflare_door, "LOOK_SECONDS", 0.01)
    connections = {name: Connection(name) for name in ("shop-a", "shop-b")}
    for name, connection in connections.items():
        manager = SimpleNamespace(sfm_endpoints={})
        assert door._refusal(manager, connection, {"hushrec_instance": ORIGINAL}) is None, name
    thread = threading.Thread(target=door._watch, daemon=True)
    thread.start()
    serial = load_pem_x509_certificate(certificate("shop-a")[0]).serial_number
    write_private_file(tmp_path / "revoked.pem", sign_revoked(_authority(OURS), 2, [serial]))
    deadline = time.monotonic() + 10
    while connections["shop-a"].is_open:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert connections["shop-b"].is_open


def test_the_operator_may_connect_twice_and_has_no_instance(door: Door) -> None:
    assert refusal(door, "operator", None, Connection("operator")) == ""


def test_who_shows_no_certificate_is_refused(door: Door) -> None:
    bare = Connection("shop-a")
    bare.context = None
    assert peer_certificate(bare) is None
    assert door._refusal(SimpleNamespace(sfm_endpoints={}), bare, {}) == ("it shows no certificate", True)


def test_an_instance_is_made_once_and_for_its_user_only(tmp_path: Path) -> None:
    first = instance_of(tmp_path)
    assert len(first) == 64
    assert instance_of(tmp_path) == first
    assert (tmp_path / "private" / "instance").stat().st_mode & 0o077 == 0
    assert (tmp_path / "private").stat().st_mode & 0o077 == 0
