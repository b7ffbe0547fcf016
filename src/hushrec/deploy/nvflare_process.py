"""NVFlare's processes as we run them: they end with their children on SIGTERM, and without long pauses.

`python -m hushrec.deploy.nvflare_process MODULE ARGUMENTS` runs one of NVFlare's programs.
"""

import contextlib
import importlib
import mmap
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.fuel.f3.streaming import byte_streamer
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from hushrec.deploy.nvflare_door import Door, show_instance
from hushrec.errors import HushrecError
from hushrec.files import locked

PROGRAMS = "nvflare.private.fed.app"
OPERATOR = "operator@hushrec.local"
LOOK_SECONDS = 0.2
GRACE_SECONDS = 0.2  # NVFlare sleeps for 3 s at the end of every process


def main() -> None:
    """Run the program that the command line names, as its own `__main__` would."""
    # NVFlare words every request for a debug log that nobody reads, with all its bytes: 10 ms per MB.
    ConsumableBufferList.__repr__ = object.__repr__
    # It makes room for a whole chunk, filled with zeros, for each message, however short, and keeps it a while.
    # Memory from the system is there at once, and takes no room before it is written to.
    byte_streamer.bytearray = lambda size: mmap.mmap(-1, size)
    name = sys.argv[1]
    program = importlib.import_module(f"{PROGRAMS}.{name}")
    del sys.argv[1]
    signal.signal(signal.SIGTERM, _end)
    arguments = program.parse_arguments()
    kit = Path(arguments.workspace)
    folder = kit / getattr(arguments, "job_id", "")
    with ExitStack() as stack:
        try:
            _stand_guard(name, kit, stack)
        except HushrecError as error:
            print(f"hushrec: {error}", file=sys.stderr)
            sys.exit(2)
        run = MainProcessMonitor.run
        sys.exit(run(program.main, str(folder), shutdown_grace_time=GRACE_SECONDS, args=arguments))


def _stand_guard(name: str, kit: Path, stack: ExitStack) -> None:
    """Let one process serve a kit, and its workers die with it; show who a node is, and look who comes."""
    if name == "server.server_train":
        Door(kit, lambda peer: peer == OPERATOR).guard()
    elif name == "client.client_train":
        stack.enter_context(
            locked(kit / "process.lock", f"{kit} is in use by another process; end that one first")
        )
        show_instance(kit, is_worker=False)
    elif name == "client.worker_process":
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        show_instance(kit, is_worker=True)


def _end_with(parent: int) -> None:
    """End this worker when its node's process has ended: the next one starts workers of its own."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def _end(number: int, frame: FrameType | None) -> None:
    """Take the workers along: NVFlare would leave them to find out."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(0)


class ServerLauncher(ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts the server's part of a job through this module."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: object) -> str:
        """NVFlare's command, with our entry in front of its module."""
        return _through_us(super().get_command(job_meta, fl_ctx))


class NodeLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a node's part of a job through this module."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: object) -> str:
        """NVFlare's command, with our entry in front of its module."""
        return _through_us(super().get_command(job_meta, fl_ctx))


class KitStorage(FilesystemStorage):  # type: ignore[misc]
    """Keeps what the server stores inside its kit, wherever the kit was copied to."""

    def __init__(self, folder: str) -> None:
        super().__init__(root_dir=str(Path(folder).absolute()))  # NVFlare's processes run in their kit


def _through_us(command: str) -> str:
    return command.replace(f"-m {PROGRAMS}.", f"-m {__name__} ", 1)


if __name__ == "__main__":
    main()
