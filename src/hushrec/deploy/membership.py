"""Who is a node and who is one no longer: joining, leaving, and what each party checks of the others.

A node makes its key where it is used (`ask_to_join`), the authority signs a request that does not hold it, and
the answer makes the node's folder a kit (`take_answer`) and its name one that the server counts on
(`admit_node`). The others need no word of it: a card whose certificate the authority made for a node is enough,
unless it is revoked.

In `private/` of a node, and in `server/`, lie the newest list of revoked certificates (`revoked.pem`, whose
number only rises) and the mail key that was first seen under each certificate (`known.json`).

Guarantee: a revoked certificate is refused by everybody who has the list. A kit that was copied without
`private/` has another mail key, and is refused by everybody who has met the first one.
Not protected: a server that holds a new list back from nodes keeps a revoked node in their eyes. A copy that has
all of `private/` is the node itself; the server lets one of two in at a time.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from hushrec.deploy.authority import Answer, KeptAuthority, check_node_name
from hushrec.deploy.certificates import (
    NOTHING_REVOKED,
    PrivateKey,
    RevokedList,
    common_name,
    is_of_a_node,
    is_signed,
    key_in_pem,
    read_revoked,
    request_for,
    sign,
)
from hushrec.deploy.engines import Engine
from hushrec.deploy.identity import KeyCard, fingerprint
from hushrec.deploy.kits import Federation, KitCard, read_federation, write_federation, write_kit_card
from hushrec.deploy.orders import Hosts
from hushrec.errors import HushrecError, PublicError
from hushrec.files import locked, make_private_folder, write_private_file

_LEAVING = b"hushrec leave v1"


# --- On the node -----------------------------------------------------------------------------------------------


def ask_to_join(kit: Path, engine: Engine) -> bytes:
    """The request of the node whose name the folder bears. Its key is made at the first call and stays there."""
    check_node_name(kit.absolute().name)
    startup, key_path = kit / "startup", kit / "startup" / "client.key"
    if (startup / "client.crt").exists():
        raise HushrecError(f"{kit} is a node's kit already; start it with: hushrec deploy node {kit}")
    if not key_path.exists():
        if kit.exists() and any(kit.iterdir()):
            raise HushrecError(f"{kit} is not empty; choose a new folder")
        make_private_folder(startup)
        kit.chmod(0o700)
        write_private_file(key_path, key_in_pem(engine.new_key()))
    return request_for(kit.absolute().name, _own_key(kit))


def own_fingerprint(kit: Path) -> str:
    """Of the node's public key, for people to compare."""
    return key_fingerprint(_own_key(kit).public_key())


def key_fingerprint(key: object) -> str:
    """Of a public key of a certificate or of a request."""
    assert hasattr(key, "public_bytes")
    return fingerprint(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def root_fingerprint(root: x509.Certificate) -> str:
    """Of the authority's certificate."""
    return fingerprint(root.public_bytes(Encoding.DER))


def read_answer(path: Path) -> Answer:
    """What the authority wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Answer)
    except OSError as error:
        raise HushrecError(f"cannot read {path}: {error.strerror}; ask the operator for it") from None
    except msgspec.MsgspecError:
        raise HushrecError(f"{path} is no answer to a request; ask the operator for it again") from None


def take_answer(kit: Path, answer: Answer, engine: Engine) -> x509.Certificate:
    """Make the folder a kit; the root, which is trusted from now on."""
    certificate, root = _checked(answer)
    startup, name = kit / "startup", kit.absolute().name
    if answer.name != name:
        raise HushrecError(f"the answer is for {answer.name}, not for {name}; give the folder of {answer.name}")
    if certificate.public_key() != _own_key(kit).public_key():
        raise HushrecError(f"the answer is for another key than that in {kit}; send this node's request again")
    known = startup / "rootCA.pem"
    if known.exists() and known.read_bytes() != answer.root.encode():
        raise HushrecError(f"the answer is of another federation than {kit}; make a new folder for it")
    with locked(kit / "lock", f"{name} runs already from {kit}; end that process first"):
        engine.fill_kit(kit, name, answer.host, answer.port)
        for file, content in (("rootCA.pem", answer.root), ("client.crt", answer.certificate)):
            write_private_file(startup / file, content.encode())
        write_kit_card(kit, KitCard(engine.name, name, [name], answer.host, answer.port))
        newest_revoked(kit / "private", answer.root.encode(), answer.revoked.encode())
    return root


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's own wish to be revoked."""

    certificate: str  # PEM
    signature: bytes


def leave_federation(kit: Path) -> bytes:
    """Sign the wish to leave, and destroy the key: the kit is none any more. Its runs stay."""
    startup = kit / "startup"
    try:
        pem = (startup / "client.crt").read_bytes()
    except OSError:
        raise HushrecError(f"{kit} is no node's kit; give the folder of the node that leaves") from None
    with locked(kit / "lock", f"{kit.name} still runs from {kit}; end that process first"):
        wish = Leaving(pem.decode(), sign(_own_key(kit), _left(x509.load_pem_x509_certificate(pem))))
        content = msgspec.json.encode(wish)
        write_private_file(kit / "leave.json", content)  # before the key is gone
        (startup / "client.key").unlink()
        (kit / "private" / "mail.key").unlink(missing_ok=True)
    return content


def name_of_leaver(content: bytes, authority: KeptAuthority) -> str:
    """Who wants to leave, if it is signed by a node of this federation."""
    try:
        wish = msgspec.json.decode(content, type=Leaving)
        certificate = x509.load_pem_x509_certificate(wish.certificate.encode())
    except (msgspec.MsgspecError, ValueError):
        raise HushrecError("it is neither a node's name nor a wish to leave; see hushrec deploy leave") from None
    name = common_name(certificate.subject)
    if authority.members().get(name) != certificate:
        raise HushrecError(f"{name!r} is no node of this federation, or was revoked before")
    if not is_signed(certificate, wish.signature, _left(certificate)):
        raise HushrecError(f"the wish to leave is not signed by {name}; ask its owner")
    return name


def _left(certificate: x509.Certificate) -> bytes:
    return _LEAVING + certificate.public_bytes(Encoding.DER)


def _own_key(kit: Path) -> PrivateKey:
    path = kit / "startup" / "client.key"
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
        is_open = path.stat().st_mode & 0o077
    except FileNotFoundError:
        raise HushrecError(f"{kit} has no key; make one with: hushrec deploy join {kit}") from None
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise HushrecError(f"{path} is no private key; delete {kit} and join again") from None
    if is_open:
        raise HushrecError(f"{path} is open to other users; make it private with chmod 600")
    if not isinstance(key, PrivateKey):
        raise HushrecError(f"{path} is of a kind that is not used here; delete {kit} and join again")
    return key


def _checked(answer: Answer) -> tuple[x509.Certificate, x509.Certificate]:
    """The certificate and the root of an answer that has sense."""
    check_node_name(answer.name)
    try:
        certificate = x509.load_pem_x509_certificate(answer.certificate.encode())
        root = x509.load_pem_x509_certificate(answer.root.encode())
        certificate.verify_directly_issued_by(root)
    except Exception:  # cryptography has many words for a certificate that is none
        raise HushrecError("the answer holds no certificate that its root has signed; ask for it again") from None
    if common_name(certificate.subject) != answer.name or not is_of_a_node(certificate):
        raise HushrecError(f"the certificate in the answer is not one of the node {answer.name}; ask for it again")
    read_revoked(answer.revoked.encode(), root).check(certificate)
    return certificate, root


# --- On the server ---------------------------------------------------------------------------------------------


def admit_node(folder: Path, answer: Answer, engine: Engine) -> Federation:
    """Count on a node that was approved: from the next order on."""
    certificate, _ = _checked(answer)
    server = folder / "server"
    if (server / "startup" / "rootCA.pem").read_bytes() != answer.root.encode():
        raise HushrecError(f"{answer.name} was approved by the authority of another federation than {folder}")
    newest_revoked(server, answer.root.encode(), answer.revoked.encode()).check(certificate)
    with locked(folder / "lock", f"{folder} is being changed by another process; try again"):
        federation = read_federation(folder)
        engine.admit(folder, answer.name, answer.certificate.encode())
        write_private_file(server / "members" / f"{answer.name}.crt", answer.certificate.encode())
        nodes = [*federation.nodes, *({answer.name} - set(federation.nodes))]
        return write_federation(folder, msgspec.structs.replace(federation, nodes=nodes))


def take_revoked(folder: Path, pem: bytes, engine: Engine) -> list[str]:
    """Heed a list of revoked certificates on the server: the nodes that are gone by it."""
    server = folder / "server"
    root = (server / "startup" / "rootCA.pem").read_bytes()
    offered = read_revoked(pem, x509.load_pem_x509_certificate(root))
    newest = newest_revoked(server, root, pem)
    if newest.number > offered.number:
        raise HushrecError(
            f"list {offered.number} of revoked certificates is older than list {newest.number}, which {folder} has"
        )
    with locked(folder / "lock", f"{folder} is being changed by another process; try again"):
        federation = read_federation(folder)
        gone = [name for name in federation.nodes if _serial_of(server, name) in newest.serials]
        for name in gone:
            engine.dismiss(folder, name)
            (server / "members" / f"{name}.crt").unlink()
        left = [name for name in federation.nodes if name not in gone]
        write_federation(folder, msgspec.structs.replace(federation, nodes=left))
    return gone


def _serial_of(server: Path, name: str) -> int | None:
    path = server / "members" / f"{name}.crt"
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number if path.exists() else None


# --- What each checks of the others ----------------------------------------------------------------------------


def newest_revoked(folder: Path, root: bytes, offered: bytes = b"") -> RevokedList:
    """The newest list that is known here; an offered one is kept if it is newer."""
    path, authority = folder / "revoked.pem", x509.load_pem_x509_certificate(root)
    known = read_revoked(path.read_bytes(), authority) if path.exists() else NOTHING_REVOKED
    if not offered or offered == known.pem:
        return known
    new = read_revoked(offered, authority)
    if new.number <= known.number:
        return known
    write_private_file(path, new.pem)
    return new


def standing_hosts(folder: Path, root: bytes, hosts: Hosts, listed: Collection[str]) -> Hosts:
    """The hosts of a run as a node may write to them; refused if one that takes part must not.

    A node that was revoked while the run goes on, and is away, is taken off: no letter is sealed to it any more.
    """
    revoked = newest_revoked(folder, root, hosts.revoked)
    left = [
        host
        for host in hosts.hosts
        if host.card.name not in hosts.away or _certificate(host.card).serial_number not in revoked.serials
    ]
    check_standing(folder, root, [host.card for host in left], listed)
    return msgspec.structs.replace(hosts, hosts=left)


def check_standing(folder: Path, root: bytes, cards: Sequence[KeyCard], listed: Collection[str]) -> None:
    """Refuse cards of strangers, of revoked nodes, and of copies; the cards' signatures were checked before.

    `folder` is where what is known of others is kept; nodes that are `listed` need no mark in their certificates.
    """
    revoked = newest_revoked(folder, root)
    path = folder / "known.json"
    known = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
    seen = dict(known)
    for card in cards:
        certificate, mail_key = _certificate(card), card.public_key.hex()
        revoked.check(certificate)
        if card.name not in listed and not is_of_a_node(certificate):
            raise PublicError(f"{card.name[:64]!r} is no node of this federation")
        if seen.setdefault(f"{certificate.serial_number:x}", mail_key) != mail_key:
            raise PublicError(
                f"{card.name[:64]!r} shows another mail key than before: a copied kit; if it is the node itself "
                "and has lost its private folder, revoke it and let it join again"
            )
    if seen != known:
        write_private_file(path, msgspec.json.encode(seen))


def _certificate(card: KeyCard) -> x509.Certificate:
    return x509.load_pem_x509_certificate(card.certificate)


def refusal_file(kit: Path) -> Path:
    """Where a node's process says why the server does not want it."""
    return kit / "private" / "refused"


def check_welcome(kit: Path, name: str) -> None:
    """An error if the server has refused the node's process for good."""
    path = refusal_file(kit)
    if path.exists():
        raise HushrecError(f"the server refuses {name}: {path.read_text(errors='replace')}")
