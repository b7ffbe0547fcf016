import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import hushrec
from hushrec.cli.verbs import app
from hushrec.cli.work.recommend import print_recommendations
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.lists import Recommendation
from hushrec.runs.run_settings import RunSettings, settings_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build
from systems.runs import short

DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    system = SYSTEMS["fedrec"]
    config = build(system.config, {"num_rounds": 10, "num_factors": 5})
    run(
        system,
        config,
        hushrec.load(DATA),
        RunSettings(num_folds=2, min_raters=10),
        RuntimeOptions(threads=1),
        folder,
    )
    return folder


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another system that learns from ratings."""
    folder, system = tmp_path_factory.mktemp("runs") / "layered", SYSTEMS["neucf"]
    config = system.configure(short("neucf", num_rounds=10))
    run(system, config, hushrec.load(DATA), RunSettings(), RuntimeOptions(threads=1), folder)
    return folder


def invoke(folder: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["recommend", str(folder), *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def as_said(found: list[Recommendation]) -> list[dict[str, object]]:
    return [{"item": entry.item, "score": entry.score, "title": entry.title} for entry in found]


def test_a_list_is_the_models(folder: Path) -> None:
    expected = hushrec.load_run(folder).recommend(7, k=4)[0]
    result = invoke(folder, "--user", "7", "-k", "4")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["item", "score"]
    assert lines[1:] == [
        [str(place), str(entry.item), f"{entry.score:.2f}"] for place, entry in enumerate(expected, 1)
    ]
    assert result.stderr == "computed on this machine from the client's own model; nothing was sent\n"


def test_json_is_all_there_is(folder: Path) -> None:
    result = invoke(folder, "--user", "7", "--json")
    assert json.loads(result.stdout) == as_said(hushrec.load_run(folder).recommend(7)[0])
    assert len(result.stdout.splitlines()) == 1
    assert len(json.loads(result.stdout)) == 10
    assert result.stderr == ""


def test_options_reach_the_model(folder: Path) -> None:
    second = hushrec.load_run(folder, 2)
    found = json.loads(invoke(folder, "--user", "7", "--fold", "2", "--json").stdout)
    assert found == as_said(second.recommend(7)[0])
    assert found != as_said(hushrec.load_run(folder).recommend(7)[0])
    everything = json.loads(
        invoke(folder, "--user", "7", "-k", "99", "--include-seen", "--min-raters", "0", "--json").stdout
    )
    assert sorted(entry["item"] for entry in everything) == list(range(1, 51))
    many = json.loads(invoke(folder, "--user", "7", "-k", "99", "--min-raters", "30", "--json").stdout)
    assert 0 < len(many) < len(json.loads(invoke(folder, "--user", "7", "-k", "99", "--json").stdout))


def test_a_newcomer_with_a_file(layered: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("user,item,rating\nme,3,5\nme,1,1\nme,40,4\n")
    found = json.loads(invoke(layered, "--newcomer", str(file), "--json").stdout)
    assert found == as_said(hushrec.load_run(layered).recommend_newcomer([1, 3, 40], [1, 5, 4]))
    assert not {1, 3, 40} & {entry["item"] for entry in found}
    seen = json.loads(invoke(layered, "--newcomer", str(file), "--include-seen", "-k", "99", "--json").stdout)
    assert {1, 3, 40} <= {entry["item"] for entry in seen}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("user,item,rating\nme,1,5\nyou,2,4\n", r"mine\.csv holds 2 users; a newcomer's file holds one"),
        ("user,item\nme,1\nme,2\n", r"mine\.csv has no ratings; give a column named rating"),
        (
            "user,item,rating\nme,999,5\n",
            r"1 of 1 items are not in synthetic; leave them out \(item ids look like 1",
        ),
        ("user,item,rating\nme,1,five\n", r"mine\.csv, line 2"),
        ("", r"mine\.csv: the file is empty"),
    ],
)
def test_bad_files_of_newcomers_are_refused(folder: Path, tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(content)
    with pytest.raises(HushrecError, match=told):
        invoke(folder, "--newcomer", str(file))


def test_items_that_are_not_known_are_left_out_with_a_note(layered: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("item,rating\n3,5\n999,1\n40,4\n1000,2\n")
    result = invoke(layered, "--newcomer", str(file), "--json")
    assert json.loads(result.stdout) == as_said(hushrec.load_run(layered).recommend_newcomer([3, 40], [5, 4]))
    assert result.stderr == "2 of 4 items are not known to this model and left out\n"


def test_the_last_rating_of_an_item_counts(layered: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("item,rating\n3,1\n40,4\n3,5\n3,2\n")
    result = invoke(layered, "--newcomer", str(file), "--json")
    assert json.loads(result.stdout) == as_said(hushrec.load_run(layered).recommend_newcomer([3, 40], [2, 4]))
    assert result.stderr == "2 rows are of items that come again later; the last row counts\n"


def test_a_newcomers_file_needs_no_user(folder: Path, tmp_path: Path) -> None:
    """Said by the error of `recommend RUN` without a user: --newcomer FILE with item and rating columns."""
    file = tmp_path / "mine.csv"
    file.write_text("item,rating\n1,5\n2,1\n")
    invoke(folder, "--newcomer", str(file))


@pytest.fixture(scope="module")
def implicit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs on a file without ratings, by system."""
    place = tmp_path_factory.mktemp("implicit")
    clicks, made = hushrec.load(DATA, implicit=True), {}
    for name in ("ptf-fedrec", "fcf", "neumf"):
        made[name] = place / name
        system = SYSTEMS[name]
        config = system.configure(short(name, num_rounds=2))
        run(system, config, clicks, settings_for(system), RuntimeOptions(threads=1), made[name])
    return made


def test_the_side_says_whose_model_it_is(implicit: dict[str, Path]) -> None:
    lists = {}
    for side, told in (("server", "the server's model"), ("client", "the client's own model; nothing was sent")):
        result = invoke(implicit["ptf-fedrec"], "--user", "7", "--side", side)
        assert result.stderr == f"computed on this machine from {told}\n"
        lists[side] = result.stdout
    assert lists["server"] != lists["client"]
    assert invoke(implicit["ptf-fedrec"], "--user", "7").stdout == lists["server"]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (
            "fcf",
            ["--user", "7", "--side", "server"],
            "the server of fcf has no client's vector; leave --side server",
        ),
        (
            "neumf",
            ["--user", "7", "--side", "client"],
            "clients of neumf have no model of their own; leave --side",
        ),
        (
            "ptf-fedrec",
            ["--newcomer", "mine.csv", "--side", "client"],
            "a client's own model cannot serve newcomers",
        ),
    ],
)
def test_what_a_model_cannot_do_is_refused_in_one_line(
    implicit: dict[str, Path], name: str, arguments: list[str], told: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("item\n3\n1\n40\n")
    with pytest.raises(HushrecError) as caught:
        invoke(implicit[name], *arguments)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_users_of_a_run(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lists.jsonl"
    result = invoke(folder, "--all-users", "-k", "3", "--why", "--not", "7", "--out", str(out))
    assert result.stdout == f"240 rows for 80 users in {out}\n"
    assert result.stderr == "computed on this machine from the client's own model; nothing was sent\n"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["rank"] for row in rows] == [1, 2, 3] * 80
    for user in (1, 33, 80):
        alone = json.loads(invoke(folder, "--user", str(user), "-k", "3", "--not", "7", "--json").stdout)
        own = [row for row in rows if row["user"] == user]
        assert [row["item"] for row in own] == [entry["item"] for entry in alone]
        assert [row["score"] for row in own] == [entry["score"] for entry in alone]
    with pytest.raises(HushrecError, match="is there already; choose another, or replace it with --force"):
        invoke(folder, "--all-users", "--out", str(out))
    result = invoke(folder, "--all-users", "--only", "3", "--out", str(out), "--force", "--json")
    told = json.loads(result.stdout)
    assert told["rows"] == told["users"] == len(out.read_text().splitlines()) < 80


def test_chosen_items_of_a_file_may_be_unknown(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "stock.csv"
    file.write_text("item\n3\n999\n5\n")
    result = invoke(folder, "--user", "7", "--only", str(file), "--include-seen", "--json")
    assert {entry["item"] for entry in json.loads(result.stdout)} == {3, 5}
    assert result.stderr == f"--only {file}: 1 of 3 ids are not in this run; passed over\n"


def test_why_is_a_column(folder: Path, layered: Path, tmp_path: Path) -> None:
    expected = hushrec.load_run(folder).recommend(7, 4, why=True)[0]
    lines = [line.split() for line in invoke(folder, "--user", "7", "-k", "4", "--why").stdout.splitlines()]
    assert lines[0] == ["item", "score", "because", "of"]
    for line, entry in zip(lines[1:], expected, strict=True):
        assert line[3:] == ([] if entry.because is None else [str(entry.because.item)])
    assert any(len(line) == 4 for line in lines[1:])
    file = tmp_path / "mine.csv"
    file.write_text("item,rating\n3,5\n1,1\n40,4\n")
    found = json.loads(invoke(layered, "--newcomer", str(file), "--why", "--json").stdout)
    reasons = {entry["because"]["item"] for entry in found if entry["because"]}
    assert reasons <= {3, 40}
    assert reasons


def test_a_model_without_vectors_gives_no_reasons(tmp_path: Path) -> None:
    hushrec.Average().fit(hushrec.load(DATA)).save(tmp_path / "run")
    with pytest.raises(HushrecError, match="average has no vectors of items to compare; leave --why out"):
        invoke(tmp_path / "run", "--user", "7", "--why")


@pytest.mark.parametrize("header", ["user,item", "item"])
def test_a_newcomers_file_needs_no_ratings_where_none_were_trained(
    implicit: dict[str, Path], header: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    prefix = "me," if "user" in header else ""
    file.write_text(f"{header}\n{prefix}3\n{prefix}1\n{prefix}40\n")
    found = json.loads(invoke(implicit["fcf"], "--newcomer", str(file), "--json").stdout)
    assert found == as_said(hushrec.load_run(implicit["fcf"]).recommend_newcomer([1, 3, 40], [1, 1, 1]))
    assert not {1, 3, 40} & {entry["item"] for entry in found}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--user", "999"], "no user '999' in synthetic; its 80 user ids are numbers"),
        (["--user", "ann"], "no user 'ann' in synthetic"),
        (["--user", "1", "--fold", "3"], "has no finished fold 3"),
        (["--user", "1", "--fold", "0"], "has no finished fold 0"),
        (["--user", "1", "--only", "3", "--not", "3"], "what was chosen leaves no item to list"),
        (["--user", "1", "--min-raters", "-1"], "-1 raters are fewer than none; use --min-raters 0"),
        (["--user", "1", "-k", "0"], "a list of 0 items is too short"),
        (["--user", "1", "--min-raters", "81"], "no item has 81 raters; use fewer, as in --min-raters 0"),
        (["--user", "1", "--newcomer", "x.csv"], "say for whom: --user ID, or --newcomer FILE"),
        (["--user", "1", "--all-users"], "say for whom: --user ID, or --newcomer FILE"),
        (["--all-users"], "--all-users needs a file for the lists, as in --out lists.parquet"),
        (["--user", "1", "--out", "x.csv"], "--out is for --all-users; the list of one person is printed"),
        (["--all-users", "--out", "x.txt"], "x.txt must end in .parquet, .csv, .jsonl"),
        (["--user", "1", "--not", "3,99"], "--not 3,99 is no file; as ids, 1 of 2 are unknown"),
        ([], "say for whom: --user ID, or --newcomer FILE"),
    ],
)
def test_bad_wishes_are_refused(folder: Path, arguments: list[str], told: str) -> None:
    with pytest.raises(HushrecError) as caught:
        invoke(folder, *arguments)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_newcomer_with_everything_is_told_that_nothing_is_left(layered: Path, tmp_path: Path) -> None:
    items = hushrec.load_run(layered).ranker().train.item_ids.tolist()
    file = tmp_path / "all.csv"
    file.write_text("item,rating\n" + "".join(f"{item},{1 + place % 5}\n" for place, item in enumerate(items)))
    told = invoke(layered, "--newcomer", str(file))
    assert told.stdout == ""
    assert "no item that may be listed is left; --include-seen lists items already rated, too" in told.stderr
    assert json.loads(invoke(layered, "--newcomer", str(file), "--json").stdout) == []


def test_ids_of_the_source_go_in_and_come_out(tmp_path: Path) -> None:
    data = hushrec.load(DATA)
    assert data.ratings is not None
    rows = zip(data.users, data.items, data.ratings, strict=True)
    lines = [f"anna {user},sku/{item},{rating}" for user, item, rating in rows]
    (tmp_path / "shop.csv").write_text("\n".join(["user,item,rating", *lines]))
    hushrec.PMF(num_rounds=4, num_factors=5).fit(hushrec.read(tmp_path / "shop.csv")).save(tmp_path / "model")
    shown = invoke(tmp_path / "model", "--user", "anna 3", "-k", "3").stdout.splitlines()
    assert len(shown) == 4
    assert all(line.split()[1].startswith("sku/") for line in shown[1:])


@pytest.mark.parametrize("title", ["[rec] (2007)", "a [/b] title"])
def test_titles_are_printed_as_they_are(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_recommendations([Recommendation(1, 4.5, title)])
    assert title in capsys.readouterr().out


def test_spaces_around_a_user_are_no_part_of_it(folder: Path) -> None:
    """As in files."""
    assert invoke(folder, "--user", " 7 ", "--json").stdout == invoke(folder, "--user", "7", "--json").stdout


def test_without_titles_there_is_no_column_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_recommendations([Recommendation("x", 4.5, ""), Recommendation("y", 4.25, "")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["item", "score"], ["1", "x", "4.50"], ["2", "y", "4.25"],
    ]  # fmt: skip


def test_long_titles_and_no_titles(capsys: pytest.CaptureFixture[str]) -> None:
    title = "Adventures of Priscilla, Queen of the Desert, The (1994)"
    print_recommendations([Recommendation(42, 4.567, title), Recommendation("x", -1.0, "")])
    lines = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:3] == ["1", "42", "4.57"]
    assert lines[1][3].strip() == title
    assert lines[2] == ["2", "x", "-1.00"]
