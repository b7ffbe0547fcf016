import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import hushrec
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError

DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("runs") / "pmf", hushrec.load(DATA)
    titled = replace(data, titles=np.array([f"Title {item}" for item in data.item_ids]))
    hushrec.PMF(num_rounds=5, num_factors=5).fit(titled).save(folder)
    return folder


def invoke(folder: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["similar", str(folder), *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_a_list_is_the_models(folder: Path) -> None:
    expected = hushrec.load_run(folder).similar(7, 4)
    result = invoke(folder, "--item", "7", "-k", "4")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["item", "cosine", "title"]
    assert lines[1:] == [
        [str(place), str(entry.item), f"{entry.score:.3f}", "Title", str(entry.item)]
        for place, entry in enumerate(expected, 1)
    ]
    assert result.stderr == "nearest to Title 7 (7), from the server's model\n"


def test_without_titles_there_is_no_column_of_them(tmp_path: Path) -> None:
    hushrec.PMF(num_rounds=2, num_factors=5).fit(replace(hushrec.load(DATA), titles=None)).save(tmp_path / "pmf")
    result = invoke(tmp_path / "pmf", "--item", "7", "-k", "2")
    assert [len(line.split()) for line in result.stdout.splitlines()] == [2, 3, 3]
    assert result.stdout.split()[:2] == ["item", "cosine"]


def test_options_reach_the_model(folder: Path) -> None:
    found = json.loads(
        invoke(folder, "--item", "7", "--min-raters", "0", "--only", "1,2,3", "--not", "2", "--json").stdout
    )
    expected = hushrec.load_run(folder).similar(7, min_raters=0, only=[1, 3])
    assert found == [{"item": e.item, "score": e.score, "title": e.title} for e in expected]
    assert len(found) == 2


def test_a_model_without_vectors_says_so(tmp_path: Path) -> None:
    hushrec.Average().fit(hushrec.load(DATA)).save(tmp_path / "run")
    with pytest.raises(HushrecError, match="average has no vectors of items to compare; ask a run of another"):
        invoke(tmp_path / "run", "--item", "7")


def test_nothing_but_the_item_itself_is_no_list(folder: Path) -> None:
    told = invoke(folder, "--item", "7", "--only", "7")
    assert told.stdout == ""
    assert "no other item may be listed; choose others with --only" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--item", "99"], "no item '99' in synthetic; item ids look like 1"),
        (["--item", "7", "-k", "0"], "a list of 0 items is too short"),
        (["--item", "7", "--only", "no.csv"], "--only no.csv is no file; as ids, 1 of 1 are unknown"),
    ],
)
def test_bad_wishes_are_refused(folder: Path, arguments: list[str], told: str) -> None:
    with pytest.raises(HushrecError) as caught:
        invoke(folder, *arguments)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
