"""What the page of one person's privacy asks for, and how bad input is refused."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from hushrec.ui.app import create_app
from hushrec.ui.privacy_choices import SMALL, SWITCHES, watchable_names
from serving.asking import Answer, ask

WANTED = {
    "data": SMALL,
    "user": "60",
    "system": "fedrec++",
    "settings": {"rho": 3},
    "num_rounds": 2,
    "num_people": 20,
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> ASGIApp:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "mine.csv").write_text(
        "user,item,rating\n" + "".join(f"u{n % 6},i{n % 7},{1 + n % 5}\n" for n in range(42))
    )
    (folder / "notes.txt").write_text("nothing of this is a rating\nneither is this\n")
    return create_app(folder)


def send(app: ASGIApp, path: str, body: Any) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data)), "x-hushrec-page": "1"}
    return ask(app, "POST", path, [data], headers)


def finished(app: ASGIApp, wanted: dict[str, Any]) -> dict[str, Any]:
    """A watch that is done, with all its rounds."""
    answer = send(app, "/api/privacy/watch", wanted)
    assert answer.status == 200, answer.body
    status = answer.json
    end = time.monotonic() + 60
    while not status["is_done"]:
        assert time.monotonic() < end
        status |= ask(app, "GET", f"/api/privacy/watch/{status['id']}").json
    return status


def test_choices_are_what_is_on_this_machine(app: ASGIApp) -> None:
    found = ask(app, "GET", "/api/privacy/choices").json
    assert found["data"][0] == SMALL
    names = [system["name"] for system in found["systems"]]
    assert names == watchable_names()
    assert {"fedrec", "fedrec++", "sdcf", "fcf", "ptf-fedrec"} <= set(names)
    assert not {"pmf", "drift", "fedcore"} & set(names)  # nobody's own device uploads there
    plus = next(system for system in found["systems"] if system["name"] == "fedrec++")
    assert [switch["name"] for switch in plus["switches"]] == [
        name for name in SWITCHES if name in plus_settings()
    ]
    assert plus["ways"][0] == {
        "name": "As published",
        "system": "fedrec++",
        "settings": {},
        "is_repair": False,
    }
    assert plus["ways"][-1]["system"] == "fedrec"
    assert plus["ways"][-1]["settings"]["secure_sums"] is True
    changed = next(system for system in found["systems"] if system["name"] == "fedncf")
    assert changed["ways"][0]["name"] == "As published, with --participation 1"  # it starts so here


def plus_settings() -> set[str]:
    from dataclasses import fields

    from hushrec.systems.fedrec_plus_plus import Config

    return {entry.name for entry in fields(Config)}


def test_every_way_is_a_config(app: ASGIApp) -> None:
    from hushrec.registry import system_named

    for system in ask(app, "GET", "/api/privacy/choices").json["systems"]:
        for way in system["ways"]:
            system_named(way["system"]).configure({**way["settings"], "num_rounds": 2})


def test_people_are_found_by_the_beginning_of_their_id(app: ASGIApp) -> None:
    found = ask(app, "GET", f"/api/privacy/users?data={SMALL}&q=11").json
    assert [one["user"] for one in found["users"]][:3] == ["11", "110", "111"]
    assert found["num_users"] == 120
    assert all(one["num_ratings"] > 0 for one in found["users"])


def test_a_person_is_watched(app: ASGIApp) -> None:
    status = finished(app, WANTED)
    person, rounds = status["person"], status["rounds"]
    assert [one["round"] for one in rounds] == [1, 2]
    assert not status["fault"]
    assert rounds[0]["sentence"].startswith("The server read ")
    assert rounds[0]["tone"] == "read"
    detail = ask(app, "GET", f"/api/privacy/watch/{status['id']}/rounds/2").json
    assert {"ItemGradients", "Noise"} <= {one["type"] for one in detail["sent"]}
    strongest = detail["attacks"][0]
    truth = dict(zip(person["items"], person["ratings"], strict=True))
    for item, rating, is_right, is_exact in zip(
        strongest["items"], strongest["ratings"], strongest["is_right"], strongest["is_exact"], strict=True
    ):
        assert is_right == (item in truth)
        assert is_exact == (abs(truth.get(item, -9) - rating) < 1e-3)
    assert strongest["right"] + strongest["missed"] == len(truth)
    assert set(map(str, strongest["items"])) <= detail["titles"].keys()


def test_no_switch_is_named_that_is_on_or_not_there(app: ASGIApp) -> None:
    shares = {"shares": 2, "denoisers": 2, "resample": "once"}
    status = finished(app, {**WANTED, "settings": shares})
    detail = ask(app, "GET", f"/api/privacy/watch/{status['id']}/rounds/2").json
    counts = next(one for one in detail["attacks"] if one["name"] == "counts of one round")
    assert "--participation 1.0" not in counts["repairs"]  # all take part
    assert detail["unnamed"]["has_switch"] is False
    status = finished(app, {**WANTED, "system": "fedrec", "settings": {"rho": 0, "secure_sums": True}})
    detail = ask(app, "GET", f"/api/privacy/watch/{status['id']}/rounds/2").json
    assert detail["unnamed"]["has_switch"] is True


def test_the_same_settings_are_computed_once(app: ASGIApp) -> None:
    first, started = finished(app, WANTED), time.monotonic()
    again = send(app, "/api/privacy/watch", WANTED).json
    assert again["id"] == first["id"]
    assert again["is_done"]
    assert time.monotonic() - started < 0.5
    other = send(app, "/api/privacy/watch", {**WANTED, "settings": {"rho": 2}}).json
    assert other["id"] != first["id"]


def test_a_file_below_the_folder_can_be_watched(app: ASGIApp) -> None:
    wanted = {**WANTED, "data": "mine.csv", "user": "u3", "num_people": 6, "num_rounds": 1}
    status = finished(app, wanted)
    assert len(status["person"]["items"]) == 7
    assert not status["fault"]


def test_a_watch_that_nobody_wants_ends(app: ASGIApp) -> None:
    wanted = {**WANTED, "system": "fedrec", "settings": {"rho": 0, "secure_sums": True}, "num_rounds": 30}
    status = send(app, "/api/privacy/watch", {**wanted, "num_people": 60}).json
    assert not status["is_done"]
    assert send(app, "/api/privacy/stop", {"id": status["id"]}).status == 200
    end = time.monotonic() + 30
    while not (last := ask(app, "GET", f"/api/privacy/watch/{status['id']}?known=30").json)["is_done"]:
        assert time.monotonic() < end
    assert last["fault"] == "ended early; choose the settings again"


REFUSED = {
    "no user": ({"user": "Ms Private 4711"}, 404, "nobody in this data has that id"),
    "no data": ({"data": "nowhere.csv"}, 404, "no data of this name"),
    "outside": ({"data": "../../etc/passwd"}, 404, "there is no such run"),
    "hidden": ({"data": ".hushrec/index.sqlite"}, 404, "there is no such run"),
    "no ratings": ({"data": "notes.txt"}, 422, "cannot be read as ratings"),
    "huge": ({"data": "synthetic:users=100000000,items=2,ratings=100000000"}, 404, "no data of this name"),
    "no system": ({"system": "pmf"}, 422, "choose from fedrec"),
    "unknown setting": ({"settings": {"roh": 3}}, 422, "did you mean rho"),
    "bad value": ({"settings": {"rho": -1}}, 422, "rho"),
    "bad type": ({"settings": {"rho": "three"}}, 422, "rho"),
    "rounds": ({"num_rounds": 0}, 422, "choose 1 to 30"),
    "no switch": ({"settings": {"num_factors": 10**9}}, 422, "num_factors cannot be chosen here"),
    "rounds inside": ({"settings": {"num_rounds": 10**6}}, 422, "leave it out"),
    "people": ({"num_people": 10**7}, 422, "choose 4 to"),
    "extra": ({"extra": 1}, 422, "unknown field"),
    "seed": ({"seed": -1}, 422, "seed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_wishes_are_refused_in_a_line(app: ASGIApp, name: str) -> None:
    change, status, words = REFUSED[name]
    answer = send(app, "/api/privacy/watch", {**WANTED, **change})
    detail = answer.json["detail"]
    assert answer.status == status
    assert words in detail
    assert "\n" not in detail
    assert "Traceback" not in detail
    assert "4711" not in detail
    assert "passwd" not in detail


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/privacy/watch/none", 404),
        ("/api/privacy/watch/none/rounds/1", 404),
        (f"/api/privacy/watch/none/rounds/{'9' * 5000}", 404),
        ("/api/privacy/users?data=../x", 404),
        ("/api/privacy/users", 404),
    ],
)
def test_bad_addresses_are_refused_in_a_line(app: ASGIApp, path: str, status: int) -> None:
    answer = ask(app, "GET", path)
    assert answer.status == status
    assert "\n" not in answer.json["detail"]


def test_a_round_that_is_not_there_is_refused(app: ASGIApp) -> None:
    status = finished(app, WANTED)
    for number, columns in ((3, 6), (0, 6), ("9" * 5000, 6), ("x", 6)):
        answer = ask(app, "GET", f"/api/privacy/watch/{status['id']}/rounds/{number}?columns={columns}")
        assert answer.status == 404
        assert "not been computed" in answer.json["detail"]
    assert ask(app, "GET", f"/api/privacy/watch/{status['id']}?known=x").status == 422


def test_no_json_is_refused(app: ASGIApp) -> None:
    assert send(app, "/api/privacy/watch", b"{").status == 422
    assert send(app, "/api/privacy/stop", {"id": "none"}).status == 404


def test_nothing_is_written_of_a_person(app: ASGIApp, tmp_path: Path) -> None:
    """Only the index of runs is below the folder that is shown."""
    folder = tmp_path / "runs"
    folder.mkdir()
    finished(create_app(folder), WANTED)
    assert {path.name for path in folder.rglob("*") if path.is_file()} <= {"index.sqlite", "index.sqlite-wal"}
