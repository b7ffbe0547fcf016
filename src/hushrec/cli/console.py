"""Where the command line writes: results to standard output, everything else to standard error."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
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

from hushrec.cli.alphabet import in_alphabet, is_utf, visible
from hushrec.report.numbers import format_bytes, format_count, format_metric

if TYPE_CHECKING:
    from hushrec.runs.watching import FoldProgress, Watch

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
_LONG_WORD = 40  # one that is longer is broken
_GAP = 2  # between two columns
_MOST_BANDS = 3  # of columns, below each other


_with_line: list[Console] = []  # the console that shows a progress line now


class _Console(Console):
    """A console that prints texts as they are, brackets and colons too; but no text commands the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts with their control characters written out."""
        shown = [visible(one, has_lines=True) if isinstance(one, str) else one for one in objects]
        super().print(*shown, **options)

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
    has_all_letters = is_utf(getattr(sys.stdout, "encoding", None))
    print(data.decode() if has_all_letters else json.dumps(json.loads(data)))


def show(table: Table, num_keys: int = 1) -> None:
    """Print a table whole, whatever the width: in bands of columns, or every row as lines of its own.

    The first columns, `num_keys` of them, say what a row is of. What users named is in the cells: a newline there
    is shown, and breaks no row.
    """
    out = results()
    grid = _Grid.of(table, num_keys, out.encoding)
    bands = grid.bands(out.width)
    for band in bands or grid.stacked(out.width):
        out.print(band)


@dataclass(frozen=True)
class _Grid:
    """A table as texts, with the width that each column needs at least."""

    headings: list[str]
    columns: list[list[str]]
    are_numbers: list[bool]
    num_keys: int
    has_head: bool

    @classmethod
    def of(cls, table: Table, num_keys: int, encoding: str) -> "_Grid":
        return cls(
            [in_alphabet(visible(str(column.header), has_lines=True), encoding) for column in table.columns],
            [[in_alphabet(visible(str(cell)), encoding) for cell in column.cells] for column in table.columns],
            [column.justify == "right" for column in table.columns],
            num_keys,
            table.show_header,
        )

    def _full_width(self, place: int) -> int:
        lines = [*self.columns[place], *self.headings[place].splitlines()]
        return max((cell_len(line) for line in lines), default=0)

    def _needed_width(self, place: int) -> int:
        """Numbers stay whole; text and headings may be wrapped, but not in the midst of a word that has room."""
        cells = self.columns[place]
        widest = max((cell_len(cell) for cell in cells), default=0)
        heading = max((cell_len(word) for word in self.headings[place].split()), default=0)
        words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        least = widest if self.are_numbers[place] else max(min(words, _LONG_WORD), min(widest, _READABLE_WIDTH))
        return max(least, heading)

    def bands(self, width: int) -> list[Table]:
        """Tables of the columns that fit beside each other, in order, each led by the keys; none: too narrow."""
        needed = [self._needed_width(place) for place in range(len(self.columns))]
        keys = list(range(self.num_keys))
        bands = [list(keys)]
        for place in range(self.num_keys, len(needed)):
            if _width(needed, [*bands[-1], place]) > width and bands[-1] != keys:
                bands.append(list(keys))
            bands[-1].append(place)
        can_part = self.has_head and len(bands) <= _MOST_BANDS
        if any(_width(needed, band) > width for band in bands) or (len(bands) > 1 and not can_part):
            return []
        return [self._band(band, self._widths(band, needed, width), len(bands) > 1) for band in bands]

    def _widths(self, places: list[int], needed: list[int], width: int) -> dict[int, int]:
        """What columns beside each other get: what they need, and of what is left as much as they can use.

        Rich would take from columns that can spare nothing, and cut what does not fit.
        """
        left = width - _width(needed, places)
        wanted = {place: max(self._full_width(place) - needed[place], 0) for place in places}
        widths = {}
        for num_done, place in enumerate(sorted(places, key=lambda place: wanted[place])):
            more = min(wanted[place], left // (len(places) - num_done))
            left -= more
            widths[place] = needed[place] + more
        return widths

    def _band(self, places: list[int], widths: dict[int, int], is_part: bool) -> Table:
        """Some columns, and of a part those rows that have something in them."""
        band = Table(box=None, pad_edge=False, show_header=self.has_head)
        for place in places:
            justify: JustifyMethod = "right" if self.are_numbers[place] else "left"
            band.add_column(self.headings[place], justify=justify, width=widths[place], overflow="fold")
        for cells in zip(*(self.columns[place] for place in places), strict=True):
            if not is_part or any(cells[self.num_keys :]):
                band.add_row(*cells)
        return band

    def stacked(self, width: int) -> Iterator[Table]:
        """For each row its headings and what they have; a row without headings is led by its first cell."""
        headings = [" ".join(heading.split()) for heading in self.headings]
        num_keys = self.num_keys if self.has_head else 1
        leads = [f"  {heading}" for heading in headings] if self.has_head else self.columns[0]
        left = min(max((cell_len(lead) for lead in leads), default=0), width // 2)
        for row in zip(*self.columns, strict=True):
            columns = Column(overflow="fold", width=left), Column(overflow="fold", max_width=width - left - _GAP)
            grid, cells = Table.grid(*columns, padding=(0, _GAP, 0, 0)), [cell.strip() for cell in row]
            if self.has_head:
                names = " ".join(heading for heading in headings[:num_keys] if heading)
                grid.add_row(names, " ".join(cell for cell in cells[:num_keys] if cell))
                for heading, cell in zip(headings[num_keys:], cells[num_keys:], strict=True):
                    if cell:
                        grid.add_row(f"  {heading}", cell)
            else:
                grid.add_row(cells[0], "  ".join(cell for cell in cells[1:] if cell))
            yield grid


def _width(needed: Sequence[int], places: Sequence[int]) -> int:
    return sum(needed[place] + _GAP for place in places) - _GAP


def note(text: str) -> None:
    """Say one line on standard error."""
    say(text, "dim")


def warn(text: str) -> None:
    """Say one line on standard error that nobody should overlook."""
    say(text, "bold red")


def say(text: str, style: str) -> None:
    """Say one line on standard error, in a style."""
    notes().print(visible(text), style=style, soft_wrap=True)


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
def watching(label: str, num_rounds: int, num_folds: int) -> "Iterator[Watch]":
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

        def watch(now: "FoldProgress") -> None:
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
