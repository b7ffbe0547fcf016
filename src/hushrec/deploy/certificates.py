"""Certificates of a federation: what its authority signs, and the list of those that it has taken back."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hushrec.errors import HushrecError, PublicError

ORGANIZATION = "hushrec"
CERTIFICATE_DAYS = 3650
NODE_NAME = r"[a-z0-9][a-z0-9-]{0,40}"
RESERVED_NAMES = frozenset({"server", "admin", "operator", "runs", "authority"})
_CLOCK_TOLERANCE = timedelta(days=1)  # for machines whose clocks are behind

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Authority:
    """Signs the certificates of one federation. Whoever has its key can sign as any node."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def root(self) -> bytes:
        """What everybody needs to check certificates, in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)


def new_authority(name: str) -> Authority:
    """An authority that nobody knows yet."""
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _certificate(name, _common_name(name), key.public_key(), key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Authority(builder.sign(key, hashes.SHA384()), key)


def issue(authority: Authority, name: str, hosts: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """A new certificate and its private key, in PEM: of a server reached at these hosts, or else of a node."""
    key = ec.generate_private_key(ec.SECP384R1())
    return certify(authority, name, key.public_key(), hosts), key_in_pem(key)


def certify(authority: Authority, name: str, public_key: PublicKey, hosts: Sequence[str] = ()) -> bytes:
    """A certificate in PEM for a key that somebody else keeps: of a server at these hosts, or else of a node."""
    builder = _certificate(name, authority.certificate.subject, public_key, authority.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    names = [_host(host) for host in dict.fromkeys(hosts)] or [x509.DNSName(name)]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, _digest(authority.key)).public_bytes(Encoding.PEM)


def key_in_pem(key: PrivateKey) -> bytes:
    """A private key as files keep it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def request_for(name: str, key: PrivateKey) -> bytes:
    """A request for a certificate, in PEM, which proves that its writer has the key and does not hold it."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_common_name(name))
        .sign(key, _digest(key))
        .public_bytes(Encoding.PEM)
    )


def read_request(pem: bytes) -> tuple[str, PublicKey]:
    """Who asks for a certificate, and for which key; refused if the writer does not have it."""
    try:
        request = x509.load_pem_x509_csr(pem)
        public_key, is_signed = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise HushrecError("it is no request for a certificate; make one with: hushrec deploy join NAME") from None
    if not is_signed or not isinstance(public_key, PublicKey):
        raise HushrecError("the request is not signed by the key that it names; have it made again")
    return common_name(request.subject), public_key


def common_name(subject: x509.Name) -> str:
    """The only common name in a subject; empty if there is none or more than one."""
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    value = names[0].value if len(names) == 1 else ""
    return value if isinstance(value, str) else ""


def is_of_a_node(certificate: x509.Certificate) -> bool:
    """Whether the authority made this certificate for a node: the server and the operator have others."""
    try:
        purposes = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        return False
    name = common_name(certificate.subject)
    return purposes == [ExtendedKeyUsageOID.CLIENT_AUTH] and can_be_a_node(name)


def can_be_a_node(name: str) -> bool:
    """Whether a node may have this name."""
    return re.fullmatch(NODE_NAME, name) is not None and name not in RESERVED_NAMES


# --- Certificates that were taken back -----------------------------------------------------------------------


@dataclass(frozen=True)
class RevokedList:
    """The serial numbers of certificates that are no longer valid. A list with a higher number is newer."""

    number: int
    serials: frozenset[int]
    pem: bytes = b""

    def check(self, certificate: x509.Certificate) -> None:
        """Refuse a certificate that is on the list."""
        if certificate.serial_number in self.serials:
            raise PublicError(f"the certificate of {common_name(certificate.subject)!r} was revoked")


NOTHING_REVOKED = RevokedList(0, frozenset())


def sign_revoked(authority: Authority, number: int, serials: Iterable[int]) -> bytes:
    """A list of revoked certificates (an X.509 CRL), in PEM."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - _CLOCK_TOLERANCE)
        .next_update(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(authority.key, _digest(authority.key)).public_bytes(Encoding.PEM)


def read_revoked(pem: bytes, root: x509.Certificate) -> RevokedList:
    """A list that this root has signed."""
    try:
        signed = x509.load_pem_x509_crl(pem)
        key = root.public_key()
        is_ours = isinstance(key, PublicKey) and signed.is_signature_valid(key)
        number = signed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        serials = frozenset(entry.serial_number for entry in signed)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        raise PublicError(
            "the list of revoked certificates cannot be read; ask the authority for it again"
        ) from None
    if not is_ours:
        raise PublicError("the list of revoked certificates is not signed by this federation's authority")
    return RevokedList(number, serials, pem)


def _certificate(name: str, issuer: x509.Name, own: PublicKey, issuers: PublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name) if own == issuers else _member(name))
        .issuer_name(issuer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        # Strict checks, the default from Python 3.13 on, want both identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    )


def _digest(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384:
    return hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey) else hashes.SHA384()


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _member(name: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)
    return x509.Name([*_common_name(name), organization])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# --- Signatures of those who have a certificate ----------------------------------------------------------------

_SHA256 = hashes.SHA256()
_PSS = padding.PSS(padding.MGF1(_SHA256), padding.PSS.DIGEST_LENGTH)
_ECDSA = ec.ECDSA(_SHA256)


def sign(key: PrivateKey, content: bytes) -> bytes:
    """A signature with the key of a certificate."""
    return key.sign(content, _PSS, _SHA256) if isinstance(key, rsa.RSAPrivateKey) else key.sign(content, _ECDSA)


def is_signed(certificate: x509.Certificate, signature: bytes, content: bytes) -> bool:
    """Whether the holder of a certificate's key has signed this."""
    key = certificate.public_key()
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, _PSS, _SHA256)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, _ECDSA)
        else:
            return False
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True
