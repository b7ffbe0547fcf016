"""`hushrec run` as a form: what can be said, and what the command line would refuse, in its words."""

import inspect
import shlex
import types
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer

from hushrec.cli.commands import length_of, of_system
from hushrec.cli.declared import Declared, declared, titles
from hushrec.cli.endings import told_of
from hushrec.cli.live import LiveOptions
from hushrec.cli.options import (
    ReadingOptions,
    RunOptions,
    parse_columns,
    parse_lengths,
    parse_rating_range,
    runtime_options,
)
from hushrec.cli.run import command_of
from hushrec.cli.said import WITHOUT_EFFECT
from hushrec.data.catalogue import CATALOGUE, SYNTHETIC
from hushrec.errors import HushrecError, naming_options
from hushrec.registry import SYSTEMS, system_named

_OF_LIVE = {entry.name for entry in fields(LiveOptions)} - {entry.name for entry in fields(RunOptions)}
_NOT_OF_PAGES = {"config", "save_config", "out", "resume", "as_json"}
_LEFT_OUT = {"context", *_NOT_OF_PAGES, *_OF_LIVE}
_FIRST = ("data", "preset", "num_rounds", "epochs", "seed", "folds")
_SPEED = ("threads", "cohort_size", "baselines")
_READING = tuple(entry.name for entry in fields(ReadingOptions))


class RunCommands:
    """What `hushrec run` knows; see `hushrec.ui.jobs.Commands`."""

    def systems(self) -> list[dict[str, Any]]:
        """Name and title of each system."""
        return [{"name": name, "title": title} for name, title in titles().items()]

    def form(self, system: str) -> list[dict[str, Any]]:
        """The options of a system's command, in the order of a form."""
        known = _declared(system)
        options = [_option(one, known) for one in _parameters(known)]
        parts = ("first", "settings", "measuring", "reading", "speed")
        first = {name: place for place, name in enumerate(_FIRST)}
        return sorted(options, key=lambda one: (parts.index(one["part"]), first.get(one["name"], 0)))

    def words(self, system: str, values: Mapping[str, Any]) -> list[str]:
        """Options and values as they are typed; what is empty is left out."""
        options = {one["name"]: one for one in self.form(system)}
        words = []
        for name, value in values.items():
            if name not in options:
                raise HushrecError(f"{system} has no option {name}; reload the page")
            if value is None or value == "":
                continue
            flag: str = options[name]["flag"]
            if options[name]["kind"] == "bool":
                words.append(flag if value in (True, "true") else f"--no-{flag[2:]}")
            else:
                words.append(f"{flag}={value}")
        return words

    def check(self, words: Sequence[str]) -> None:
        """Refuse what the command line would refuse before it trains."""
        verb, system, *options = words
        assert verb == "run"
        known = _declared(system)
        _refuse(_NOT_OF_PAGES, options, known)

        def check_run(values: dict[str, Any], options: RunOptions) -> None:
            _check(system, values, options)

        def check_live(values: dict[str, Any], options: LiveOptions) -> None:
            _check(system, values, options)

        checker = of_system(
            known, check_live if known.learns_live else check_run, f"run {system} {length_of(known)}"
        )
        command = typer.main.get_command(checker)
        try:
            with naming_options():
                command.main(args=list(options), prog_name=f"hushrec run {system}", standalone_mode=False)
        except Exception as error:
            told = told_of(error)
            if told is None:
                raise
            raise HushrecError(told) from None

    def again(self, command: str) -> list[str]:
        """The words of a command that stands in a run's folder, which may be anybody's.

        It has nothing that changes no number, as `run` keeps none of it: no file that it would write, no tracker.
        """
        with suppress(ValueError):  # of a quote without an end
            program, *words = shlex.split(command)
            if program == "hushrec" and len(words) > 1 and words[0] == "run":
                _refuse(WITHOUT_EFFECT, words[2:], _declared(words[1]))
                return words
        raise HushrecError("this run does not say which command makes it; resume it where it was made")


def _refuse(names: Collection[str], options: Sequence[str], system: Declared) -> None:
    """Refuse options by their names, before anything is done for them."""
    command = typer.main.get_command(command_of(system))
    parser = command.make_parser(typer.Context(command, resilient_parsing=True))
    for one in parser.parse_args(list(options))[2]:
        if one.name in names:
            raise HushrecError(f"{max(one.opts, key=len)} cannot be said here; use the command line")


def _declared(system: str) -> Declared:
    if system not in SYSTEMS:
        raise HushrecError(f"no system is called {system}; choose from {', '.join(SYSTEMS)}")
    return declared(system)


def _check(system: str, values: dict[str, Any], options: RunOptions) -> None:
    runtime_options(options.threads, options.cohort_size)
    system_named(system).configure(values)
    parse_lengths(options.at)
    reading, data = options.source.reading, options.source.data
    parse_columns(reading.columns)
    parse_rating_range(reading.rating_range)
    is_known = data in CATALOGUE or data.startswith(SYNTHETIC) or Path(data).exists()
    if not is_known:
        options.source.load()  # says why not


def _parameters(system: Declared) -> list[inspect.Parameter]:
    callback = command_of(system).registered_commands[0].callback
    assert callback is not None
    found = inspect.signature(callback).parameters.values()
    return [one for one in found if one.name not in _LEFT_OUT]


def _option(parameter: inspect.Parameter, system: Declared) -> dict[str, Any]:
    """What a form needs of an option."""
    kind, info = get_args(parameter.annotation)[:2]
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    name = parameter.name
    flags = [flag.partition("/")[0] for flag in info.param_decls or ()] or [f"--{name.replace('_', '-')}"]
    choices = [str(one) for one in get_args(kind)] if get_origin(kind) is Literal else []
    default = parameter.default
    return {
        "name": name,
        "flag": min(flags, key=len),
        "kind": "choice" if choices else {int: "int", float: "float", bool: "bool"}.get(kind, "text"),
        "default": None if default in (None, inspect.Parameter.empty) else default,
        "is_needed": name == "data",
        "choices": choices or (list(system.presets) if name == "preset" else []),
        "suggested": [*CATALOGUE, f"{SYNTHETIC}:users=200,items=100,ratings=5000"] if name == "data" else [],
        "help": info.help or "",
        "part": _part_of(name, system),
    }


def _part_of(name: str, system: Declared) -> str:
    if name in _FIRST:
        return "first"
    if name in [entry.name for entry in system.settings]:
        return "settings"
    if name in _READING:
        return "reading"
    return "speed" if name in _SPEED else "measuring"
