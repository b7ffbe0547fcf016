"""Joining and leaving: keys stay where they are made, what the authority signs, and who is refused after that."""

import base64
import json
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from typer.testing import CliRunner

from hushrec.choices import EngineName
from hushrec.cli.verbs import app
from hushrec.deploy.authority import Answer, KeptAuthority, Place, keep_authority, open_authority
from hushrec.deploy.certificates import (
    Authority,
    PrivateKey,
    certify,
    is_of_a_node,
    issue,
    key_in_pem,
    new_authority,
    read_revoked,
    request_for,
    sign_revoked,
)
from hushrec.deploy.engines import Session
from hushrec.deploy.flower_engine import FlowerEngine
from hushrec.deploy.kits import make_kits, read_federation, read_kit
from hushrec.deploy.membership import (
    Leaving,
    admit_node,
    ask_to_join,
    check_welcome,
    leave_federation,
    name_of_leaver,
    newest_revoked,
    refusal_file,
    take_answer,
    take_revoked,
)
from hushrec.errors import HushrecError
from hushrec.files import write_private_file

RUNNER = CliRunner()


class Engine:
    """Makes certificates, and nothing of its own."""

    name: EngineName = "nvflare"

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> Authority:
        authority = new_authority("hushrec")
        for name in ("server", *nodes):
            (folder / name / "startup").mkdir(parents=True)
            (folder / name / "startup" / "rootCA.pem").write_bytes(authority.root)
        for name in nodes:
            certificate, key = issue(authority, name)
            (folder / name / "startup" / "client.crt").write_bytes(certificate)
            (folder / name / "startup" / "client.key").write_bytes(key)
        return authority

    def new_key(self) -> PrivateKey:
        return ec.generate_private_key(ec.SECP384R1())

    def fill_kit(self, kit: Path, name: str, host: str, port: int) -> None:
        assert (host, port) == ("server.example", 8002)
        (kit / "engine").write_text(name)

    def admit(self, folder: Path, name: str, certificate: bytes) -> None:
        (folder / "server" / f"{name}.known").write_bytes(certificate)

    def dismiss(self, folder: Path, name: str) -> None:
        (folder / "server" / f"{name}.known").unlink()

    def server_command(self, folder: Path) -> list[str]:
        raise NotImplementedError

    def node_command(self, kit: Path) -> list[str]:
        raise NotImplementedError

    def session(self, folder: Path, timeout_seconds: float) -> Session:
        raise NotImplementedError


ENGINE = Engine()


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    make_kits(tmp_path / "fed", ENGINE, [], "server.example", 8002)
    return tmp_path / "fed"


def joined(fed: Path, kit: Path) -> Answer:
    """A node that joined, and that the server counts on."""
    answer = open_authority(fed).approve(ask_to_join(kit, ENGINE))
    take_answer(kit, answer, ENGINE)
    admit_node(fed, answer, ENGINE)
    return answer


def private_keys(folder: Path) -> set[str]:
    """The files below a folder that hold a private key."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix() for path in files if b"PRIVATE KEY" in path.read_bytes()}


# --- The way in ------------------------------------------------------------------------------------------------


def test_a_node_joins_and_its_key_never_leaves_its_folder(fed: Path, tmp_path: Path) -> None:
    kit = tmp_path / "shop-a"
    answer = joined(fed, kit)
    key = load_pem_private_key((kit / "startup" / "client.key").read_bytes(), None)
    certificate = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    assert certificate.public_key() == key.public_key()
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(answer.root.encode()))
    assert is_of_a_node(certificate)
    assert "PRIVATE" not in msgspec.json.encode(answer).decode()
    assert private_keys(tmp_path) == {"fed/authority/root.key", "shop-a/startup/client.key"}
    card = read_kit(kit)
    assert (card.name, card.host, card.port) == ("shop-a", "server.example", 8002)
    assert read_federation(fed).nodes == ["shop-a"]
    assert (fed / "server" / "shop-a.known").exists()
    assert newest_revoked(kit / "private", answer.root.encode()).number == 1


def test_requests_and_answers_can_be_lost_and_made_again(fed: Path, tmp_path: Path) -> None:
    kit = tmp_path / "shop-a"
    ask_to_join(kit, ENGINE)
    key = (kit / "startup" / "client.key").read_bytes()
    first = open_authority(fed).approve(ask_to_join(kit, ENGINE))
    assert open_authority(fed).approve(ask_to_join(kit, ENGINE)) == first
    assert (kit / "startup" / "client.key").read_bytes() == key
    for _ in range(2):
        take_answer(kit, first, ENGINE)
        admit_node(fed, first, ENGINE)
    assert read_federation(fed).nodes == ["shop-a"]
    assert len(open_authority(fed).issued()) == 1
    with pytest.raises(HushrecError, match="is a node's kit already"):
        ask_to_join(kit, ENGINE)


def test_a_name_belongs_to_one_key(fed: Path, tmp_path: Path) -> None:
    joined(fed, tmp_path / "shop-a")
    with pytest.raises(HushrecError, match="shop-a is a node already, with another key; revoke that one first"):
        open_authority(fed).approve(ask_to_join(tmp_path / "other" / "shop-a", ENGINE))


@pytest.mark.parametrize("name", ["server", "admin", "authority", "Shop", "a b", "a" * 42])
def test_names_that_no_node_can_have_are_refused_on_both_sides(fed: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(HushrecError, match="cannot be a node's name"):
        ask_to_join(tmp_path / name, ENGINE)
    assert not (tmp_path / name).exists()
    with pytest.raises(HushrecError, match="cannot be a node's name"):
        open_authority(fed).approve(request_for(name, ENGINE.new_key()))


def test_what_is_no_request_is_refused(fed: Path) -> None:
    authority = open_authority(fed)
    good = request_for("shop-a", ENGINE.new_key())
    other = request_for("shop-b", ENGINE.new_key())
    swapped = x509.load_pem_x509_csr(good).tbs_certrequest_bytes
    for bad in (b"", b"\xff" * 100, good[:100], other.replace(b"REQUEST", b"TEST"), swapped, issue_pem()):
        with pytest.raises(HushrecError, match="no request for a certificate"):
            authority.approve(bad)
    body = bytearray(x509.load_pem_x509_csr(good).public_bytes(Encoding.DER))
    body[-1] ^= 1  # of the signature
    with pytest.raises(HushrecError, match=r"no request|not signed by the key"):
        authority.approve(x509_pem(bytes(body)))
    assert not authority.issued()


def issue_pem() -> bytes:
    return issue(new_authority("x"), "shop-a")[0]


def x509_pem(der: bytes) -> bytes:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()


def test_an_answer_for_somebody_else_is_refused(fed: Path, tmp_path: Path) -> None:
    kit = tmp_path / "shop-a"
    ask_to_join(kit, ENGINE)
    good = open_authority(fed).approve(ask_to_join(kit, ENGINE))
    other = open_authority(fed).approve(ask_to_join(tmp_path / "shop-b", ENGINE))
    foreign = keep_authority(
        tmp_path / "foreign", new_authority("hushrec"), Place("nvflare", "server.example", 8002)
    )
    strange = foreign.approve(ask_to_join(kit, ENGINE))
    of_a_server = certify(
        open_authority(fed).authority, "shop-a", load_key(kit).public_key(), ["server.example"]
    ).decode()
    replace = msgspec.structs.replace
    for bad, says in (
        (other, "is for shop-b, not for shop-a"),
        (replace(other, name="shop-a"), "not one of the node shop-a"),
        (replace(good, certificate=strange.certificate), "no certificate that its root has signed"),
        (replace(good, certificate="x"), "no certificate that its root has signed"),
        (replace(good, certificate=of_a_server), "not one of the node shop-a"),
        (replace(good, revoked=strange.revoked), "not signed by this federation's authority"),
        (replace(good, revoked="x"), "cannot be read"),
    ):
        with pytest.raises(HushrecError, match=says):
            take_answer(kit, bad, ENGINE)
        assert not (kit / "startup" / "client.crt").exists()
    shutil.rmtree(tmp_path / "shop-b")
    ask_to_join(tmp_path / "shop-b", ENGINE)
    with pytest.raises(HushrecError, match="for another key than that in"):
        take_answer(tmp_path / "shop-b", other, ENGINE)
    take_answer(kit, good, ENGINE)
    with pytest.raises(HushrecError, match="is of another federation"):
        take_answer(kit, strange, ENGINE)


def load_key(kit: Path) -> PrivateKey:
    key = load_pem_private_key((kit / "startup" / "client.key").read_bytes(), None)
    assert isinstance(key, PrivateKey)
    return key


def test_a_server_admits_whom_its_own_authority_approved(fed: Path, tmp_path: Path) -> None:
    foreign = keep_authority(
        tmp_path / "foreign", new_authority("hushrec"), Place("nvflare", "server.example", 8002)
    )
    strange = foreign.approve(ask_to_join(tmp_path / "shop-a", ENGINE))
    with pytest.raises(HushrecError, match="approved by the authority of another federation"):
        admit_node(fed, strange, ENGINE)
    assert read_federation(fed).nodes == []


def test_the_authority_can_be_elsewhere(fed: Path, tmp_path: Path) -> None:
    away = tmp_path / "stick" / "authority"
    away.parent.mkdir()
    shutil.move(fed / "authority", away)
    with pytest.raises(HushrecError, match="has no authority's key"):
        open_authority(fed)
    answer = open_authority(away).approve(ask_to_join(tmp_path / "shop-a", ENGINE))
    admit_node(fed, answer, ENGINE)
    assert take_revoked(fed, open_authority(away).revoke("shop-a").pem, ENGINE) == ["shop-a"]
    assert read_federation(fed).nodes == []


# --- The way out -----------------------------------------------------------------------------------------------


def test_a_revoked_node_is_gone_and_may_come_back_with_a_new_key_only(fed: Path, tmp_path: Path) -> None:
    old = joined(fed, tmp_path / "shop-a")
    joined(fed, tmp_path / "shop-b")
    authority = open_authority(fed)
    new = authority.revoke("shop-a")
    assert new.number == 2
    assert take_revoked(fed, new.pem, ENGINE) == ["shop-a"]
    assert read_federation(fed).nodes == ["shop-b"]
    assert not (fed / "server" / "shop-a.known").exists()
    with pytest.raises(
        HushrecError, match="'shop-a' is no node of this federation, or was revoked before; nodes: shop-b"
    ):
        authority.revoke("shop-a")
    with pytest.raises(HushrecError, match="certificate of 'shop-a' was revoked"):
        admit_node(fed, old, ENGINE)
    with pytest.raises(HushrecError, match="was revoked, or is another node's; have a new one made"):
        authority.approve(request_for("shop-a", load_key(tmp_path / "shop-a")))
    shutil.rmtree(tmp_path / "shop-a")
    again = joined(fed, tmp_path / "shop-a")
    assert read_federation(fed).nodes == ["shop-b", "shop-a"]
    read_revoked(again.revoked.encode(), authority.authority.certificate).check(
        x509.load_pem_x509_certificate(again.certificate.encode())
    )


def test_the_number_of_a_list_only_rises(fed: Path, tmp_path: Path) -> None:
    authority = open_authority(fed)
    joined(fed, tmp_path / "shop-a")
    first = authority.revoked.pem
    second = authority.revoke("shop-a").pem
    take_revoked(fed, second, ENGINE)
    with pytest.raises(HushrecError, match="list 1 of revoked certificates is older than list 2"):
        take_revoked(fed, first, ENGINE)
    root = authority.authority.root
    assert newest_revoked(fed / "server", root, first).number == 2
    emptied = sign_revoked(authority.authority, 2, [])  # the same number without the node
    assert newest_revoked(fed / "server", root, emptied).serials
    with pytest.raises(HushrecError, match="not signed by this federation's authority"):
        newest_revoked(fed / "server", root, sign_revoked(new_authority("hushrec"), 9, []))


def test_a_node_leaves_by_its_own_will_and_nobody_elses(fed: Path, tmp_path: Path) -> None:
    kit = tmp_path / "shop-a"
    joined(fed, kit)
    other = joined(fed, tmp_path / "shop-b")
    (kit / "private" / "runs").mkdir(parents=True)
    authority = open_authority(fed)
    wish = leave_federation(kit)
    assert private_keys(kit) == set()
    assert (kit / "private" / "runs").is_dir()
    assert name_of_leaver(wish, authority) == "shop-a"
    forged = Leaving(other.certificate, msgspec.json.decode(wish, type=Leaving).signature)
    with pytest.raises(HushrecError, match="not signed by shop-b"):
        name_of_leaver(msgspec.json.encode(forged), authority)
    with pytest.raises(HushrecError, match="neither a node's name nor a wish to leave"):
        name_of_leaver(b"{}", authority)
    authority.revoke("shop-a")
    with pytest.raises(HushrecError, match="'shop-a' is no node of this federation, or was revoked before"):
        name_of_leaver(wish, authority)
    with pytest.raises(HushrecError, match="has no key"):
        leave_federation(kit)


def test_a_node_that_the_server_refused_says_why(fed: Path, tmp_path: Path) -> None:
    kit = tmp_path / "shop-a"
    joined(fed, kit)
    check_welcome(kit, "shop-a")
    write_private_file(refusal_file(kit), b"its certificate was revoked")
    with pytest.raises(HushrecError, match=r"^the server refuses shop-a: its certificate was revoked$"):
        check_welcome(kit, "shop-a")


# --- As people type it -----------------------------------------------------------------------------------------


def said(*words: str) -> str:
    result = RUNNER.invoke(app, ["deploy", *words])
    assert result.exit_code == 0, (words, result.output, result.exception)
    return result.stdout


def refused(*words: str) -> str:
    result = RUNNER.invoke(app, ["deploy", *words])
    assert isinstance(result.exception, HushrecError), (words, result.output)
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize("engine", ["nvflare", "flower"])
def test_the_whole_way_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    if engine == "nvflare":
        pytest.importorskip("nvflare")
    monkeypatch.chdir(tmp_path)
    said("init", "fed", "--host", "server.example", "--engine", engine)
    asked = json.loads(said("join", "shop-a", "--engine", engine, "--json"))
    assert asked["request"] == "shop-a.request"
    wrong = refused("approve", "fed", "shop-a.request", "--fingerprint", "0" * 32)
    assert f"is of another key, {asked['fingerprint']}" in wrong
    approved = json.loads(
        said("approve", "fed", "shop-a.request", "--fingerprint", asked["fingerprint"].upper(), "--json")
    )
    assert approved["fingerprint"] == asked["fingerprint"]
    taken = json.loads(said("join", "shop-a", "--answer", "shop-a.answer", "--json"))
    assert taken == {"node": "shop-a", "server": "server.example:8002", "root": approved["root"]}
    assert json.loads(said("admit", "fed", "shop-a.answer", "--json")) == {"nodes": ["shop-a"]}
    assert private_keys(tmp_path) - {"fed/admin/startup/client.key"} == {
        "fed/authority/root.key",
        "fed/server/startup/server.key",
        "shop-a/startup/client.key",
    }
    if engine == "flower":
        assert (tmp_path / "fed/server/startup/nodes/shop-a.crt").exists()
    said("leave", "shop-a")
    assert json.loads(said("revoke", "fed", "shop-a.leave", "--json"))["number"] == 2
    assert "gone: none" in said("revoke", "fed", "--list", "revoked.pem")
    assert read_federation(tmp_path / "fed").nodes == []
    assert not (tmp_path / "fed/server/startup/nodes/shop-a.crt").exists()


@pytest.mark.parametrize("engine", ["nvflare", "flower"])
def test_no_file_with_a_key_can_be_read_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Also not the folder around it, so that a copy of the file alone is not made readable by its folder."""
    if engine == "nvflare":
        pytest.importorskip("nvflare")
    monkeypatch.chdir(tmp_path)
    said("init", "fed", "--engine", engine, "--name", "shop-b")
    said("join", "shop-a", "--engine", engine)
    said("approve", "fed", "shop-a.request")
    said("join", "shop-a", "--answer", "shop-a.answer")
    keys = private_keys(tmp_path)
    assert {"fed/authority/root.key", "shop-a/startup/client.key", "fed/shop-b/startup/client.key"} <= keys
    token = {"fed/admin/startup/token"} if engine == "flower" else set()
    for name in keys | token:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    for folder in ("fed", "fed/authority", "fed/server", "fed/admin", "fed/shop-b", "shop-a"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700, folder


def test_mistakes_end_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    for words, says in (
        (("join", "Shop"), "cannot be a node's name"),
        (("join", "shop-a", "--answer", "nothing"), "cannot read nothing: No such file"),
        (("join", "shop-a", "--answer", "large"), "has more than 1 MB"),
        (("approve", "nowhere", "x"), "nowhere has no authority's key"),
        (("admit", "nowhere", "x"), "holds no federation"),
        (("leave", "nowhere"), "is no node's kit"),
        (("revoke", "nowhere", "shop-a"), "nowhere has no authority's key"),
        (("revoke", "nowhere"), "say whom to revoke"),
        (("revoke", "nowhere", "--list", "x"), "holds no federation"),
        (("init", "fed", "--nodes", "2", "--name", "a"), "two ways to say which nodes"),
    ):
        assert says in refused(*words), words
    assert {path.name for path in tmp_path.iterdir()} == {"large"}


def test_a_damaged_or_open_authority_is_refused(fed: Path) -> None:
    key = fed / "authority" / "root.key"
    key.chmod(0o644)
    with pytest.raises(HushrecError, match="open to other users; make it private with chmod 600"):
        open_authority(fed)
    key.chmod(0o600)
    key.write_bytes(key_in_pem(ENGINE.new_key()))
    with pytest.raises(HushrecError, match=r"does not belong to rootCA\.pem"):
        open_authority(fed)
    key.write_bytes(b"")
    with pytest.raises(HushrecError, match="is damaged"):
        open_authority(fed)


def test_the_documentation_packs_nothing_that_others_can_read() -> None:
    """Every archive in the guide is made under a mask that leaves it to its owner."""
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    for block in re.findall(r"```sh.*?\n(.*?)```", page, re.DOTALL):
        if re.search(r"\btar\b.*-c", block):
            assert "umask 077" in block.partition("tar")[0], block


def test_an_authority_of_flower_signs_for_keys_on_its_curve(tmp_path: Path) -> None:
    kept = keep_authority(
        tmp_path / "authority", new_authority("hushrec"), Place("flower", "server.example", 8002)
    )
    assert isinstance(kept, KeptAuthority)
    answer = kept.approve(ask_to_join(tmp_path / "shop-a", FlowerEngine()))
    take_answer(tmp_path / "shop-a", answer, FlowerEngine())
    told = json.loads((tmp_path / "shop-a" / "startup" / "address.json").read_text())
    assert told == {"host": "server.example", "port": 8002}
