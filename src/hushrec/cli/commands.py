"""From verbs to commands: what a function asks for is what can be typed.

A verb is a function with annotated parameters, as Typer wants them. A parameter whose type is a dataclass stands
for a group of options, the fields of that dataclass; groups may hold groups. So options that belong together are
written once, and come to the verb as one value.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any

import typer

from hushrec.cli.declared import NUMBERS, Declared
from hushrec.cli.options import beginning, parse_numbers
from hushrec.cli.said import is_given
from hushrec.errors import HushrecError

Verb = Callable[..., Any]
_LARGEST = 2**63 - 1


def joined(verb: Verb, **groups: Verb) -> Verb:
    """A command for Typer: the verb, with options in place of its groups.

    A group is a dataclass, or one of `groups`, by the name of the parameter: a function of options, as a verb is.
    """
    own = inspect.signature(verb).parameters
    kinds = {name: entry.annotation for name, entry in own.items() if isinstance(entry.annotation, type)}
    found: dict[str, Verb] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)} | groups
    makers = {name: joined(group) for name, group in found.items()}
    options = {name: inspect.signature(maker).parameters for name, maker in makers.items()}

    def command(**values: Any) -> Any:
        _check_sizes(values)
        made = {name: maker(**{one: values[one] for one in options[name]}) for name, maker in makers.items()}
        return verb(**{name: values[name] for name in own if name not in made}, **made)

    parameters = [one for name, entry in own.items() for one in options.get(name, {name: entry}).values()]
    _set_parameters(command, {one.name: one for one in parameters}.values())  # two groups may ask for the context
    command.__doc__ = verb.__doc__
    return command


def _check_sizes(values: Mapping[str, Any]) -> None:
    """Refuse numbers that no counter holds, before something loops or overflows by them."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise HushrecError(f"{_flags(name)[-1]} {value} is too large; use at most {_LARGEST}")


def _set_parameters(function: Verb, parameters: Iterable[inspect.Parameter]) -> None:
    """Have Typer see these parameters, by name only."""
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    function.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in named}


def _option(
    name: str, kind: Any, default: object, help: str, complete: Callable[[str], list[str]] | None = None
) -> inspect.Parameter:
    """A setting as a parameter for Typer: its flags, its type as it is typed, its default, its help."""
    if kind in (NUMBERS, NUMBERS | None):
        kind = str if kind == NUMBERS else str | None
        default = ",".join(str(number) for number in default) if isinstance(default, tuple) else default
    flags = (f"{flag}/--no-{flag[2:]}" if kind in (bool, bool | None) else flag for flag in _flags(name))
    told = Annotated[kind, typer.Option(*flags, help=help, rich_help_panel="Settings", autocompletion=complete)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=told)


def _flags(name: str) -> tuple[str, ...]:
    """How a setting is spelled on the command line."""
    flag = f"--{name.replace('_', '-')}"
    return (flag, flag.replace("--num-", "--")) if name == "num_rounds" else (flag,)


def settings_of(system: Declared) -> Verb:
    """The group of a system's settings; what comes of it is those that were typed, the others are the preset's."""
    options = [_option(entry.name, entry.kind, entry.default, entry.help) for entry in system.settings]
    if system.presets:
        told = f"Named settings: {system.about_presets}."
        preset = _option("preset", str | None, system.usual_preset, told, beginning(lambda: system.presets))
        options.insert(0, preset)
    hints = {entry.name: entry.kind for entry in system.settings}

    def typed(context: typer.Context, **values: Any) -> dict[str, Any]:
        found = {name: value for name, value in values.items() if is_given(context, name)}
        return _with_lists(found, hints)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    _set_parameters(typed, [context, *options])
    return typed


def settings_of_all(systems: Iterable[Declared]) -> Verb:
    """The group of every setting of any of the systems; what comes of it is those that were given a value."""
    options = [_option("preset", str | None, None, "Named settings of the system, if it has some.")]
    known: dict[str, inspect.Parameter] = {}
    hints: dict[str, Any] = {}
    for entry in (entry for system in systems for entry in system.settings):
        kind = entry.kind if entry.kind in (int, float, bool, tuple[int, int], NUMBERS) else str
        known[entry.name] = _option(entry.name, kind | None, None, entry.help)
        hints[entry.name] = kind

    def given(**values: Any) -> dict[str, Any]:
        return _with_lists({name: value for name, value in values.items() if value is not None}, hints)

    _set_parameters(given, [*options, *known.values()])
    return given


def _with_lists(values: dict[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of numbers from what was typed for them."""
    return {
        name: parse_numbers(value, _flags(name)[0]) if hints.get(name) == NUMBERS else value
        for name, value in values.items()
    }


def alone(verb: Verb, name: str, example: str) -> typer.Typer:
    """An app of one command, with an example of it."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(name, epilog=f"Example: hushrec {example}")(verb)
    return app


def of_system(system: Declared, verb: Verb, example: str) -> typer.Typer:
    """A command that does this with a system; the verb's parameter `values` is its settings."""
    command = joined(verb, values=settings_of(system))
    command.__doc__ = f"{system.title}."
    return alone(command, system.name, example)


def length_of(system: Declared, num_rounds: int = 20) -> str:
    """How the example of a command keeps its run short: in rounds, or in epochs where the system counts those."""
    names = [entry.name for entry in system.settings]
    return f"--rounds {num_rounds}" if "num_rounds" in names else "--epochs 2"
