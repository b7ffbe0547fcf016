"""The folder of a federation: one kit per machine, and what is in each beside the engine's own files.

`deploy init` makes `DIR/server`, the operator's kit, `DIR/federation.json` and `DIR/authority`, which approves
nodes that join. For rehearsals it also makes `DIR/<node>`, with keys, for nodes that are named at once. A node's
kit has `startup/nodes.json`: who it is, where the server is, and the names of nodes that were there when it was
made.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hushrec.choices import EngineName
from hushrec.deploy.authority import FOLDER, Place, check_node_name, keep_authority
from hushrec.deploy.engines import Engine
from hushrec.errors import HushrecError
from hushrec.files import make_private_folder, write_private_file


class Federation(msgspec.Struct, frozen=True):
    """Where the server is, and which nodes it counts on: `federation.json`."""

    engine: EngineName
    host: str
    port: int
    nodes: list[str]


def make_kits(folder: Path, engine: Engine, nodes: Sequence[str], host: str, port: int) -> Federation:
    """Certificates, keys and kits for a server and these nodes, and the authority that signs for others later."""
    for name in nodes:
        check_node_name(name)
    if len(set(nodes)) < len(nodes):
        raise HushrecError("two nodes have the same name; give each its own")
    if folder.exists() and any(folder.iterdir()):
        raise HushrecError(f"{folder} is not empty; choose a new folder for the kits")
    if not 1 <= port <= 65535:
        raise HushrecError(f"--port {port} is not within 1 to 65535")
    make_private_folder(folder)
    signed = engine.provision(folder, nodes, host, port)
    authority = keep_authority(folder / FOLDER, signed, Place(engine.name, host, port))
    write_private_file(folder / "server" / "revoked.pem", authority.revoked.pem)
    for name in nodes:
        certificate = (folder / name / "startup" / "client.crt").read_bytes()
        authority.keep(certificate)
        write_private_file(folder / "server" / "members" / f"{name}.crt", certificate)
        write_kit_card(folder / name, KitCard(engine.name, name, sorted(nodes), host, port))
    return write_federation(folder, Federation(engine.name, host, port, list(nodes)))


def write_federation(folder: Path, federation: Federation) -> Federation:
    """Keep what is known of a federation."""
    write_private_file(folder / "federation.json", msgspec.json.encode(federation))
    return federation


def read_federation(folder: Path) -> Federation:
    """What `deploy init` made in a folder."""
    try:
        return msgspec.json.decode((folder / "federation.json").read_bytes(), type=Federation)
    except (OSError, msgspec.MsgspecError):
        raise HushrecError(f"{folder} holds no federation; make one with: hushrec deploy init {folder}") from None


class KitCard(msgspec.Struct, frozen=True):
    """What a node's kit says about itself: `startup/nodes.json`."""

    engine: EngineName
    name: str
    nodes: list[str]
    host: str = ""  # of the server; empty in older kits
    port: int = 0


def write_kit_card(kit: Path, card: KitCard) -> None:
    """Have a folder say whose kit it is."""
    (kit / "startup" / "nodes.json").write_bytes(msgspec.json.encode(card))


def read_kit(kit: Path) -> KitCard:
    """Whose kit a folder is."""
    try:
        return msgspec.json.decode((kit / "startup" / "nodes.json").read_bytes(), type=KitCard)
    except (OSError, msgspec.MsgspecError):
        raise HushrecError(
            f"{kit} is no node's kit; make one with hushrec deploy join, and have it approved"
        ) from None


def find_kit(folder: Path, name: str | None) -> Path:
    """A node's kit: the folder itself, or the folder of that name in it."""
    if name is not None and (folder / name / "startup").is_dir():
        return folder / name
    kit = read_kit(folder)
    if name is not None and kit.name != name:
        raise HushrecError(f"{folder} is the kit of {kit.name}, not of {name}")
    return folder


def node_names(kit: Path) -> list[str]:
    """Names of the nodes that were there when the kit was made."""
    return read_kit(kit).nodes
