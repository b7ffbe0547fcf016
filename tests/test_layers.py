"""Imports point one way, nothing is pickled, the core draws and times nothing on its own."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hushrec

SOURCE = Path(hushrec.__file__).parent

# From the ground up. A module may import those of its own part and of the layers below.
LAYERS = [
    {"errors"},
    {"draws", "settings"},
    {"kernels"},
    {"protocol"},
    {"data"},
    {"privacy"},
    {"evaluation"},
    {"models", "attacks"},
    {"systems"},
    {"runtime"},
    {"experiments"},
    {"deploy"},
    {"report", "recommender"},
    {"serving"},
    {"cli"},
    {"__init__"},
]
HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}
CORE = {"kernels", "protocol", "privacy", "models", "systems"}
UNKEYED = {"random", "secrets", "time", "datetime", "uuid", "os", "socket", "asyncio", "subprocess"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}

MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Full names of all that a module imports, wherever in it; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def parts_imported(path: Path) -> set[str]:
    names = [name.split(".") for name in imported(path)]
    return {name[1] if name[1:] and name[1] in HEIGHT else "__init__" for name in names if name[0] == "hushrec"}


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} <= set(HEIGHT)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    own = part_of(path)
    upward = {part for part in parts_imported(path) if part != own and HEIGHT[part] >= HEIGHT[own]}
    assert not upward, f"{own} must not import {upward}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_pickled(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & PICKLES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(path) in CORE], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_the_core_has_no_clock_no_socket_and_no_randomness_of_its_own(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & UNKEYED
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            assert (node.value.attr, node.attr) not in {("random", "default_rng"), ("random", "seed")}


def test_the_library_imports_without_its_extras() -> None:
    code = (
        "import sys, hushrec, hushrec.systems, hushrec.runtime.training;"
        "print([name for name in ('torch', 'matplotlib', 'flwr', 'tenseal') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
