"""Imports point one way, nothing is pickled, the core draws and times nothing by itself, rounds touch no file."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hushrec.registry import SYSTEMS

ROOT = Path(__file__).parents[1]


def _load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_graph", ROOT / "tools" / "import_graph.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _load_tool()
GRAPH = tool.import_graph()
FILES = {tool.module_name(path): path for path in sorted(tool.SOURCE.rglob("*.py"))}
CORE = {"kernels", "protocol", "privacy", "models", "systems"}
BELOW = {"errors", "limits", "draws", "settings", "data", "evaluation"}  # what the core may use besides
UNKEYED = {"random", "secrets", "time", "datetime", "uuid", "os", "socket", "select", "asyncio", "subprocess"}
FILES_AND_STREAMS = {"sqlite3", "io", "sys", "shutil", "mmap", "fcntl"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
IN_CORE = [module for module in FILES if tool.part_of(module) in CORE]


def packages_of(module: str) -> set[str]:
    return {name.split(".")[0] for name in tool.imported_names(FILES[module])}


# --- Layers ------------------------------------------------------------------------------------------------------


def test_every_part_has_a_layer() -> None:
    assert {tool.part_of(module) for module in FILES} <= set(tool.HEIGHTS)


def test_imports_point_down() -> None:
    assert tool.upward(GRAPH) == []


def test_no_modules_import_each_other() -> None:
    assert tool.cycles(GRAPH) == []


def test_runtime_and_deploy_know_no_system_and_no_model() -> None:
    assert tool.aware(GRAPH) == []


def test_the_graph_can_be_printed() -> None:
    command = [sys.executable, str(ROOT / "tools" / "import_graph.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "cycles of modules: none" in printed
    assert "systems or models in runtime and deploy: none" in printed


def test_an_import_counts_wherever_it_is(tmp_path: Path) -> None:
    """At the top, for types, in a function; a cycle of three inside a package, and one that points up."""
    sources = {
        "data/__init__.py": "from hushrec.data.one import a",
        "data/one.py": "if TYPE_CHECKING:\n    from hushrec.data.two import b",
        "data/two.py": "def c():\n    import hushrec.data.three",
        "data/three.py": "from hushrec.data import one, numpy",
        "runtime/__init__.py": "import hushrec.models.pmf",
        "models/pmf.py": "from hushrec.data import a\nfrom hushrec.runtime import d",
    }
    for name, text in sources.items():
        path = tmp_path / "hushrec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = tool.import_graph(tmp_path / "hushrec")
    assert graph["hushrec.data.two"] == {"hushrec.data.three"}
    assert graph["hushrec.models.pmf"] == {"hushrec.data", "hushrec.runtime"}
    cycle = ["hushrec.data", "hushrec.data.one", "hushrec.data.three", "hushrec.data.two"]
    assert tool.cycles(graph) == [cycle, ["hushrec.models.pmf", "hushrec.runtime"]]
    assert tool.upward(graph) == [("hushrec.models.pmf", "hushrec.runtime")]
    assert tool.aware(graph) == [("hushrec.runtime", "hushrec.models.pmf")]
    assert tool.by_part(graph)["models"] == {"data", "runtime"}


# --- What may be used where --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", FILES)
def test_nothing_is_pickled(module: str) -> None:
    assert not packages_of(module) & PICKLES
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


@pytest.mark.parametrize("module", IN_CORE)
def test_the_core_has_no_clock_no_socket_and_no_randomness_of_its_own(module: str) -> None:
    assert not packages_of(module) & UNKEYED
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            assert (node.value.attr, node.attr) not in {("random", "default_rng"), ("random", "seed")}


def homes(value: Any) -> Iterator[str]:
    """The modules of all functions and classes in a part of a system."""
    if isinstance(value, Mapping):
        for pair in value.items():
            yield from homes(pair)
    elif isinstance(value, tuple):
        for entry in value:
            yield from homes(entry)
    elif isinstance(value, partial):
        yield from homes(value.func)
    elif is_dataclass(value) and not isinstance(value, type):
        for entry in fields(value):
            yield from homes(getattr(value, entry.name))
    elif callable(value):
        yield value.__module__


@pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS.is_built_in(name)])
def test_a_round_touches_no_file(name: str) -> None:
    """All that a system does, but for its store on a node's disk, and all that this imports of the core."""
    system = SYSTEMS[name]
    parts = [entry.name for entry in fields(system) if entry.name not in ("config", "open_store")]
    made_of = {module for part in parts for module in homes(getattr(system, part)) if module in IN_CORE}
    assert made_of
    core = {module: {other for other in GRAPH[module] if other in IN_CORE} for module in IN_CORE}
    for module in made_of | tool.reachable(core, made_of):
        assert not packages_of(module) & FILES_AND_STREAMS, module
        others = {tool.part_of(other) for other in GRAPH[module]}
        assert others <= CORE | BELOW, module


def test_the_library_imports_without_its_extras() -> None:
    code = (
        "import sys, hushrec, hushrec.systems, hushrec.runtime.training;"
        "print([name for name in ('torch', 'matplotlib', 'flwr', 'tenseal', 'optuna') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
