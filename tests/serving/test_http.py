"""The head of a request, over real sockets."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn

from hushrec.serving import http
from hushrec.serving.gate import Gate
from hushrec.serving.http import MAX_HEAD_BYTES, BoundedHttp
from hushrec.serving.limits import Connections, Rate, RateLimit
from hushrec.serving.server import listen

from .test_gate import Echo

GET = b"GET /x HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server in a thread, which gives up on heads after half a second."""
    with pytest.MonkeyPatch.context() as patch, listen("127.0.0.1", 0) as listening:
        patch.setattr(http, "HEAD_SECONDS", 0.5)
        app = Gate(Echo(), RateLimit(Rate(10**9, 1.0)), None, 10**6, lambda line: None)
        config = uvicorn.Config(
            app, http=BoundedHttp, ws="none", lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def talk(port: int, *parts: bytes, pause_seconds: float = 0.0) -> bytes:
    """Send parts; return all that comes until the server closes or a second passes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=3.0) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_seconds)
            while received := connection.recv(65536):
                answer += received
        except (TimeoutError, ConnectionError):
            pass
    return answer


def test_a_request_is_answered(port: int) -> None:
    assert talk(port, GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_head_may_come_in_parts(port: int) -> None:
    parts = [GET, b"A: " + b"a" * 5000, b"b" * 5000, b"\r\nConnection: close\r\n\r\n"]
    assert talk(port, *parts, pause_seconds=0.02).startswith(b"HTTP/1.1 200 ")


def test_a_body_is_not_taken_for_a_head(port: int) -> None:
    """Two requests on one connection, their bodies longer than a head may be."""
    body = b"z" * (5 * MAX_HEAD_BYTES)
    head = f"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
    last = head + b"Connection: close\r\n\r\n" + body
    parts = [last[place : place + 20000] for place in range(0, len(last), 20000)]
    answer = talk(port, head + b"\r\n" + body, *parts, pause_seconds=0.02)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.count(b"z" * len(body)) == 2


@pytest.mark.parametrize("begin", [GET + b"A: ", b"GET /"])
def test_an_endless_head_is_refused(port: int, begin: bytes) -> None:
    parts = [begin] + [b"a" * 1000] * (2 + MAX_HEAD_BYTES // 1000)
    head, _, body = talk(port, *parts, pause_seconds=0.005).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["detail"] == f"a request line and headers may have {MAX_HEAD_BYTES} bytes"


@pytest.mark.parametrize("begin", [b"", b"GE", GET])
def test_a_head_that_does_not_come_is_given_up(port: int, begin: bytes) -> None:
    began = time.monotonic()
    assert talk(port, begin) == b""
    assert time.monotonic() - began < 2.5


def test_a_second_head_that_does_not_come_is_given_up(port: int) -> None:
    began = time.monotonic()
    assert talk(port, GET + b"\r\n", GET, pause_seconds=0.1).count(b"HTTP/1.1 200 ") == 1
    assert time.monotonic() - began < 2.5


@pytest.mark.parametrize(
    "garbage", [b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /\xff HTTP/1.1\r\n\r\n"]
)
def test_what_is_not_http_is_refused_in_json(port: int, garbage: bytes) -> None:
    head, _, body = talk(port, garbage).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400


# --- Too many connections --------------------------------------------------------------------------------------


@contextmanager
def serving(connections: Connections) -> Iterator[int]:
    with listen("127.0.0.1", 0) as listening:
        app = Gate(Echo(), RateLimit(Rate(10**9, 1.0)), None, 10**6, lambda line: None)
        protocol: Any = partial(BoundedHttp, connections_open=connections)
        config = uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)


def until(port: int, begin: bytes) -> None:
    """Ask again and again until an answer begins so."""
    for _ in range(100):
        if talk(port, GET + b"Connection: close\r\n\r\n").startswith(begin):
            return
        time.sleep(0.05)
    raise AssertionError(f"no answer began with {begin!r}")


def whole_answer(connection: socket.socket) -> bytes:
    """One answer in chunks, to its end."""
    answer = b""
    while not answer.endswith(b"\r\n0\r\n\r\n"):
        answer += connection.recv(65536)
    return answer


@pytest.mark.parametrize(("most", "most_per_address"), [(2, 100), (100, 2)])
def test_one_connection_too_many_is_refused_and_told_once(
    most: int, most_per_address: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "_told_at", float("-inf"))
    with serving(Connections(most, most_per_address)) as port, ExitStack() as stack:
        until(port, b"HTTP/1.1 200 ")
        for _ in range(2):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            held.settimeout(10)
            held.sendall(GET + b"\r\n")
            assert whole_answer(held).startswith(b"HTTP/1.1 200 ")
        answers = [talk(port) for _ in range(3)]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert json.loads(answers[0].partition(b"\r\n\r\n")[2])["detail"].startswith("2 connections are open")
        held.sendall(GET + b"\r\n")  # those who are there are served as before
        assert whole_answer(held).startswith(b"HTTP/1.1 200 ")
        stack.close()
        until(port, b"HTTP/1.1 200 ")
    told = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
    assert told[0].startswith("a connection was refused: 2 connections are open")
    assert "127.0.0.1" not in told[0]
    assert len(told) < 3
