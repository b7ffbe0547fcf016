"""A search for settings that suit a file, with Optuna, on validation data, and what is printed of it."""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hushrec.cli.console import counting, note, print_json, results, show
from hushrec.cli.endings import if_interrupted
from hushrec.cli.tune import TuneOptions, Typed, spelled
from hushrec.protocol import AnySystem
from hushrec.report.canvas import write_picture
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


def tune_system(system: AnySystem, options: TuneOptions, typed: Typed) -> None:
    """Try settings, and print the best of them."""
    check_amounts(options.trials, options.jobs)
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


def run_command(tuned: Tuned, typed: Typed, system: AnySystem) -> str:
    """The command of a run with the best settings, and nothing left to choose."""
    found = ["hushrec", "run", tuned.system, *typed.words]
    for name, value in tuned.best_settings.items():
        if name not in typed.values:
            found += spelled("--rounds" if name == "num_rounds" else f"--{name.replace('_', '-')}", value)
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
