"""Where good settings are looked for: what systems declare beside their settings, or what somebody asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hushrec.errors import HushrecError, option
from hushrec.protocol import AnySystem
from hushrec.runs.trials import length_setting
from hushrec.settings import Between, OneOf, Space

USUAL = "usual"  # stands for all that is searched unless asked otherwise
_DIGITS = 3  # of a number that is tried: more would only make commands long
_ALIASES = {"rounds": "num_rounds"}

Spaces = Mapping[str, Space]


def declared(system: AnySystem) -> dict[str, Space]:
    """The spaces of a system's settings, by their names."""
    return {entry.name: space for entry in fields(system.config) if (space := entry.metadata.get("search"))}


def chosen_spaces(system: AnySystem, over: Iterable[str], fixed: Mapping[str, Any]) -> dict[str, Space]:
    """What is searched: all that is usual, or what was asked for; never what somebody gave a value.

    Each text of `over` is a list of names (`rho,num_factors`), or one name with an interval (`rho=0..5`) or values
    (`filling=hybrid,average`); `usual` stands for what is searched without being asked for. The length of a
    training is not drawn, but found while training; its space says how long that may take.
    """
    own = declared(system)
    usual = {name: space for name, space in own.items() if not space.only_if_asked and name not in fixed}
    asked: dict[str, Space] = {}
    for text in over:
        if "=" in text:
            name, _, values = text.partition("=")
            name = _name(name, system)
            asked[name] = _parsed(name, values, system, fixed)
            continue
        for part in text.split(","):
            if part.strip() == USUAL:
                asked |= usual
                continue
            name = _name(part, system)
            asked[name] = own[name] if name in own else _of_type(name, system)
    for name in asked:
        if name in fixed:
            raise HushrecError(f"{name} is given a value; leave that out, or take it out of {option('over')}")
    spaces, length = asked or usual, length_setting(system)
    if length in usual:
        spaces.setdefault(length, usual[length])
    if not spaces.keys() - {length}:
        raise HushrecError(
            f"nothing of {system.name} is left to search; name a setting with {option('over', 'NAME=LOW..HIGH')}"
        )
    return spaces


def _name(text: str, system: AnySystem) -> str:
    known = [entry.name for entry in fields(system.config)]
    name = text.strip().removeprefix("--").replace("-", "_")
    name = _ALIASES.get(name, name)
    if name not in known:
        asked = option("over", text.strip())
        raise HushrecError(f"{asked}: {system.name} has no such setting; it has {', '.join(known)}")
    return name


def _of_type(name: str, system: AnySystem) -> Space:
    """All values of a setting that has few."""
    kind = get_type_hints(system.config)[name]
    if kind is bool:
        return OneOf((False, True))
    if get_origin(kind) is Literal:
        return OneOf(get_args(kind))
    where = option("over", f"{name}=LOW..HIGH")
    raise HushrecError(f"{option('over', name)}: say where to look, as in {where}")


def _parsed(name: str, text: str, system: AnySystem, fixed: Mapping[str, Any]) -> Space:
    kind = get_type_hints(system.config)[name]
    before = declared(system).get(name)
    try:
        if ".." in text and kind in (int, float):
            low, high = (kind(end) for end in text.split(".."))
            is_log = isinstance(before, Between) and before.log and low > 0
            space: Space = Between(low, high, log=is_log)
            is_right = low < high
        else:
            values = tuple(_value(one.strip(), kind) for one in text.split(","))
            space, is_right = OneOf(values), len(set(values)) > 1
    except (ValueError, TypeError):
        is_right = False
    if not is_right:
        asked = option("over", f"{name}={text}")
        raise HushrecError(f"{asked}: write an interval, as in {name}=LOW..HIGH, or values: A,B")
    # What the system does not take, it refuses here, before anything is tried.
    for value in (space.low, space.high) if isinstance(space, Between) else space.values:
        system.configure({**fixed, name: value})
    return space


def _value(text: str, kind: Any) -> str | int | float | bool:
    if kind is bool:
        return ("false", "true").index(text.lower()) == 1
    if kind in (int, float):
        number: int | float = kind(text)
        return number
    if get_origin(kind) is Literal and text in get_args(kind):
        return text
    raise ValueError(text)


def rounded(value: Any, space: Space) -> Any:
    """A drawn value with few digits, still within its space."""
    if not isinstance(value, float) or not isinstance(space, Between):
        return value
    return min(max(float(f"{value:.{_DIGITS}g}"), space.low), space.high)


def longest(system: AnySystem, spaces: Spaces, config: Any) -> int:
    """How long a training may be: as long as its space says, and no less than it is by default."""
    name = length_setting(system)
    space = spaces.get(name)
    own: int = getattr(config, name)
    if not isinstance(space, Between):
        return own
    return int(space.high) if space != declared(system).get(name) else max(int(space.high), own)
