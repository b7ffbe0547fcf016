"""How long hushrec takes to start: import, help of every verb, the first run of a machine and the second.

`python -m benchmarks.start` measures this source; with a folder behind it, `python -m benchmarks.start /old/src`,
also that one, in turns. CPU seconds of a child process, the least of three; runs are made once, with kernels of
their own. Sizes of an install: `python tools/install_sizes.py`.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
VERBS = (
    "", "run", "run fedrec++", "audit", "data", "data describe", "systems", "reproduce", "compare", "recommend",
    "similar", "deploy", "deploy run", "deploy local", "serve", "report",
)  # fmt: skip
DATA = "synthetic:users=200,items=100,ratings=4000"
RUN = ["run", "fedrec++", "--data", DATA, "--rounds", "2", "--threads", "1"]


def cpu_seconds(source: Path, code: str, words: list[str], **variables: str) -> float:
    """Of a child process with this source."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": str(source), **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(sources: list[Path], code: str, words: list[str]) -> list[float]:
    """The least of three, of each source."""
    rows = [[cpu_seconds(source, code, words) for source in sources] for _ in range(3)]
    return [min(column) for column in zip(*rows, strict=True)]


def main(sources: list[Path]) -> None:
    """Print a line for each way to start, a column for each source."""
    command = "from hushrec.cli.app import main; main()"
    print(f"{'CPU seconds':32}", *(f"{'this' if source == SOURCE else 'other':>7}" for source in sources))
    jobs = {"import hushrec": ("import hushrec", [])} | {
        f"hushrec {verb} --help".replace("  ", " "): (command, [*verb.split(), "--help"]) for verb in VERBS
    }
    for told, (code, words) in jobs.items():
        print(f"{told:32}", *(f"{seconds:7.2f}" for seconds in starts(sources, code, words)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rooms = {source: str(Path(folder) / str(number)) for number, source in enumerate(sources)}
        for told in ("first run, kernels compiled", "second run"):
            found = [cpu_seconds(source, command, RUN, NUMBA_CACHE_DIR=rooms[source]) for source in sources]
            print(f"{told:32}", *(f"{seconds:7.2f}" for seconds in found), flush=True)


if __name__ == "__main__":
    main([SOURCE, *(Path(word) for word in sys.argv[1:])])
