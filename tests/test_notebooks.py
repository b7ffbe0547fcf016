"""Notebooks of examples/ and docs/tutorials/ run from top to bottom, and are kept without what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hushrec.data.catalogue import find_entry, locate
from text_notebooks import cells_of, script_of

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# In a process of its own: Jupyter warns of what is none of our business.
EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
print(nbformat.writes(notebook))
"""


def executed(path: Path, ratings: str, folder: Path) -> list[Any]:
    """The cells of code of a notebook, after it ran in an empty folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "RATINGS": ratings}
    command = [sys.executable, "-c", EXECUTE, str(path)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]


def shown(cells: list[Any]) -> str:
    return json.dumps([cell["outputs"] for cell in cells])


def test_there_is_one() -> None:
    assert "frames.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    cells = executed(path, "synthetic:users=80,items=50,ratings=1500", tmp_path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    told = shown(cells)
    for word in (
        "<progress value=",
        "trial 6/6",
        "round 3/3",
        "RMSE",
        "hidden and denoised",
        "listed items",
        "shape: (3, ",
        "shape: (15, 5)",
    ):
        assert word in told


@pytest.mark.slow
def test_the_notebook_runs_on_ml_100k(tmp_path: Path) -> None:
    entry = find_entry("ml-100k")
    assert entry is not None
    if locate(entry).kind not in ("folder", "cache"):
        pytest.skip("ML-100K is not here")
    assert "RMSE" in shown(executed(ROOT / "examples" / "frames.ipynb", "ml-100k", tmp_path))


# --- Tutorials: notebooks in Markdown ----------------------------------------------------------------------

TUTORIALS = {
    path.stem: path for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if path.stem != "index"
}
QUICK = ("transcript", "write-a-system", "write-an-attack")  # the others have their words checked by slow tests
# What each prints when what it says is true.
SAYS = {
    "audit-repair": ["gives an F1 of 1.000", "[published]", "nobody sent anything that it could tell apart"],
    "deploy": ["model digest", "in one process: the same"],
    "drift": ["theta 60: What the threshold leaves open"],
    "drift-live": ["model digest", "'items': ["],
    "fedcore": ["shops: a, b", "'a cold': 0.", "gradient inversion"],
    "fedrec": ["lists 44 in the first round", "are read exactly", "[secure sums]"],
    "own-data": ["duplicates='last'", "all in one place", "True"],
    "ptf-fedrec": ["Predictions, client to server", "shadow membership"],
    "transcript": ["of which it rated 5", "DenoisingSums", "True"],
    "tuning": ["complete", "tuned", "'bytes'"],
    "write-a-system": ["item means", "gives an F1 of 1.00"],
    "write-an-attack": ["in 100% of cases", "fcf: nothing to look at"],
}


def printed_by(path: Path, folder: Path) -> str:
    """What the cells of a notebook print, as one script."""
    (folder / "cells.py").write_text(script_of(path), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg"}
    command = [sys.executable, "cells.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_tutorials_are_at_least_ten_and_each_is_known_by_its_words() -> None:
    assert len(TUTORIALS) >= 10
    assert set(SAYS) == set(TUTORIALS)
    for path in TUTORIALS.values():
        text = path.read_text(encoding="utf-8")
        assert text.startswith("---\nfile_format: mystnb\n")
        assert len(cells_of(path)) == text.count("```{code-cell}") >= 2


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_tutorial_runs_and_says_what_it_should(name: str, tmp_path: Path) -> None:
    told = printed_by(TUTORIALS[name], tmp_path)
    assert [words for words in SAYS[name] if words not in told] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TUTORIALS if name not in QUICK])
def test_a_tutorial_runs_and_says_what_it_should(name: str, tmp_path: Path) -> None:
    told = printed_by(TUTORIALS[name], tmp_path)
    assert [words for words in SAYS[name] if words not in told] == []
