"""How a command's help is set: text that flows, and lists where Typer's tables would cut the names of options."""

from collections import defaultdict
from functools import partial
from shutil import get_terminal_size
from typing import Any

_LEAST_COLUMNS = 100  # in which tables cut no option's name and no value


def to_be_read(command: Any) -> None:
    """Set the help of a command, or of a group without its commands."""
    command.help = flowing(command.help)
    if not hasattr(command, "commands"):
        command.format_help = partial(_format_help, command, command.format_help)


def flowing(text: str | None) -> str | None:
    r"""Paragraphs without the line breaks of the source, but those that say to keep them: they begin with \b."""
    if text is None:
        return None
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if one.startswith("\b") else " ".join(one.splitlines()) for one in paragraphs)


def _format_help(command: Any, in_tables: Any, ctx: Any, formatter: Any) -> None:
    if get_terminal_size().columns >= _LEAST_COLUMNS:
        in_tables(ctx, formatter)
    else:
        command.format_usage(ctx, formatter)
        command.format_help_text(ctx, formatter)
        _list_options(command, ctx, formatter)
        command.format_epilog(ctx, formatter)


def _list_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Arguments, options, and the options that have a heading of their own."""
    entries: dict[str, list[tuple[str, str]]] = defaultdict(list, {"Arguments": [], "Options": []})
    for parameter in command.get_params(ctx):
        entry = parameter.get_help_record(ctx)
        if entry is not None:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            entries[getattr(parameter, "rich_help_panel", None) or usual].append(entry)
    for heading, lines in entries.items():
        if lines:
            with formatter.section(heading):
                formatter.write_dl(lines)
