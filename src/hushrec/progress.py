"""A progress bar for whoever calls hushrec from Python: in terminals and in notebooks."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from importlib import import_module
from typing import Any

Tell = Callable[[int], None]  # how many are done
_SECONDS_BETWEEN = 0.2  # two updates of a notebook's line


@contextmanager
def counting(label: str, number: int, is_wanted: bool | None = None, unit: str = "round") -> Iterator[Tell]:
    """Show how many rounds, or something else, are done; unless told, in terminals and notebooks only."""
    if is_wanted is False:
        yield _unheard
        return
    from rich.console import Console  # not before a bar is shown

    console = Console(stderr=True)
    bar: AbstractContextManager[Tell] | None = None
    if console.is_jupyter:
        bar = _in_notebook(label, number, unit)
    elif console.is_terminal or is_wanted:
        bar = _in_terminal(label, number, unit, console)
    if bar is None:
        yield _unheard
        return
    with bar as tell:
        yield tell


def _unheard(_num_done: int) -> None:
    return


@contextmanager
def _in_terminal(label: str, number: int, unit: str, console: Any) -> Iterator[Tell]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    words = TextColumn(f"{unit} {{task.completed:.0f}}/{{task.total:.0f}}")
    label_and_bar = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*label_and_bar, words, *times, console=console) as shown:
        task = shown.add_task(label, total=number)
        yield lambda num_done: shown.update(task, completed=num_done)


@contextmanager
def _in_notebook(label: str, number: int, unit: str) -> Iterator[Tell]:
    """A line that is written over; it needs no widgets."""
    display = import_module("IPython.display")
    begun, last, num_done = time.monotonic(), 0.0, 0

    def line() -> Any:
        seconds = time.monotonic() - begun
        bar = f'<progress value="{num_done}" max="{number}"></progress>'
        return display.HTML(f"{escape(label)} {bar} {unit} {num_done}/{number}, {seconds:.1f} s")

    handle = display.display(line(), display_id=True)

    def tell(now: int) -> None:
        nonlocal last, num_done
        num_done = now
        if time.monotonic() - last >= _SECONDS_BETWEEN:
            last = time.monotonic()
            handle.update(line())

    try:
        yield tell
    finally:
        handle.update(line())
