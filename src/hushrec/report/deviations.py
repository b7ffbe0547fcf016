"""Departures from the papers: the `DEVIATION:` marks in the files of a system, and of those that it builds on."""

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hushrec.protocol import AnySystem

MARK = "DEVIATION:"


class Mark(NamedTuple):
    """One departure: the line where the code makes it, and what it says."""

    line: int
    text: str


@dataclass(frozen=True)
class Deviation:
    """One departure, and where the code makes it."""

    file: str  # within the package, as in systems/fedrec.py
    line: int
    text: str


def deviations(system: AnySystem) -> list[Deviation]:
    """All marks of a system, in the order of files and lines."""
    own = system.config.__module__.removesuffix(".system")
    paths = sorted({path for module in (own, *system.about.builds_on) for path in _files(module)})
    marks = [(path, mark) for path in paths for mark in find_marks(path.read_text(encoding="utf-8"))]
    return [Deviation(_shown(path), mark.line, mark.text) for path, mark in marks]


@cache
def _files(module: str) -> tuple[Path, ...]:
    """The file of a module, or all of a folder."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ()
    path = Path(spec.origin)
    return tuple(sorted(path.parent.rglob("*.py"))) if path.name == "__init__.py" else (path,)


def _shown(path: Path) -> str:
    """A path as the report prints it: from the part of the package on."""
    *_, room, folder, name = path.parts
    return f"{room}/{folder}/{name}" if room == "systems" else f"{folder}/{name}"


def find_marks(source: str) -> list[Mark]:
    """The marks: in comments with the comment lines that follow, in docstrings up to a blank line."""
    found: list[Mark] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            found += _in_string(token.start[0], token.string.strip("\"'").splitlines())
        elif token.type == tokenize.COMMENT and token.string.lstrip("# ").startswith(MARK):
            found.append(_in_comment(source.splitlines(), *token.start))
    return found


def _in_string(first_line: int, lines: list[str]) -> Iterator[Mark]:
    for place, line in enumerate(lines):
        if line.strip().startswith(MARK):
            yield Mark(first_line + place, _joined(lines[place:]))


def _in_comment(lines: list[str], number: int, column: int) -> Mark:
    texts = [lines[number - 1][column:].lstrip("# ")]
    if not lines[number - 1][:column].strip():  # a comment on its own line goes on in the next ones
        for line in lines[number:]:
            if not line.strip().startswith("#"):
                break
            texts.append(line.strip().lstrip("# "))
    return Mark(number, _joined(texts))


def _joined(lines: list[str]) -> str:
    kept = [lines[0].partition(MARK)[2].strip()]
    for line in lines[1:]:
        if not line.strip() or line.strip().startswith(MARK):
            break
        kept.append(line.strip())
    return " ".join(kept)
