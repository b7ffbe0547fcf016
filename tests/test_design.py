"""What `docs/design.md` names exists."""

import importlib
import re
from pathlib import Path

import pytest

DESIGN = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
WALKS = DESIGN[DESIGN.index("## Five walks") : DESIGN.index("## Rooms")]
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
