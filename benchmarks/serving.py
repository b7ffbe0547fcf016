"""`python -m benchmarks.serving`: requests per second and latency of `hushrec serve`, asked from this process."""

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hushrec
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.serving.model import load_served

SECONDS = 4.0
CONNECTIONS = (1, 16, 64)


class Server(NamedTuple):
    """A server under test."""

    process: int
    port: int


@contextmanager
def served(folder: Path, token: str, is_simulation: bool) -> Iterator[Server]:
    """A server in a process of its own."""
    command = [sys.executable, "-m", "hushrec.cli.app", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--rate", "999999999/second", *(["--simulation"] if is_simulation else [])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HUSHREC_TOKEN": token},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"127\.0\.0\.1:(\d+)", line)
        if not address:
            raise HushrecError(line.strip())
        yield Server(process.pid, int(address[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


async def ask(port: int, request: Callable[[int], bytes], until: float, first: int, times: list[float]) -> None:
    """One connection that asks again as soon as it is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = first
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(request(number))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        assert head.startswith(b"HTTP/1.1 200"), head
        times.append(time.perf_counter() - began)
        number += 1
    writer.close()


def cpu_seconds(process: int) -> float:
    """What another process has used of its CPUs (Linux)."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def load(server: Server, request: Callable[[int], bytes], connections: int) -> None:
    """Print what this many connections at once measure."""

    async def all_at_once() -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + SECONDS
        await asyncio.gather(
            *(ask(server.port, request, until, 101 * place, times) for place in range(connections))
        )
        return times

    before, began = cpu_seconds(server.process), time.perf_counter()
    times = asyncio.run(all_at_once())
    seconds = time.perf_counter() - began  # what is under way at the end is waited for
    cpu = (cpu_seconds(server.process) - before) / len(times) * 1000
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    speed = f"{len(times) / seconds:6.1f} requests/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms"
    print(f"  {connections:3} connections: {speed}; {cpu:.2f} ms of CPU per request")


def measure(folder: Path) -> None:
    """All kinds of lists of one run."""
    token, ranker = secrets.token_urlsafe(32), hushrec.load_run(folder).ranker()
    users, items = ranker.train.user_ids.tolist(), ranker.train.item_ids.tolist()
    head = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"

    def for_user(number: int) -> bytes:
        return f"GET /v1/users/{users[number % len(users)]}/recommendations {head}\r\n".encode()

    def with_reasons(number: int) -> bytes:
        return f"GET /v1/users/{users[number % len(users)]}/recommendations?why=true {head}\r\n".encode()

    def for_newcomer(number: int) -> bytes:
        rated = [items[(number * 7 + 13 * place) % len(items)] for place in range(20)]
        body = json.dumps({"items": rated, "ratings": [1 + place % 5 for place in range(20)]})
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"POST /v1/recommendations {head}{length}\r\n{body}".encode()

    kinds = [("users", for_user)]
    kinds += [("users, with reasons", with_reasons)] if ranker.explains else []
    is_simulation = SYSTEMS[read_run(folder).system].result.server is None
    takes_newcomers = load_served(folder, is_simulation=is_simulation).takes_newcomers
    kinds += [("newcomers with 20 ratings", for_newcomer)] if takes_newcomers else []
    with served(folder, token, is_simulation) as server:
        for title, request in kinds:
            print(f"{read_run(folder).system}, {ranker.train.name}, {len(items)} items, lists of 10 for {title}")
            for connections in CONNECTIONS:
                load(server, request, connections)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for name in sys.argv[1:] or ("ml-100k", "ml-1m"):
            if not (Path(name) / "run.json").exists():
                hushrec.PMF().fit(hushrec.load(name)).save(Path(place, name))
                name = str(Path(place, name))
            measure(Path(name))
