"""The pages of privacy, audit and model in a real Chromium."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

import hushrec
from hushrec.audit.kept import KeptAudit, KeptFinding, write_audit
from hushrec.ui.privacy_choices import SMALL

from .browsing import NARROW, check_looks, open_page, screenshot, served, wait_for

STAGE = ".stage[data-done] figure.seen .drawing svg"


def downloaded(page: Any, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.locator("figure.seen").get_by_role("button", name=f"as {kind}").click()
    return Path(waiting.value.path()).read_bytes()


def test_one_persons_privacy(browser: Any, runs_folder: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/privacy?rounds=3&people=60")
        page.locator(STAGE).wait_for()
        wait_for(lambda: page.locator(".stage").get_attribute("data-round") == "3")
        read = page.locator(".sentence").inner_text()
        num_own = page.locator(".triptych section").first.locator("li").count()
        assert read == f"The server read {num_own} of {num_own} ratings of this person."
        check_looks(page)
        screenshot(page, "privacy", tmp_path)

        # By keyboard: back to the first round.
        slider = page.get_by_role("slider", name="Round")
        slider.focus()
        page.keyboard.press("Home")
        wait_for(lambda: page.locator(".stage").get_attribute("data-round") == "1")
        page.get_by_text("Round 1 of 3").wait_for()
        assert "round=1" in page.url

        # A picture with its numbers.
        root = ElementTree.fromstring(downloaded(page, "SVG"))
        rows = list(csv.reader(io.StringIO(downloaded(page, "CSV").decode())))
        assert root.tag.endswith("svg")
        assert rows[0][2] == "private rating"
        assert sum(row[2] != "" for row in rows[1:]) == sum(row[6] == "yes" for row in rows[1:]) == num_own
        assert downloaded(page, "PNG").startswith(b"\x89PNG")

        # A switch changes what is concluded, at once.
        page.get_by_label("Secure sums, in fedrec").check()
        wait_for(lambda: page.locator(".stage").get_attribute("data-tone") == "nothing")
        hidden = page.locator(".sentence").inner_text()
        assert hidden.startswith("The server saw only sums over 60 people: nothing ")
        wait_for(lambda: not page.locator(".stage[aria-busy]").count())
        check_looks(page)

        # Bad input is told in a line.
        page.get_by_label("Person", exact=True).fill("nobody")
        page.get_by_label("Person", exact=True).press("Enter")
        page.get_by_role("alert").filter(has_text="nobody in this data has that id").wait_for()
        page.context.close()

        narrow = open_page(browser, f"{server.address}/#/privacy?rounds=3&people=60&beside=yes", NARROW, dark=True)
        narrow.locator(f".stage:nth-child(2){STAGE.removeprefix('.stage')}").wait_for()
        expect(narrow.locator(".sentence")).to_have_text([read, hidden])
        check_looks(narrow)
        screenshot(narrow, "privacy-narrow-dark", tmp_path)
        narrow.context.close()


def test_ratings_below_zero_are_shown(browser: Any, runs_folder: Path) -> None:
    """They have no stars; before, one of them broke the page."""
    rows = [f"u{n % 9},i{n % 40},{n * 7 % 11 - 5}" for n in range(0, 360, 2) if n % 9 or n % 7]
    (runs_folder / "mine.csv").write_text("\n".join(["user,item,rating", *rows]))
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/privacy?data=mine.csv&rounds=1&people=9")
        page.locator(".triptych li", has_text="-5").first.wait_for()
        assert page.locator(".triptych .stars").count() == 0
        assert page.complaints == []
        page.context.close()


def test_a_picture_says_where_it_is_cut(browser: Any, runs_folder: Path) -> None:
    """Squares beyond 1,600 were left out without a word."""
    view = """async ([numOwn, numWrong, numSent]) => {
        const { pictureOf } = await import("/page/privacy_picture.js");
        const items = Array.from({ length: numOwn + numWrong }, (_, item) => item);
        const own = items.slice(0, numOwn);
        const titles = Object.fromEntries(items.map((item) => [item, `item ${item}`]));
        const column = { name: "sums", kind: "words", width: 1, count: numSent, numbers: Array(960).fill("ab") };
        const attack = { items, ratings: items.map(() => null), is_right: items.map((item) => item < numOwn),
                         is_exact: items.map(() => false), exact: null,
                         right: numOwn, missed: 0, wrong: numWrong };
        const sent = [{ type: "Sums", seen: true, bytes: 9000, columns: [column] }];
        const person = { items: own, ratings: null, scale: null, titles };
        const figure = pictureOf({ person, detail: { sent, titles }, attack, who: "server", title: "t" });
        document.querySelector("main").append(figure);
        while (!figure.querySelector("text")) await new Promise((done) => setTimeout(done, 50));
        return [...figure.querySelectorAll(".drawing text")].map((one) => one.textContent).join("\\n");
    }"""
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/privacy?rounds=3&people=60")
        page.locator(STAGE).wait_for()
        told = page.evaluate(view, [2000, 1700, 5000])
        assert told.count("are drawn") == 4
        assert told.count("1,600 of 2,000 are drawn") == 2
        assert "960 of 5,000 are drawn" in told
        assert "1,600 of 1,700 wrong ones are drawn" in told
        assert "are drawn" not in page.evaluate(view, [1600, 1600, 960])
        assert page.complaints == []
        page.context.close()


def test_from_a_run_to_the_privacy_of_its_settings(browser: Any, runs_folder: Path) -> None:
    hushrec.FedRec(num_rounds=2, num_factors=4, rho=2).fit(hushrec.load(SMALL)).save(runs_folder / "mine")
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/run/mine")
        page.get_by_role("link", name="Privacy", exact=True).click()
        # A model of the library's own says of made-up data only that it is made up.
        page.get_by_text("Not as in mine: its data is not among those that can be watched here.").wait_for()
        page.locator(STAGE).wait_for()
        assert page.get_by_label("System", exact=True).input_value() == "fedrec"
        assert page.get_by_label("rho", exact=True).input_value() == "2"
        assert page.complaints == []
        page.context.close()


def test_audit_and_model(browser: Any, runs_folder: Path, tmp_path: Path) -> None:
    data = hushrec.load("synthetic:users=60,items=50,ratings=1500")
    titled = replace(data, titles=np.array([f"Title {item}" for item in data.item_ids]))
    hushrec.FedRec(num_rounds=4, num_factors=4).fit(titled).save(runs_folder / "one")
    curve = KeptFinding("intersection", "server", "precision", 0.9, 0.25, (0.8, 0.95), [0.25, 0.7, 0.9])
    write_audit(runs_folder / "one", KeptAudit(3, "2026-11-18", [curve]))
    with served(runs_folder) as server:
        for viewport, is_dark in ((None, False), (NARROW, True)):
            name = "narrow-dark" if is_dark else "wide"
            page = open_page(browser, f"{server.address}/#/audit/one", viewport, is_dark)
            page.get_by_text("the server: reads most of a user's items").wait_for()
            page.get_by_role("heading", name="The ledger of epsilon").wait_for()
            page.get_by_text("Leakage to curious parties").first.wait_for()
            check_looks(page)
            screenshot(page, f"audit-{name}", tmp_path)

            page.goto(f"{server.address}/#/model/one")
            page.locator("figure .drawing svg .marker").first.wait_for()
            page.get_by_label("Titles", exact=True).fill("title 12")
            page.get_by_role("button", name="Title 12", exact=True).click()
            page.get_by_role("heading", name="For this person").wait_for()
            page.get_by_role("button", name="2 of 5").press("Enter")
            assert page.get_by_role("button", name="2 of 5").get_attribute("aria-pressed") == "true"
            assert page.evaluate("document.activeElement.ariaLabel") == "2 of 5"  # who types can go on
            page.get_by_role("button", name="Items like").first.click()
            page.get_by_role("heading", name="Like Title").wait_for()
            check_looks(page)
            screenshot(page, f"model-{name}", tmp_path)
            page.context.close()


def test_an_audit_that_the_list_does_not_know_yet_is_called_one(browser: Any, runs_folder: Path) -> None:
    data = hushrec.load("synthetic:users=60,items=50,ratings=1500")
    for name in ("one", "two"):
        hushrec.FedRec(num_rounds=4, num_factors=4).fit(data).save(runs_folder / name)
    curve = KeptFinding("intersection", "server", "precision", 0.9, 0.25, (0.8, 0.95), [0.25, 0.7, 0.9])
    write_audit(runs_folder / "one", KeptAudit(3, "2026-11-18", [curve]))
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/runs")
        page.route("**/api/audit/runs", lambda route: route.fulfill(json={"runs": []}))
        for name, told in (("one", "one: fedrec on synthetic"), ("two", "two: not audited")):
            page.goto(f"{server.address}/#/audit/{name}")
            page.get_by_role("heading", name="The ledger of epsilon").wait_for()
            chosen = "document.querySelector('select[aria-label=\"Audited run\"]')?.selectedOptions[0].textContent"
            wait_for(lambda text=told, look=chosen: page.evaluate(look) == text)
        page.context.close()
