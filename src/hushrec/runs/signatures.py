"""A system's settings as the keyword arguments of its estimator: names, types, defaults and what they mean."""

import inspect
from dataclasses import fields
from typing import Any, Literal, get_type_hints

from hushrec.protocol import AnySystem
from hushrec.runs.suiting import usual_preset


def keywords_of(system: AnySystem) -> list[inspect.Parameter]:
    """The settings, after the preset if the system has some."""
    hints, presets = get_type_hints(system.config), system.about.presets
    settings = [_keyword(entry.name, entry.default, hints[entry.name]) for entry in fields(system.config)]
    if presets:
        usual, _ = usual_preset(system)
        names: Any = Literal[tuple(presets)]
        settings.insert(0, _keyword("preset", usual, names if usual else names | None))
    return settings


def docstring_of(system: AnySystem) -> str:
    """What the estimator's class says of itself: the paper, and a line for each argument."""
    told = [f"{one.name}: {one.metadata['help']} (default {one.default!r})" for one in fields(system.config)]
    if system.about.presets:
        told.insert(0, f"preset: named settings, of which others may differ: {usual_preset(system)[1]}")
    paper = system.about.paper
    lines = [
        f"{system.about.title}.",
        "",
        f"{paper.authors}: {paper.title} ({paper.venue} {paper.year}).",
        "",
        "Settings:",
        *(f"    {line}" for line in told),
        "    seed: of everything random (default 0)",
        "    options: threads and the like, which change no number",
    ]
    return "\n".join(lines)


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
