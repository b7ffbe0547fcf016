"""`hushrec tune SYSTEM`: look for settings that suit a file, with Optuna, on validation data."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hushrec.cli.commands import Verb, alone, joined, settings_of
from hushrec.cli.declared import Declared
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Owners, Seed, Source, Split, SplitAt, TestShare
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.report.canvas import check_picture

_OWN = ("trials", "measure", "over", "jobs", "prune", "out", "resume", "picture", "as_json")  # not of `run`


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of `hushrec tune`, whatever the system."""

    source: Source
    trials: Annotated[int, typer.Option(help="How many settings are tried in all; the first is the default.")] = 50
    measure: Annotated[
        list[str] | None,
        typer.Option(
            help="What is to be good on validation data: RMSE, NDCG@10 or another metric of the system; may be "
            "given again, with bytes or leakage, to find what is best in all of them."
        ),
    ] = None
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="What is searched: names (rho,num_factors), an interval (rho=0..5) or values "
            "(filling=hybrid,average); usual: what is searched by default. Rounds are found while training, up "
            "to the end of their interval (rounds=1..50)."
        ),
    ] = None
    jobs: Annotated[int, typer.Option(help="Trials at once, each in a process with one thread.")] = 1
    prune: Annotated[
        bool,
        typer.Option("--prune/--no-prune", help="Give up trials that are worse than the median; one measure."),
    ] = True
    seed: Seed = 0
    split: Split = None
    test_share: TestShare = 0.2
    split_at: SplitAt = None
    owners: Owners = ""
    min_raters: Annotated[
        int | None,
        typer.Option(help="Only items with so many raters in training can be listed; as in `hushrec run`.", min=0),
    ] = None
    out: Annotated[Path | None, typer.Option(help="Folder to keep the trials in.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the trials in --out.")] = False
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png|svg",
            help="Draw trials with several measures, and the front; default: front.png in --out.",
        ),
    ] = None
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if self.resume and self.out is None:
            raise HushrecError("--resume needs --out, the folder of the trials to go on with")
        if self.picture is not None and len(self.measure or ()) < 2:
            raise HushrecError("--picture draws several measures; name another with --measure, or leave it out")
        check_picture(self.picture)


@dataclass(frozen=True)
class Typed:
    """The settings that were typed, and the words of all that `hushrec run` needs to hear as well."""

    values: dict[str, Any]
    words: tuple[str, ...]


def command_of(system: Declared) -> typer.Typer:
    """`hushrec tune SYSTEM`."""

    def tune(options: TuneOptions, typed: Typed) -> None:
        work("tune").tune_system(system_named(system.name), options, typed)

    command = joined(tune, typed=_typed(system))
    command.__doc__ = f"{system.title}."
    return alone(command, system.name, f"tune {system.name} --data ml-100k --trials 20 --out tuned")


def _typed(system: Declared) -> Verb:
    """The group of a system's settings, with the words of what was typed."""
    settings = settings_of(system)

    def typed(context: typer.Context, **values: Any) -> Typed:
        return Typed(settings(context=context, **values), tuple(_words(context)))

    typed.__signature__ = inspect.signature(settings)  # type: ignore[attr-defined]
    typed.__annotations__ = settings.__annotations__
    return typed


def _words(context: typer.Context) -> list[str]:
    """What was typed, but for options that only `tune` has."""
    words: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        source = context.get_parameter_source(name)
        if name not in _OWN and source is not None and source.name != "DEFAULT":
            words += spelled(option.opts[-1], context.params[name])
    return words


def spelled(flag: str, value: Any) -> list[str]:
    """An option with its value, as it is typed."""
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
