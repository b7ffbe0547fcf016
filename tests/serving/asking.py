"""Asking an ASGI application without a network."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

TOKEN = "0123456789abcdef-test"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp,
    method: str,
    target: str,
    chunks: Sequence[bytes] = (),
    headers: dict[str, str] | None = None,
    token: str | None = TOKEN,
    address: str = "192.0.2.1",
) -> Answer:
    """One request; a body comes in chunks and has no Content-Length unless given."""
    path, _, query = target.partition("?")
    named = {name.lower(): value for name, value in (headers or {}).items()}
    if token is not None:
        named["authorization"] = f"Bearer {token}"
    if chunks and "content-length" not in named:
        named["transfer-encoding"] = "chunked"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": (address, 50000),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }
    waiting: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks or [b""])
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], answered, sent[1]["body"])


def post(app: ASGIApp, body: Any, **options: Any) -> Answer:
    """A newcomer's request: an object, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    return ask(app, "POST", "/v1/recommendations", [data], headers, **options)
