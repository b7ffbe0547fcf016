"""What every request passes, in this order: token and rate limit, size limit; then one line of log.

A line of log has the template of the route, not the path, which holds a user's id; no query, no address, no token.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushrec.serving.limits import RateLimit, Tokens
from hushrec.serving.metrics import Meter

PRIVATE = "/v1/"  # paths below it need a token
_WATCHED = ("/health", "/metrics")
_PUBLIC = ("/", *_WATCHED, "/openapi.json")
_BODY_SECONDS = 10.0
_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})


@dataclass(eq=False)
class Problem(Exception):
    """Why a request is refused."""

    status: int
    detail: str
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        """As JSON."""
        title = HTTPStatus(self.status).phrase
        return msgspec.json.encode({"title": title, "status": self.status, "detail": self.detail})

    def all_headers(self) -> list[tuple[str, str]]:
        """With those that every refusal has."""
        return [("content-type", "application/problem+json"), ("cache-control", "no-store"), *self.headers]

    def as_http(self) -> bytes:
        """The last answer on a connection, where there is no application yet to give it."""
        body = self.body()
        headers = [*self.all_headers(), ("content-length", str(len(body))), ("connection", "close")]
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode() + body


def fault() -> Problem:
    """The reply to a caller after an internal error."""
    return Problem(500, "this is a fault of the server; its log says where")


class Gate:
    """The application behind its limits. Another can take its place; requests under way keep the one before."""

    def __init__(
        self,
        app: ASGIApp,
        rate_limit: RateLimit,
        tokens: Tokens | None,
        max_request_bytes: int,
        log: Callable[[bytes], None],
        meter: Meter | None = None,
        private: str = PRIVATE,
    ) -> None:
        self.app = app
        self._private = private
        self._meter = meter or Meter()
        self._rate_limit = rate_limit
        self._tokens = tokens
        self._max_request_bytes = max_request_bytes
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http", "neither lifespan nor websockets are switched on"
        began, status, sent_bytes, error = time.perf_counter(), 0, 0, None

        async def counted(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            self._admit(scope)
            await self.app(scope, await self._read(scope, receive), counted)
        except Problem as problem:
            await _refuse(problem, counted)
        except Exception as bug:  # its text may hold what is private
            error = place_of(bug)
            if not status:
                await _refuse(fault(), counted)
        seconds, route = time.perf_counter() - began, _route(scope)
        self._meter.count_request(route, status, seconds)
        self._log(_line(scope, route, status, seconds, sent_bytes, error))

    def _admit(self, scope: Scope) -> None:
        """Count a request once: for its token if that is valid, else for its address.

        So nobody without a token uses up what a holder may ask, from the same address either. Who watches the
        server's health has a bucket of its own.
        """
        address = f"address {scope['client'][0]}" if scope["client"] else "no address"
        if scope["path"] in _WATCHED:
            self._count(f"health, {address}")
            return
        needs_token = self._tokens is not None and scope["path"].startswith(self._private)
        owner = self._owner(scope) if needs_token else None
        self._count(owner or address)
        if needs_token and owner is None:
            detail = "a valid token is needed, in a header Authorization: Bearer TOKEN"
            raise Problem(401, detail, (("www-authenticate", "Bearer"), ("connection", "close")))

    def _owner(self, scope: Scope) -> str | None:
        """Whose token a request has; of two of them nobody knows which one is meant."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return self._tokens.owner_of(given[0]) if self._tokens is not None and len(given) == 1 else None

    def _count(self, caller: str) -> None:
        seconds = self._rate_limit.seconds_to_wait(caller)
        if seconds > 0:
            wait = max(1, math.ceil(seconds))
            headers = ("retry-after", str(wait)), ("connection", "close")
            raise Problem(429, f"too many requests; try again in {wait} s", headers)

    async def _read(self, scope: Scope, receive: Receive) -> Receive:
        """The body, read before anything else is done with it, so that no more of it is ever held."""
        headers = dict(scope["headers"])
        if b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0":
            return receive
        if int(headers.get(b"content-length", b"0")) > self._max_request_bytes:
            raise self._too_large()
        body, more_body = b"", True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while more_body:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the body ended early")
                    body += message.get("body", b"")
                    if len(body) > self._max_request_bytes:
                        raise self._too_large()
                    more_body = message.get("more_body", False)
        except TimeoutError:
            closing = (("connection", "close"),)
            raise Problem(408, f"the body did not come within {_BODY_SECONDS:g} s", closing) from None
        bodies = [body]

        async def once() -> Message:
            return {"type": "http.request", "body": bodies.pop()} if bodies else await receive()

        return once

    def _too_large(self) -> Problem:
        return Problem(413, f"a body may have {self._max_request_bytes} bytes", (("connection", "close"),))


async def _refuse(problem: Problem, send: Send) -> None:
    body = problem.body()
    headers = [*problem.all_headers(), ("content-length", str(len(body)))]
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def place_of(bug: Exception) -> str:
    """The type of an exception and where it came from, without its text."""
    trace = bug.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return f"{type(bug).__name__}{where}"


def now() -> str:
    """The time for a line of log."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _route(scope: Scope) -> str | None:
    """The template of a request's route; None: refused before it was looked up, or not found."""
    if scope["path"] in _PUBLIC:
        return str(scope["path"])
    found: str | None = getattr(scope.get("route"), "path_format", None)
    return found


def _line(
    scope: Scope, route: str | None, status: int, seconds: float, sent_bytes: int, error: str | None
) -> bytes:
    fields = {
        "time": now(),
        "method": scope["method"] if scope["method"] in _METHODS else "other",
        "route": route,
        "status": status,
        "milliseconds": round(seconds * 1000, 3),
        "bytes": sent_bytes,
    }
    return msgspec.json.encode(fields if error is None else fields | {"error": error})
