"""Commands of pages are run as they are written, one after the other, on a little data in place of MovieLens.

A page is followed from top to bottom in an empty folder. What a page expects to be there is put there first. What
cannot be run here is left out by its first words, with the reason.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import DOCS, blocks, command_lines

SMALL = "synthetic:users=60,items=190,ratings=3000"
NEEDS_DATA = "a published table needs the published data"
LEFT_OUT = {"tutorial.md": {"hushrec reproduce": NEEDS_DATA}}
STANDS_IN = {"ml-100k": SMALL}


def place_files(folder: Path) -> None:
    """What pages speak of as your own."""
    shim = folder / "bin" / "hushrec"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m hushrec "$@"\n')
    shim.chmod(0o755)
    rows = [f"c{user},p{item},{1 + (user * item) % 5}" for user in range(20) for item in range(user % 3, 30, 2)]
    (folder / "ratings.csv").write_text("\n".join(["customer,product,stars", *rows, ""]))
    (folder / "seen.txt").write_text("1\n2\n3\n")


def run(folder: Path, text: str) -> None:
    """Have a shell run a piece of a page; it must end well."""
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(DOCS.parent / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


@pytest.mark.slow
def test_five_minutes_to_a_recommendation_are_as_the_page_says(tmp_path: Path) -> None:
    """Every block of the page but the installation, to the letter."""
    place_files(tmp_path)
    (tmp_path / "ratings.csv").unlink()
    found = [block for block in blocks((DOCS / "start.md").read_text(encoding="utf-8")) if block.language == "sh"]
    assert "pip install" in found[0].text
    assert len(found) >= 7
    for block in found[1:]:
        run(tmp_path, block.text)
    assert (tmp_path / "runs" / "first" / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", LEFT_OUT)
def test_commands_of_a_page_run_as_written(page: str, tmp_path: Path) -> None:
    place_files(tmp_path)
    num_run = 0
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        first = block.text.partition("\n")[0]
        if first == "user,item,rating":
            (tmp_path / "me.csv").write_text(block.text + "\n")
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        for line in command_lines(block):
            if any(line.startswith(words) for words in LEFT_OUT[page]):
                continue
            for large, small in STANDS_IN.items():
                line = line.replace(large, small)
            run(tmp_path, line)
            num_run += 1
    assert num_run >= 12
