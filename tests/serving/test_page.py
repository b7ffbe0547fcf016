import re
from base64 import b64encode
from hashlib import sha256

from hushrec.serving.page import build_page


def policy_of(needs_token: bool = True) -> dict[str, str]:
    told = build_page(needs_token).headers["content-security-policy"].split("; ")
    return dict(part.split(" ", 1) for part in told)


def test_only_the_pages_own_style_and_script_may_run() -> None:
    page, policy = build_page(True).body.decode(), policy_of()
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = b64encode(sha256(inside.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in str(policy)


def test_nothing_comes_from_elsewhere() -> None:
    page = build_page(True).body.decode()
    assert not re.findall(r"(?:https?:)?//[a-z]", page), "no address of another site"
    assert not re.findall(r"\b(?:src|href)=(?!\"data:,\")", page)
    assert not re.findall(r"\s(?:style|on[a-z]+)=", page), "the policy forbids styles and scripts in attributes"
    assert "innerHTML" not in page, "titles are texts"
    assert not re.findall(r"localStorage|sessionStorage|document\.cookie", page), "the token stays in memory"


def test_the_page_knows_whether_a_token_is_needed() -> None:
    assert b'data-needs-token="yes"' in build_page(True).body
    assert b'data-needs-token="no"' in build_page(False).body
    assert b"{{" not in build_page(True).body


def test_every_field_has_a_label() -> None:
    page = build_page(True).body.decode()
    fields = re.findall(r"<input id=\"([a-z-]+)\"", page)
    assert set(fields) == {"token", "search", "user-id"}
    assert set(re.findall(r'<label for="([a-z-]+)"', page)) == set(fields)
    assert '<html lang="en">' in page
    assert 'name="viewport"' in page
