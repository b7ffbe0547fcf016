"""A node's mail key stays on its disk; its card is believed only with the root, name, run and numbers it says."""

import base64
import os
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from hushrec.deploy.identity import KeyCard, check_key_card, fingerprint, key_card, mail_key
from hushrec.errors import HushrecError
from hushrec.privacy.sealing import new_private_key, public_key_of

RUN, DIGEST = b"r" * 16, b"d" * 32
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def name_of(*common_names: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, subject: x509.Name, public_key: object, first: datetime, last: datetime) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            self.certificate.subject, subject, public_key, x509.random_serial_number()
        )
        return builder.not_valid_before(first).not_valid_after(last).sign(self.key, hashes.SHA256())


def make_authority(name: str = "root", is_authority: bool = True, last: datetime = NOW + DAY) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(name_of(name), name_of(name), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW - 9 * DAY).not_valid_after(last)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    return Authority(key, builder.sign(key, hashes.SHA256()))


ROOT = make_authority()
KEYS = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "p256": ec.generate_private_key(ec.SECP256R1()),
    "p384": ec.generate_private_key(ec.SECP384R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def make_kit(
    kit: Path,
    name: str = "site-1",
    algorithm: str = "p256",
    root: Authority = ROOT,
    subject: x509.Name | None = None,
    first: datetime = NOW - DAY,
    last: datetime = NOW + DAY,
) -> Path:
    (kit / "startup").mkdir(parents=True)
    key = KEYS[algorithm]
    certificate = root.issue(subject or name_of(name), key.public_key(), first, last)
    (kit / "startup" / "rootCA.pem").write_bytes(root.pem)
    (kit / "startup" / "client.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (kit / "startup" / "client.key").write_bytes(private)
    return kit


def refused(card: KeyCard, match: str, root: bytes = ROOT.pem, run: bytes = RUN, digest: bytes = DIGEST) -> None:
    with pytest.raises(HushrecError, match=match) as caught:
        check_key_card(card, root, run, digest)
    assert "\n" not in str(caught.value)


def test_a_mail_key_is_made_once_and_private(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    (kit / "private").mkdir(mode=0o755)
    key = mail_key(kit)
    assert len(key) == 32
    assert mail_key(kit) == key
    assert [path.name for path in (kit / "private").iterdir()] == ["mail.key"]
    assert stat.S_IMODE((kit / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((kit / "private" / "mail.key").stat().st_mode) == 0o600
    assert mail_key(make_kit(tmp_path / "other")) != key


def test_a_loose_umask_does_not_open_the_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        mail_key(make_kit(tmp_path / "kit"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kit" / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "kit" / "private" / "mail.key").stat().st_mode) == 0o600


def test_starters_at_the_same_moment_agree_on_one_key(tmp_path: Path) -> None:
    for attempt in range(20):
        kit = tmp_path / str(attempt)
        kit.mkdir()
        gate, found = threading.Barrier(4), []

        def start(kit: Path = kit, gate: threading.Barrier = gate, found: list[bytes] = found) -> None:
            gate.wait()
            found.append(mail_key(kit))

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1
        assert [path.name for path in (kit / "private").iterdir()] == ["mail.key"]


def test_a_bad_mail_key_is_refused(tmp_path: Path) -> None:
    kit = make_kit(tmp_path / "kit")
    mail_key(kit)
    path = kit / "private" / "mail.key"
    path.chmod(0o640)
    with pytest.raises(HushrecError, match="chmod 600"):
        mail_key(kit)
    path.chmod(0o600)
    for content in (b"", bytes(31), bytes(33)):
        path.write_bytes(content)
        with pytest.raises(HushrecError, match="damaged"):
            mail_key(kit)
    with pytest.raises(HushrecError, match="cannot keep a mail key"):
        mail_key(tmp_path / "no-such-kit")


@pytest.mark.parametrize("algorithm", ["rsa", "p256", "p384"])
def test_a_card_checks_out_and_travels(tmp_path: Path, algorithm: str) -> None:
    kit = make_kit(tmp_path / "kit", algorithm=algorithm)
    card = key_card(kit, RUN, DIGEST)
    assert card.name == "site-1"
    assert card.public_key == public_key_of(mail_key(kit))
    check_key_card(card, ROOT.pem, RUN, DIGEST)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(card), type=KeyCard)
    assert received == card
    check_key_card(received, ROOT.pem, RUN, DIGEST)


@pytest.mark.parametrize("algorithm", ["rsa", "p256"])
def test_a_card_is_good_for_one_run_key_and_set_of_clients(tmp_path: Path, algorithm: str) -> None:
    card = key_card(make_kit(tmp_path / "kit", algorithm=algorithm), RUN, DIGEST)
    refused(card, "not signed", run=b"s" * 16)
    refused(card, "not signed", digest=b"e" * 32)
    # The same bytes, cut elsewhere.
    refused(card, "not signed", run=RUN[:-1])
    refused(card, "not signed", run=RUN + DIGEST[:1], digest=DIGEST[1:])
    refused(replace(card, public_key=public_key_of(new_private_key())), "not signed")
    refused(replace(card, public_key=bytes(31)), "32 bytes")
    for signature in (b"", card.signature[:-1], card.signature + b"\0", bytes(len(card.signature))):
        refused(replace(card, signature=signature), "not signed")
    for place in range(len(card.signature)):
        altered = bytearray(card.signature)
        altered[place] ^= 1
        refused(replace(card, signature=bytes(altered)), "not signed")


def test_a_node_cannot_be_another(tmp_path: Path) -> None:
    first = key_card(make_kit(tmp_path / "1", "site-1"), RUN, DIGEST)
    second = key_card(make_kit(tmp_path / "2", "site-2", "rsa"), RUN, DIGEST)
    refused(replace(second, name="site-1"), "another name")
    refused(replace(first, certificate=second.certificate), "another name")
    refused(replace(second, certificate=first.certificate), "another name")
    refused(replace(second, certificate=first.certificate, name="site-1"), "not signed")


def test_a_card_of_another_root_is_refused(tmp_path: Path) -> None:
    stranger, namesake = make_authority("stranger"), make_authority("root")
    for number, root in enumerate((stranger, namesake)):
        card = key_card(make_kit(tmp_path / str(number), root=root), RUN, DIGEST)
        check_key_card(card, root.pem, RUN, DIGEST)
        refused(card, "not issued")


def test_a_node_cannot_issue_certificates(tmp_path: Path) -> None:
    """Neither as the root, without CA:TRUE, nor in between: the chain has one link."""
    kit = make_kit(tmp_path / "kit")
    certificate = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    node = Authority(KEYS["p256"], certificate)
    card = key_card(make_kit(tmp_path / "2", "site-2", "rsa", root=node), RUN, DIGEST)
    refused(card, "not issued")
    refused(card, "authority", root=node.pem)
    plain = make_authority("plain", is_authority=False)
    refused(key_card(make_kit(tmp_path / "3", root=plain), RUN, DIGEST), "authority", root=plain.pem)


def test_dates_count(tmp_path: Path) -> None:
    late = make_kit(tmp_path / "late", first=NOW - 2 * DAY, last=NOW - DAY)
    refused(key_card(late, RUN, DIGEST), "'site-1': certificate not valid today")
    early = make_kit(tmp_path / "early", first=NOW + DAY, last=NOW + 2 * DAY)
    refused(key_card(early, RUN, DIGEST), "'site-1': certificate not valid today")
    old = make_authority("old", last=NOW - DAY)
    refused(key_card(make_kit(tmp_path / "old", root=old), RUN, DIGEST), "rootCA.pem: certificate", root=old.pem)


def test_garbage_for_a_certificate_is_refused(tmp_path: Path) -> None:
    card = key_card(make_kit(tmp_path / "kit"), RUN, DIGEST)
    for garbage in (b"", b"\0\xff" * 40, card.certificate[:200], card.certificate.replace(b"MII", b"AAA", 1)):
        refused(replace(card, certificate=garbage), "no certificate in PEM")
        refused(card, "rootCA.pem: no certificate", root=garbage)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.parametrize("algorithm", ["rsa", "p256"])
def test_every_changed_byte_of_a_certificate_is_noticed(tmp_path: Path, algorithm: str) -> None:
    """All but one, which says nothing: how many bits of the root's signature, whole bytes always, are unused."""
    card = key_card(make_kit(tmp_path / "kit", algorithm=algorithm), RUN, DIGEST)
    certificate = x509.load_pem_x509_certificate(card.certificate)
    der = certificate.public_bytes(Encoding.DER)
    unused_bits = len(der) - len(certificate.signature) - 1
    assert der[unused_bits] == 0
    for place in range(len(der)):
        for change in (1, 0x80, 0xFF) if place != unused_bits else ():
            altered = bytearray(der)
            altered[place] ^= change
            body = base64.b64encode(altered)
            pem = b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n" % body
            refused(replace(card, certificate=pem), "not issued|no certificate in PEM")


def test_a_name_from_outside_cannot_break_the_log(tmp_path: Path) -> None:
    card = key_card(make_kit(tmp_path / "kit"), RUN, DIGEST)
    refused(replace(card, name="x\nERROR all is lost" + "y" * 1000), "another name")
    refused(replace(card, name="\ud800"), "another name")


def test_a_kit_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match=r"cannot read .*client\.crt"):
        key_card(tmp_path, RUN, DIGEST)
    kit = make_kit(tmp_path / "mixed")
    other = make_kit(tmp_path / "other", algorithm="rsa")
    (kit / "startup" / "client.key").write_bytes((other / "startup" / "client.key").read_bytes())
    with pytest.raises(HushrecError, match="does not belong"):
        key_card(kit, RUN, DIGEST)
    (kit / "startup" / "client.key").write_bytes(b"no key")
    with pytest.raises(HushrecError, match="no private key"):
        key_card(kit, RUN, DIGEST)
    with pytest.raises(HushrecError, match="neither RSA nor"):
        key_card(make_kit(tmp_path / "edwards", algorithm="ed25519"), RUN, DIGEST)
    with pytest.raises(HushrecError, match="exactly one common name"):
        key_card(make_kit(tmp_path / "two", subject=name_of("site-1", "site-2")), RUN, DIGEST)


def test_fingerprints_are_short_groups_of_sha256() -> None:
    """SHA-256 of 32 zero bytes begins 66687aad f862bd77 6c8fc18b 8e9f8e20."""
    assert fingerprint(bytes(32)) == "6668 7aad f862 bd77 6c8f c18b 8e9f 8e20"
    assert fingerprint(bytes(31) + b"\1") != fingerprint(bytes(32))


PROJECT = """
api_version: 3
name: hushrec_test
participants:
  - {name: localhost, type: server, org: hushrec, fed_learn_port: 18002, admin_port: 18003}
  - {name: site-1, type: client, org: hushrec}
  - {name: site-2, type: client, org: hushrec}
  - {name: admin@hushrec.org, type: admin, org: hushrec, role: project_admin}
builders:
  - {path: nvflare.lighter.impl.workspace.WorkspaceBuilder, args: {}}
  - {path: nvflare.lighter.impl.static_file.StaticFileBuilder, args: {config_folder: config}}
  - {path: nvflare.lighter.impl.cert.CertBuilder, args: {}}
  - {path: nvflare.lighter.impl.signature.SignatureBuilder, args: {}}
"""


@pytest.mark.skipif(find_spec("nvflare") is None, reason="needs hushrec[deploy]")
def test_kits_of_nvflare_are_believed(tmp_path: Path) -> None:
    """Certificates as the engine makes them, with RSA keys; each node checks the other's card with its root."""
    (tmp_path / "project.yml").write_text(PROJECT)
    command = [sys.executable, "-m", "nvflare.lighter.provision", "-p", "project.yml", "-w", "made"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    folder = tmp_path / "made" / "hushrec_test" / "prod_00"
    cards = {}
    for name in ("site-1", "site-2"):
        cards[name] = key_card(folder / name, RUN, DIGEST)
        assert cards[name].name == name
        certificate = x509.load_pem_x509_certificate(cards[name].certificate)
        assert isinstance(certificate.public_key(), rsa.RSAPublicKey)
    for name, other in (("site-1", "site-2"), ("site-2", "site-1")):
        root = (folder / name / "startup" / "rootCA.pem").read_bytes()
        check_key_card(cards[other], root, RUN, DIGEST)
        refused(replace(cards[other], name=name), "another name", root=root)
        refused(cards[other], "not issued")
    refused(key_card(make_kit(tmp_path / "ours"), RUN, DIGEST), "not issued", root=root)
