"""The application as it is asked over HTTP, without a network."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from hushrec.serving.gate import Gate
from hushrec.serving.limits import Rate, RateLimit, Tokens
from hushrec.ui.app import PRIVATE, create_app
from hushrec.ui.door import HEADER, Door, names_of

from .conftest import Ask, asking
from .made_runs import made_run, make_runs

PAGE_FILES = files("hushrec.ui") / "page_files"
TOKEN = "0123456789abcdef-of-the-test"


# --- Who may ask -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8090", "", "192.168.1.5:8090", "[::2]"])
def test_another_name_is_refused(runs_folder: Path, host: str) -> None:
    door = Door(create_app(runs_folder), names_of("127.0.0.1", True))
    ask = asking(Gate(door, RateLimit(Rate(1000, 1.0)), None, 1000, lambda _line: None, private=PRIVATE))
    answer = ask("/", headers={"host": host})
    assert answer.status == 421
    assert ask("/", headers={"host": "localhost:9999"}).status == 200
    assert ask("/", headers={"host": "[::1]:8090"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {HEADER: ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_changes_nothing(runs_folder: Path, headers: dict[str, str]) -> None:
    make_runs(runs_folder, 1)
    door = Door(create_app(runs_folder), names_of("127.0.0.1", True))
    ask = asking(Gate(door, RateLimit(Rate(1000, 1.0)), None, 1000, lambda _line: None, private=PRIVATE))
    tagged = {"id": "batch-000/run-00000", "tags": ["x"]}
    assert ask("/api/runs/tag", tagged, headers=headers).status == 403
    assert ask("/api/runs/tag", tagged, headers={"origin": "http://localhost:8090"}).status == 200


def test_elsewhere_a_token_is_needed_for_all_that_is_told(runs_folder: Path) -> None:
    app = Door(create_app(runs_folder), names_of("0.0.0.0", False))
    gate = Gate(app, RateLimit(Rate(1000, 1.0)), Tokens([TOKEN]), 1000, lambda _line: None, private=PRIVATE)
    ask = asking(gate)
    headers = {"host": "server.example"}
    assert b"hushrec" in ask("/", headers=headers).body
    for path in ("/api/runs/list", "/api/run/systems", "/api/run/events?id=x", "/api/federation/list"):
        assert ask(path, headers=headers).status == 401
    assert ask("/api/runs/list", headers=headers | {"authorization": f"Bearer {TOKEN}"}).status == 200
    assert ask("/api/runs/list", headers=headers | {"authorization": "Bearer wrong"}).status == 401


@pytest.mark.parametrize(
    "run_id", ["..", "../runs/x", "/etc", ".hushrec", "a/../../b", "x\0y", "", "nothing", "x" * 5000]
)
def test_nothing_outside_of_the_folder_can_be_named(ask: Ask, runs_folder: Path, run_id: str) -> None:
    make_runs(runs_folder.parent / "x", 1)
    from urllib.parse import quote

    answer = ask(f"/api/run/show?id={quote(run_id, safe='')}")
    assert answer.status == 404
    assert answer.json["detail"].startswith("there is no such run")


def test_a_link_out_of_the_folder_is_not_followed(ask: Ask, runs_folder: Path) -> None:
    make_runs(runs_folder.parent / "other", 1)
    (runs_folder / "link").symlink_to(runs_folder.parent / "other" / "batch-000" / "run-00000")
    assert ask("/api/run/show?id=link").status == 404


# --- What is sent ------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_from_elsewhere(ask: Ask) -> None:
    names = [one.name for one in PAGE_FILES.iterdir()]
    assert "index.html" in names
    for name in names:
        answer = ask("/" if name == "index.html" else f"/page/{name}")
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        text = answer.body.decode()
        addresses = set(re.findall(r"https?://[^\"'` )]+", text)) - {"http://www.w3.org/2000/svg"}
        assert addresses == set()
    assert ask("/page/nothing.js").status == 404
    assert ask("/page/..%2Fapp.py").status == 404


def test_data_never_becomes_html() -> None:
    for one in PAGE_FILES.iterdir():
        text = one.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", text
        )
        assert not re.search(r"<[a-z]+[^>]* (style|on[a-z]+)=", text)


def test_every_module_that_is_imported_is_there() -> None:
    names = {one.name for one in PAGE_FILES.iterdir()}
    for one in PAGE_FILES.iterdir():
        for wanted in re.findall(
            r'from "\./([a-z_]+\.js)"|href="/page/([a-z_.]+)"', one.read_text(encoding="utf-8")
        ):
            assert {*wanted} - {""} <= names


def test_every_name_that_is_imported_is_exported_and_used() -> None:
    texts = {one.name: one.read_text(encoding="utf-8") for one in PAGE_FILES.iterdir()}
    for name, text in texts.items():
        code = re.sub(r"^import [^;]*;", "", text, flags=re.MULTILINE)
        for wanted, module in re.findall(r'^import \{([^}]*)\} from "\./([a-z_]+\.js)";', text, re.MULTILINE):
            for one in filter(None, map(str.strip, wanted.split(","))):
                assert re.search(rf"^export (async )?(function|const) {one}\b", texts[module], re.MULTILINE), one
                assert re.search(rf"\b{one}\b", code), (name, one)


# --- Runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def listed(ask: Ask, runs_folder: Path) -> Ask:
    """Asks about twelve runs that are indexed."""
    import time

    make_runs(runs_folder, 12)
    deadline = time.monotonic() + 20
    while ask("/api/runs/list").json["total"] < 12:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return ask


def test_runs_are_listed_filtered_and_sorted(listed: Ask) -> None:
    answer = listed("/api/runs/list?filter=rho%3E0&sort=RMSE&descending=false&limit=3").json
    runs = [made_run(number) for number in range(12)]
    values = sorted(run["folds"][0]["metrics"]["RMSE"] for run in runs if run["config"]["rho"] > 0)
    assert [row["last"]["RMSE"] for row in answer["rows"]] == values[:3]
    assert answer["total"] == len(values)
    for bad in ("limit=0", "limit=501", "limit=x", "offset=-1", "sort=nothing", "filter=nothing%3D3"):
        refusal = listed(f"/api/runs/list?{bad}")
        assert refusal.status == 422
        assert set(refusal.json) == {"title", "status", "detail"}


def test_compared_curves_are_those_of_the_runs(listed: Ask) -> None:
    answer = listed("/api/runs/compare", {"filter": "", "metric": "NDCG@10"}).json
    assert len(answer["rows"]) == len(answer["curves"]) == 12
    for row, curve in zip(answer["rows"], answer["curves"], strict=True):
        wanted = made_run(row["seed"])["folds"][0]["curve"]["NDCG@10"]
        assert curve["y"] == wanted
        assert curve["x"] == [place + 1 for place in range(len(wanted))]
    assert listed("/api/runs/compare", {"ids": [str(number) for number in range(501)]}).status == 422


def test_a_long_curve_is_thinned_but_keeps_its_end(ask: Ask, runs_folder: Path) -> None:
    from hushrec.ui.runs import curve_of

    make_runs(runs_folder, 1)
    path = runs_folder / "batch-000" / "run-00000" / "run.json"
    run = json.loads(path.read_bytes())
    run["folds"][0]["curve"]["RMSE"] = [float(place) for place in range(1001)]
    path.write_text(json.dumps(run))
    curve = curve_of(path.parent, "RMSE")
    assert curve["y"][-1] == 1000.0
    assert curve["x"][-1] == 1001
    assert len(curve["y"]) <= 121
    assert [place - 1 for place in curve["x"] if place is not None] == curve["y"]


def test_tags_are_kept(listed: Ask) -> None:
    assert listed("/api/runs/tag", {"id": "batch-000/run-00003", "tags": ["good"]}).json == {"tags": ["good"]}
    assert [row["seed"] for row in listed("/api/runs/list?filter=tag:good").json["rows"]] == [3]
    assert listed("/api/runs/tag", {"id": "nothing", "tags": ["good"]}).status == 404
    assert listed("/api/runs/tag", {"tags": 3}).status == 422


def test_a_run_is_shown_whole(listed: Ask) -> None:
    shown = listed("/api/run/show?id=batch-000%2Frun-00005").json
    wanted = made_run(5)
    assert shown["run"]["folds"][0]["curve"] == wanted["folds"][0]["curve"]
    assert shown["mean"] == wanted["folds"][0]["metrics"]
    assert shown["is_done"]
    assert shown["run"]["chosen"] == []  # which its file does not have, as those of older versions
    assert sorted(shown["is_low_better"]) == ["MAE", "RMSE"]


def test_a_damaged_audit_hides_nothing_of_its_run(listed: Ask, runs_folder: Path) -> None:
    (runs_folder / "batch-000" / "run-00005" / "audit.json").write_text('{"num')
    shown = listed("/api/run/show?id=batch-000%2Frun-00005").json
    assert shown["is_done"]
    assert shown["audit"] is None
    assert "audit.json is damaged" in shown["audit_fault"]


def test_a_bound_is_told_whatever_the_number(listed: Ask) -> None:
    answer = listed(f"/api/runs/list?limit={'9' * 6000}")  # more digits than Python reads
    assert answer.status == 422
    assert answer.json["detail"] == "limit must be a whole number from 1 to 500"


def test_what_is_compared_first_is_what_most_have_and_is_usual(listed: Ask) -> None:
    assert listed("/api/runs/compare", {}).json["metrics"] == ["RMSE", "MAE", "NDCG@10"]


# --- Forms -------------------------------------------------------------------------------------------------------


def test_forms_have_what_systems_declare(ask: Ask) -> None:
    from hushrec.cli.declared import declared

    systems = [one["name"] for one in ask("/api/run/systems").json["systems"]]
    assert "fedrec++" in systems
    for system in systems:
        options = {
            one["name"]: one for one in ask(f"/api/run/form?system={system.replace('+', '%2B')}").json["options"]
        }
        for setting in declared(system).settings:
            assert options[setting.name]["help"] == setting.help
        assert not {"out", "resume", "config", "context", "live"} & options.keys()
    assert ask("/api/run/form?system=nothing").status == 422


@pytest.mark.parametrize(
    "values",
    [
        {"data": "ml-100k", "rho": "x"},
        {"data": "ml-100k", "rho": "-1"},
        {"data": "no-such-data"},
        {},
        {"data": "ml-100k", "at": "5,x"},
        {"data": "ml-100k", "filling": "none", "num_rounds": "0"},
        {"data": "ml-100k", "threads": "0"},
    ],
)
def test_a_form_is_refused_in_the_words_of_the_command_line(
    ask: Ask, values: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushrec.cli.endings import exits_cleanly
    from hushrec.cli.verbs import app
    from hushrec.cli.work.ui_commands import RunCommands

    refusal = ask("/api/run/start", {"system": "fedrec++", "values": values})
    assert refusal.status == 422
    words = ["run", "fedrec++", *RunCommands().words("fedrec++", values)]
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as end:
        exits_cleanly(lambda: app(words, prog_name="hushrec", standalone_mode=False))
    assert end.value.code == 2
    assert capsys.readouterr().err.strip() == f"hushrec: {refusal.json['detail']}"


def test_what_is_no_option_is_refused(ask: Ask) -> None:
    for name in ("out", "nothing", "live"):
        answer = ask("/api/run/start", {"system": "fedrec++", "values": {"data": "ml-100k", name: "x"}})
        assert answer.status == 422
    assert ask("/api/run/start", {"system": "nothing", "values": {}}).status == 422
    answer = ask("/api/run/start", {"system": "pmf", "values": {"data": "ml-100k"}, "name": "../x"})
    assert answer.json["detail"].startswith("a name has letters")


@pytest.mark.parametrize(
    "more", ["--save-config={place}", "--track=tensorboard={place}", "--out {place}", "--config {place}"]
)
def test_what_a_folder_says_writes_nothing_elsewhere(
    ask: Ask, runs_folder: Path, tmp_path: Path, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's folder may come from anybody. Resume trains what it says, and does nothing besides."""
    place = tmp_path / "elsewhere"
    begun: list[object] = []
    monkeypatch.setattr("hushrec.ui.jobs.subprocess.Popen", lambda *words, **_: begun.append(words))
    make_runs(runs_folder, 1)
    path = runs_folder / "batch-000" / "run-00000" / "run.json"
    run = json.loads(path.read_bytes()) | {"folds": []}
    path.write_text(json.dumps(run | {"command": f"hushrec run fedrec --data ml-100k {more.format(place=place)}"}))
    answer = ask("/api/run/resume", {"id": "batch-000/run-00000"})
    assert (answer.status, begun, place.exists()) == (422, [], False)
    assert answer.json["detail"] == f"{more.split('=')[0].split()[0]} cannot be said here; use the command line"


def test_a_folder_without_its_command_is_not_resumed(ask: Ask, runs_folder: Path) -> None:
    make_runs(runs_folder, 1)
    path = runs_folder / "batch-000" / "run-00000" / "run.json"
    run = json.loads(path.read_bytes())
    for command in ("", "rm -r x", "hushrec run", "hushrec run 'fedrec"):
        path.write_text(json.dumps(run | {"command": command}))
        answer = ask("/api/run/resume", {"id": "batch-000/run-00000"})
        assert answer.json["detail"].startswith("this run does not say which command makes it")
