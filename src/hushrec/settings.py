"""Configs: frozen dataclasses whose fields carry a help text. Files, command line and Python build them alike."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, TypeVar

import msgspec

from hushrec.errors import HushrecError

Config = TypeVar("Config")


def setting(default: Any, help: str, is_secret: bool = False) -> Any:
    """A config field with the paper's default and a line for `--help`. A secret one never leaves the server."""
    return field(default=default, metadata={"help": help, "is_secret": is_secret})


def build(config_type: type[Config], values: Mapping[str, object]) -> Config:
    """A config from names and values; an unknown name or a wrong type is an error."""
    names = [entry.name for entry in fields(config_type)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
            raise HushrecError(f"unknown setting {name}; {hint}")
    try:
        return msgspec.convert(dict(values), config_type)
    except msgspec.ValidationError as error:
        raise HushrecError(f"bad setting: {error}") from None


def to_dict(config: object) -> dict[str, Any]:
    """Names and values, as JSON and TOML keep them."""
    values = asdict(config)  # type: ignore[call-overload]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def shown_to_parties(config: object) -> dict[str, Any]:
    """Names and values without those that only the driving side may know."""
    secret = {entry.name for entry in fields(config) if entry.metadata.get("is_secret")}  # type: ignore[arg-type]
    return {name: value for name, value in to_dict(config).items() if name not in secret}


def check(is_right: bool, message: str) -> None:
    """Refuse a config with one line that says what to do."""
    if not is_right:
        raise HushrecError(message)
