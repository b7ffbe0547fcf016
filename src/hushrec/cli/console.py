"""Where the command line writes: results to standard output, everything else to standard error."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hushrec.experiments.runs import FoldProgress, Watch
from hushrec.report.tables import format_bytes


def results() -> Console:
    """Standard output. Tables keep their width when they are piped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)


def notes() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line on standard error."""
    notes().print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def watching(label: str, num_rounds: int, num_folds: int) -> Iterator[Watch]:
    """A progress line: fold, round, metric, bytes, time left."""
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
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(
            label, total=num_rounds * num_folds, round_number=0, num_rounds=num_rounds, metric="", sent="0 B"
        )

        def watch(now: FoldProgress) -> None:
            name = "RMSE" if "RMSE" in now.metrics else next(iter(now.metrics), "")
            progress.update(
                task,
                completed=(now.fold - 1) * num_rounds + now.round_number,
                description=f"{label} fold {now.fold}/{now.num_folds}" if now.num_folds > 1 else label,
                round_number=now.round_number,
                metric=f"{name} {now.metrics[name]:.4f}" if name else "",
                sent=format_bytes(now.sent_bytes),
            )

        yield watch
