"""Who may come in besides what the gate of serving asks for: no other site, by whichever way.

A page of another site can make a browser send requests here. It cannot send our header with them, nor pass as this
site: a name of its own that resolves to this machine (DNS rebinding) is not among the names that we answer to.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushrec.serving.gate import Problem

HEADER = "x-hushrec-page"  # only scripts of this site can send it
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",  # a picture that is saved as PNG is drawn from a blob
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Door:
    """An application that only its own pages can ask. `names`: what it is called by; None: whatever it is."""

    app: ASGIApp
    names: frozenset[str] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, and give every answer the headers that keep others out."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        self._check(scope)
        await self.app(scope, receive, with_headers)

    def _check(self, scope: Scope) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self.names is not None and host_name(host) not in self.names:
            raise Problem(421, "this page is not served by that name; use the address that hushrec ui printed")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Problem(403, "another site asked; open the page itself")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Problem(403, "another site asked; open the page itself")
        if scope["method"] not in ("GET", "HEAD") and headers.get(HEADER) != "1":
            raise Problem(403, f"what changes something needs the header {HEADER}: 1")


def host_name(host: str) -> str:
    """The name in a header `Host`.

    >>> host_name("localhost:8090"), host_name("[::1]:8090"), host_name("Shop.Example")
    ('localhost', '::1', 'shop.example')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def names_of(host: str, is_loopback: bool) -> frozenset[str] | None:
    """What a server is called by: on this machine only, by local names; elsewhere a token keeps others out."""
    return _LOCAL | {host.lower()} if is_loopback else None
