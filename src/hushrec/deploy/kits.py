"""The folder of a federation: one kit per machine, and what is in each beside the engine's own files.

`deploy init` makes `DIR/server`, `DIR/<node>` for each node, the operator's kit and `DIR/federation.json`. A
node's kit is copied to its machine as a whole and has `startup/nodes.json`, the names of all nodes.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hushrec.deploy.engines import Engine, EngineName
from hushrec.errors import HushrecError
from hushrec.files import write_private_file

_RESERVED = {"server", "admin", "operator", "runs"}


class Federation(msgspec.Struct, frozen=True):
    """What `deploy init` was told: `federation.json`."""

    engine: EngineName
    host: str
    port: int
    nodes: list[str]


def make_kits(folder: Path, engine: Engine, nodes: Sequence[str], host: str, port: int) -> Federation:
    """Certificates, keys and kits for a server and these nodes."""
    _check_names(nodes)
    if folder.exists() and any(folder.iterdir()):
        raise HushrecError(f"{folder} is not empty; choose a new folder for the kits")
    if not 1 <= port <= 65535:
        raise HushrecError(f"--port {port} is not within 1 to 65535")
    engine.provision(folder, nodes, host, port)
    federation = Federation(engine.name, host, port, list(nodes))
    for name in nodes:
        card = KitCard(engine.name, name, sorted(nodes), host, port)
        content = msgspec.json.encode(card)
        (folder / name / "startup" / "nodes.json").write_bytes(content)
    write_private_file(folder / "federation.json", msgspec.json.encode(federation))
    return federation


def _check_names(nodes: Sequence[str]) -> None:
    if not nodes:
        raise HushrecError("a federation needs a node; use --nodes 2 or --name for each")
    for name in nodes:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name) or name in _RESERVED:
            raise HushrecError(
                f"{name!r} cannot be a node's name; use a-z, 0-9 and -, and not {sorted(_RESERVED)}"
            )
    if len(set(nodes)) < len(nodes):
        raise HushrecError("two nodes have the same name; give each its own")


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


def read_kit(kit: Path) -> KitCard:
    """Whose kit a folder is."""
    try:
        return msgspec.json.decode((kit / "startup" / "nodes.json").read_bytes(), type=KitCard)
    except (OSError, msgspec.MsgspecError):
        raise HushrecError(
            f"{kit} is no node's kit; copy one from the folder that hushrec deploy init made"
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
    """Names of all nodes of the federation."""
    return read_kit(kit).nodes
