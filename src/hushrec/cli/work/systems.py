"""The systems, printed: all in a table, or one with its messages and settings."""

from dataclasses import fields
from typing import Any

from rich.table import Table

from hushrec.cli.console import print_json, results, show
from hushrec.protocol import AnySystem
from hushrec.protocol.declared import reveals, threat_model
from hushrec.registry import SYSTEMS, system_named


def show_systems(name: str | None, as_json: bool) -> None:
    """Print all systems, or one."""
    chosen = [system_named(name)] if name else list(SYSTEMS.values())
    if as_json:
        print_json([_described(system) for system in chosen])
    elif name:
        _print_one(chosen[0])
    else:
        _print_all(chosen)


def _roles(system: AnySystem) -> list[str]:
    roles = [role for message in system.messages for role in (message.sender, message.receiver)]
    return [str(role) for role in dict.fromkeys(roles)]


def _described(system: AnySystem) -> dict[str, Any]:
    return {
        "name": system.name,
        "title": system.about.title,
        "paper": {
            "title": system.about.paper.title,
            "authors": system.about.paper.authors,
            "venue": system.about.paper.venue,
            "year": system.about.paper.year,
        },
        "roles": _roles(system),
        "messages": [
            {
                "type": message.__name__,
                "sender": message.sender,
                "receiver": message.receiver,
                "reveals": reveals(message),
            }
            for message in system.messages
        ],
        "settings": {entry.name: entry.default for entry in fields(system.config)},
        "presets": system.about.presets,
        "published_on": system.about.published_on,
    }


def _print_all(chosen: list[AnySystem]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what it is", "published", "roles"):
        table.add_column(heading)
    for system in chosen:
        roles = ", ".join(_roles(system))
        table.add_row(
            system.name, system.about.title, f"{system.about.paper.venue} {system.about.paper.year}", roles
        )
    show(table)


def _print_one(system: AnySystem) -> None:
    out, paper = results(), system.about.paper
    out.print(f"{system.name}: {system.about.title}")
    out.print(f"{paper.authors}: {paper.title} ({paper.venue} {paper.year})")
    out.print()
    messages = Table(box=None, pad_edge=False)
    for heading in ("message", "from", "to", "reveals"):
        messages.add_column(heading)
    for message in system.messages:
        messages.add_row(message.__name__, message.sender, message.receiver, reveals(message))
    show(messages)
    out.print()
    settings = Table(box=None, pad_edge=False)
    for heading in ("setting", "default", "meaning"):
        settings.add_column(heading)
    for entry in fields(system.config):
        settings.add_row(entry.name, str(entry.default), entry.metadata["help"])
    show(settings)
    for name, values in system.about.presets.items():
        told = ", ".join(f"{setting} {value}" for setting, value in values.items())
        out.print(f"preset {name}: {told or 'the defaults'}", soft_wrap=True)
    out.print()
    out.print(f"Threat model: {threat_model(system)}")
