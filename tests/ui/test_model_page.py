"""What the page of a model asks for: the same lists as the command line has."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.cli.work.ui_commands import RunCommands
from hushrec.ui.app import create_app
from hushrec.ui.model import item_map

from .conftest import Ask, asking


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    data = hushrec.load("synthetic:users=60,items=50,ratings=1500")
    titled = replace(data, titles=np.array([f"Title {item}" for item in data.item_ids]))
    hushrec.FedRec(num_rounds=6, num_factors=4).fit(titled).save(runs / "one")
    hushrec.FCF(num_rounds=2, num_factors=4).fit(titled).save(runs / "liked")
    return runs


@pytest.fixture(scope="module")
def ask_model(folder: Path) -> Ask:
    return asking(create_app(folder, commands=RunCommands()))


def test_runs_that_are_done_are_listed(ask_model: Ask) -> None:
    assert {run["id"] for run in ask_model("/api/model/runs").json["runs"]} == {"one", "liked"}


def test_the_model_says_what_it_is(ask_model: Ask) -> None:
    card = ask_model("/api/model/card?id=one").json
    assert (card["system"], card["num_users"], card["num_items"]) == ("fedrec", 60, 50)
    assert card["scale"] == [1.0, 5.0]
    assert card["steps"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert card["takes_newcomers"]
    assert card["explains"]


def test_lists_are_those_of_the_recommender(ask_model: Ask, folder: Path) -> None:
    model = hushrec.load_run(folder / "one")
    found = ask_model("/api/model/list?id=one&user=7&k=5").json
    expected = model.recommend(["7"], 5)[0]
    assert [entry["item"] for entry in found["list"]] == [entry.item for entry in expected]
    assert all(entry["because"] is None or entry["because"]["title"] for entry in found["list"])
    ratings = [one["rating"] for one in found["rated"]]
    assert ratings == sorted(ratings, reverse=True)
    assert not {one["item"] for one in found["rated"]} & {entry["item"] for entry in found["list"]}


def test_alike_items_and_newcomers_are_those_of_the_recommender(ask_model: Ask, folder: Path) -> None:
    model = hushrec.load_run(folder / "one")
    alike = ask_model("/api/model/similar?id=one&item=3&k=4").json["list"]
    assert [entry["item"] for entry in alike] == [entry.item for entry in model.similar(3, 4)]
    items, ratings = [1, 2, 3], [5.0, 1.0, 4.0]
    listed = ask_model("/api/model/newcomer", {"id": "one", "items": items, "ratings": ratings, "k": 6}).json[
        "list"
    ]
    expected = model.recommend_newcomer(np.array(items), np.array(ratings, np.float32), 6)
    assert [entry["item"] for entry in listed] == [entry.item for entry in expected]


def test_titles_and_users_are_found(ask_model: Ask) -> None:
    found = ask_model("/api/model/search?id=one&q=title%2012").json["items"]
    assert {"item": 12, "title": "Title 12"} in found
    users = ask_model("/api/model/users?id=one&q=5").json["users"]
    assert [one["user"] for one in users][:2] == ["5", "50"]


def test_the_map_is_of_principal_components(ask_model: Ask) -> None:
    found = ask_model("/api/model/map?id=one").json
    assert len(found["x"]) == len(found["items"]) == 50
    assert found["genres"] is None
    assert found["raters"] == sorted(found["raters"], reverse=True)
    assert 0 < found["shares"][1] <= found["shares"][0] <= 1


def test_a_map_keeps_the_plane_that_points_lie_in() -> None:
    """Points of a plane in five dimensions keep their distances; the first axis has the larger spread."""
    draw = np.random.default_rng(0)
    plane = draw.normal(size=(30, 2)) * (3.0, 1.0)
    turned, _ = np.linalg.qr(draw.normal(size=(5, 5)))
    points, shares = item_map(plane @ turned[:2] + 7, np.ones(30, np.int64))
    before = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points[None], axis=2), before, atol=1e-9)
    assert sum(shares) == pytest.approx(1.0)
    assert points[:, 0].std() > points[:, 1].std()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/model/card?id=none", None, 404, "no such run"),
        ("/api/model/card?id=../one", None, 404, "no such run"),
        ("/api/model/list?id=one&user=Ms+Private", None, 404, "nobody in this run has that id"),
        ("/api/model/list?id=one&user=7&k=0", None, 422, "k must be a whole number"),
        ("/api/model/similar?id=one&item=999999", None, 404, "no item has that id"),
        ("/api/model/newcomer", {"id": "one", "items": [], "ratings": []}, 422, "rate 1 to 500"),
        ("/api/model/newcomer", {"id": "one", "items": [1], "ratings": [99.5]}, 422, "scale"),
        ("/api/model/newcomer", {"id": "one", "items": [1, 1], "ratings": [1, 2]}, 422, "twice"),
        ("/api/model/newcomer", {"id": "one", "items": [98765], "ratings": [1]}, 422, "not known"),
        ("/api/model/newcomer", {"id": "one", "items": [1], "k": 10**9}, 422, "whole number"),
        ("/api/model/newcomer", {"id": "one"}, 422, "items"),
    ],
)
def test_bad_input_is_refused_in_a_line(ask_model: Ask, path: str, body: object, status: int, words: str) -> None:
    answer = ask_model(path, body)
    detail = answer.json["detail"]
    assert answer.status == status
    assert words in detail
    assert "\n" not in detail
    assert not any(private in detail for private in ("Private", "99.5", "98765"))


def test_a_model_of_likes_needs_no_ratings(ask_model: Ask) -> None:
    assert ask_model("/api/model/card?id=liked").json["steps"] == []
    answer = ask_model("/api/model/newcomer", {"id": "liked", "items": [4, 5]})
    assert answer.status == 200
    assert len(answer.json["list"]) == 10
