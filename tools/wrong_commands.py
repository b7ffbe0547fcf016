"""Wrong command lines, drawn from all verbs and options: each must be one line and exit code 2, never a traceback.

    python tools/wrong_commands.py --number 200 --seed 0

A line is wrong because one of its words is: an option that does not exist, a value of another kind, a number that
is absurd, a file that is not there, a folder below a file. The rest of it is right, on very little data.
"""

import argparse
import contextlib
import io
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import typer.main

from hushrec.cli.endings import exits_cleanly
from hushrec.cli.verbs import app

DATA = "synthetic:users=20,items=15,ratings=120"
ALWAYS_WRONG_NUMBERS = ["99999999999999999999999", "nan", "x", "-5", "", "1;2", "[red]", ":smile:"]
NEVER_TOO_LARGE = {"seed", "cohort_size"}  # any seed is one; in a cohort of more than there are, all are
MOST_SECONDS = 20  # for a refusal
# Verbs that would wait for others, and options that are wishes of any text.
LEFT_OUT = {
    ("serve",),
    ("deploy", "server"),
    ("deploy", "node"),
    ("deploy", "status"),
    ("data", "list"),
    ("demo",),
}


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that lead to it."""
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name in group.list_commands(None):
        yield from leaves(group.get_command(None, name), (*path, name))


class Drawer:
    """Draws wrong command lines; `folder` holds a file and nothing else."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = random.Random(seed), folder
        root = typer.main.get_command(app)
        self.commands = [(path, one) for path, one in leaves(root) if path not in LEFT_OUT]
        (folder / "file").write_text("no ratings here\n", encoding="utf-8")

    def draw(self) -> list[str]:
        """One of the ways to be wrong."""
        path, command = self.random.choice(self.commands)
        right = [*path, *self._needed(path, command)]
        wrong = self.random.choice([self._unknown_option, self._bad_value, self._bad_value, self._bad_place])
        return [*right, *wrong(command)]

    def _needed(self, path: tuple[str, ...], command: Any) -> list[str]:
        """What a command cannot do without, and few rounds."""
        words = []
        flags = {flag for one in command.params for flag in one.opts}
        for one in command.params:
            if one.param_type_name == "argument" and one.required:
                words.append(str(self.folder / "nosuch"))
            elif one.required:
                value = {"data": DATA, "system": "fedrec", "item": "1"}.get(one.name, "1")
                words += [max(one.opts, key=len), value]
        if "--data" in flags and "--data" not in words and path[0] in ("run", "audit"):
            words += ["--data", DATA]
        return words

    def _unknown_option(self, command: Any) -> list[str]:
        return [
            f"--{self.random.choice(['bogus', 'rh0', 'epsilonn', 'out-dir', '[red]', ':smile:', 'x' * 300])}",
            "1",
        ]

    def _bad_value(self, command: Any) -> list[str]:
        numbers = [one for one in command.params if one.param_type_name == "option" and _is_number(one)]
        if not numbers:
            return self._unknown_option(command)
        one = self.random.choice(numbers)
        value = self.random.choice(ALWAYS_WRONG_NUMBERS)
        if value.startswith("999") and (one.name in NEVER_TOO_LARGE or _kind(one) is float):
            value = "x"
        return [max(one.opts, key=len), *([value] * max(one.nargs, 1))]

    def _bad_place(self, command: Any) -> list[str]:
        places = ("out", "config", "picture", "columns", "rating_range", "at", "newcomer", "only", "items", "page")
        found = [one for one in command.params if one.name in places]
        if not found:
            return self._unknown_option(command)
        one = self.random.choice(found)
        return [max(one.opts, key=len), str(self.folder / "file" / "below")]


def _kind(option: Any) -> Any:
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    return getattr(kind, "__args__", (kind,))[0]


def _is_number(option: Any) -> bool:
    return _kind(option) in (int, float)


class TooLongError(BaseException):
    """No refusal, but work."""


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError(f"not refused within {MOST_SECONDS} seconds")


def outcome(words: list[str]) -> tuple[int, str]:
    """The exit code and what was said, as a shell would see them; a bug is code -1 and its name."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MOST_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            exits_cleanly(lambda: app(words, prog_name="hushrec", standalone_mode=False))
    except SystemExit as ended:
        return int(ended.code or 0), err.getvalue()
    except BaseException as error:
        return -1, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return 0, err.getvalue()


def main() -> int:
    """Draw, try, and tell what was no clean refusal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        drawer = Drawer(wish.seed, Path(folder))
        for _ in range(wish.number):
            words = drawer.draw()
            code, told = outcome(words)
            last = [line for line in told.splitlines() if line.startswith("hushrec: ")]
            if code != 2 or len(last) != 1:
                faults += 1
                print(code, words, re.sub(r"\s+", " ", told)[-300:], flush=True)
    print(
        f"{wish.number} wrong command lines, seed {wish.seed}: {faults} not refused in one line with exit code 2"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
