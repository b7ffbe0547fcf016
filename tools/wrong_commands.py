"""Wrong command lines, drawn from all verbs and options: each must be one line and exit code 2, never a traceback.

    python tools/wrong_commands.py --number 200 --seed 0

A line is wrong because one of its words is: an option that does not exist, a value of another kind, a number that
is absurd, a file that is not there, a folder below a file. The rest of it is right, on very little data, so that
nothing else can be the reason. A line that is not refused in time has begun to work, or waits: that is a fault.
"""

import argparse
import contextlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import typer.main

from hushrec.cli.endings import exits_cleanly
from hushrec.cli.verbs import app

DATA = "synthetic:users=20,items=15,ratings=120"
WRONG_NUMBERS = ["nan", "x", "-5", "", "1;2", "[red]", ":smile:"]
TOO_LARGE = "99999999999999999999999"
# Any seed is one; of more than there are, all are taken. A large float is none too large.
NEVER_TOO_LARGE = {"seed", "cohort_size", "k"}
# What counts from some number on may count from any.
MAY_BE_NEGATIVE = {"relevant_from", "positive_from"}
UNKNOWN = ["bogus", "rh0", "epsilonn", "out-dir", "[red]", ":smile:", "x" * 300]
PLACES = (
    "out",
    "config",
    "picture",
    "columns",
    "rating_range",
    "at",
    "newcomer",
    "only",
    "items",
    "page",
    "save_config",
)
MOST_CPU_SECONDS, MOST_SECONDS = 20, 120  # for a refusal
# What waits for others, once it is not refused, has a process of its own that can be ended.
WAITING = {("serve",), ("ui",), ("deploy", "server"), ("deploy", "node"), ("deploy", "status")}


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that lead to it."""
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name in group.list_commands(None):
        yield from leaves(group.get_command(None, name), (*path, name))


def furnish(folder: Path) -> set[str]:
    """Make what right command lines speak of: a run, a federation, ratings, items, a file; their names."""
    (folder / "file").write_text("no ratings here\n", encoding="utf-8")
    (folder / "items.tsv").write_text("1\tOne\n2\tTwo\n", encoding="utf-8")
    (folder / "ratings.csv").write_text("user,item,rating\n1,1,4\n1,2,3\n2,1,5\n", encoding="utf-8")
    short = ["--rounds", "1", "--num-factors", "2", "--preset", "paper", "--threads", "1", "--no-baselines"]
    for words in (
        ["run", "fedrec", "--data", DATA, *short, "--out", str(folder / "run")],
        ["deploy", "init", str(folder / "fed"), "--nodes", "2"],
    ):
        code, told = _here(words, is_timed=False)  # kernels may have to be compiled first
        if code:
            raise SystemExit(f"{words}: {told}")
    return {path.name for path in folder.iterdir()}


class Drawer:
    """Draws wrong command lines about what `furnish` has made in a folder."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = random.Random(seed), folder
        root: Any = typer.main.get_command(app)
        of_folder = root.get_command(None, "audit").get_command(None, "RUN")  # not listed
        self.commands = [*leaves(root), (("audit", "RUN"), of_folder)]

    def draw(self) -> list[str]:
        """One of the ways to be wrong."""
        path, command = self.random.choice(self.commands)
        ways: list[Callable[[Any], list[str]]] = [self._bad_value, self._bad_value, self._bad_place]
        wrong = self.random.choice([self._unknown_option, *ways])(command)
        return [*(word for word in path if word != "RUN"), *self._right(path, command), *wrong]

    def _right(self, path: tuple[str, ...], command: Any) -> list[str]:
        """What a command cannot do without, and what keeps it short."""
        at = {name: str(self.folder / name) for name in ("run", "fed", "items.tsv", "ratings.csv")}
        flags = {flag for one in command.params for flag in one.opts}
        if path[:1] in (("run",), ("audit",), ("tune",)) and path[-1] != "RUN":
            short = {"--rounds": "1", "--epochs": "1", "--threads": "1", "--trials": "1"}
            return ["--data", DATA, *(word for flag in short if flag in flags for word in (flag, short[flag]))]
        if path[:2] == ("deploy", "run"):
            return [
                at["fed"],
                "--rating-range",
                "1,5",
                *(["--items", at["items.tsv"]] if path[2] != "fedcore" else []),
            ]
        right = {
            ("deploy", "init"): [str(self.folder / "new"), "--nodes", "1"],
            ("deploy", "server"): [at["fed"]],
            ("deploy", "node"): [at["fed"], "--name", "node-1", "--data", at["ratings.csv"]],
            ("deploy", "status"): [at["fed"]],
            ("deploy", "local"): ["--system", "fedrec", "--data", DATA, "--rounds", "1"],
            ("data", "list"): [],
            ("data", "fetch"): ["ml-100k"],
            ("data", "describe"): [DATA],
            ("systems",): [],
            ("reproduce",): ["fedrec++", "table2", "--data", "ml-100k", "--folds", "1"],
            ("recommend",): [at["run"], "--user", "1"],
            ("similar",): [at["run"], "--item", "1"],
            ("serve",): [at["run"], "--simulation", "--port", "0"],
            ("ui",): [at["run"], "--port", "0"],
        }
        return right.get(path, [at["run"]])

    def _unknown_option(self, command: Any) -> list[str]:
        return [f"--{self.random.choice(UNKNOWN)}", "1"]

    def _bad_value(self, command: Any) -> list[str]:
        numbers = [one for one in command.params if one.param_type_name == "option" and _kind(one) in (int, float)]
        if not numbers:
            return self._unknown_option(command)
        one = self.random.choice(numbers)
        values = [value for value in WRONG_NUMBERS if value != "-5" or one.name not in MAY_BE_NEGATIVE]
        if _kind(one) is int and one.name not in NEVER_TOO_LARGE:
            values.append(TOO_LARGE)
        return [max(one.opts, key=len), *([self.random.choice(values)] * max(one.nargs, 1))]

    def _bad_place(self, command: Any) -> list[str]:
        found = [one for one in command.params if one.name in PLACES and one.param_type_name == "option"]
        if not found:
            return self._unknown_option(command)
        one = self.random.choice(found)
        return [max(one.opts, key=len), str(self.folder / "file" / "below")]


def _kind(option: Any) -> Any:
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    return getattr(kind, "__args__", (kind,))[0]


class TooLongError(BaseException):
    """No refusal, but work."""


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError(f"not refused within {MOST_CPU_SECONDS} seconds of CPU")


def outcome(words: list[str]) -> tuple[int, str]:
    """The exit code and what was said, as a shell would see them; a bug is code -1 and its name."""
    return _alone(words) if tuple(words[:2]) in WAITING or tuple(words[:1]) in WAITING else _here(words)


def _here(words: list[str], is_timed: bool = True) -> tuple[int, str]:
    """In this process, which is faster; its clock counts CPU time, as a machine may be busy."""
    err = io.StringIO()
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _too_long)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS if is_timed else 0)
    signal.alarm(MOST_SECONDS if is_timed else 0)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            exits_cleanly(lambda: app(words, prog_name="hushrec", standalone_mode=False))
    except SystemExit as ended:
        return int(ended.code or 0), err.getvalue()
    except BaseException as error:
        return -1, f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return 0, err.getvalue()


def _alone(words: list[str]) -> tuple[int, str]:
    """In a process of its own, which is ended with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hushrec.cli.app", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told = process.communicate(timeout=MOST_SECONDS)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -1, f"not refused within {MOST_SECONDS} seconds"
    return (-1 if "Traceback" in told else process.returncode), told


def is_refusal(code: int, told: str) -> bool:
    """Whether a command line was refused as it should be: in one line, with exit code 2."""
    return code == 2 and sum(line.startswith("hushrec: ") for line in told.splitlines()) == 1


def main() -> int:
    """Draw, try, and tell what was no clean refusal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        furnished = furnish(Path(folder))
        drawer = Drawer(wish.seed, Path(folder))
        for _ in range(wish.number):
            words = drawer.draw()
            code, told = outcome(words)
            left = {path.name for path in Path(folder).iterdir()} - furnished
            if not is_refusal(code, told) or left:
                faults += 1
                print(code, words, re.sub(r"\s+", " ", told)[-300:], *left, flush=True)
            furnished |= left
    print(
        f"{wish.number} wrong command lines, seed {wish.seed}: {faults} not refused in one line with exit code 2"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
