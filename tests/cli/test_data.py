import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushrec.cli.data import app
from hushrec.cli.options import parse_columns, parse_rating_range
from hushrec.data import CATALOGUE, Columns
from hushrec.errors import HushrecError, naming_options

RATINGS = "buyer,sku,stars,timestamp\nann,x,3,0\nann,y,5,86400\nbob,x,5,\n"
COLUMNS = "user=buyer,item=sku"


@pytest.fixture(autouse=True)
def _no_folders_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHREC_DATA", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments: str) -> str:
    with naming_options():  # as the whole command does
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.csv"
    path.write_text(RATINGS)
    return str(path)


def test_list_shows_where_each_set_would_come_from(tmp_path: Path) -> None:
    lines = {line.split()[0]: line for line in run("list").splitlines()}
    assert set(CATALOGUE) | {"synthetic"} <= set(lines)
    assert lines["ml-100k"].rstrip().endswith("publisher")
    assert lines["steam-200k"].rstrip().endswith("not available")
    assert "gowalla-20 = gowalla" in lines["gowalla-20"]
    assert max(map(len, lines.values())) <= 80


def test_list_as_json_sees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ml-1m.parquet").touch()
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    listed = {entry["name"]: entry for entry in json.loads(run("list", "--json"))}
    assert listed["ml-1m"]["from"] == "folder"
    assert listed["ml-1m"]["address"] == str(tmp_path / "ml-1m.parquet")
    assert listed["ml-1m"]["items"] == 3952
    assert listed["gowalla-20"]["aliases"] == ["gowalla"]


def test_describe_a_file_as_a_table(shop: str) -> None:
    table = run("describe", shop, "--columns", COLUMNS)
    lines = [line.rstrip() for line in table.splitlines()]
    assert "users         2" in lines
    assert "items         2 (2 occur)" in lines
    assert "density       75.0%" in lines
    assert "ratings       3 to 5, mean 4.33" in lines
    assert f" 5            {'█' * 30} 2" in lines
    assert "per user      least 1, median 1.5, most 2" in lines
    assert "time span     1970-01-01 to 1970-01-02" in lines


def test_describe_a_file_as_json(shop: str) -> None:
    said = json.loads(run("describe", shop, "--columns", COLUMNS, "--rating-range", "1,5", "--json"))
    assert (said["users"], said["items"], said["interactions"]) == (2, 2, 3)
    assert said["histogram"] == {"3": 1, "5": 2}
    assert said["rating_range"] == [1, 5]
    assert said["per_user"] == [1, 1.5, 2]
    assert said["source"] == shop
    assert len(said["sha256"]) == 64


def test_describe_synthetic_is_labelled() -> None:
    shown = run("describe", "synthetic:users=100,items=50,ratings=2000")
    assert shown.split()[:2] == ["data", "synthetic"]


def test_describe_many_values_and_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "fine.csv"
    rows = "".join(f"{row},1,{row / 10},1600000000000000\n" for row in range(101))
    path.write_text("user,item,rating,timestamp\n" + rows)
    said = json.loads(run("describe", str(path), "--json"))
    assert list(said["histogram"].values()) == [10] * 9 + [11]
    assert said["time_span"] == ["2020-09-13"] * 2


def test_describe_takes_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("user,item,rating\n1,1,2\n1,1,4\n")
    with pytest.raises(HushrecError, match=r"line 3: user 1 and item 1 .* --duplicates last or --duplicates mean"):
        run("describe", str(path))
    assert json.loads(run("describe", str(path), "--duplicates", "mean", "--json"))["histogram"] == {"3": 1}


def test_fetch_of_what_is_not_in_the_catalogue(shop: str) -> None:
    with pytest.raises(HushrecError, match="is no data set of the catalogue; see `hushrec data list`"):
        run("fetch", shop)
    with pytest.raises(HushrecError, match="steam-200k could not be fetched: there is nowhere to fetch it from"):
        run("fetch", "steam-200k")


def test_errors_come_out_whole() -> None:
    with pytest.raises(HushrecError, match="did you mean ml-100k"):
        run("describe", "ml-100")


@pytest.mark.parametrize("verb", ["list", "fetch", "describe"])
def test_help_has_an_example(verb: str) -> None:
    assert f"Example: hushrec data {verb}" in run(verb, "--help")


def test_parsers() -> None:
    assert parse_columns("user=a, item=b,timestamp=") == Columns(user="a", item="b", timestamp="")
    assert parse_rating_range("-10,10") == (-10, 10)


@pytest.mark.parametrize("text", ["buyer", "buyer=x", "user=a,,", ""])
def test_columns_with_a_fault(text: str) -> None:
    with pytest.raises(HushrecError, match=r"--columns has .*; write user=NAME,item=NAME"):
        parse_columns(text)


@pytest.mark.parametrize("text", ["5", "1,2,3", "a,b", ""])
def test_rating_range_with_a_fault(text: str) -> None:
    with pytest.raises(HushrecError, match=r"--rating-range is .*; write two numbers, as in 1,5"):
        parse_rating_range(text)


def test_duplicates_with_a_fault() -> None:
    result = CliRunner().invoke(app, ["describe", "synthetic", "--duplicates", "first"])
    assert result.exit_code == 2
    assert "'first' is not one of 'error', 'last', 'mean'" in " ".join(result.stderr.replace("│", "").split())
