"""The server's side of a job."""

from pathlib import Path

from hushrec.runtime.transport import Transport


def drive(transport: Transport, nodes: list[str], folder: Path, job: bytes) -> None:
    """Placeholder while the engines are built: calls every node a few times."""
    for round_number in range(3):
        delivery = transport.call("echo", {node: job for node in nodes}, round_number, 10.0)
        with (folder / "echo.log").open("a") as log:
            log.write(f"{round_number} {sorted(delivery.replies)} {delivery.lost}\n")
