"""The command line as pages, made of the commands themselves: every verb, every option."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import typer.main

from hushrec.cli.verbs import VERBS, app
from hushrec.registry import SYSTEMS
from hushrec_docs.texts import block, escaped, table

_KINDS = {int: "whole number", float: "number", str: "text", Path: "file or folder"}
_HELP = "--help"


class Leaf(NamedTuple):
    """A command that does something, and the words that call it."""

    words: tuple[str, ...]
    command: Any

    @property
    def name(self) -> str:
        """As it is typed."""
        return " ".join(self.words)

    @property
    def is_of_system(self) -> bool:
        """Whether it is one of many that differ in their system."""
        return len(self.words) > 2 and self.words[-1] in SYSTEMS

    @property
    def options(self) -> list[Any]:
        """What begins with a dash."""
        return [entry for entry in self.command.params if entry.param_type_name == "option" and not entry.hidden]

    @property
    def arguments(self) -> list[Any]:
        """What stands for itself."""
        return [entry for entry in self.command.params if entry.param_type_name == "argument"]


def leaves() -> list[Leaf]:
    """Every command of `hushrec`."""
    root: Any = typer.main.get_command(app)
    return [leaf for verb in VERBS for leaf in _below(("hushrec", verb), root.get_command(None, verb))]


def _below(words: tuple[str, ...], command: Any) -> Iterator[Leaf]:
    if not hasattr(command, "commands"):
        yield Leaf(words, command)
        return
    names = list(command.list_commands(None))
    if words[-1] == "audit":
        names.append("RUN")  # which is not listed: the folder of a run stands in its place
    for name in names:
        yield from _below((*words, name), command.get_command(None, name))


def flags(option: Any) -> list[str]:
    """All ways to type an option."""
    return [*option.opts, *option.secondary_opts]


def is_setting(option: Any) -> bool:
    """Whether it is a setting of a system: those are on the system's page."""
    return getattr(option, "rich_help_panel", None) == "Settings"


def pages() -> dict[str, str]:
    """The text of each page, by its name: one for each verb, and `index`."""
    found = leaves()
    by_verb = {verb: [leaf for leaf in found if leaf.words[1] == verb] for verb in VERBS}
    return {"index": _index()} | {verb: _page(verb, own) for verb, own in by_verb.items()}


def _index() -> str:
    rows = [[f"[`hushrec {verb}`]({verb}.md)", escaped(line)] for verb, line in VERBS.items()]
    return _text(
        "# Commands",
        "",
        "Made of the commands themselves, so that nothing is missing. What all verbs share (results and notes, "
        "options from a file, completion, exit codes): [the command line](../../cli.md).",
        "",
        *table(["verb", "what it does"], rows),
        "",
        "```{toctree}",
        ":hidden:",
        *VERBS,
        "```",
    )


def _page(verb: str, own: Sequence[Leaf]) -> str:
    parts = [f"# `hushrec {verb}`", "", escaped(VERBS[verb]), ""]
    grouped: dict[tuple[str, ...], list[Leaf]] = {}
    for leaf in own:
        grouped.setdefault(leaf.words[:-1] if leaf.is_of_system else leaf.words, []).append(leaf)
    for words, some in grouped.items():
        if some[0].is_of_system:
            parts += _of_systems(words, some)
        else:
            parts += _of_leaf(some[0], is_alone=len(grouped) == 1)
    return _text(*parts)


def _of_leaf(leaf: Leaf, is_alone: bool) -> list[str]:
    heading = [] if is_alone else [f"## `{leaf.name}`", "", escaped(_first_line(leaf.command.help)), ""]
    options = [entry for entry in leaf.options if _HELP not in entry.opts and not is_setting(entry)]
    settings = [entry for entry in leaf.options if is_setting(entry)]
    parts = [*heading, *block("text", usage(leaf)), "", *_arguments(leaf)]
    if options:
        parts += [*table(["option", "value", "meaning"], map(_row, options)), ""]
    if settings:
        parts += ["Settings of the system that is named ([what each has](../systems/index.md)):", ""]
        parts += [*table(["option", "value", "meaning"], map(_row, settings)), ""]
    return [*parts, *_example(leaf)]


def _of_systems(words: tuple[str, ...], own: Sequence[Leaf]) -> list[str]:
    """One command for each system: what they share, what some have, where their settings are."""
    by_flag: dict[str, list[Leaf]] = {}
    entries: dict[str, Any] = {}
    for leaf in own:
        for entry in leaf.options:
            if _HELP not in entry.opts and not is_setting(entry):
                by_flag.setdefault(entry.opts[0], []).append(leaf)
                entries.setdefault(entry.opts[0], entry)
    shared = [entries[flag] for flag, having in by_flag.items() if len(having) == len(own)]
    some = {flag: having for flag, having in by_flag.items() if len(having) < len(own)}
    name = " ".join(words)
    parts = [] if len(words) == 2 else [f"## `{name}`", ""]
    typed = [name, "SYSTEM", *map(_argument, own[0].arguments), "[OPTIONS]"]
    parts += [*block("text", " ".join(typed)), "", *_arguments(own[0])]
    parts += [*table(["option", "value", "meaning"], map(_row, shared)), ""]
    if some:
        rows = [[*_row(entries[flag]), _systems(having)] for flag, having in some.items()]
        parts += ["Only with some systems:", "", *table(["option", "value", "meaning", "systems"], rows), ""]
    parts += [
        f"{'##' if len(words) == 2 else '###'} Settings of each system",
        "",
        "Every setting of a system is an option, too: `--learning-rate 0.1` for `learning_rate=0.1`.",
        "",
    ]
    rows = []
    for leaf in own:
        settings = [f"`{entry.opts[0]}`" for entry in leaf.options if is_setting(entry)]
        name = leaf.words[-1]
        rows.append([f"[`{name}`](../systems/{page_name(name)}.md#settings)", " ".join(settings) or "none"])
    parts += [*table(["system", "options"], rows), ""]
    return [*parts, *_example(own[0])]


def page_name(system: str) -> str:
    """The name of a system's page: a plus is no letter of addresses.

    >>> page_name("fedrec++")
    'fedrec-plus-plus'
    """
    return system.replace("+", "-plus")


def _systems(having: Sequence[Leaf]) -> str:
    return ", ".join(f"`{leaf.words[-1]}`" for leaf in having)


def usage(leaf: Leaf) -> str:
    """How a command is typed."""
    name = leaf.name.replace("audit RUN", "audit")
    return " ".join([name, *map(_argument, leaf.arguments), *(["[OPTIONS]"] if leaf.options else [])])


def _argument(entry: Any) -> str:
    name = str(entry.metavar or entry.name.upper())
    many = f"{name}..." if entry.nargs == -1 else name
    return many if entry.required else f"[{many}]"


def _arguments(leaf: Leaf) -> list[str]:
    rows = [[f"`{_argument(entry)}`", escaped(_help(entry))] for entry in leaf.arguments]
    return [*table(["argument", "meaning"], rows), ""] if rows else []


def _row(entry: Any) -> list[str]:
    typed = ", ".join(f"`{flag}`" for flag in flags(entry))
    return [typed, _value(entry), escaped(_help(entry))]


def _help(entry: Any) -> str:
    return str(getattr(entry, "help", "") or "")


def _value(entry: Any) -> str:
    """What may be given, and what it is else."""
    kind = "" if entry.is_flag else _kind(entry.type_descriptor.annotation)
    if entry.required:
        return f"{kind}; needed" if kind else "needed"
    has_default = entry.default not in (None, "") and not entry.is_flag and not callable(entry.default)
    default = f"default `{getattr(entry.default, 'value', entry.default)}`" if has_default else ""
    return "; ".join(part for part in (kind, default) if part)


def _kind(annotation: Any) -> str:
    """What can be typed for a value of this type."""
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is not None:  # X | None, list[X]
        return _kind(next(one for one in get_args(annotation) if one is not type(None)))
    return _KINDS.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _example(leaf: Leaf) -> list[str]:
    text = str(leaf.command.epilog or "").partition("Example: ")[2]
    return ["Example:", "", *block("text", text), ""] if text else []


def _first_line(text: str | None) -> str:
    return re.split(r"\n\s*\n", (text or "").strip())[0].replace("\n", " ")


def _text(*lines: str) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
