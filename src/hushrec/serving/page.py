"""The page at `/`, for a person who tries the model: one file, nothing from elsewhere, no code but its own."""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

_FOLDER = files("hushrec.serving") / "page_files"


@dataclass(frozen=True)
class Page:
    """What is sent."""

    body: bytes
    headers: dict[str, str]


def build_page(needs_token: bool) -> Page:
    """The page with its style and script inside. Browsers run and load nothing else: their digests are told."""
    style, script = _read("page.css"), _read("page.js")
    html = _read("page.html").replace("{{style}}", style).replace("{{script}}", script)
    html = html.replace("{{needs_token}}", "yes" if needs_token else "no")
    policy = (
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    headers = {
        "content-security-policy": "; ".join(policy),
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }
    return Page(html.encode(), headers)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
