"""The page of a federation: what its folder and a node's kit tell, without an engine."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from hushrec.data.holdings.node_files import NodeFiles
from hushrec.deploy.consent import ledger_of
from hushrec.deploy.driver import Report
from hushrec.deploy.enrolment import NodeSettings, write_settings
from hushrec.deploy.kits import Federation, KitCard, write_federation, write_kit_card
from hushrec.deploy.node_ledger import Cost, Opened
from hushrec.deploy.orders import Order
from hushrec.errors import HushrecError, MissingExtraError
from hushrec.files import write_private_file
from hushrec.ui import federation
from hushrec.ui.app import create_app

from .browsing import NARROW, WIDE, check_looks, open_page, screenshot, served
from .conftest import Ask, asking

WORDS = "fedrec++: the server reads every item and rating out of one upload"


def make_federation(folder: Path) -> Path:
    """Two nodes, of which one is lost, three runs, and a node's kit with a budget."""
    write_federation(folder, Federation("nvflare", "server.example", 8002, ["shop-a", "shop-b"]))
    reports = {
        "first": Report(
            "done",
            1,
            20,
            20,
            987_000_000,
            consents={"shop-a": f"accepted: {WORDS}", "shop-b": "protected: only sums"},
        ),
        "second": Report(
            "paused", 2, 7, 30, 1_000_000, lost={"shop-b": "nothing came in 60 s"}, reason="too few nodes are left"
        ),
        "third": None,
    }
    for number, (name, report) in enumerate(reports.items()):
        order = Order(f"{number:032x}", name, "fedrec++", {"rho": 3, "num_rounds": 30}, 0, False, "federation")
        write_private_file(folder / "runs" / name / "order.json", msgspec.json.encode(order))
        if report is not None:
            write_private_file(folder / "runs" / name / "progress.json", msgspec.json.encode(report))
    kit = folder / "shop-a"
    (kit / "startup").mkdir(parents=True)
    write_kit_card(kit, KitCard("nvflare", "shop-a", ["shop-a", "shop-b"], "server.example", 8002))
    settings = NodeSettings(
        NodeFiles(data="ratings.csv"),
        ["fedrec++"],
        {"rho": "3"},
        accepted={WORDS: "2026-11-18"},
        budget={"rounds": 100.0},
    )
    write_settings(kit, settings)
    ledger_of(kit).open(
        Opened("a" * 32, "2026-11-18T10:00:00", "fedrec++", {"rho": 3}, f"accepted: {WORDS}", Cost(30)),
        settings.budget,
    )
    entry = {
        "time": "2026-11-18T10:00:01.000",
        "event": "refused",
        "reason": "this node takes part only with rho 3",
    }
    log = msgspec.json.encode(entry) + b"\nhalf a li"
    write_private_file(kit / "private" / "node.log", log)
    return folder


@pytest.fixture
def asked(tmp_path: Path, runs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks for a federation, given who is connected."""
    folder = make_federation(tmp_path / "fed")

    def ask_with(connected: set[str] | None) -> Any:
        class Engine:
            def session(self, _folder: Path, _seconds: float) -> Any:
                if connected is None:
                    raise HushrecError("the server does not answer")
                return type("Session", (), {"connected": lambda _self: connected, "close": lambda _self: None})()

        monkeypatch.setattr(federation, "engine_named", lambda _name: Engine())
        presence = federation.Presence(folder)
        presence._ask()
        monkeypatch.setattr(federation, "Presence", lambda _folder: presence)
        return asking(create_app(runs_folder, federations=[folder]))(
            f"/api/federation/show?id={quote(str(folder), safe='')}"
        ).json

    return ask_with


def test_who_is_there_and_what_waits(asked: Any) -> None:
    told = asked({"shop-a"})
    assert told["server"]["is_up"] is True
    assert {one["name"]: one["is_connected"] for one in told["nodes"]} == {"shop-a": True, "shop-b": False}
    assert sorted(told["waiting"]) == [
        "not connected: shop-b",
        "second is paused after round 7; it waits for shop-b",
        "third is ordered and has not begun",
    ]
    states = {one["name"]: (one["status"], one["round_number"], one["num_rounds"]) for one in told["runs"]}
    assert states == {"first": ("done", 20, 20), "second": ("paused", 7, 30), "third": ("ordered", 0, 30)}


def test_a_server_that_does_not_answer_leaves_open_who_is_there(asked: Any) -> None:
    told = asked(None)
    assert told["server"]["is_up"] is False
    assert [one["is_connected"] for one in told["nodes"]] == [None, None]
    assert told["server"]["fault"] == "the server does not answer"


def test_without_the_engine_nobody_knows_whether_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> Any:
        raise MissingExtraError("the engine nvflare is not installed")

    monkeypatch.setattr(federation, "engine_named", missing)
    presence = federation.Presence(make_federation(tmp_path / "fed"))
    presence._ask()
    assert (presence.is_up, presence.connected) == (None, None)
    assert presence.fault == "the engine nvflare is not installed"


def test_consents_budgets_and_errors_are_told(asked: Any) -> None:
    told = asked({"shop-a", "shop-b"})
    first, second = told["nodes"]
    assert first["consents"] == [{"run": "first", "words": f"accepted: {WORDS}"}]
    assert first["own"]["budget"]["rounds"] == {"most": 100.0, "charged": 30, "left": 70.0}
    assert second["own"] is None  # its kit is elsewhere
    errors = {(one["where"], one["what"]) for one in told["errors"]}
    assert ("second", "too few nodes are left") in errors
    assert ("second, shop-b", "nothing came in 60 s") in errors
    assert ("shop-a", "2026-11-18T10:00:01 refused: this node takes part only with rho 3") in errors


def test_a_nodes_kit_is_shown_to_its_owner(tmp_path: Path, runs_folder: Path) -> None:
    kit = make_federation(tmp_path / "fed") / "shop-a"
    ask = asking(create_app(runs_folder, federations=[kit]))
    told = ask(f"/api/federation/show?id={quote(str(kit), safe='')}").json
    assert (told["kind"], told["own"]["node"], told["own"]["accepted"]) == (
        "node",
        "shop-a",
        {WORDS: "2026-11-18"},
    )
    assert told["own"]["runs"][0]["most_rounds"] == 30


def test_no_folder_can_be_named_that_was_not_given(tmp_path: Path, ask: Ask) -> None:
    folder = make_federation(tmp_path / "fed")
    assert ask("/api/federation/list").json == {"federations": []}
    assert ask(f"/api/federation/show?id={quote(str(folder), safe='')}").status == 404


@pytest.mark.parametrize(("viewport", "dark"), [(WIDE, False), (WIDE, True), (NARROW, False)])
def test_it_can_be_read_in_a_browser(
    browser: Any, tmp_path: Path, runs_folder: Path, viewport: Any, dark: bool
) -> None:
    folder = make_federation(tmp_path / "fed")
    look = f"{viewport['width']}{'-dark' if dark else ''}"
    with served(runs_folder, "--federation", str(folder), "--federation", str(folder / "shop-a")) as server:
        page = open_page(browser, f"{server.address}/#/federation", viewport, dark)
        page.get_by_text("second is paused after round 7").wait_for()
        screenshot(page, f"federation-{look}", tmp_path)
        check_looks(page)
        report = msgspec.json.encode(Report("running", 3, 8, 30, 1_200_000))
        write_private_file(folder / "runs" / "second" / "progress.json", report)
        page.get_by_text("8 of 30").wait_for()  # by itself
        page.get_by_label("Folder").select_option(str(folder / "shop-a"))
        page.get_by_text("What shop-a agreed to").wait_for()
        screenshot(page, f"node-{look}", tmp_path)
        check_looks(page)
        page.context.close()


def test_after_a_break_the_page_says_that_it_looks_again(browser: Any, tmp_path: Path, runs_folder: Path) -> None:
    """Also where nothing has changed meanwhile. The folder that was chosen stays in the address."""
    folder = make_federation(tmp_path / "fed")
    options = ["--federation", str(folder), "--federation", str(folder / "shop-a")]
    with served(runs_folder, *options) as server:
        page = open_page(browser, f"{server.address}/#/federation")
        page.get_by_label("Folder").select_option(str(folder / "shop-a"))
        status = page.get_by_role("status").filter(has_text="a node's kit, read only, looked at")
        status.wait_for()
    page.get_by_text("Nothing new comes").wait_for()
    with served(runs_folder, *options, "--port", server.address.rpartition(":")[2]):
        status.wait_for()
        page.reload()
        status.wait_for()
        page.context.close()
