"""Newcomers of every system, from files as people write them: a list, or one line."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hushrec
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from systems.runs import short

NUM_ITEMS = 30
PLAIN = {
    "one": "item,rating\ni3,5\n",
    "three": "item,rating\ni3,5\ni1,1\ni20,4\n",
    "twenty": "user,item,rating\n" + "".join(f"me,i{item},{1 + item % 5}\n" for item in range(20)),
    "all the same": "item,rating\n" + "".join(f"i{item},5\n" for item in range(8)),
    "nearly everything": "item,rating\n" + "".join(f"i{item},{1 + item % 5}\n" for item in range(NUM_ITEMS - 3)),
    "some unknown": "item,rating\ni3,5\nnowhere,4\ni1,1\n",
    "twice": "item,rating\ni3,1\ni1,1\ni3,5\n",
    "a thousand": "item,rating\ni2,1\n" + "".join(f"i{item},5\n" for item in range(3, 1003)),
}
ABSURD = {"zeros": "0", "nine": "9", "minus five": "-5", "huge": "1e30", "no number": "nan", "endless": "inf"}
BAD = {
    "none known": "item,rating\nnowhere,5\nneither,3\n",
    "empty": "",
    "no rows": "item,rating\n",
    "no items": "rating\n5\n",
    "words": "item,rating\ni3,good\n",
}


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with names of its own for users and items."""
    data, path = (
        hushrec.load("synthetic:users=40,items=30,ratings=700"),
        tmp_path_factory.mktemp("data") / "shop.csv",
    )
    assert data.ratings is not None
    rows = zip(data.users, data.items, data.ratings, strict=True)
    lines = [f"u{user},i{item},{rating:g},{place}" for place, (user, item, rating) in enumerate(rows)]
    path.write_text("\n".join(["user,item,rating,timestamp", *lines]))
    return path


@pytest.fixture(scope="module", params=list(SYSTEMS))
def folder(request: pytest.FixtureRequest, csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of each system."""
    system, place = SYSTEMS[request.param], tmp_path_factory.mktemp("runs") / request.param
    data = hushrec.read(csv)
    settings = settings_for(system, data=data)
    # Ratings are learned slowly: after a few rounds all are predicted near zero.
    config = system.configure(short(system.name, num_rounds=40 if system.feedback.needs_ratings else 4))
    run(system, config, data, settings, RuntimeOptions(threads=1), place)
    return place


def told(folder: Path, tmp_path: Path, content: str, *options: str) -> list[dict[str, object]] | str:
    """The list for a newcomer with this file, or the line that says why there is none."""
    file = tmp_path / "me.csv"
    file.write_text(content)
    words = ["recommend", str(folder), "--newcomer", str(file), "--min-raters", "0", "--json", *options]
    result = CliRunner().invoke(app, words, catch_exceptions=True)
    if result.exception is None:
        found: list[dict[str, object]] = json.loads(result.stdout)
        return found
    assert isinstance(result.exception, HushrecError), result.exc_info
    line = str(result.exception)
    assert line
    assert "\n" not in line
    return line


def assert_fit_to_be_shown(found: list[dict[str, object]] | str, folder: Path, content: str) -> None:
    assert isinstance(found, list), found
    assert found
    scores = [float(str(entry["score"])) for entry in found]
    assert all(math.isfinite(score) for score in scores)
    assert scores == sorted(scores, reverse=True)
    items = [str(entry["item"]).rpartition(":")[2] for entry in found]
    assert len(set(items)) == len(items) <= 10
    assert not set(items) & {word for line in content.splitlines() for word in line.split(",")}
    if SYSTEMS[folder.name].feedback.needs_ratings:
        assert min(scores) >= 1
        assert max(scores) <= 5


@pytest.mark.parametrize("case", PLAIN)
def test_a_newcomer_gets_a_list(folder: Path, tmp_path: Path, case: str) -> None:
    found = told(folder, tmp_path, PLAIN[case])
    if folder.name == "average":
        assert found == "this model scores all items alike after these ratings, so it ranks none; rate other items"
    elif case == "a thousand":
        assert isinstance(found, str) or len(found) <= 2
    else:
        assert_fit_to_be_shown(found, folder, PLAIN[case])


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_ratings_are_refused_or_do_not_matter(folder: Path, tmp_path: Path, case: str) -> None:
    for content in (f"item,rating\ni3,{ABSURD[case]}\n", f"item,rating\ni3,{ABSURD[case]}\ni1,5\ni20,4\n"):
        found = told(folder, tmp_path, content)
        if SYSTEMS[folder.name].feedback.name == "implicit" and isinstance(found, list):
            assert_fit_to_be_shown(found, folder, content)
            assert found == told(folder, tmp_path, "\n".join(line.split(",")[0] for line in content.split()))
        else:
            assert isinstance(found, str)


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_told_in_one_line(folder: Path, tmp_path: Path, case: str) -> None:
    assert isinstance(told(folder, tmp_path, BAD[case]), str)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"artikel;note\ni13;5\ni11;1\n", ["--columns", "item=artikel,rating=note"]),
        (b"k\xe4ufer;item;note\nann;i13;4,5\nann;i11;1\n",
         ["--columns", "rating=note,user=", "--encoding", "latin-1", "--decimal", ","]),
        (b"item,rating\ni13,5\ni11,\n", ["--missing", "drop"]),
        (gzip.compress(b"i13,5\ni11,1\n"), []),
        ("item\trating\ni13\t5\n".encode("utf-16"), []),
    ],
    ids=["named", "Latin-1", "missing", "packed, no header", "UTF-16"],
)  # fmt: skip
def test_files_are_read_as_run_reads_them(tmp_path: Path, content: bytes, options: list[str]) -> None:
    data = hushrec.load("synthetic:users=40,items=30,ratings=700")
    named = replace(data, item_ids=np.array([f"i{item + 10}" for item in range(data.num_items)]))
    hushrec.PMF(num_rounds=3, num_factors=3).fit(named, stop_early=False).save(tmp_path / "pmf")
    file = tmp_path / "me.csv"
    file.write_bytes(content)
    words = ["recommend", str(tmp_path / "pmf"), "--newcomer", str(file), "--json", *options]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert len(json.loads(result.stdout)) == 10


def test_what_is_said_of_no_file_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["recommend", str(tmp_path), "--user", "1", "--encoding", "latin-1"])
    told = "--encoding is of the file of --newcomer; give that, or leave --encoding out"
    assert str(result.exception) == told


def test_items_alone_are_enough_where_ratings_are_not_needed(folder: Path, tmp_path: Path) -> None:
    found = told(folder, tmp_path, "item\ni3\ni1\ni20\n")
    if SYSTEMS[folder.name].feedback.needs_ratings:
        assert isinstance(found, str)
        assert "me.csv has no ratings; give a column named rating, or name it with " in found
    else:
        assert_fit_to_be_shown(found, folder, "i3,i1,i20")


def test_users_are_known_by_the_ids_of_the_file(folder: Path) -> None:
    words = ["recommend", str(folder), "--user", "u7", "--min-raters", "0", "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    found = json.loads(result.stdout)
    items = [str(entry["item"]).rpartition(":")[2] for entry in found]
    assert len(items) == len(set(items))
    assert items
    assert set(items) <= {f"i{item}" for item in range(NUM_ITEMS)}
    with pytest.raises(HushrecError, match=r"no user 'u99' (in|with any partner of)"):
        CliRunner().invoke(app, [*words[:3], "u99"], catch_exceptions=False)
