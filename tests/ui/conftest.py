"""What tests of the page share: an application that is asked without a network, runs, a browser."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from hushrec.cli.work.ui_commands import RunCommands
from hushrec.ui.app import create_app
from hushrec.ui.door import HEADER, Door, names_of
from serving.asking import Answer

from .browsing import FLAGS, chromium, missing_browser, skip_or_fail

Ask = Callable[..., Answer]


def asking(app: Any) -> Ask:
    """A function that sends one request to an application."""

    def ask(path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = "") -> Answer:
        target, _, query = path.partition("?")
        sent = {"host": "localhost:8090", HEADER: "1"} | (headers or {})
        data = b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "method": method or ("GET" if body is None else "POST"), "path": target,
            "raw_path": target.encode(), "query_string": query.encode(), "root_path": "", "http_version": "1.1",
            "scheme": "http", "client": ("127.0.0.1", 1), "server": ("localhost", 8090),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value],
        }  # fmt: skip
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data}

        async def send(message: Any) -> None:
            messages.append(message)

        with ThreadPoolExecutor(1) as thread:  # a browser that is open has a loop in this one
            thread.submit(asyncio.run, app(scope, receive, send)).result()
        told = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        return Answer(messages[0]["status"], told, b"".join(one.get("body", b"") for one in messages[1:]))

    return ask


@pytest.fixture
def runs_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def ask(runs_folder: Path) -> Ask:
    """The whole application over a folder of runs, with the door before it."""
    return asking(Door(create_app(runs_folder, commands=RunCommands()), names_of("127.0.0.1", True)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium; without one tests are skipped, and fail where CI=true.

    It is closed with its module: while it is open there is a loop in this thread, in which others start theirs.
    """
    if reason := missing_browser():
        skip_or_fail(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield found
        found.close()
