"""Departures from the papers: the `DEVIATION:` marks in the code that a system is made of.

What a system is made of is found by reading, not by running: from its config and functions to the functions and
classes that these name, through `hushrec.systems`, `hushrec.models` and `hushrec.privacy`. A mark outside of any
function counts for all who use its module.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hushrec.protocol import System

MARK = "DEVIATION:"
_PACKAGES = ("hushrec.systems.", "hushrec.models.", "hushrec.privacy.")


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


class Place(NamedTuple):
    """A function, class or constant of a module."""

    module: str
    name: str


def deviations(system: System[Any, Any, Any]) -> list[Deviation]:
    """All marks in what the system is made of, in the order of files and lines."""
    parts: list[Any] = [system.config, system.init, system.enrol, system.round, system.model, system.reply_bytes]
    parts += [*system.handlers.values(), *system.inboxes.values(), *system.messages]
    parts += [part for part in (system.own_model, system.more_models) if part is not None]
    functions = [getattr(part, "func", part) for part in parts]  # functools.partial holds one
    waiting = [Place(part.__module__, part.__qualname__.partition(".")[0]) for part in functions]
    reached: set[Place] = set()
    while waiting:
        place = waiting.pop()
        module = _module(place.module)
        if module and place not in reached:
            reached.add(place)
            waiting += module.named_by(place.name)
    found = {found for place in reached for found in _deviations_at(place)}
    return sorted(found, key=lambda one: (one.file, one.line))


def _deviations_at(place: Place) -> Iterator[Deviation]:
    module = _module(place.module)
    assert module is not None
    for mark in module.marks:
        if module.owner_of(mark.line) in (place.name, None):
            yield Deviation(module.file, mark.line, mark.text)


# --- Reading modules -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """What the source of a module says: its marks, its definitions, and what its names mean."""

    name: str
    file: str
    marks: list[Mark]
    definitions: dict[str, ast.stmt]
    imports: dict[str, Place]  # name "" for a module

    def named_by(self, definition: str) -> list[Place]:
        """What a definition names: other definitions, here or in modules that are imported."""
        node = self.definitions.get(definition)
        return [] if node is None else [place for name in _names(node) if (place := self._meaning(name))]

    def _meaning(self, name: tuple[str, str]) -> Place | None:
        first, attribute = name
        if first in self.definitions:
            return Place(self.name, first)
        found = self.imports.get(first)
        return Place(found.module, attribute) if found and not found.name else found

    def owner_of(self, line: int) -> str | None:
        """The definition that a line is in."""
        for name, node in self.definitions.items():
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(one.lineno for one in decorators)])
            if first <= line <= (node.end_lineno or node.lineno):
                return name
        return None


@cache
def _module(name: str) -> Module | None:
    """A module of the packages that systems are made of; none for other names."""
    if not name.startswith(_PACKAGES):
        return None
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    return Module(name, "/".join(path.parts[-2:]), find_marks(source), _definitions(tree), _imports(tree))


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def _imports(tree: ast.Module) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: Place(alias.name, "") for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner.startswith(_PACKAGES) and _module(inner) is not None
                place = Place(inner, "") if is_module else Place(node.module, alias.name)
                found[alias.asname or alias.name] = place
    return found


def _names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names with the attribute taken of them, if any. Annotations do not count: they run nothing."""
    if isinstance(node, ast.Name):
        yield node.id, ""
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
    else:
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from _names(child)


# --- Reading marks ---------------------------------------------------------------------------------------


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
