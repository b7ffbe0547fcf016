import asyncio
import json
import re
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from hushrec.serving import gate
from hushrec.serving.gate import Gate, Problem
from hushrec.serving.limits import Rate, RateLimit, Tokens

from .asking import TOKEN, Answer, ask


class Echo:
    """Answers with the body it got; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        body, message = b"", await receive()
        body += message["body"]
        assert not message.get("more_body")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def gated(
    app: Any, rate: str = "1000/second", tokens: Tokens | None = None, size: int = 100
) -> tuple[Gate, list[Any]]:
    lines: list[Any] = []
    limit = RateLimit(Rate.parse(rate), clock=lambda: 0.0)
    return Gate(app, limit, tokens or Tokens([TOKEN]), size, lambda line: lines.append(json.loads(line))), lines


def is_problem(answer: Answer, status: int) -> bool:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json["status"] == answer.status == status
    assert set(answer.json) == {"title", "status", "detail"}
    return True


# --- Token -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "", "0123456789abcdef-tesu", TOKEN + " x", TOKEN[:-1]])
def test_private_paths_need_the_token(token: str | None) -> None:
    echo = Echo()
    app, _ = gated(echo)
    answer = ask(app, "GET", "/v1/anything", token=token)
    assert is_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert echo.asked == 0
    assert ask(app, "GET", "/v1/anything").status == 200


def test_public_paths_do_not() -> None:
    app, _ = gated(Echo())
    assert ask(app, "GET", "/health", token=None).status == 200


def test_without_tokens_anyone_may_ask() -> None:
    app = Gate(Echo(), RateLimit(Rate(100, 1.0)), None, 100, lambda line: None)
    assert ask(app, "GET", "/v1/anything", token=None).status == 200


# --- Rate --------------------------------------------------------------------------------------------------


def test_an_address_is_limited() -> None:
    app, _ = gated(Echo(), rate="2/minute")
    statuses = [ask(app, "GET", "/health", address="192.0.2.1").status for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert ask(app, "GET", "/health", address="192.0.2.2").status == 200
    answer = ask(app, "GET", "/health", address="192.0.2.1")
    assert is_problem(answer, 429)
    assert answer.headers["retry-after"] == "30"
    assert answer.json["detail"] == "too many requests; try again in 30 s"


def test_a_token_is_limited_from_wherever_it_is_used() -> None:
    other = TOKEN + "-2"
    app, _ = gated(Echo(), rate="2/minute", tokens=Tokens([TOKEN, other]))
    statuses = [ask(app, "GET", "/v1/x", address=f"192.0.2.{place}").status for place in range(3)]
    assert statuses == [200, 200, 429]
    assert ask(app, "GET", "/v1/x", token=other, address="192.0.2.9").status == 200


def test_two_tokens_are_refused() -> None:
    """Of two headers a proxy may take another one than we do."""
    echo = Echo()
    app, _ = gated(echo)
    statuses: list[Any] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        statuses.append(message.get("status"))

    own, other = (b"authorization", f"Bearer {TOKEN}".encode()), (b"authorization", b"Bearer another")
    for headers in ([own, other], [other, own], [own, own]):
        scope = {"type": "http", "method": "GET", "path": "/v1/x", "headers": headers, "client": None}
        asyncio.run(app(scope, receive, send))
    assert statuses[::2] == [401] * 3
    assert echo.asked == 0


def test_a_token_holder_is_not_locked_out_from_a_flooded_address() -> None:
    app, _ = gated(Echo(), rate="2/minute")
    assert [ask(app, "GET", "/v1/x", token="wrong").status for _ in range(5)] == [401, 401, 429, 429, 429]
    assert [ask(app, "GET", "/", token=None).status for _ in range(2)] == [429, 429]
    assert [ask(app, "GET", "/v1/x").status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_health_uses_up_nothing_and_is_not_used_up(path: str) -> None:
    app, _ = gated(Echo(), rate="2/minute")
    assert [ask(app, "GET", path, token=None).status for _ in range(3)] == [200, 200, 429]
    assert [ask(app, "GET", "/v1/x").status for _ in range(2)] == [200, 200]
    assert ask(app, "GET", "/", token=None).status == 200
    app, _ = gated(Echo(), rate="2/minute")
    assert [ask(app, "GET", "/v1/x").status for _ in range(3)] == [200, 200, 429]
    assert ask(app, "GET", path).status == 200


def test_guessing_tokens_is_limited() -> None:
    app, _ = gated(Echo(), rate="2/minute")
    assert [ask(app, "GET", "/v1/x", token="wrong").status for _ in range(3)] == [401, 401, 429]


# --- Size --------------------------------------------------------------------------------------------------


def test_bodies_up_to_the_limit_arrive_whole() -> None:
    app, _ = gated(Echo(), size=100)
    assert ask(app, "POST", "/v1/x", [b"a" * 100], {"Content-Length": "100"}).body == b"a" * 100
    assert ask(app, "POST", "/v1/x", [b"a" * 50, b"", b"b" * 50]).body == b"a" * 50 + b"b" * 50
    assert ask(app, "POST", "/v1/x").body == b""


@pytest.mark.parametrize(
    ("chunks", "length"),
    [
        ([b"a" * 101], "101"),
        ([], "1000000000000"),
        ([b"a" * 101], None),
        ([b"a"] * 101, None),
        ([b"a" * 101], "5"),
    ],
)
def test_larger_bodies_are_refused(chunks: list[bytes], length: str | None) -> None:
    echo = Echo()
    app, _ = gated(echo, size=100)
    answer = ask(app, "POST", "/v1/x", chunks, {"Content-Length": length} if length else {})
    assert is_problem(answer, 413)
    assert answer.headers["connection"] == "close"
    assert answer.json["detail"] == "a body may have 100 bytes"
    assert echo.asked == 0


def test_no_more_is_read_than_is_needed_to_refuse() -> None:
    app, _ = gated(Echo(), size=100)
    num_read = 0

    async def receive() -> Message:
        nonlocal num_read
        num_read += 1
        return {"type": "http.request", "body": b"a" * 60, "more_body": True}

    async def send(message: Message) -> None:
        statuses.append(message.get("status"))

    statuses: list[Any] = []
    headers = [(b"transfer-encoding", b"chunked"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": headers, "client": None}
    asyncio.run(app(scope, receive, send))
    assert statuses[0] == 413
    assert num_read == 2


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_BODY_SECONDS", 0.05)
    app, lines = gated(Echo())
    statuses: list[Any] = []

    async def receive() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Message) -> None:
        statuses.append(message.get("status"))

    headers = [(b"content-length", b"10"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": headers, "client": ("::1", 1)}
    asyncio.run(app(scope, receive, send))
    assert statuses[0] == 408
    assert lines[0]["status"] == 408


def test_a_body_that_ends_early_is_not_passed_on() -> None:
    echo = Echo()
    app, _ = gated(echo)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None: ...

    headers = [(b"content-length", b"10"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": headers, "client": None}
    asyncio.run(app(scope, receive, send))
    assert echo.asked == 0


# --- Log and faults ----------------------------------------------------------------------------------------


def test_a_line_per_request_and_nothing_private_in_it() -> None:
    app, lines = gated(Echo())
    ask(app, "POST", "/v1/users/secret-user/x?k=secret-query", [b"secret-body"], {"X-Y": "secret-header"})
    ask(app, "GET", "/v1/users/secret-user/x", token="secret-token-that-is-wrong")
    ask(app, "GET", "/health", token=None)
    ask(app, "SECRET", "/secret-path", token=None)
    fields = ["time", "method", "route", "status", "milliseconds", "bytes"]
    assert [list(line) for line in lines] == [fields] * 4
    assert [line["method"] for line in lines] == ["POST", "GET", "GET", "other"]
    assert [line["route"] for line in lines] == [None, None, "/health", None]
    assert [line["status"] for line in lines] == [200, 401, 200, 200]
    assert lines[0]["bytes"] == len(b"secret-body")
    assert "secret" not in json.dumps(lines).lower()
    assert TOKEN not in json.dumps(lines)
    assert "192.0.2.1" not in json.dumps(lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"]) for line in lines)


def test_a_fault_is_logged_by_its_place_only() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("no user 'secret-user'")

    app, lines = gated(broken)
    answer = ask(app, "GET", "/v1/users/secret-user/x")
    assert is_problem(answer, 500)
    assert "secret" not in answer.body.decode()
    assert re.fullmatch(r"ValueError at test_gate\.py:\d+", lines[0]["error"])
    assert "secret" not in json.dumps(lines)


def test_a_refusal_can_be_written_without_an_application() -> None:
    head, _, body = Problem(431, "too long").as_http().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["detail"] == "too long"
