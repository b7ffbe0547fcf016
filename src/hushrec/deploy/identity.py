"""Who a node is: its certificate, the keys that it makes itself, and the signed card that ties them together.

A kit holds `startup/rootCA.pem`, `startup/client.crt` and `startup/client.key` (RSA or elliptic curve), made by
the engine's provisioning; the certificate's common name is the node's name. `private/mail.key`, which others seal
letters to, and `private/signing.key`, with which it signs its own, are made on the node at its first start and
never leave it.

Guarantee: a card that checks out was signed for this run, and for these client numbers, by the holder of a key
that the root has certified under this name. A server without such a key cannot pass off its own mail or signing
key.

Not protected: whoever holds the root's private key, or made the kits and kept copies, can sign as any node; keep
both away from the server, or compare fingerprints by some other way. A checked card does not say whether its name
should take part: the server and the operator have certificates of the same root, and a certificate may be revoked:
the caller looks into both (`membership`).
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    ExtensionNotFound,
    InvalidVersion,
    load_pem_x509_certificate,
)
from cryptography.x509.oid import NameOID

from hushrec.errors import HushrecError
from hushrec.privacy.sealing import Keys, new_private_key, new_signing_key

_CONTEXT = b"hushrec key card v2"
_KEY_BYTES = 32
_SHA256 = hashes.SHA256()
_PSS = padding.PSS(padding.MGF1(_SHA256), padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class KeyCard:
    """A node's public keys, signed with the key of its certificate. Reveals: the node's name."""

    name: str
    public_key: bytes  # for mail
    signing_key: bytes
    nonce: bytes  # see `deploy/charter.py`
    certificate: bytes  # PEM
    signature: bytes
    pledges: tuple[bytes, ...] = ()  # what its parties are bound to, in the order of their numbers


def mail_key(kit: Path) -> bytes:
    """The node's private mail key; made, and safe on disk, at the first call."""
    return _own_key(kit, "mail", new_private_key)


def own_keys(kit: Path) -> Keys:
    """The node's private keys; made, and safe on disk, at the first call."""
    return Keys(mail_key(kit), _own_key(kit, "signing", new_signing_key))


def _own_key(kit: Path, what: str, make: Callable[[], bytes]) -> bytes:
    path = kit / "private" / f"{what}.key"
    try:
        if not path.exists():
            _make_key(path, make())
        if path.stat().st_mode & 0o077:
            raise HushrecError(f"{path} is open to other users; make it private with chmod 600")
        key = path.read_bytes()
    except OSError as error:
        reason = error.strerror
        raise HushrecError(
            f"cannot keep a {what} key in {path.parent}: {reason}; give the node its folder"
        ) from None
    if len(key) != _KEY_BYTES:
        raise HushrecError(f"{path} is damaged; delete it, the node makes a new one at its next start")
    return key


def key_card(
    kit: Path, run_id: bytes, numbers_digest: bytes, nonce: bytes = b"", pledges: tuple[bytes, ...] = ()
) -> KeyCard:
    """The node's card for one run, as the host of the client numbers with this digest."""
    certificate_path, key_path = kit / "startup" / "client.crt", kit / "startup" / "client.key"
    certificate = _load_certificate(_read(certificate_path), str(certificate_path))
    try:
        key = load_pem_private_key(_read(key_path), password=None)
        is_pair = key.public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise HushrecError(
            f"{key_path} is no private key in PEM without password; provision the kit again"
        ) from None
    if not is_pair:
        raise HushrecError(f"{key_path} does not belong to client.crt; provision the kit again")
    name, keys = _common_name(certificate), own_keys(kit).public
    content = _signed_content(name, (*keys, nonce, *pledges), run_id, numbers_digest)
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(content, _PSS, _SHA256)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        signature = key.sign(content, ec.ECDSA(_SHA256))
    else:
        raise HushrecError(f"{key_path} is neither RSA nor elliptic curve; provision the kit again")
    return KeyCard(name, *keys, nonce, certificate.public_bytes(Encoding.PEM), signature, pledges)


def check_key_card(card: KeyCard, root_certificate: bytes, run_id: bytes, numbers_digest: bytes) -> None:
    """Refuse a card that this root, name, run and client numbers do not stand behind, now."""
    # A name comes from outside: quoted and cut, it cannot break out of its line of log.
    whose = f"key card of {card.name[:64]!r}"
    root = _load_certificate(root_certificate, "rootCA.pem")
    certificate = _load_certificate(card.certificate, whose)
    _check_issued(certificate, root, whose)
    if _common_name(certificate) != card.name:
        raise HushrecError(f"{whose}: its certificate bears another name; refuse the node")
    for what, own in (("mail", card.public_key), ("signing", card.signing_key)):
        if len(own) != _KEY_BYTES:
            raise HushrecError(f"{whose}: its {what} key has not {_KEY_BYTES} bytes; refuse the node")
    own_parts = (card.public_key, card.signing_key, card.nonce, *card.pledges)
    content = _signed_content(card.name, own_parts, run_id, numbers_digest)
    try:
        key = certificate.public_key()
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(card.signature, content, _PSS, _SHA256)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(card.signature, content, ec.ECDSA(_SHA256))
        else:
            raise HushrecError(
                f"{whose}: its certificate is neither RSA nor elliptic curve; provision its kit again"
            )
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        raise HushrecError(
            f"{whose}: not signed by its certificate for this run and these clients; refuse the node"
        ) from None


def fingerprint(public_key: bytes) -> str:
    """Half of the key's SHA-256 in eight groups, for people to compare.

    >>> fingerprint(bytes(32))
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digits = sha256(public_key).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _signed_content(name: str, own: tuple[bytes, ...], run_id: bytes, numbers_digest: bytes) -> bytes:
    # Every part carries its length, so that no two contents read the same.
    parts = (_CONTEXT, run_id, name.encode(errors="surrogatepass"), *own, numbers_digest)
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def _make_key(path: Path, key: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.chmod(0o700)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces the key of a process that was faster.
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return
    finally:
        os.unlink(unfinished)
    for folder in (path.parent, path.parent.parent):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HushrecError(f"cannot read {path}: {error.strerror}; provision the kit again") from None


def _load_certificate(pem: bytes, whose: str) -> Certificate:
    try:
        return load_pem_x509_certificate(pem)
    except (ValueError, InvalidVersion):
        raise HushrecError(f"{whose}: no certificate in PEM; provision the kit again") from None


def _common_name(certificate: Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise HushrecError("a node's certificate has exactly one common name, the node's; provision its kit again")
    return names[0].value


def _check_issued(certificate: Certificate, root: Certificate, whose: str) -> None:
    try:
        is_authority = root.extensions.get_extension_for_class(BasicConstraints).value.ca
    except (ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority:
        raise HushrecError("rootCA.pem is not the certificate of an authority; provision the kit again")
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        raise HushrecError(f"{whose}: not issued by this federation's root; refuse the node") from None
    now = datetime.now(UTC)
    for checked, what in ((certificate, whose), (root, "rootCA.pem")):
        if not checked.not_valid_before_utc <= now <= checked.not_valid_after_utc:
            raise HushrecError(f"{what}: certificate not valid today; set the clock or provision the kits again")
