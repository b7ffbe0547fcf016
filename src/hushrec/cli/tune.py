"""`hushrec tune SYSTEM`: look for settings that suit a file, with Optuna, on validation data."""

import inspect
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hushrec.cli.commands import Verb, alone, joined, settings_of
from hushrec.cli.console import counting, note, print_json, results, show
from hushrec.cli.endings import if_interrupted
from hushrec.cli.options import AsJson, Owners, Seed, Source, Split, SplitAt, TestShare
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem
from hushrec.report.canvas import check_picture, write_picture
from hushrec.report.front import front_figure
from hushrec.report.numbers import ABSENT, format_bytes, format_given, format_metric, format_seconds
from hushrec.runs.run_settings import settings_for
from hushrec.tuning import Tuned, prepared_search
from hushrec.tuning.measures import BYTES, is_small_good
from hushrec.tuning.results import Row
from hushrec.tuning.store import need_optuna
from hushrec.tuning.study import check_amounts

_MOST_ROWS = 10  # of the best trials
_MOST_FAILED = 3
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
        check_amounts(self.trials, self.jobs)
        if self.picture is not None and len(self.measure or ()) < 2:
            raise HushrecError("--picture draws several measures; name another with --measure, or leave it out")
        check_picture(self.picture)


@dataclass(frozen=True)
class Typed:
    """The settings that were typed, and the words of all that `hushrec run` needs to hear as well."""

    values: dict[str, Any]
    words: tuple[str, ...]


def tune_system(system: AnySystem, options: TuneOptions, typed: Typed) -> None:
    """Try settings, and print the best of them."""
    need_optuna()
    system.configure(typed.values)  # for what it refuses, before data is read
    data = options.source.load()
    settings = settings_for(
        system, options.seed, 1, options.split, options.test_share, owners=options.owners, measure="validation",
        data=data, min_raters=options.min_raters, split_at=options.split_at,
    )  # fmt: skip
    with (
        if_interrupted(_left_of(options)),
        counting(f"tune {system.name}", options.trials, "trials") as tell,
    ):
        tuned = prepared_search(
            system.name, typed.values, data, settings, options.measure or (), options.over or (), options.trials,
            options.jobs, options.prune, options.out, options.resume,
            lambda rows: tell(len(rows), _best_so_far(rows)),
        )  # fmt: skip
    command = run_command(tuned, typed, system)
    if options.as_json:
        print_json({**tuned.described(), "data": data.name, "command": command})
    else:
        _print(tuned, data.name, command)
    _draw(tuned, options)


def _left_of(options: TuneOptions) -> str:
    """What an interrupted search leaves."""
    if options.out is None:
        return "interrupted; no trial is kept, as there was no --out"
    return f"interrupted; finished trials are in {options.out}; the same command goes on with --resume"


def command_of(system: AnySystem) -> typer.Typer:
    """`hushrec tune SYSTEM`."""
    command = joined(partial(tune_system, system), typed=_typed(system))
    command.__doc__ = f"{system.about.title}."
    return alone(command, system.name, f"tune {system.name} --data ml-100k --trials 20 --out tuned")


def _typed(system: AnySystem) -> Verb:
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
            words += _spelled(option.opts[-1], context.params[name])
    return words


def _spelled(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def run_command(tuned: Tuned, typed: Typed, system: AnySystem) -> str:
    """The command of a run with the best settings, and nothing left to choose."""
    found = ["hushrec", "run", tuned.system, *typed.words]
    for name, value in tuned.best_settings.items():
        if name not in typed.values:
            found += _spelled("--rounds" if name == "num_rounds" else f"--{name.replace('_', '-')}", value)
    lengths = sorted({int(name.partition("@")[2]) for name in tuned.measures if "@" in name})
    if lengths and tuple(lengths) != system.feedback.usual_lengths:
        found += ["--at", ",".join(map(str, lengths))]
    return shlex.join(found)


# --- What is shown ------------------------------------------------------------------------------------------


def _best_so_far(rows: Sequence[Row]) -> str:
    done = [row for row in rows if row.measured]
    if not done:
        return ""
    name = next(iter(done[0].measured))
    best = (min if is_small_good(name) else max)(row.measured[name] for row in done)
    return f"best {name} {format_metric(best)}"


def _print(tuned: Tuned, data_name: str, command: str) -> None:
    out, is_front = results(), len(tuned.measures) > 1
    by_first = sorted((row for row in tuned.rows if row.measured), key=lambda row: _cost(tuned, row))
    shown = tuned.front if is_front else by_first[:_MOST_ROWS]
    states = [row.state for row in tuned.rows]
    out.print(
        f"{tuned.system} on {data_name}, validation: {len(states)} trials, {states.count('pruned')} given up, "
        f"{states.count('failed')} failed"
    )
    out.print("the front: no other trial is as good in all and better in one" if is_front else "the best of them")
    failed = [row for row in tuned.rows if row.state == "failed"]
    show(_table(tuned, [*shown, *failed[:_MOST_FAILED]]))
    for row in failed[:_MOST_FAILED]:
        out.print(f"trial {row.number} failed: {row.outcome.fault}", soft_wrap=True)
    if len(failed) > _MOST_FAILED:
        out.print(f"{len(failed) - _MOST_FAILED} more failed; --json tells all")
    out.print(_beside_default(tuned), soft_wrap=True)
    seconds = sum(row.outcome.seconds for row in tuned.rows)
    out.print(f"{format_seconds(seconds)} of CPU; the best run:")
    out.print(command, soft_wrap=True)


def _cost(tuned: Tuned, row: Row) -> float:
    value = row.measured[tuned.measures[0]]
    return value if is_small_good(tuned.measures[0]) else -value


def _table(tuned: Tuned, rows: Sequence[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    table = Table(box=None, pad_edge=False)
    for heading in ("trial", *tuned.measures, *(name.replace("_", " ") for name in names)):
        table.add_column(heading, justify="right")
    for row in rows:
        number = f"{row.number}{' default' if row.number == 0 else ''}"
        measured = (_shown(name, row.measured.get(name)) for name in tuned.measures)
        table.add_row(number, *measured, *(_given(row.settings.get(name)) for name in names))
    return table


def _shown(measure: str, value: float | None) -> str:
    return format_bytes(value) if measure == BYTES and value is not None else format_metric(value)


def _given(value: Any) -> str:
    if value is None:
        return ABSENT
    return str(value) if isinstance(value, bool | str) else format_given(float(value))


def _beside_default(tuned: Tuned) -> str:
    """The default's first measure beside the best one's."""
    name, best, default = tuned.measures[0], tuned.best_row, tuned.default
    value = format_metric(best.measured[name])
    if default is None or not default.measured:
        why = default.outcome.fault if default else "it was not tried"
        return f"best {name} {value} on validation data; the default failed: {why}"
    before = format_metric(default.measured[name])
    if best.number == 0:
        return f"default {name} {before} on validation data; no trial is better"
    return f"default {name} {before}, best {value} on validation data"


def _draw(tuned: Tuned, options: TuneOptions) -> None:
    if len(tuned.measures) < 2:
        return
    picture = options.picture or (options.out / "front.png" if options.out else None)
    if picture is not None:
        write_picture(front_figure(tuned), picture)
        note(f"picture: {picture}")
