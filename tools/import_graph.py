"""Print which parts of hushrec import which, from the ground up, and what is wrong with it.

`python tools/import_graph.py` reads the source; it imports nothing of it. Every import counts: at the top of a
module, inside a function, or for types only.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "hushrec"

# From the ground up. A module may import from its own part, and from the parts of the lines above its own.
LAYERS = (
    ("errors", "compiling", "choices"),
    ("limits",),
    ("draws", "settings", "files", "plugins", "tables", "progress", "callables"),
    ("kernels",),
    ("data",),
    ("evaluation",),
    ("baselines",),
    ("protocol",),
    ("registry",),
    ("privacy",),
    ("models",),
    ("runtime",),
    ("runs",),
    ("audit", "deploy"),
    ("systems",),
    ("handover",),
    ("experiments", "recommender"),
    ("estimators",),
    ("tuning",),
    ("survey",),
    ("report", "serving"),
    ("workbench",),
    ("cli",),
    ("__init__", "__main__", "testing"),
)
HEIGHTS = {part: height for height, parts in enumerate(LAYERS) for part in parts}
# They know systems by the protocol only.
UNAWARE = ("runtime", "deploy")
KNOWN_BY_PROTOCOL = ("systems", "models")

Graph = Mapping[str, set[str]]


def module_name(path: Path, source: Path = SOURCE) -> str:
    """`hushrec.data.readers` for `data/readers.py`, `hushrec.data` for `data/__init__.py`."""
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The part of the library that a module belongs to."""
    return [*module.split("."), "__init__"][1]


def imported_names(path: Path) -> Iterator[str]:
    """Full names of all that a file imports, wherever in it; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise SystemExit(f"{path}:{node.lineno}: a relative import; write the full name")
            yield from (f"{node.module}.{name.name}" for name in node.names)


def import_graph(source: Path = SOURCE) -> dict[str, set[str]]:
    """The modules of hushrec that each module of hushrec imports."""
    files = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    graph = {}
    for module, path in files.items():
        found = {name if name in files else name.rpartition(".")[0] for name in imported_names(path)}
        graph[module] = (found & files.keys()) - {module}
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other."""
    reached = {node: reachable(graph, [node]) for node in graph}
    groups = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph}
    return sorted(sorted(group) for group in groups if group)


def reachable(graph: Graph, starts: Iterable[str]) -> set[str]:
    """All that these import, and what those import, and so on."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def upward(graph: Graph) -> list[tuple[str, str]]:
    """Imports that do not point down."""
    pairs = [(module, other) for module, others in graph.items() for other in sorted(others)]
    return [pair for pair in pairs if not _points_down(*map(part_of, pair))]


def _points_down(own: str, other: str) -> bool:
    return own == other or HEIGHTS[other] < HEIGHTS[own]


def by_part(graph: Graph) -> dict[str, set[str]]:
    """The parts that each part imports."""
    parts: dict[str, set[str]] = {part: set() for parts in LAYERS for part in parts}
    for module, others in graph.items():
        own = part_of(module)
        parts[own] |= {part_of(other) for other in others} - {own}
    return parts


def aware(graph: Graph) -> list[tuple[str, str]]:
    """Imports of a system or a model where systems are known by the protocol only."""
    return [
        (module, other)
        for module, others in graph.items()
        for other in sorted(others)
        if part_of(module) in UNAWARE and part_of(other) in KNOWN_BY_PROTOCOL
    ]


def main() -> int:
    """Print the graph; 1 if something is wrong with it."""
    graph = import_graph()
    parts = by_part(graph)
    for layer in LAYERS:
        for part in layer:
            print(f"{part:12}", " ".join(sorted(parts[part], key=lambda name: HEIGHTS[name])) or "-")
    findings = {
        "cycles of modules": [" <-> ".join(cycle) for cycle in cycles(graph)],
        "imports that point up": [f"{module} -> {other}" for module, other in upward(graph)],
        f"systems or models in {' and '.join(UNAWARE)}": [
            f"{module} -> {other}" for module, other in aware(graph)
        ],
    }
    for what, found in findings.items():
        print(f"\n{what}: {len(found) or 'none'}", *found, sep="\n  ")
    return int(any(findings.values()))


if __name__ == "__main__":
    sys.exit(main())
