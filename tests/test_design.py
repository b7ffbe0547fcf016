"""What `docs/design.md` names exists, and what there is it names."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WALKS = DESIGN[DESIGN.index("## Five walks") : DESIGN.index("## Rooms")]
ROOMS = DESIGN[DESIGN.index("## Rooms") : DESIGN.index("## Add a system")].split("```")[1]
NAMED = sorted(set(re.findall(r"`([a-z_0-9.]+\.[A-Za-z_.]+)`", WALKS)))


def found(name: str) -> object:
    """The function or method of a dotted name within the package."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing: object = importlib.import_module(".".join(["hushrec", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise AttributeError(name)


@pytest.mark.parametrize("name", NAMED)
def test_every_step_of_a_walk_exists(name: str) -> None:
    assert callable(found(name))


def test_there_are_five_walks() -> None:
    assert len(re.findall(r"^\*\*", WALKS, flags=re.M)) == 5
    assert len(NAMED) > 40


def test_every_file_that_is_named_exists() -> None:
    """Paths below the project, or below `src/hushrec`."""
    named = sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|md))`", DESIGN)))
    assert len(named) > 20
    assert [path for path in named if not any((top / path).exists() for top in (ROOT, ROOT / "src/hushrec"))] == []


def test_every_room_is_named_from_the_ground_up() -> None:
    """In an order of the layers to which imports are held."""
    layers = runpy.run_path(str(ROOT / "tools" / "import_graph.py"))["LAYERS"]
    heights = {part: height for height, layer in enumerate(layers) for part in layer if not part.startswith("__")}
    listed = [room.rstrip("/") for line in ROOMS.strip().splitlines() for room in line[:31].split()]
    assert sorted(listed) == sorted(heights)
    assert listed == sorted(listed, key=lambda room: heights[room])
