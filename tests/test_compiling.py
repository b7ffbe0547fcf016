"""A word about compiling kernels: said when it happens, and only then; and a place for them."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hushrec.compiling import Word

KERNEL = """
import numba
import hushrec.compiling
hushrec.compiling._SHORT_SECONDS = -1.0

@numba.njit(cache=True)
def kernel(x):
    return x + 1

print(kernel(1))
"""


def test_a_word_comes_once_and_not_for_little(caplog: pytest.LogCaptureFixture) -> None:
    """Kernels of .6, .3 and .9 seconds, the third with one of .2 inside, at whose end the limit is passed."""
    now, said = [0.0], []
    word = Word(lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    with caplog.at_level(logging.WARNING, "hushrec"):
        for parts in ([0.6], [0.3], [0.5, 0.2, 0.2]):
            word.on_start(None)
            passes(parts[0])
            if len(parts) > 1:
                word.on_start(None)
                passes(parts[1])
                word.on_end(None)
                said.append(len(caplog.records))
                passes(parts[2])
            word.on_end(None)
            passes(100.0)  # of work that is no compilation
            said.append(len(caplog.records))
    assert said == [0, 0, 1, 1]
    assert caplog.messages == ["compiling kernels: once per machine, for up to a minute; later runs start at once"]


def run(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, str(script)], env={**kept, **variables}, capture_output=True, text=True, check=True
    )


def test_what_is_kept_is_not_compiled_again_and_nothing_is_said(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    first, second = (run(script, NUMBA_CACHE_DIR=str(tmp_path / "kept")) for _ in range(2))
    assert (first.stdout, second.stdout) == ("2\n", "2\n")
    assert first.stderr.startswith("compiling kernels")
    assert second.stderr == ""


def test_where_nothing_can_be_written_kernels_still_work(tmp_path: Path) -> None:
    """Numba's places are all below a file here."""
    script, nowhere = tmp_path / "kernel.py", tmp_path / "file" / "below"
    script.write_text(KERNEL)
    nowhere.parent.write_text("")
    done = run(script, NUMBA_CACHE_DIR=str(nowhere), NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator")
    assert done.stdout == "2\n"
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in done.stderr
