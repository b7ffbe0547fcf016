"""Groups of commands that are made when they are asked for: to list them, or to run one, loads none of the others.

So `--help` comes at once, and a package that brings a broken system does no other harm.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from hushrec.cli.declared import declared, titles
from hushrec.cli.help_pages import to_be_read
from hushrec.cli.signals import heed
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS

_LEAST_BYTES = 1 << 30  # of address space


def made_when_needed(
    names: Collection[str], lines: Callable[[], Mapping[str, str]], make: Callable[[str], typer.Typer]
) -> type[TyperGroup]:
    """A group with these commands, besides those that are registered; `lines` tells of each in one line."""

    class Group(TyperGroup):
        """A group whose commands need not be made to be listed."""

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in names and self.commands.get(cmd_name) is None:
                self.commands[cmd_name] = _command(make(cmd_name))
            return super().get_command(ctx, cmd_name)

        def list_commands(self, ctx: Any) -> list[str]:
            return [*lines(), *(name for name in self.commands if name not in names)]

        def format_help(self, ctx: Any, formatter: Any) -> None:
            told = {name: TyperCommand(name, help=line) for name, line in lines().items()}
            self.commands = {**self.commands, **told}
            super().format_help(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            """What a shell completes: names that need not be loaded for that."""
            others = [name for name, one in self.commands.items() if one is not None and not one.hidden]
            found = [
                SimpleNamespace(value=name, type="plain", help=None)
                for name in dict.fromkeys([*names, *others])
                if name.startswith(incomplete)
            ]
            return [*found, *(super().shell_complete(ctx, incomplete) if incomplete.startswith("-") else [])]

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            known: dict[str, Any] = dict.fromkeys(names)  # so that Typer can suggest what may have been meant
            self.commands = {**known, **self.commands}
            return super().resolve_command(ctx, args)

    return Group


def _command(app: typer.Typer) -> Any:
    """An app of one command is that command; any other is a group."""
    is_alone = len(app.registered_commands) == 1 and not app.registered_groups
    made: Any = typer.main.get_command(app) if is_alone else typer.main.get_group(app)
    for one in (made, *getattr(made, "commands", {}).values()):
        if one is not None:
            to_be_read(one)
    return made


def work(name: str) -> Any:
    """What a verb does: a module of `hushrec.cli.work`, which is loaded here. Ctrl-C is heeded from then on."""
    _refuse_little_memory()
    found = import_module(f"hushrec.cli.work.{name}")
    heed()
    return found


def _refuse_little_memory() -> None:
    """With less than they need, libraries end a process while they are loaded, each in its own way."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_BYTES:
        raise HushrecError(
            f"too little memory: this process may have {limit >> 20} MB, and NumPy, Arrow and Numba want "
            f"{_LEAST_BYTES >> 20} MB to start; raise the limit, as with: ulimit -v unlimited"
        )


def made_by(place: str) -> Callable[..., Any]:
    """What makes a command, at `module:function`, loaded when it is called."""
    module, _, function = place.partition(":")
    return lambda *values: getattr(import_module(module), function)(*values)


def per_system(place: str) -> type[TyperGroup]:
    """A group with a command per system, made from what it declares by the function at `module:function`."""
    make = made_by(place)
    return made_when_needed(
        SYSTEMS, lambda: {name: f"{title}." for name, title in titles().items()}, lambda name: make(declared(name))
    )


_FOLDER = "RUN"


class SystemOrFolder(per_system("hushrec.cli.audit:command_of")):  # type: ignore[misc]
    """What is audited: a system, or else the folder of a run."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A system's command, or the one that takes folders, which is not listed."""
        if cmd_name == _FOLDER and cmd_name not in self.commands:
            self.commands[cmd_name] = _command(made_by("hushrec.cli.audit:command_of_folder")())
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take what is no system for a folder."""
        is_system = not args or args[0].startswith("-") or args[0] in SYSTEMS
        return super().resolve_command(ctx, args if is_system else [_FOLDER, *args])
