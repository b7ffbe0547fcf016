"""The authority of a federation: whoever has its folder says who is a node.

`authority/` holds `root.key`, `rootCA.pem`, `federation.json` (where the server is), every certificate of a node
that was signed (`issued/`) and `revoked.pem`, the newest list of those that were taken back. It is needed to
approve and to revoke, never to run: keep it away from the server's machine.

Guarantee: a node's key is made on the node, and nothing here sees it. Not protected: whoever has `root.key` can
make a certificate of any name, also a second one of a node that is there.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from hushrec.choices import EngineName
from hushrec.deploy.certificates import (
    RESERVED_NAMES,
    Authority,
    PrivateKey,
    RevokedList,
    can_be_a_node,
    certify,
    common_name,
    key_in_pem,
    read_request,
    read_revoked,
    sign_revoked,
)
from hushrec.errors import HushrecError
from hushrec.files import locked, make_private_folder, write_private_file

FOLDER = "authority"


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node gets for its request, and the server to know of it. It holds no secret and no code."""

    engine: EngineName
    name: str
    host: str  # of the server
    port: int
    certificate: str  # PEM
    root: str  # PEM
    revoked: str  # PEM


class Place(msgspec.Struct, frozen=True):
    """Where the server of the federation is: `authority/federation.json`."""

    engine: EngineName
    host: str
    port: int


@dataclass(frozen=True)
class KeptAuthority:
    """An authority in its folder."""

    folder: Path
    authority: Authority
    place: Place

    @property
    def revoked(self) -> RevokedList:
        """The newest list of revoked certificates."""
        return read_revoked((self.folder / "revoked.pem").read_bytes(), self.authority.certificate)

    def issued(self) -> list[x509.Certificate]:
        """All certificates of nodes so far, also the revoked ones."""
        paths = sorted((self.folder / "issued").glob("*.crt"))
        return [x509.load_pem_x509_certificate(path.read_bytes()) for path in paths]

    def members(self) -> dict[str, x509.Certificate]:
        """The certificates that are valid, by the names of their nodes."""
        gone = self.revoked.serials
        return {common_name(one.subject): one for one in self.issued() if one.serial_number not in gone}

    def approve(self, request: bytes) -> Answer:
        """Sign a request. The same request again gets the same answer; a name that is taken is refused."""
        name, public_key = read_request(request)
        check_node_name(name)
        with locked(self.folder / "lock", f"{self.folder} is in use by another process; try again"):
            known = self.members().get(name)
            if known is not None and known.public_key() != public_key:
                raise HushrecError(
                    f"{name} is a node already, with another key; revoke that one first, or choose another name"
                )
            if known is None:
                if any(one.public_key() == public_key for one in self.issued()):
                    raise HushrecError(f"the key of {name} was revoked, or is another node's; have a new one made")
                known = self.keep(certify(self.authority, name, public_key))
            pem = known.public_bytes(Encoding.PEM).decode()
            place, root = self.place, self.authority.root.decode()
            return Answer(place.engine, name, place.host, place.port, pem, root, self.revoked.pem.decode())

    def keep(self, certificate: bytes) -> x509.Certificate:
        """Note a certificate that was signed."""
        signed = x509.load_pem_x509_certificate(certificate)
        write_private_file(self.folder / "issued" / f"{signed.serial_number:x}.crt", certificate)
        return signed

    def revoke(self, name: str) -> RevokedList:
        """Take a node's certificate back: the new list."""
        with locked(self.folder / "lock", f"{self.folder} is in use by another process; try again"):
            members, known = self.members(), self.revoked
            if name not in members:
                there = ", ".join(sorted(members)) or "none"
                raise HushrecError(
                    f"{name!r} is no node of this federation, or was revoked before; nodes: {there}"
                )
            serials = known.serials | {members[name].serial_number}
            pem = sign_revoked(self.authority, known.number + 1, serials)
            write_private_file(self.folder / "revoked.pem", pem)
            return RevokedList(known.number + 1, serials, pem)


def check_node_name(name: str) -> None:
    """Refuse a name that no node can have."""
    if not can_be_a_node(name):
        raise HushrecError(
            f"{name!r} cannot be a node's name; use a-z, 0-9 and -, and not {sorted(RESERVED_NAMES)}"
        )


def keep_authority(folder: Path, authority: Authority, place: Place) -> KeptAuthority:
    """Keep a new authority, which has revoked nobody, in a folder."""
    make_private_folder(folder)
    folder.chmod(0o700)
    write_private_file(folder / "root.key", key_in_pem(authority.key))
    write_private_file(folder / "rootCA.pem", authority.root)
    write_private_file(folder / "revoked.pem", sign_revoked(authority, 1, []))
    write_private_file(folder / "federation.json", msgspec.json.encode(place))
    return KeptAuthority(folder, authority, place)


def open_authority(folder: Path) -> KeptAuthority:
    """The authority in a folder, or in the folder `authority` below it."""
    folder = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    path = folder / "root.key"
    if not path.exists():
        raise HushrecError(
            f"{folder} has no authority's key; give the folder `authority` that hushrec deploy init made"
        )
    if path.stat().st_mode & 0o077:
        raise HushrecError(f"{path} is open to other users; make it private with chmod 600")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / "rootCA.pem").read_bytes())
        place = msgspec.json.decode((folder / "federation.json").read_bytes(), type=Place)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, msgspec.MsgspecError):
        raise HushrecError(f"{folder} is damaged; take it from a copy, or make a new federation") from None
    if not isinstance(key, PrivateKey) or key.public_key() != certificate.public_key():
        raise HushrecError(f"{path} does not belong to rootCA.pem; take both from one copy")
    return KeptAuthority(folder, Authority(certificate, key), place)
