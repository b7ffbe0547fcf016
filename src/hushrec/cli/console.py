"""Where the command line writes: results to standard output, everything else to standard error."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hushrec.draws import chacha_block
from hushrec.report.numbers import format_bytes, format_metric
from hushrec.runs.folds import FoldProgress, Watch

INTERRUPTED = 130  # the exit code that Typer makes of Ctrl-C
# The time left follows the pace of the last ten minutes: a round may take one of them.
PACE_SECONDS = 600.0
# Without a terminal there is no line to overwrite; now and then a new one is written.
SECONDS_BETWEEN_LINES = 60.0


def results() -> Console:
    """Standard output. Texts are printed as they are, brackets too; tables keep their width if they are piped."""
    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, emoji=False, width=140)


def notes() -> Console:
    """The console for what is no result: standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """Say one line on standard error."""
    notes().print(text, style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Say one line on standard error that nobody should overlook."""
    notes().print(text, style="bold red", soft_wrap=True)


@contextmanager
def watching(label: str, num_rounds: int, num_folds: int) -> Iterator[Watch]:
    """A progress line: fold, round, metric, bytes, time left; without a terminal a line a minute."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.fields[round_number]}/{task.fields[num_rounds]}"),
        TextColumn("{task.fields[metric]}"),
        TextColumn("{task.fields[sent]} sent"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = notes()
    shown = Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=PACE_SECONDS,
    )
    with shown as progress:
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
    console = notes()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}"),
        TextColumn("{task.fields[more]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        number = progress.add_task(label, total=total, more="")
        (task,) = progress.tasks
        last_line = time.monotonic()

        def tell(completed: int, more: str = "") -> None:
            nonlocal last_line
            progress.update(number, completed=completed, more=more)
            if not console.is_terminal and time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                parts = [f"{completed:,}/{total:,} {unit}", more, _time_left(task)]
                note(f"{label}: {', '.join(part for part in parts if part)}")

        yield tell


def announce_compilation() -> None:
    """Say that the first run takes longer, if no kernel is compiled yet but those that read data."""
    folder = Path(str(chacha_block.stats.cache_path)).parent
    rooms = {
        path.parent.parent.name if path.parent.name == "__pycache__" else path.parent.name.partition("_")[0]
        for path in folder.rglob("*.nbi")
    }
    if not rooms - {"data"}:
        note("compiling the kernels; this takes half a minute once, then they are cached")
