"""A published table, ours beside it; or every one of a dataset."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import msgspec

from hushrec.cli.console import note, print_json, results, watching
from hushrec.cli.options import runtime_options
from hushrec.cli.reproduce import ReproduceOptions
from hushrec.cli.work.reproduced_tables import print_table, table_json
from hushrec.data import Interactions, load
from hushrec.errors import HushrecError
from hushrec.experiments.published import Row, Table, table_named, tables
from hushrec.experiments.reproduction import (
    Reproduced,
    experiments,
    is_kept,
    reproduce_row,
    run_settings,
    with_ratios,
)
from hushrec.experiments.summary import (
    NOT_RUN,
    Summary,
    TableRecord,
    measured_summaries,
    record_of,
    rows_of_record,
    taken_from_record,
    to_json,
    usual_seconds,
)
from hushrec.registry import system_named
from hushrec.report.canvas import style, write_picture
from hushrec.report.deviations import deviations
from hushrec.report.numbers import format_seconds
from hushrec.report.reproduced import is_figure, table_picture
from hushrec.report.summary_page import picture_name, summary_lines, write_page
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions

_LONG_SECONDS = 60.0  # a row that takes longer says so before it starts


@dataclass(frozen=True)
class Wish:
    """What the user asked for, the same for all rows."""

    options: RuntimeOptions
    seed: int
    folds: int | None  # None: as many as the table has
    out: Path | None
    command: str  # what was typed
    stop_at: float | None = None  # of this process's CPU time, in seconds: no row is started after it
    goes_on: bool = False  # with the next row, if one cannot be run

    def is_over(self) -> bool:
        """Whether no further row is to be started."""
        return self.stop_at is not None and time.process_time() >= self.stop_at


def reproduce_tables(system: str | None, table: str | None, options: ReproduceOptions) -> None:
    """Run what was asked for, and print it."""
    if options.is_all:
        _check_all(table, options)
        _reproduce_all(system, options)
        return
    if system is None or table is None:
        raise HushrecError("name a system and a table, as in fedrec++ table2, or add --all --data NAME --out DIR")
    name = system_named(system).name
    chosen = _with_seeds(table_named(name, table), options.seeds)
    tasks = _tasks(chosen, options.data, options.row, options.preset)
    done = _reproduced_table(name, chosen, tasks, _wish(options))
    if not any(entry.cells for entry in done):
        raise HushrecError(done[0].missing if done else "nothing is left to hold against; leave --row out")
    if options.picture:
        write_picture(table_picture(chosen, [entry for entry in done if entry.cells]), options.picture)
        of_one = f", of seed {options.seed}" if chosen.kind == "curve" and chosen.num_seeds > 1 else ""
        note(f"picture: {options.picture}{of_one}")
    if options.as_json:
        print_json(table_json(chosen, done))
    else:
        print_table(chosen, done)


def _wish(options: ReproduceOptions) -> Wish:
    stop_at = None if options.hours is None else time.process_time() + 3600 * options.hours
    runtime = runtime_options(options.threads)
    return Wish(runtime, options.seed, options.folds, options.out, options.said.command, stop_at, options.is_all)


def _with_seeds(table: Table, seeds: int | None) -> Table:
    if seeds is None:
        return table
    if table.kind == "time":
        raise HushrecError(f"--seeds {seeds}: the times of {table.name} are of one run; leave it out")
    return replace(table, num_seeds=seeds)


def _tasks(table: Table, data: str | None, row: str | None, preset: str | None) -> list[tuple[Row, str]]:
    """The rows that were asked for, once for each of their presets."""
    rows = [entry for entry in table.rows if data in (None, entry.data)]
    if not rows:
        known = ", ".join(dict.fromkeys(entry.data for entry in table.rows))
        raise HushrecError(f"{table.name} has no row on {data}; it has {known}")
    named = [entry for entry in rows if (row or "").lower() in entry.label.lower()]
    if not named:
        labels = ", ".join(dict.fromkeys(entry.label for entry in rows))
        raise HushrecError(f"no row of {table.name} is named {row!r}; it has {labels}")
    if preset not in (None, *table.presets):
        raise HushrecError(f"{table.name} has no preset {preset!r}; it has {', '.join(table.presets) or 'none'}")
    return [
        (entry, name) for entry in named for name in table.presets_of(entry) if preset in (None, name) or not name
    ]


def _reproduced_table(system: str, table: Table, tasks: list[tuple[Row, str]], wish: Wish) -> list[Reproduced]:
    done = [
        _reproduced(system, table, entry, name, f"{place}/{len(tasks)}", wish)
        for place, (entry, name) in enumerate(tasks, 1)
    ]
    return with_ratios(table, done)


@cache
def _loaded(name: str) -> Interactions | str:
    """A dataset, or why it cannot be had."""
    try:
        return load(name, notify=note)
    except HushrecError as error:
        return str(error)


def _reproduced(system: str, table: Table, row: Row, preset: str, place: str, wish: Wish) -> Reproduced:
    interactions = _loaded(row.data)
    if isinstance(interactions, str):
        return Reproduced(row, [], [], preset, interactions)
    settings = run_settings(row, interactions, wish.seed, table.num_folds if wish.folds is None else wish.folds)
    try:
        return _run_or_kept(system, table, row, preset, place, wish, interactions, settings)
    except HushrecError as error:
        if not wish.goes_on:
            raise
        note(f"{place} {row.where} {row.label}: {error}")
        return Reproduced(row, [], [], preset, str(error))


def _run_or_kept(
    system: str,
    table: Table,
    row: Row,
    preset: str,
    place: str,
    wish: Wish,
    interactions: Interactions,
    settings: RunSettings,
) -> Reproduced:
    planned = experiments(table, row, preset, interactions.num_users, settings)
    has_it = is_kept(table, row, preset, interactions, settings, wish.out)
    if wish.is_over() and not has_it:
        return Reproduced(row, [], [], preset, NOT_RUN)
    name = " ".join(part for part in (row.where, row.label, preset) if part)
    usual = usual_seconds(system, table, row, preset)
    if usual is not None and usual >= _LONG_SECONDS and not has_it:
        note(f"{place} {name}: takes about {format_seconds(usual)} of CPU")
    num_rounds = planned[0].config.num_rounds
    with watching(f"{place} {name}", num_rounds, settings.num_folds * table.num_seeds) as watch:
        done = reproduce_row(
            table, row, preset, interactions, settings, wish.options, wish.out, watch, wish.command
        )
    note(f"{place} {name}: {done.missing or f'done, {format_seconds(done.cpu_seconds)} of CPU'}")
    return done


# --- All tables of a dataset -------------------------------------------------------------------------------


def _check_all(table: str | None, options: ReproduceOptions) -> None:
    parts = {name: getattr(options, name) for name in ("row", "preset", "seeds", "picture")}
    given = [f"--{name}" for name, value in parts.items() if value is not None]
    if table is not None or given:
        what = table if table is not None else given[0]
        raise HushrecError(f"{what}: --all runs every table whole; leave it out")
    if options.data is None:
        raise HushrecError("--all needs a dataset: add --data ml-100k")
    if options.out is None:
        raise HushrecError("--all takes hours: add --out DIR, so that it goes on from there if interrupted")
    if options.page is not None:
        with style():  # pictures need matplotlib: better said now than in an hour
            pass


def _num_deviations(chosen: Iterable[Table]) -> int:
    systems = {row.system for table in chosen for row in table.rows}
    return len({found for name in systems for found in deviations(system_named(name))})


def _reproduce_all(system: str | None, options: ReproduceOptions) -> None:
    name = system_named(system).name if system else None
    data, page, wish = str(options.data), options.page, _wish(options)
    chosen = {
        key: table
        for key, table in tables().items()
        if name in (None, key[0]) and any(row.data == data for row in table.rows)
    }
    if not chosen:
        known = sorted(
            {row.data for key, table in tables().items() if name in (None, key[0]) for row in table.rows}
        )
        of = f" of {name}" if name else ""
        raise HushrecError(f"no table{of} has a row on {data}; there are rows on {', '.join(known) or 'none'}")
    records, spent = list[TableRecord](), dict[str, float]()
    taken = taken_from_record(data, chosen) if options.is_unmeasured else {}
    if taken:
        spent["record"] = measured_summaries()[data].cpu_seconds
    for place, (key, table) in enumerate(chosen.items(), 1):
        title = f"table {place}/{len(chosen)}: {table.title}"
        if key in taken:
            records.append(taken[key])
            note(f"{title}: taken from the record, {records[-1].measured}")
            done = rows_of_record(records[-1], table)
        else:
            note(title)
            done = _reproduced_table(key[0], table, _tasks(table, data, None, None), wish)
            records.append(record_of(key[0], table, done))
        finished = [entry for entry in done if entry.cells]
        folds = [fold for entry in done for one in (*entry.tried, *entry.runs) for fold in one.folds]
        spent |= {f"{fold.model_sha256} {fold.wall_seconds}": fold.cpu_seconds for fold in folds}
        if page and finished and is_figure(table) and (table.x_label or key not in taken):  # others show the runs
            write_picture(table_picture(table, finished), page.parent / picture_name(data, *key))
    today = datetime.now(UTC).date().isoformat()
    said = [
        name or "",
        f"--seed {wish.seed}" if wish.seed else "",
        f"--folds {wish.folds}" if wish.folds else "",
    ]
    summary = Summary(
        data, today, version("hushrec"), records, sum(spent.values()), _num_deviations(chosen.values()),
        " ".join(word for word in said if word),
    )  # fmt: skip
    if page:
        write_page(summary, page)
        note(f"page: {page}, record: {page.with_suffix('.json')}")
    if options.as_json:
        print_json(msgspec.Raw(to_json(summary)))
    else:
        for line in summary_lines(summary):
            results().print(line, soft_wrap=True)
