"""The page in a real Chromium: a run from the form to its end, looks, keys, files."""

import csv
import io
import json
import os
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from hushrec.runs.following import Begun, Followed, RoundTold, Teller, process_mark
from hushrec.runs.record import read_run

from .browsing import NARROW, WIDE, check_looks, open_page, screenshot, served, wait_for
from .made_runs import made_run, make_runs

DATA = "synthetic:users=200,items=120,ratings=5000"


def downloaded(page: Any, label: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_label(label, exact=True).click()
    return Path(waiting.value.path()).read_bytes()


def points_of(page: Any) -> int:
    """How many points the curve has that is shown."""
    return int(page.locator("[data-points]").get_attribute("data-points"))


def curve_in(text: bytes) -> list[float]:
    rows = list(csv.reader(io.StringIO(text.decode())))
    return [float(row[2]) for row in rows[1:]]


def test_a_run_from_the_form_to_its_end(browser: Any, runs_folder: Path, tmp_path: Path) -> None:
    """Refused, started, watched, stopped, resumed; the browser is closed, the server killed: the run goes on."""
    folder, num_rounds = runs_folder / "mine", 400
    with served(runs_folder, is_killed=True) as server:
        page = open_page(browser, server.address)
        page.get_by_role("link", name="Start a run").press("Enter")
        page.get_by_role("combobox", name="System", exact=True).select_option("fedrec++")
        page.get_by_label("data", exact=True).fill(DATA)
        page.get_by_label("rounds", exact=True).fill(str(num_rounds))
        page.locator("summary", has_text="Settings of the system").press("Enter")
        page.get_by_label("rho", exact=True).fill("-1")
        page.get_by_label("Name of the run's folder").fill("mine")
        page.get_by_role("button", name="Start").press("Enter")
        refusal = page.get_by_role("alert").filter(has_text="--rho")
        refusal.wait_for()
        assert refusal.text_content() == "--rho -1 is not within 0 to 10000; the paper uses 0 to 3"
        assert page.evaluate("document.activeElement.name") == "rho"
        page.complaints.clear()  # the browser tells of the 422
        page.get_by_label("rho", exact=True).fill("2")
        screenshot(page, "start", tmp_path)
        page.get_by_role("button", name="Start").press("Enter")
        page.get_by_role("heading", name="mine").wait_for()

        page.locator("[data-points]").wait_for()
        wait_for(lambda: points_of(page) >= 10)
        page.get_by_text("Training: fold 1 of 1").wait_for()
        screenshot(page, "run-live", tmp_path)
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Resume").wait_for()
        assert not read_run(folder).is_done
        followed = Followed(folder)
        followed.look()
        stopped_at = len(followed.rounds)
        assert 10 <= stopped_at < num_rounds
        page.get_by_text(f"round {stopped_at} of {num_rounds}. Resume goes on").wait_for()
        screenshot(page, "run-stopped", tmp_path)
        page.get_by_role("button", name="Resume").click()
        wait_for(lambda: points_of(page) > stopped_at)
        assert page.complaints == []
        page.context.close()  # the browser is gone, and then the server
    wait_for(lambda: read_run(folder).is_done)

    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/run/mine")
        page.get_by_text("✓").wait_for()
        kept = read_run(folder).folds[0]
        for name in ("RMSE", "MAE"):
            page.get_by_label("Metric", exact=True).select_option(name)
            page.locator("figcaption", has_text=f"{name} by round").wait_for()
            assert curve_in(downloaded(page, f"Save mine-{name} as CSV")) == kept.curve[name]
        assert len(kept.curve["RMSE"]) == num_rounds
        check_looks(page)
        screenshot(page, "run-done", tmp_path)
        page.context.close()
    assert not list((runs_folder / ".hushrec").glob("page.json"))


def test_a_run_on_the_command_line_says_where_it_can_be_watched(runs_folder: Path) -> None:
    import subprocess
    import sys

    command = [
        sys.executable,
        "-m",
        "hushrec",
        "run",
        "pmf",
        "--data",
        DATA,
        "--rounds",
        "2",
        "--no-baselines",
        "--out",
    ]
    with served(runs_folder) as server:
        done = subprocess.run([*command, str(runs_folder / "a" / "b")], capture_output=True, text=True, check=True)
        assert f"to watch it: {server.address}/#/run/a%2Fb" in done.stderr
    done = subprocess.run([*command, str(runs_folder / "c")], capture_output=True, text=True, check=True)
    assert "to watch it" not in done.stderr


def test_a_folder_that_is_not_there_is_told(runs_folder: Path) -> None:
    with served(runs_folder / "nosuch") as server:
        wait_for(lambda: any("nosuch, a folder that is not there yet" in one for one in server.notes))
    with served(runs_folder) as server:
        wait_for(lambda: server.notes)
        assert not any("not there yet" in one for one in server.notes)


def test_pictures_can_be_saved_with_their_data(browser: Any, runs_folder: Path) -> None:
    make_runs(runs_folder, 1)
    kept = read_run(runs_folder / "batch-000" / "run-00000").folds[0].curve["RMSE"]
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/run/batch-000%2Frun-00000")
        name = "batch-000-run-00000-RMSE"
        assert curve_in(downloaded(page, f"Save {name} as CSV")) == kept
        picture = ElementTree.fromstring(downloaded(page, f"Save {name} as SVG"))
        space = "{http://www.w3.org/2000/svg}"
        assert curve_in((picture.findtext(f"{space}metadata") or "").encode()) == kept
        (line,) = [
            one
            for one in picture.iter(f"{space}path")
            if one.get("stroke-linejoin") == "round" and one.get("fill") == "none"
        ]
        assert line.get("stroke", "").startswith("rgb(")  # what the style sheet said, as an attribute
        assert line.get("class") is None
        image = downloaded(page, f"Save {name} as PNG")
        assert image.startswith(b"\x89PNG")
        assert len(image) > 5000
        assert page.complaints == []
        page.context.close()


@pytest.mark.parametrize(("viewport", "dark"), [(WIDE, False), (WIDE, True), (NARROW, False), (NARROW, True)])
def test_every_page_can_be_read(
    browser: Any, runs_folder: Path, tmp_path: Path, viewport: Any, dark: bool
) -> None:
    make_runs(runs_folder, 12, audited_every=2)
    (runs_folder / "broken").mkdir()
    (runs_folder / "broken" / "run.json").write_text("{")
    look = f"{viewport['width']}{'-dark' if dark else ''}"
    with served(runs_folder) as server:
        page = open_page(browser, server.address, viewport, dark)
        page.get_by_text("13 of 13 runs").wait_for()
        pages = {
            "runs": "table.runs tbody tr",
            "run/batch-000%2Frun-00003": "figure .drawing svg",
            "start": "form fieldset, form .fields",
            "compare?filter=run-": "[data-shown='12'] svg path.series",
            "runs?group=rho": "caption",
            "federation": "code",
        }
        for path, sign in pages.items():
            page.evaluate(f"location.hash = '#/{path}'")
            page.locator(sign).first.wait_for(state="attached")
            page.wait_for_timeout(150)
            screenshot(page, f"{path.replace('/', '-').partition('%')[0].partition('?')[0]}-{look}", tmp_path)
            check_looks(page)
            assert page.title().endswith("hushrec")
            assert page.locator("h1").count() == 1
        page.context.close()


def test_the_switch_of_colours_is_kept(browser: Any, runs_folder: Path) -> None:
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        colour = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(colour)
        page.get_by_label("Colours").select_option("dark")
        dark = page.evaluate(colour)
        assert dark != light
        page.reload()
        assert page.evaluate(colour) == dark
        page.get_by_label("Colours").select_option("light")
        assert page.evaluate(colour) == light
        page.context.close()


def test_pictures_and_lists_work_by_keys(browser: Any, runs_folder: Path) -> None:
    from playwright.sync_api import expect

    make_runs(runs_folder, 12)
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        page.get_by_text("12 of 12 runs").wait_for()
        page.get_by_role("button", name="RMSE").press("Enter")
        page.locator("th[aria-sort='descending']", has_text="RMSE").wait_for()
        page.get_by_role("button", name="RMSE").press("Enter")
        page.locator("th[aria-sort='ascending']", has_text="RMSE").wait_for()
        first, second = (page.locator("table.runs tbody input").nth(place) for place in (0, 1))
        first.press("Space")
        second.press("Space")
        page.get_by_role("link", name="Compare 2 chosen").press("Enter")
        picture = page.locator("figure .drawing svg").first
        picture.press("ArrowRight")
        picture.press("ArrowRight")
        told = page.locator("figure output").first
        expect(told).to_have_text(re.compile("^round 2: batch-000/run-"))
        # A picture that is drawn anew in another width keeps its reader's place.
        drawn = picture.get_attribute("viewBox")
        page.set_viewport_size({"width": 700, "height": 800})
        expect(picture).not_to_have_attribute("viewBox", drawn)
        expect(picture).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(told).to_have_text(re.compile("^round 3: batch-000/run-"))
        page.context.close()


def test_who_reads_a_live_run_by_keys_stays_where_they_are(browser: Any, runs_folder: Path) -> None:
    """The curve is drawn anew with each round: place, focus and what was opened outlast it."""
    from playwright.sync_api import expect

    folder = runs_folder / "live"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(made_run(1) | {"folds": []}))
    teller = Teller(folder)
    teller.tell(Begun(time.time(), os.getpid(), process_mark(os.getpid()), "fedrec++", 1))

    def tell(round_number: int) -> None:
        metrics = {"RMSE": 1.5 - round_number / 100}
        teller.tell(RoundTold(time.time(), 1, round_number, 90, 0.5 * round_number, metrics, {"Ratings": 10}))

    for round_number in range(1, 5):
        tell(round_number)
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/run/live")
        wait_for(lambda: page.locator("[data-points='4']").count())
        picture, told = page.locator("figure .drawing svg").first, page.locator("figure output").first
        picture.press("ArrowRight")
        picture.press("ArrowRight")
        expect(told).to_have_text("round 2: RMSE 1.48")
        page.locator("figure summary").first.click()
        picture.focus()
        tell(5)
        page.locator("[data-points='5']").wait_for()
        expect(picture).to_be_focused()
        expect(told).to_have_text("round 2: RMSE 1.48")
        expect(page.locator("figure details").first).to_have_attribute("open", "")
        page.keyboard.press("ArrowRight")
        expect(told).to_have_text("round 3: RMSE 1.47")
        save = page.get_by_label("Save live-RMSE as CSV", exact=True)
        save.focus()
        tell(6)
        page.locator("[data-points='6']").wait_for()
        expect(save).to_be_focused()
        assert page.complaints == []
        page.context.close()


def test_what_cannot_be_is_told_and_the_focus_is_kept(browser: Any, runs_folder: Path) -> None:
    """Addresses typed by hand, a filter that nothing fits, names with markup, a folder's name that is refused."""
    from playwright.sync_api import expect

    make_runs(runs_folder, 1)
    markup = "<img src=x onerror=document.title='taken'>"
    (runs_folder / markup).mkdir()
    (runs_folder / markup / "run.json").write_text(
        json.dumps(made_run(1) | {"system": "<b>x</b>", "data": markup})
    )
    with served(runs_folder) as server:
        page = open_page(browser, f"{server.address}/#/run/%E0%A4%A")
        page.get_by_role("alert").filter(has_text="there is no such run").wait_for()
        page.complaints.clear()  # the browser tells of the 404
        page.goto(f"{server.address}/#/runs")
        page.get_by_role("link", name=markup, exact=True).click()
        page.get_by_role("heading", name=markup, exact=True).wait_for()
        assert page.locator("main img, main b").count() == 0
        page.goto(f"{server.address}/#/runs?filter=nowhere")
        page.get_by_text("No run fits this filter.").wait_for()
        page.goto(f"{server.address}/#/start")
        page.get_by_label("data", exact=True).fill(DATA)
        name = page.get_by_label("Name of the run's folder")
        name.fill(markup)
        assert page.complaints == []
        page.get_by_role("button", name="Start").press("Enter")
        page.get_by_role("alert").filter(has_text="a name has letters").wait_for()
        expect(name).to_be_focused()
        expect(name).to_have_attribute("aria-invalid", "true")
        page.context.close()


def test_a_filter_that_cannot_be_is_told_in_a_line(browser: Any, runs_folder: Path) -> None:
    make_runs(runs_folder, 3)
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        page.get_by_text("3 of 3 runs").wait_for()
        page.get_by_label("Filter").fill("nothing=3")
        page.get_by_role("alert").filter(has_text="no run has 'nothing'").wait_for()
        page.get_by_label("Filter").fill("seed=1")
        page.get_by_text("1 of 3 runs").wait_for()
        assert page.get_by_role("alert").filter(has_text="no run has").count() == 0
        page.context.close()


def test_tags_with_spaces_can_be_clicked_and_refused_ones_are_told(browser: Any, runs_folder: Path) -> None:
    make_runs(runs_folder, 3)
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        page.get_by_label("Choose run-00001").check()
        page.get_by_label("Tags for the chosen runs").fill("to show, good")
        page.get_by_role("button", name="Tag", exact=True).click()
        page.get_by_role("link", name="to show", exact=True).click()
        page.get_by_text("1 of 3 runs").wait_for()
        assert page.get_by_label("Filter").input_value() == 'tag:"to show"'
        assert page.complaints == []
        page.get_by_label("Tags for the chosen runs").fill("long" * 11)
        page.get_by_role("button", name="Tag", exact=True).click()
        page.get_by_role("alert").filter(has_text="a run may have 20 tags of 40 letters").wait_for()
        page.context.close()


def test_what_stands_in_a_runs_folder_is_text(browser: Any, runs_folder: Path) -> None:
    """Names of folders, data, settings, metrics, tags: whoever made the run chose them."""
    evil = "<img src=x onerror=window.broken=1>"
    run = json.loads(json.dumps(made_run(1)).replace('"RMSE"', json.dumps(f"RMSE{evil}")))
    run |= {"data": evil, "config": {evil: evil}, "command": evil}
    (runs_folder / evil).mkdir()
    (runs_folder / evil / "run.json").write_text(json.dumps(run))
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        page.get_by_label("Choose <img").check()
        page.get_by_label("Tags for the chosen runs").fill(evil[:40])
        page.get_by_role("button", name="Tag", exact=True).click()
        for place in ("runs", "compare?filter=", f"run/{quote(evil, safe='')}", f"audit/{quote(evil, safe='')}"):
            page.goto(f"{server.address}/#/{place}")
            page.get_by_text(evil).first.wait_for(state="attached")
            page.wait_for_timeout(300)
            assert page.locator("img:not([alt=''])").count() == page.locator("[onerror]").count() == 0
            assert page.evaluate("window.broken") is None
        page.context.close()


def test_elsewhere_the_page_asks_for_the_token(browser: Any, runs_folder: Path, tmp_path: Path) -> None:
    make_runs(runs_folder, 1)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-of-the-test\n")
    token.chmod(0o600)
    with served(runs_folder, "--host", "0.0.0.0", "--token-file", str(token)) as server:
        page = open_page(browser, server.address.replace("0.0.0.0", "127.0.0.1"))
        page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
        page.get_by_role("button", name="Enter").click()
        page.get_by_label("Token").wait_for()
        page.get_by_label("Token").fill("0123456789abcdef-of-the-test")
        page.get_by_role("button", name="Enter").click()
        page.get_by_text("1 of 1 runs").wait_for()
        page.context.close()
        assert "0123456789abcdef" not in "".join(server.notes)


@pytest.mark.slow
def test_ten_thousand_runs_are_listed_in_a_second_and_500_compared_in_two(
    browser: Any, runs_folder: Path, tmp_path: Path
) -> None:
    make_runs(runs_folder, 10_000, audited_every=5)
    with served(runs_folder) as server:
        page = open_page(browser, server.address)
        page.get_by_text("10,000 of 10,000 runs", exact=True).wait_for(timeout=300_000)
        page.context.close()
    with served(runs_folder) as server:  # a new one, which finds the index
        listings, comparisons = [], []
        for _ in range(3):
            page = open_page(browser, server.address)
            page.locator("table.runs tbody tr").nth(99).wait_for()
            asked = "performance.getEntriesByType('resource').find((one) => one.name.includes('/list')).startTime"
            shown = "Number(document.querySelector('[data-shown-at]').dataset.shownAt)"
            listings.append((page.evaluate(shown) - page.evaluate(asked)) / 1000)
            page.get_by_text("10,000 of 10,000 runs", exact=True).wait_for()
            page.get_by_role("button", name="Choose the first 500").click()
            page.get_by_role("link", name="Compare 500 chosen").wait_for()
            click = "document.querySelector('a.button[href=\"#/compare\"]').click()"
            began = page.evaluate(f"() => {{ const now = performance.now(); {click}; return now; }}")
            page.locator("[data-shown='500'] figure .drawing svg path.series").nth(999).wait_for(state="attached")
            page.locator("[data-shown='500'][data-shown-at]").wait_for()
            comparisons.append((page.evaluate(shown) - began) / 1000)
            screenshot(page, "compare-500", tmp_path)
            page.context.close()
    print(json.dumps({"listing_seconds": listings, "comparison_seconds": comparisons}))
    assert sorted(listings)[1] < 1.0
    assert sorted(comparisons)[1] < 2.0
