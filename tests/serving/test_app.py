import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

import hushrec
from hushrec.runs.lists import Recommendation
from hushrec.serving.app import MAX_K, build_app
from hushrec.serving.gate import Gate
from hushrec.serving.limits import Rate, RateLimit, Tokens
from hushrec.serving.metrics import Meter
from hushrec.serving.model import ServedModel

from .asking import TOKEN, Answer, ask, post

LINES: list[bytes] = []
OF_ANY = ["400", "408", "413", "429", "431"]  # what any request can get


@pytest.fixture(scope="module")
def app(served: ServedModel) -> ASGIApp:
    return Gate(build_app(served, True), RateLimit(Rate(10**9, 1.0)), Tokens([TOKEN]), 65536, LINES.append)


@pytest.fixture(scope="module")
def schema(app: ASGIApp) -> dict[str, Any]:
    return ask(app, "GET", "/openapi.json", token=None).json


def as_said(found: list[Recommendation]) -> dict[str, Any]:
    return {"recommendations": [{"item": e.item, "score": e.score, "title": e.title} for e in found]}


# --- Answers -----------------------------------------------------------------------------------------------


def test_health(app: ASGIApp) -> None:
    answer = ask(app, "GET", "/health", token=None)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_the_model_is_described_without_users(app: ASGIApp, served: ServedModel) -> None:
    assert served.run.config["num_factors"] == 5
    assert ask(app, "GET", "/v1/model").json == {
        "system": "pmf",
        "data": "synthetic",
        "num_items": 50,
        "lowest_rating": 1.0,
        "highest_rating": 5.0,
        "takes_newcomers": True,
        "explains": True,
        "model_sha256": served.digest,
        "config": served.run.config,
    }


def test_lists_are_the_recommenders(app: ASGIApp, pmf_folder: Path) -> None:
    model = hushrec.load_run(pmf_folder)
    answer = ask(app, "GET", "/v1/users/7/recommendations")
    assert answer.json == as_said(model.recommend(7)[0])
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    answer = ask(app, "GET", "/v1/users/7/recommendations?k=3&include_seen=true&min_raters=0")
    assert answer.json == as_said(model.recommend(7, 3, False, 0)[0])
    answer = post(app, {"items": [3, "40"], "ratings": [5, 1.5], "k": 4, "include_seen": True, "min_raters": 0})
    assert answer.json == as_said(model.recommend_newcomer([3, 40], [5, 1.5], 4, False, 0))
    assert post(app, {"items": [3], "ratings": [5]}).json == as_said(model.recommend_newcomer([3], [5]))


def test_lists_of_chosen_items_with_reasons(app: ASGIApp, pmf_folder: Path) -> None:
    model = hushrec.load_run(pmf_folder)
    answer = ask(app, "GET", "/v1/users/7/recommendations?only=3&only=4&only=5&not=4&why=true&include_seen=true")
    expected = model.recommend(7, 10, False, only=[3, 5], why=True)[0]
    assert answer.json == {"recommendations": [entry.told(True) for entry in expected]}
    assert [entry["item"] for entry in answer.json["recommendations"]] == [entry.item for entry in expected]
    body = {"items": [1, 2], "ratings": [5, 3], "only": [3, "5", 6, "unknown"], "not": [6, "unknown"], "why": True}
    expected = model.recommend_newcomer([1, 2], [5, 3], only=[3, 5], why=True)
    assert post(app, body).json == {"recommendations": [entry.told(True) for entry in expected]}
    reasons = [entry["because"] for entry in post(app, body | {"not": [], "only": None}).json["recommendations"]]
    assert {reason["title"] for reason in reasons if reason} <= {"Title 1", "Title 2"}
    assert any(reasons)


def test_similar_items(app: ASGIApp, pmf_folder: Path) -> None:
    model = hushrec.load_run(pmf_folder)
    assert ask(app, "GET", "/v1/items/7/similar").json == as_said(model.similar(7))
    answer = ask(app, "GET", "/v1/items/7/similar?k=3&min_raters=0&not=2&only=2&only=3&only=9")
    assert answer.json == as_said(model.similar(7, 3, 0, only=[3, 9]))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?q=title 17", [17]),
        ("?q=17 TITLE", [17]),
        ("?q=17", [17]),
        ("?q=nothing", []),
        ("?q=title 1&limit=2", None),
        ("", None),
    ],
)
def test_items_are_found_by_their_titles(
    app: ASGIApp, served: ServedModel, query: str, expected: list[int] | None
) -> None:
    """Those with most raters first; without a word, all of them."""
    found = ask(app, "GET", f"/v1/items{quote(query, safe='?=&')}").json["items"]
    items = [entry["item"] for entry in found]
    assert expected is None or items == expected
    assert [entry["title"] for entry in found] == [f"Title {item}" for item in items]
    num_raters = served.ranker.num_raters[[item - 1 for item in items]].tolist()
    assert num_raters == sorted(num_raters, reverse=True)
    if expected is None:
        assert len(items) == (2 if query else 20)
        assert all("1" in str(item) for item in items) or not query


def test_the_page_and_the_metrics_need_no_token(app: ASGIApp) -> None:
    page = ask(app, "GET", "/", token=None)
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert b'data-needs-token="yes"' in page.body
    metrics = ask(app, "GET", "/metrics", token=None)
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# TYPE hushrec_requests_total counter" in metrics.body


def test_metrics_count_what_the_gate_saw_and_name_nobody(served: ServedModel) -> None:
    meter = Meter()
    app = Gate(
        build_app(served, True, meter), RateLimit(Rate(10**9, 1.0)), Tokens([TOKEN]), 99, LINES.append, meter
    )
    for target in (
        "/v1/users/7/recommendations",
        "/v1/users/secret/recommendations",
        "/secret",
        "/v1/items/3/similar",
    ):
        ask(app, "GET", target)
    ask(app, "GET", "/v1/model", token="secret-and-wrong-token")
    text = ask(app, "GET", "/metrics", token=None).body.decode()
    counted = [line for line in text.splitlines() if line.startswith("hushrec_requests_total")]
    assert counted == [
        'hushrec_requests_total{route="/v1/items/{item_id}/similar",status="200"} 1',
        'hushrec_requests_total{route="/v1/users/{user_id}/recommendations",status="200"} 1',
        'hushrec_requests_total{route="/v1/users/{user_id}/recommendations",status="404"} 1',
        'hushrec_requests_total{route="other",status="401"} 1',
        'hushrec_requests_total{route="other",status="404"} 1',
    ]
    assert "secret" not in text


# --- Refusals ----------------------------------------------------------------------------------------------

GET = "/v1/users/7/recommendations"
BAD_GETS = {
    "k of none": (f"{GET}?k=0", 422, "query.k: Input should be greater than or equal to 1"),
    "huge k": (f"{GET}?k={MAX_K + 1}", 422, "query.k: Input should be less than or equal to 1000"),
    "enormous k": (f"{GET}?k={'9' * 5000}", 422, "query.k"),
    "k is no number": (f"{GET}?k=secret", 422, "query.k: Input should be a valid integer"),
    "k is a fraction": (f"{GET}?k=1.5", 422, "query.k"),
    "negative raters": (f"{GET}?min_raters=-1", 422, "query.min_raters"),
    "too many raters": (f"{GET}?min_raters=81", 422, "no item has that many raters; use a min_raters of at most"),
    "k only looks like a number": (f"{GET}?k=%2B5", 422, "query.k: Input should be a valid integer"),
    "k is padded": (f"{GET}?k=05", 422, "query.k: Input should be a valid integer"),
    "1 is no truth value": (f"{GET}?include_seen=1", 422, "query.include_seen: Input should be a valid boolean"),
    "yes is no truth value": (f"{GET}?include_seen=yes", 422, "query.include_seen: Input should be a valid bool"),
    "no truth value": (f"{GET}?include_seen=secret", 422, "query.include_seen"),
    "unknown parameter": (f"{GET}?secret=1", 422, "query: a field or parameter that does not exist"),
    "unknown user": ("/v1/users/secret/recommendations", 404, "there is no such user"),
    "no user": ("/v1/users//recommendations", 404, "there is no such user"),
    "null byte": ("/v1/users/7%00/recommendations", 404, "there is no such user"),
    "not UTF-8": ("/v1/users/%ff%ed%a0%80/recommendations", 404, "there is no such user"),
    "enormous user": (f"/v1/users/{'secret' * 2000}/recommendations", 404, "there is no such user"),
    "unknown item": ("/v1/items/secret/similar", 404, "there is no such item"),
    "no chosen item known": (f"{GET}?only=secret", 422, "none of the chosen items can be listed"),
    "all items left out": (f"{GET}?only=3&not=3", 422, "none of the chosen items can be listed"),
    "too long a search": (f"/v1/items?q={'a' * 101}", 422, "query.q: String should have at most 100"),
    "too many found": ("/v1/items?limit=101", 422, "query.limit"),
    "limit only looks like a number": ("/v1/items?limit=%C2%A06", 422, "query.limit: Input should be a valid int"),
    "limit twice": ("/v1/items?limit=7&q=a&limit=6", 422, "query: a parameter is given twice; only `only` and"),
    "k twice": (f"{GET}?k=5&k=5", 422, "query: a parameter is given twice"),
    "raters twice": ("/v1/items/3/similar?min_raters=0&min_raters=1", 422, "query: a parameter is given"),
    "leave_out is named not": (f"{GET}?leave_out=3", 422, "query: a field or parameter that does not exist"),
    "unknown path": ("/v1/secret", 404, "Not Found"),
    "no redirection": ("/v1/model/", 404, "Not Found"),
    "no interactive page": ("/docs", 404, "Not Found"),
}  # fmt: skip


@pytest.mark.parametrize(("target", "status", "told"), BAD_GETS.values(), ids=list(BAD_GETS))
def test_bad_requests_get_a_reason(app: ASGIApp, target: str, status: int, told: str) -> None:
    check_refusal(ask(app, "GET", target), status, told)


BAD_BODIES: dict[str, tuple[Any, int, str]] = {
    "nothing": (b"", 422, "body: Field required"),
    "not JSON": (b"{secret", 422, "body.1: JSON decode error"),
    "not UTF-8": (b'{"items": "\xff"}', 400, "There was an error parsing the body"),
    "too deep": (b"[" * 60000, 400, "There was an error parsing the body"),
    "endless number": (b'{"items": [' + b"9" * 60000 + b"]}", 400, "There was an error parsing the body"),
    "a list": ([1, 2], 422, "body: Input should be a valid dictionary"),
    "no ratings": ({"items": [1]}, 422, "this model learns from ratings; give one per item"),
    "no chosen item": ({"items": [1], "ratings": [5], "only": []}, 422, "none of the chosen items can be listed"),
    "a choice that is no list": ({"items": [1], "ratings": [5], "not": "3"}, 422, "body.not"),
    "empty": ({"items": [], "ratings": []}, 422, "body.items: List should have at least 1 item"),
    "NaN": (b'{"items": [1], "ratings": [NaN]}', 422, "body.ratings.0: Input should be a finite number"),
    "infinity": (b'{"items": [1], "ratings": [-Infinity]}', 422, "body.ratings.0: Input should be a finite"),
    "overflow": (b'{"items": [1], "ratings": [1e999]}', 422, "body.ratings.0: Input should be a finite number"),
    "text as rating": ({"items": [1], "ratings": ["5"]}, 422, "body.ratings.0: Input should be a valid number"),
    "truth as item": ({"items": [True], "ratings": [5]}, 422, "body.items.0"),
    "fraction as item": ({"items": [1.5], "ratings": [5]}, 422, "body.items.0"),
    "lone surrogate": (b'{"items": ["\\ud800"], "ratings": [5]}', 422, "item 1 of 1 is not known"),
    "lone surrogate as name": (b'{"items": [1], "ratings": [5], "\\ud800": 1}', 422, "body"),
    "null byte": ({"items": ["1\0"], "ratings": [5]}, 422, "item 1 of 1 is not known"),
    "unknown field": ({"items": [1], "ratings": [5], "secret": 1}, 422, "body: a field or parameter that does"),
    "huge k": ({"items": [1], "ratings": [5], "k": 10**30}, 422, "body.k"),
    "lengths differ": ({"items": [1, 2], "ratings": [5]}, 422, "2 items and 1 ratings; give one rating per item"),
    "duplicate": ({"items": [1, 1], "ratings": [5, 4]}, 422, "an item is listed twice; send each item once"),
    "unknown item": ({"items": ["secret"], "ratings": [5]}, 422, "item 1 of 1 is not known to this model"),
    "huge item": ({"items": [10**4000], "ratings": [5]}, 422, "item 1 of 1 is not known to this model"),
    "outside of the range": ({"items": [1], "ratings": [6]}, 422, "a rating is outside of 1 to 5"),
    "too large": ({"items": ["secret" * 20000], "ratings": [5]}, 413, "a body may have 65536 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "status", "told"), BAD_BODIES.values(), ids=list(BAD_BODIES))
def test_bad_bodies_get_a_reason(app: ASGIApp, body: Any, status: int, told: str) -> None:
    check_refusal(post(app, body), status, told)


def test_a_form_is_not_json(app: ASGIApp) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    check_refusal(ask(app, "POST", "/v1/recommendations", [b"items=1&ratings=5"], headers), 422, "body")


def test_other_methods_are_refused(app: ASGIApp) -> None:
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "SECRET"):
        answer = ask(app, method, "/v1/model")
        check_refusal(answer, 405, "Method Not Allowed")
        assert answer.headers["allow"] == "GET"


def check_refusal(answer: Answer, status: int, told: str) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json["detail"].startswith(told)
    assert len(answer.body) < 1000
    assert b"secret" not in answer.body, "nothing of the request is repeated"


def test_all_unknown_users_are_answered_alike(app: ASGIApp) -> None:
    answers = {
        ask(app, "GET", f"/v1/users/{user}/recommendations").body for user in ("x", "81", "07", "a/b", "%00")
    }
    assert len(answers) == 1


def test_a_fault_is_told_in_the_same_form(served: ServedModel) -> None:
    broken = build_app(served, True)

    @broken.get("/v1/broken")
    async def fail() -> None:
        raise ValueError("secret")

    lines: list[bytes] = []
    app = Gate(broken, RateLimit(Rate(10, 1.0)), Tokens([TOKEN]), 100, lines.append)
    check_refusal(ask(app, "GET", "/v1/broken"), 500, "this is a fault of the server")
    assert json.loads(lines[0])["error"].startswith("ValueError at test_app.py:")
    assert json.loads(lines[0])["route"] == "/v1/broken"


def test_the_log_has_the_template_of_the_route(app: ASGIApp) -> None:
    LINES.clear()
    ask(app, "GET", "/v1/users/secret/recommendations?k=3")
    ask(app, "GET", "/v1/users/7/recommendations")
    ask(app, "GET", "/openapi.json", token=None)
    ask(app, "GET", "/secret")
    found = [json.loads(line) for line in LINES]
    template = "/v1/users/{user_id}/recommendations"
    assert [line["route"] for line in found] == [template, template, "/openapi.json", None]
    assert "secret" not in repr(LINES)


# --- Description -------------------------------------------------------------------------------------------


def test_every_operation_says_what_it_takes_and_answers(schema: dict[str, Any]) -> None:
    statuses = {
        f"{method} {path}": sorted(operation["responses"])
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    assert statuses == {
        "get /health": ["200", *OF_ANY],
        "get /metrics": ["200", *OF_ANY],
        "get /v1/items": sorted(["200", "401", "422", *OF_ANY]),
        "get /v1/items/{item_id}/similar": sorted(["200", "401", "404", "422", *OF_ANY]),
        "get /v1/model": sorted(["200", "401", *OF_ANY]),
        "get /v1/users/{user_id}/recommendations": sorted(["200", "401", "404", "422", *OF_ANY]),
        "post /v1/recommendations": sorted(["200", "401", "422", *OF_ANY]),
    }
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert operation["description"]
            assert ("security" in operation) == path.startswith("/v1/")
            for status, response in operation["responses"].items():
                good = "text/plain" if path == "/metrics" else "application/json"
                kind = good if status == "200" else "application/problem+json"
                assert list(response["content"]) == [kind]
                assert response["content"][kind]["schema"]
    assert schema["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}


def test_the_example_of_the_description_works(app: ASGIApp, schema: dict[str, Any]) -> None:
    body = schema["paths"]["/v1/recommendations"]["post"]["requestBody"]["content"]["application/json"]
    (example,) = body.get("examples") or body["schema"]["examples"]
    assert len(post(app, example).json["recommendations"]) == 5


def test_without_a_token_none_is_described(served: ServedModel) -> None:
    text = json.dumps(build_app(served, False).openapi())
    assert "bearer" not in text
    assert "401" not in text


# --- Anything ----------------------------------------------------------------------------------------------

# Mostly near a valid request, so that every check is reached.
ITEMS = st.lists(
    st.integers(0, 51) | st.integers() | st.text(max_size=5) | st.floats() | st.booleans(), max_size=6
)
RATINGS = st.lists(st.floats(1, 5) | st.floats() | st.integers() | st.none() | st.text(max_size=3), max_size=6)
BODIES = st.fixed_dictionaries(
    {"items": ITEMS, "ratings": RATINGS},
    optional={
        "k": st.integers(),
        "include_seen": st.booleans() | st.text(),
        "min_raters": st.integers(-5, 90),
        "only": ITEMS | st.none(),
        "not": ITEMS,
        "why": st.booleans(),
    },
)


@settings(max_examples=120, deadline=None)
@given(body=BODIES | st.dictionaries(st.text(), st.text() | st.integers()) | st.binary(max_size=300))
def test_no_body_is_a_fault_of_the_server(app: ASGIApp, body: Any) -> None:
    answer = post(app, body)
    assert answer.status in (200, 400, 422)
    assert set(answer.json) == ({"recommendations"} if answer.status == 200 else {"title", "status", "detail"})


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(1, 5)), min_size=1, unique_by=lambda pair: pair[0]), st.data()
)
def test_every_good_newcomer_is_answered(
    app: ASGIApp, pairs: list[tuple[int, float]], data: st.DataObject
) -> None:
    items, ratings = zip(*pairs, strict=True)
    k, include_seen = data.draw(st.integers(1, MAX_K)), data.draw(st.booleans())
    body = {"items": items, "ratings": ratings, "k": k, "include_seen": include_seen, "min_raters": 0}
    found = post(app, body).json["recommendations"]
    assert len(found) == min(k, 50 if include_seen else 50 - len(items))
    assert include_seen or not {entry["item"] for entry in found} & set(items)
    scores = [entry["score"] for entry in found]
    assert scores == sorted(scores, reverse=True)


@settings(max_examples=80, deadline=None)
@given(user=st.text() | st.integers(0, 90).map(str), query=st.dictionaries(st.text(), st.text(), max_size=3))
def test_no_user_is_a_fault_of_the_server(app: ASGIApp, user: str, query: dict[str, str]) -> None:
    escaped = quote(user.encode("utf-8", "surrogatepass"), safe="")
    pairs = "&".join(f"{quote(name)}={quote(value)}" for name, value in query.items())
    answer = ask(app, "GET", f"/v1/users/{escaped}/recommendations?{pairs}")
    assert answer.status in (200, 404, 422)
    if answer.status == 200:
        assert user in {str(number) for number in range(1, 81)}
