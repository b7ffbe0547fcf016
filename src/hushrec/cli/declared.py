"""What systems declare, known without loading one: titles, settings, presets. `--help` comes at once by that.

For the systems that come with hushrec it stands in `declared.json`, which `python tools/stubs.py` makes from their
configs; a test holds the two together. Those of other packages are loaded.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from hushrec.registry import SYSTEMS

if TYPE_CHECKING:
    from hushrec.protocol import AnySystem

FILE = Path(__file__).with_name("declared.json")
NUMBERS = tuple[int, ...]  # typed as 48,24,12
_KINDS = {"int": int, "float": float, "bool": bool, "str": str, "numbers": NUMBERS}


@dataclass(frozen=True)
class Setting:
    """One setting: what can be said for it, and what it is else."""

    name: str
    kind: Any  # a type, as `Literal["hybrid", "average"]`
    default: Any
    help: str


@dataclass(frozen=True)
class Declared:
    """As much of a system as its commands need before they are run."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    presets: tuple[str, ...] = ()
    usual_preset: str | None = None
    about_presets: str = ""
    learns_live: bool = False
    knows_all_items: bool = True
    needs_ratings: bool = False

    @classmethod
    def of(cls, system: "AnySystem") -> "Declared":
        """Of a system that is loaded."""
        from hushrec.runs.suiting import usual_preset
        from hushrec.systems.drift.system import has_drift_rounds

        hints, presets = get_type_hints(system.config), tuple(system.about.presets)
        usual, told = usual_preset(system) if presets else (None, "")
        return cls(
            name=system.name,
            title=system.about.title,
            settings=tuple(
                Setting(entry.name, hints[entry.name], entry.default, entry.metadata["help"])
                for entry in fields(system.config)
            ),
            presets=presets,
            usual_preset=usual,
            about_presets=told,
            learns_live=has_drift_rounds(system),
            knows_all_items=system.holders.knows_all_items,
            needs_ratings=system.feedback.needs_ratings,
        )


@cache
def _kept() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def declared(name: str) -> Declared:
    """What a system declares."""
    if name not in _kept() or not SYSTEMS.is_built_in(name):
        return Declared.of(SYSTEMS.named(name))
    kept = _kept()[name]
    settings = tuple(_setting(*entry) for entry in kept["settings"])
    return Declared(**{**kept, "name": name, "settings": settings, "presets": tuple(kept["presets"])})


def _setting(name: str, kind: Any, default: Any, help: str) -> Setting:
    """A setting as the file has it: choices are a list, other kinds a word."""
    if isinstance(kind, list):
        return Setting(name, Literal[tuple(kind)], default, help)
    return Setting(name, _KINDS[kind], tuple(default) if kind == "numbers" else default, help)


def titles() -> dict[str, str]:
    """The title of every system that can be used; only those of other packages are loaded for it."""
    others = {name: system.about.title for name, system in SYSTEMS.others().items()}
    return {name: declared(name).title for name in SYSTEMS if SYSTEMS.is_built_in(name)} | others


def all_declared() -> list[Declared]:
    """What all systems declare that can be used."""
    return [declared(name) for name in titles()]


def as_json(systems: Iterable["AnySystem"]) -> str:
    """The text of the file, for these systems; a setting is a line."""
    described = ",\n".join(_described(Declared.of(system)) for system in systems)
    return f"{{\n{described}\n}}\n"


def _described(one: Declared) -> str:
    rows = [[entry.name, _word(entry.kind), entry.default, entry.help] for entry in one.settings]
    settings = ",\n".join(f"   {json.dumps(row)}" for row in rows)
    others = {name: value for name, value in vars(one).items() if name not in ("name", "settings")}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in others.items()]
    return f'"{one.name}": {{\n' + ",\n".join([*lines, f' "settings": [\n{settings}\n ]']) + "\n}"


def _word(kind: Any) -> list[Any] | str:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return next(word for word, known in _KINDS.items() if known == kind)
