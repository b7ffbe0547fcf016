"""Where the command line writes: results to standard output, everything else to standard error."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from hushrec.report.numbers import format_bytes, format_count, format_metric
from hushrec.runs.folds import FoldProgress, Watch

# The time left follows the pace of the last ten minutes: a round may take one of them.
PACE_SECONDS = 600.0
# Without a terminal there is no line to overwrite; now and then a new one is written.
SECONDS_BETWEEN_LINES = 60.0


# Without a terminal nothing is wrapped: a table is as wide as it is.
PIPED_WIDTH = 10_000
# A progress line that is narrower has no room for a bar.
_WIDTH_WITH_BAR = 90
# Text in a table that is narrower than this is hard to read.
_READABLE_WIDTH = 20
_GAP = 2  # between two columns
_MOST_BANDS = 3  # of columns, below each other


_with_line: list[Console] = []  # the console that shows a progress line now


class _Console(Console):
    """A console that prints texts as they are, brackets and colons too."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command how it ends when nobody reads any more."""
        raise BrokenPipeError


def _console(is_error: bool) -> Console:
    def made(width: int) -> Console:
        return _Console(stderr=is_error, highlight=False, markup=False, emoji=False, width=width)

    width = shutil.get_terminal_size().columns
    return made(width) if is_error or made(width).is_terminal else made(PIPED_WIDTH)


def results() -> Console:
    """Standard output. Tables keep their width if they are piped."""
    return _console(is_error=False)


def notes() -> Console:
    """The console for what is no result: standard error; above a progress line, if one is shown."""
    return _with_line[-1] if _with_line else _console(is_error=True)


def print_json(value: object) -> None:
    """Print a value as JSON, in one line, in whatever alphabet the output has."""
    data = msgspec.json.encode(value)
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    print(data.decode() if is_utf8 else json.dumps(json.loads(data)))


def show(table: Table) -> None:
    """Print a table whole, whatever the width: in bands of columns, or every row as lines of its own."""
    out = results()
    needed = [_needed_width(column) for column in table.columns]
    for column, width in zip(table.columns, needed, strict=True):
        column.min_width = width
    bands = _bands(table, needed, out.width)
    if len(bands) == 1:
        out.print(table)
    elif len(bands) <= _MOST_BANDS:
        for band in bands:
            out.print(_band(table, band))
    else:
        for row in _stacked(table):
            out.print(row)


def _needed_width(column: Column) -> int:
    """Numbers stay whole; text and headings may be wrapped, but not in the midst of a word."""
    lines = [line for cell in column.cells for line in str(cell).splitlines()]
    widest = max((len(line) for line in lines), default=0)
    words = max((len(word) for text in (str(column.header), *lines) for word in text.split()), default=0)
    return max(widest, words) if column.justify == "right" else max(words, min(widest, _READABLE_WIDTH))


def _num_keys(table: Table) -> int:
    """How many columns say what a row is of: those up to the first with text."""
    return next((place for place, one in enumerate(table.columns, 1) if one.justify == "left"), 1)


def _bands(table: Table, needed: list[int], width: int) -> list[list[int]]:
    """The columns that fit beside each other, in order; those that name the rows lead every band."""
    keys = list(range(_num_keys(table)))
    bands = [list(keys)]
    for place in range(len(keys), len(needed)):
        if sum(needed[one] + _GAP for one in [*bands[-1], place]) - _GAP > width and bands[-1] != keys:
            bands.append(list(keys))
        bands[-1].append(place)
    too_wide = any(sum(needed[one] + _GAP for one in band) - _GAP > width for band in bands)
    can_part = table.show_header and not too_wide
    return bands if can_part or (len(bands) == 1 and not too_wide) else [[]] * (_MOST_BANDS + 1)


def _band(table: Table, places: list[int]) -> Table:
    """Some columns of a table, and of its rows those that have something in them."""
    band = Table(box=None, pad_edge=False)
    for place in places:
        column = table.columns[place]
        band.add_column(column.header, justify=column.justify, min_width=column.min_width)
    for cells in zip(*([str(cell) for cell in table.columns[place].cells] for place in places), strict=True):
        if any(cells[_num_keys(table) :]):
            band.add_row(*cells)
    return band


def _stacked(table: Table) -> Iterator[Table]:
    """For each row its headings and what they have; a row without headings is led by its first cell."""
    columns = [[str(cell).strip() for cell in column.cells] for column in table.columns]
    headings = [" ".join(str(column.header).split()) for column in table.columns]
    num_keys = _num_keys(table) if table.show_header else 1
    for cells in zip(*columns, strict=True):
        grid = Table.grid(Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
        if table.show_header:
            grid.add_row(headings[num_keys - 1], " ".join(cell for cell in cells[:num_keys] if cell))
            for heading, cell in zip(headings[num_keys:], cells[num_keys:], strict=True):
                if cell:
                    grid.add_row(f"  {heading}", cell)
        else:
            grid.add_row(cells[0], "  ".join(cell for cell in cells[1:] if cell))
        yield grid


def note(text: str) -> None:
    """Say one line on standard error."""
    notes().print(text, style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Say one line on standard error that nobody should overlook."""
    notes().print(text, style="bold red", soft_wrap=True)


class _Line(ProgressColumn):
    """All of a progress line as text that wraps, for narrow terminals."""

    def __init__(self) -> None:
        super().__init__(table_column=Column(overflow="fold"))

    def render(self, task: Task) -> Text:
        """The line as it is now."""
        return Text(_line(task))


def _progress(*columns: ProgressColumn) -> Progress:
    """A progress line of these columns, or of words only where there is no room for them."""
    console = _console(is_error=True)
    return Progress(
        *(columns if console.width >= _WIDTH_WITH_BAR else (_Line(),)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=PACE_SECONDS,
    )


@contextmanager
def _shown(progress: Progress) -> Iterator[Progress]:
    """Show a progress line, and notes above it."""
    with progress:
        _with_line.append(progress.console)
        try:
            yield progress
        finally:
            _with_line.remove(progress.console)


def _plain(text: str) -> TextColumn:
    """A column of words as they are: what users named may look like markup."""
    return TextColumn(text, markup=False)


@contextmanager
def watching(label: str, num_rounds: int, num_folds: int) -> Iterator[Watch]:
    """A progress line: fold, round, metric, bytes, time left; without a terminal a line a minute."""
    shown = _progress(
        _plain("{task.description}"),
        BarColumn(bar_width=24),
        _plain("round {task.fields[round_number]}/{task.fields[num_rounds]}"),
        _plain("{task.fields[metric]}"),
        _plain("{task.fields[sent]} sent"),
        TimeElapsedColumn(),
        _plain("left"),
        TimeRemainingColumn(),
    )
    console = shown.console
    with _shown(shown) as progress:
        number = progress.add_task(
            label, total=num_rounds * num_folds, round_number=0, num_rounds=num_rounds, metric="", sent="0 B"
        )
        (task,) = progress.tasks
        last_line = time.monotonic()

        def watch(now: FoldProgress) -> None:
            nonlocal last_line
            name = "RMSE" if "RMSE" in now.metrics else next(iter(now.metrics), "")
            progress.update(
                number,
                completed=(now.fold - 1) * num_rounds + now.round_number,
                description=f"{label} fold {now.fold}/{now.num_folds}" if now.num_folds > 1 else label,
                round_number=now.round_number,
                metric=f"{name} {format_metric(now.metrics[name])}" if name else "",
                sent=format_bytes(now.sent_bytes),
            )
            if not console.is_terminal and time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                note(_line(task))

        yield watch


def _line(task: Task) -> str:
    """The progress line as plain text."""
    told = task.fields
    if "unit" in told:
        parts = [f"{format_count(task.completed)}/{format_count(task.total or 0)} {told['unit']}", told["more"]]
    else:
        parts = [f"round {told['round_number']}/{told['num_rounds']}", told["metric"], f"{told['sent']} sent"]
    return f"{task.description}: {', '.join(part for part in [*parts, _time_left(task)] if part)}"


def _time_left(task: Task) -> str:
    left = task.time_remaining
    return "" if left is None else f"left {timedelta(seconds=int(left))}"


@contextmanager
def counting(label: str, total: int, unit: str) -> Iterator[Callable[..., None]]:
    """A progress line of so many things, with the time left; without a terminal a line a minute.

    What is yielded takes how many are done, and what else is to be said.
    """
    shown = _progress(
        _plain("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _plain(unit),
        _plain("{task.fields[more]}"),
        TimeElapsedColumn(),
        _plain("left"),
        TimeRemainingColumn(),
    )
    console = shown.console
    with _shown(shown) as progress:
        number = progress.add_task(label, total=total, unit=unit, more="")
        (task,) = progress.tasks
        last_line = time.monotonic()

        def tell(completed: int, more: str = "") -> None:
            nonlocal last_line
            progress.update(number, completed=completed, more=more)
            if not console.is_terminal and time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                note(_line(task))

        yield tell
