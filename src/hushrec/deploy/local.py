"""A whole federation on one machine: server, nodes and operator on loopback, in a folder that is removed after."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hushrec.choices import EngineName
from hushrec.data import Split
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.enrolment import NodeSettings, write_settings
from hushrec.deploy.kits import Federation, make_kits
from hushrec.deploy.processes import Kept
from hushrec.protocol import AnySystem

_KEEP_SECONDS = 0.2


def server_process(folder: Path, engine: EngineName, tell: Callable[[str], None]) -> Kept:
    """The server's process."""
    command = engine_named(engine).server_command(folder)
    environment = {"HUSHREC_PROJECT": str(folder.resolve())}
    return Kept("the server", command, environment, folder / "server" / "process.log", tell)


def node_process(kit: Path, name: str, engine: EngineName, tell: Callable[[str], None]) -> Kept:
    """A node's process. It learns where its kit is from its own environment, never from a job."""
    command = engine_named(engine).node_command(kit)
    return Kept(name, command, {"HUSHREC_KIT": str(kit.resolve())}, kit / "private" / "process.log", tell)


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare(
    folder: Path, engine: EngineName, system: AnySystem, num_nodes: int, split: Split, seed: int
) -> tuple[Federation, list[str]]:
    """Kits, and a share of the data for every node, each of which takes part in everything."""
    nodes = system.holders.node_names(split.train, num_nodes)
    federation = make_kits(folder, engine_named(engine), nodes, "localhost", free_port())
    for name, files in system.holders.deal(split, nodes, seed, folder / "shares").items():
        write_settings(folder / name, NodeSettings.for_everything(files))
    return federation, nodes


@contextmanager
def running(folder: Path, federation: Federation, tell: Callable[[str], None]) -> Iterator[dict[str, Kept]]:
    """All processes of a federation, kept alive until the end of the block."""
    kept = {"server": server_process(folder, federation.engine, tell)}
    kept |= {name: node_process(folder / name, name, federation.engine, tell) for name in federation.nodes}
    ended = threading.Event()

    def keep_all() -> None:
        while not ended.wait(_KEEP_SECONDS):
            for process in kept.values():
                process.keep()

    keeper = threading.Thread(target=keep_all, daemon=True)
    try:
        for process in kept.values():
            process.start()
        keeper.start()
        yield kept
    finally:
        ended.set()
        with suppress(RuntimeError):
            keeper.join()
        for process in kept.values():
            process.ask_to_end()  # all at once: each may take its time
        for process in kept.values():
            process.stop()
