"""Nodes that were revoked, copies of kits, and servers that side with them: refused by whoever can know."""

from pathlib import Path

import msgspec
import pytest
from cryptography.x509 import load_pem_x509_certificate

from deploy.federation import OURS, Federation, Ordered, _authority, certificate
from hushrec.deploy.certificates import sign_revoked
from hushrec.deploy.driver import Report
from hushrec.deploy.membership import standing_hosts
from hushrec.deploy.orders import Hosts, nodes_of
from hushrec.errors import PublicError
from hushrec.files import write_private_file

SYSTEM = "fedrec++"


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def list_without(number: int, *names: str, authority: str = OURS) -> bytes:
    serials = [load_pem_x509_certificate(certificate(name)[0]).serial_number for name in names]
    return sign_revoked(_authority(authority), number, serials)


def refusal_of(report: Report, node: str) -> str:
    """Of a run that a node ended for good."""
    assert report.status == "failed", report
    assert f"{node} refused: " in report.reason
    return report.reason


def hosts_on(federation: Federation, ordered: Ordered, node: str) -> list[str]:
    """Whom a node seals letters to."""
    served = federation.site(node)._runs[bytes.fromhex(ordered.node_folder(node).name)]
    assert served._node is not None
    return [host.name for host in served._node.post._hosts]


# --- Revoked ---------------------------------------------------------------------------------------------------


def test_the_server_refuses_a_revoked_node_and_goes_on_without_it(federation: Federation) -> None:
    write_private_file(federation.folder / "server" / "revoked.pem", list_without(2, "node-2"))
    ordered = federation.order(SYSTEM)
    report = ordered.drive()
    assert report.status == "paused"
    assert report.lost == {"node-2": "the certificate of 'node-2' was revoked"}
    assert not (ordered.node_folder("node-1") / "hosts.msgpack").exists()
    ordered.finish(away=["node-2"])
    assert hosts_on(federation, ordered, "node-1") == ["node-1", "node-3"]


def test_nodes_refuse_a_revoked_node_that_the_server_keeps(federation: Federation) -> None:
    """The server has lost its list, or says so; one node has it from an earlier run."""
    write_private_file(federation.folder / "node-3" / "private" / "revoked.pem", list_without(2, "node-2"))
    ordered = federation.order(SYSTEM)
    assert "the certificate of 'node-2' was revoked" in refusal_of(ordered.drive(), "node-3")
    assert not (ordered.node_folder("node-3") / "hosts.msgpack").exists()


def test_nodes_take_the_list_from_a_run_and_keep_the_newest(federation: Federation) -> None:
    server = federation.folder / "server" / "revoked.pem"
    write_private_file(server, list_without(5, "node-9"))
    federation.order(SYSTEM).finish()
    kept = federation.folder / "node-1" / "private" / "revoked.pem"
    assert kept.read_bytes() == server.read_bytes()
    newest = kept.read_bytes()
    for older in (list_without(4), list_without(5)):
        write_private_file(server, older)
        federation.order(SYSTEM).finish()
        assert kept.read_bytes() == newest
    write_private_file(kept, list_without(6, "node-2"))  # node-1 heard of it elsewhere
    assert "'node-2' was revoked" in refusal_of(federation.order(SYSTEM).drive(), "node-1")


def test_a_list_of_another_authority_is_refused(federation: Federation) -> None:
    """Else a server could revoke whom it likes, and so choose who is left."""
    ordered = federation.order(SYSTEM)
    forged = list_without(9, "node-2", authority="strangers")
    write_private_file(federation.folder / "server" / "revoked.pem", forged)
    report = ordered.drive()
    assert report.status == "failed"
    assert "not signed by this federation's authority" in report.reason
    private = federation.folder / "node-1" / "private"
    with pytest.raises(PublicError, match="not signed by this federation's authority"):
        standing_hosts(private, _authority(OURS).root, Hosts([], 0, revoked=forged), federation.nodes)
    assert not (private / "revoked.pem").exists()


def test_who_is_revoked_in_the_middle_of_a_run_gets_no_more_letters(federation: Federation) -> None:
    ordered = federation.order(SYSTEM)
    assert ordered.drive().status == "done"
    assert hosts_on(federation, ordered, "node-1") == ["node-1", "node-2", "node-3"]
    other = federation.order(SYSTEM)
    write_private_file(federation.folder / "server" / "revoked.pem", list_without(2, "node-2"))
    kept = (ordered.folder / "hosts.msgpack").read_bytes()
    assert nodes_of(ordered.folder, ["node-1", "node-9"]) == ["node-1", "node-2", "node-3"]
    assert nodes_of(other.folder, ["node-1", "node-9"]) == ["node-1", "node-9"]
    assert msgspec.msgpack.decode(kept, type=Hosts).revoked == b""
    (ordered.folder / "progress.json").unlink()
    assert ordered.drive(away=["node-2"]).status == "done"
    assert hosts_on(federation, ordered, "node-1") == ["node-1", "node-3"]


# --- Copied ----------------------------------------------------------------------------------------------------


def without_private_key(federation: Federation, name: str) -> None:
    """What a copy of a kit without `private/` is to the others: the same certificate, another mail key."""
    (federation.folder / name / "private" / "mail.key").unlink()
    federation.kill(name)


def test_a_copied_kit_has_another_mail_key_and_is_refused_by_the_server(federation: Federation) -> None:
    federation.order(SYSTEM).finish()
    original = (federation.folder / "node-2" / "private" / "mail.key").read_bytes()
    without_private_key(federation, "node-2")
    report = federation.order(SYSTEM).drive()
    assert report.status == "paused"
    assert set(report.lost) == {"node-2"}
    assert "another mail key than before: a copied kit" in report.lost["node-2"]
    write_private_file(federation.folder / "node-2" / "private" / "mail.key", original)
    federation.kill("node-2")
    federation.order(SYSTEM).finish()  # the original keeps its place


def test_nodes_refuse_a_copied_kit_that_the_server_sides_with(federation: Federation) -> None:
    federation.order(SYSTEM).finish()
    without_private_key(federation, "node-2")
    (federation.folder / "server" / "known.json").unlink()
    ordered = federation.order(SYSTEM)
    report = ordered.drive()
    assert report.status == "failed"
    assert "'node-2' shows another mail key than before: a copied kit" in report.reason
    assert not (ordered.node_folder("node-1") / "hosts.msgpack").exists()


# --- Joined ----------------------------------------------------------------------------------------------------


def test_nodes_take_whoever_the_authority_made_a_node_though_no_list_names_him(federation: Federation) -> None:
    for name in federation.nodes:
        card = {"engine": "nvflare", "name": name, "nodes": [name]}
        (federation.folder / name / "startup" / "nodes.json").write_bytes(msgspec.json.encode(card))
    ordered = federation.order(SYSTEM)
    ordered.finish()
    assert hosts_on(federation, ordered, "node-1") == federation.nodes
