"""Configs: frozen dataclasses whose fields carry a help text. Files, command line and Python build them alike."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from hushrec.errors import HushrecError, option

Config = TypeVar("Config")
LARGEST = 2**31 - 1  # of whole numbers


@dataclass(frozen=True)
class Between:
    """Numbers among which a good value of a setting is looked for; on a logarithmic scale, or a plain one.

    What protects people is searched only if that is asked for.
    """

    low: float
    high: float
    log: bool = False
    only_if_asked: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class OneOf:
    """Values among which a good one of a setting is looked for."""

    values: tuple[str | int | float | bool, ...]
    only_if_asked: bool = False

    def __contains__(self, value: object) -> bool:
        return value in self.values


Space = Between | OneOf


def setting(
    default: Any, help: str, within: str = "", is_secret: bool = False, search: Space | None = None
) -> Any:
    """A config field with the paper's default and a line for `--help`.

    `within` is an interval such as "(0, 1]" or "[1, inf)", for `check_bounds`. A secret never leaves the server.
    `search` is where `hushrec tune` looks for a better value; of the length of a training, its end is the longest.
    """
    metadata = {"help": help, "within": within, "is_secret": is_secret, "search": search}
    return field(default=default, metadata=metadata)


def check_bounds(config: object) -> None:
    """Refuse values outside of the intervals that their settings name; of a tuple, each counts."""
    for entry in fields(config):  # type: ignore[arg-type]
        within, value = entry.metadata.get("within"), getattr(config, entry.name)
        for one in value if isinstance(value, tuple) else (value,):
            if within and not _is_within(one, within):
                each = " each" if isinstance(value, tuple) else ""
                raise HushrecError(f"{_fault(entry.name, one, within)}{each}")


def _is_within(value: float, interval: str) -> bool:
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    is_above = value > low if interval[0] == "(" else value >= low
    return is_above and (value < high if interval[-1] == ")" else value <= high)


def _fault(name: str, value: float, interval: str) -> str:
    """What is wrong with a value outside of an interval, in words."""
    low, high = (bound.strip() for bound in interval[1:-1].split(","))
    if high != "inf":
        return f"{option(name, value)} is not in {interval}"
    if interval[0] == "(":
        return f"{option(name)} must be above {low} and finite"
    return f"{option(name)} must not be below 0" if low == "0" else f"{option(name)} must be at least {low}"


def build(config_type: type[Config], values: Mapping[str, object]) -> Config:
    """A config from names and values; an unknown name or a wrong type is an error."""
    names = [entry.name for entry in fields(config_type)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
            raise HushrecError(f"unknown setting {name}; {hint}")
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            _refuse_absurd(name, one)
    try:
        return msgspec.convert(dict(values), config_type)
    except msgspec.ValidationError as error:
        raise HushrecError(_bad_value(config_type, str(error), values)) from None


def _bad_value(config_type: type[Any], fault: str, values: Mapping[str, object]) -> str:
    """In a line, what a validator says of the place `$.name` or `$.name[...]`."""
    reason, _, place = fault.replace("`", "").partition(" - at $.")
    name = place.partition("[")[0]
    if name not in values:
        return f"bad setting: {fault}"
    kind = get_type_hints(config_type)[name]
    choices = ", ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else ""
    reason = f"choose from {choices}" if choices else f"{reason[0].lower()}{reason[1:]}"
    return f"bad setting {option(name, values[name])}: {reason}"


def _refuse_absurd(name: str, value: object) -> None:
    """No setting is a number beyond what counts, lengths and rounds can have."""
    if isinstance(value, int) and abs(value) > LARGEST:
        raise HushrecError(f"{option(name, value)} is too large; use at most {LARGEST}")


def to_dict(config: object) -> dict[str, Any]:
    """Names and values, as JSON and TOML keep them."""
    values = asdict(config)  # type: ignore[call-overload]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def are_as(config: object, wanted: Mapping[str, Any]) -> bool:
    """Whether settings have these values; text of an interval asks for a number within it.

    >>> from hushrec.registry import SYSTEMS
    >>> config = SYSTEMS["fedrec"].configure({"rho": 2})
    >>> are_as(config, {"rho": "[2, inf)", "secure_sums": False}), are_as(config, {"rho": 3}), are_as(config, {})
    (True, False, True)
    """
    return all(_is_as(getattr(config, name), value) for name, value in wanted.items())


def _is_as(value: Any, wanted: object) -> bool:
    if isinstance(wanted, str) and isinstance(value, int | float):
        return _is_within(value, wanted)
    return bool(value == wanted)


def shown_to_parties(config: object) -> dict[str, Any]:
    """Names and values without those that only the driving side may know."""
    secret = {entry.name for entry in fields(config) if entry.metadata.get("is_secret")}  # type: ignore[arg-type]
    return {name: value for name, value in to_dict(config).items() if name not in secret}


def check(is_right: bool, message: str) -> None:
    """Refuse a config with one line that says what to do."""
    if not is_right:
        raise HushrecError(message)


def switches_of(settings: Mapping[str, Any]) -> str:
    """Settings as they are typed.

    >>> switches_of({"rho": 0, "secure_sums": True}), switches_of({"epsilon_total": 8.0}), switches_of({})
    ('--rho 0 --secure-sums', '--epsilon-total 8', '')
    """
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {value}")
    return " ".join(words)
