import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import hushrec
from hushrec.data import Deal, copies
from hushrec.data.holdings import PARTNERS
from hushrec.errors import HushrecError, NewcomerError
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run, write_run
from hushrec.serving.app import build_app
from hushrec.serving.gate import Gate
from hushrec.serving.limits import Rate, RateLimit
from hushrec.serving.model import (
    RequestError,
    ServedModel,
    UnknownUserError,
    Wish,
    check_may_serve,
    load_served,
)
from systems.runs import short

from .asking import ask, post

PLAIN = Wish(10, False, 10)


class Exploding:
    """Gives newcomers one score that nobody can believe."""

    def __init__(self, score: float) -> None:
        self.score = score

    def fold_in(self, items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        scores = np.full(50, 3.0, np.float32)
        scores[items] = self.score
        return scores


class Refusing:
    """Knows nobody but those whom it was trained with."""

    def fold_in(self, _items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        raise NewcomerError("no newcomers")


def test_lists_are_the_recommenders(served: ServedModel, pmf_folder: Path) -> None:
    model = hushrec.load_run(pmf_folder)
    for wish in (PLAIN, Wish(3, True, 0), Wish(1000, False, 30)):
        options = {"k": wish.k, "exclude_seen": not wish.include_seen, "min_raters": wish.min_raters}
        for user in (1, 40, 80):
            assert served.for_user(str(user), wish) == model.recommend(user, **options)[0]
        found = served.for_newcomer([3, "1", 40], [5, 1.0, 4], wish)
        assert found == model.recommend_newcomer([3, 1, 40], [5, 1, 4], **options)
    assert served.for_user("1", PLAIN)[0].title.startswith("Title ")


@pytest.mark.parametrize(
    "user_id",
    [
        "0",
        "81",
        "",
        " 1",
        "1 ",
        "01",
        "+1",
        "1.0",
        "1_0",
        "-1",
        "١",
        "1\0",
        "\0",
        "9" * 5000,
        "\ud800",
        "x" * 9999,
    ],
)
def test_only_exact_ids_are_known(served: ServedModel, user_id: str) -> None:
    with pytest.raises(UnknownUserError) as caught:
        served.for_user(user_id, PLAIN)
    assert str(caught.value) == ""


def test_ids_may_be_texts(tmp_path: Path) -> None:
    lines = [f"a/b {user},Ü{item},{1 + (user * item) % 5}" for user in range(12) for item in range(12)]
    (tmp_path / "shop.csv").write_text("\n".join(["user,item,rating", *lines]), encoding="utf-8")
    hushrec.PMF(num_rounds=40, num_factors=2).fit(hushrec.read(tmp_path / "shop.csv")).save(tmp_path / "model")
    model = load_served(tmp_path / "model")
    assert len(model.for_user("a/b 3", Wish(5, True, 0))) == 5
    assert len(model.for_newcomer(["Ü3"], [5], Wish(50, False, 0))) == 11
    with pytest.raises(UnknownUserError):
        model.for_user("a/b 3\0", Wish(5, True, 0))


@pytest.mark.parametrize(
    ("items", "ratings", "told"),
    [
        ([1, 2], [5], "2 items and 1 ratings; give one rating per item"),
        ([1], [5, 4], "1 items and 2 ratings"),
        ([1, 999, 2], [5, 4, 3], "item 2 of 3 is not known to this model"),
        ([1, 10**40], [5, 4], "item 2 of 2 is not known"),
        ([1, "private"], [5, 4], "item 2 of 2 is not known"),
        ([1, 2, "1"], [5, 4, 3], "an item is listed twice"),
        ([1], [5.5], "a rating is outside of 1 to 5"),
        ([1], [0], "a rating is outside of 1 to 5"),
        ([1], [1e300], "a rating is outside of 1 to 5"),
        ([1], [float("nan")], "a rating is outside of 1 to 5"),
    ],
)
def test_bad_ratings_are_refused(served: ServedModel, items: Any, ratings: Any, told: str) -> None:
    with pytest.raises(RequestError, match=told) as caught:
        served.for_newcomer(items, ratings, PLAIN)
    assert "private" not in str(caught.value)


def test_too_many_raters_are_refused(served: ServedModel) -> None:
    most = int(served.ranker.num_raters.max())
    assert served.for_user("1", Wish(5, True, most))
    for asked in (lambda wish: served.for_user("1", wish), lambda wish: served.for_newcomer([1], [5], wish)):
        with pytest.raises(RequestError, match=f"use a min_raters of at most {most}"):
            asked(Wish(5, True, most + 1))


@pytest.mark.parametrize(
    ("score", "told"), [(np.inf, "scores that are not finite"), (-446, "far outside of 1 to 5")]
)
def test_scores_that_explode_are_no_list(served: ServedModel, score: float, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        replace(served, ranker=replace(served.ranker, scorer=Exploding(score))).for_newcomer([1], [5], PLAIN)


# --- Who may serve -----------------------------------------------------------------------------------------


def test_a_server_that_can_rank_may_serve(served: ServedModel) -> None:
    for party in ("all", "server", "node"):
        check_may_serve(replace(served.run, party=party), is_simulation=False)


def test_a_simulation_needs_to_be_called_one(fedrec_folder: Path) -> None:
    with pytest.raises(HushrecError) as caught:
        load_served(fedrec_folder)
    assert str(caught.value) == (
        "the server of fedrec cannot rank, users' vectors are their own; "
        "use `hushrec recommend` on a node, or --simulation to serve this simulation's vectors"
    )
    assert load_served(fedrec_folder, is_simulation=True).for_user("1", PLAIN)


def test_a_node_may_serve_its_own_users(fedrec_folder: Path) -> None:
    check_may_serve(replace(read_run(fedrec_folder), party="node"), is_simulation=False)


def test_the_server_of_a_deployment_cannot(fedrec_folder: Path, tmp_path: Path) -> None:
    write_run(tmp_path, replace(read_run(fedrec_folder), party="server"))
    for is_simulation in (False, True):
        with pytest.raises(HushrecError, match=r"^the server of fedrec cannot rank; use `hushrec recommend`"):
            load_served(tmp_path, is_simulation=is_simulation)


def test_a_model_without_newcomers_says_so(served: ServedModel) -> None:
    with pytest.raises(RequestError, match="only users that it was trained with"):
        replace(served, ranker=replace(served.ranker, scorer=Refusing())).for_newcomer([3], [1.0], PLAIN)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_system_is_served_or_says_why_not(name: str, tmp_path: Path) -> None:
    """With its card, lists, reasons, newcomers and search over HTTP; none of it is a fault."""
    system = SYSTEMS[name]
    data = hushrec.load("synthetic:users=40,items=30,ratings=500")
    train = next(copies(data, Deal(), 0)).train if system.holders is PARTNERS else data
    kind = getattr(hushrec, system.about.class_name)
    kind(options=hushrec.RuntimeOptions(threads=1), **short(name, num_rounds=1)).fit(train).save(tmp_path / "run")
    if system.result.server is None:
        with pytest.raises(HushrecError, match=f"the server of {re.escape(name)} cannot rank") as caught:
            load_served(tmp_path / "run")
        assert "\n" not in str(caught.value)
    model = load_served(tmp_path / "run", is_simulation=True)
    app = Gate(build_app(model, False), RateLimit(Rate(10**9, 1.0)), None, 65536, lambda line: None)
    card = ask(app, "GET", "/v1/model").json
    assert card["config"] == json.loads(json.dumps(read_run(tmp_path / "run").config))
    user, item = quote(next(iter(model.users))), next(iter(model.items))
    alike = ask(app, "GET", f"/v1/items/{quote(item)}/similar?min_raters=0")
    why = ask(app, "GET", f"/v1/users/{user}/recommendations?min_raters=0&why=true")
    assert ask(app, "GET", f"/v1/users/{user}/recommendations?min_raters=0").status == 200
    assert why.status == alike.status == (200 if card["explains"] else 422)
    newcomer = post(app, {"items": [item], "ratings": [card["highest_rating"] or 1], "min_raters": 0})
    assert newcomer.status == 200 or not card["takes_newcomers"] or "all items alike" in newcomer.json["detail"]
    assert ask(app, "GET", "/v1/items?q=1").json["items"]
    assert ask(app, "GET", "/openapi.json").status == 200


def test_a_deployed_server_without_rows_lists_all_items(tmp_path: Path) -> None:
    """It has no ratings, so it knows of no rater; the usual rule leaves no item out."""
    data = hushrec.load("synthetic:users=30,items=20,ratings=300")
    hushrec.PMF(num_rounds=2, num_factors=3).fit(data).save(tmp_path / "run")
    served = load_served(tmp_path / "run")
    train = data.select(np.zeros(len(data), np.bool_))
    no_rows = replace(served.ranker, train=train, num_raters=np.zeros(20, np.int64))
    model = replace(served, ranker=no_rows)
    assert len(model.for_newcomer([3], [5.0], Wish(50))) == 19
    assert len(model.for_newcomer([3], [5.0], Wish(50, only=[4, 5]))) == 2
    assert len(model.similar("3", Wish(50))) == 19
    assert model.search("", 3)
