"""Certificates of a federation: an authority that signs once and whose key is never written down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE_DAYS = 3650
_CLOCK_TOLERANCE = timedelta(days=1)  # for machines whose clocks are behind


@dataclass(frozen=True)
class Authority:
    """Signs the certificates of one federation. Whoever has its key can sign as any node."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

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
    issuer = authority.certificate.subject
    builder = _certificate(name, issuer, key.public_key(), authority.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(authority.key, hashes.SHA384()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate(
    name: str, issuer: x509.Name, own: ec.EllipticCurvePublicKey, issuers: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(issuer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        # Strict checks, the default from Python 3.13 on, want both identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


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
