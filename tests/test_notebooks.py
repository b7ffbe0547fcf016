"""Notebooks of examples/ run from top to bottom, and are kept without what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hushrec.data.catalogue import find_entry, locate

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
