"""Threads that share the work of one kernel, in parts that do not need each other, so no number depends on them.

The runtime lends its threads to the driving side while that computes. Who has none works alone.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from contextvars import ContextVar

Part = tuple[int, int]  # the number of a part, and how many parts there are
WHOLE: Part = (0, 1)

_lent: ContextVar[tuple[Executor, int] | None] = ContextVar("lent", default=None)

# Multiplications; below it threads wait for each other longer than they work.
_MIN_WORK = 1 << 20


@contextmanager
def lending(pool: Executor | None, num_helpers: int) -> Iterator[None]:
    """Let work that begins in here be shared with so many threads of a pool, which has nothing else to do."""
    token = _lent.set((pool, num_helpers) if pool is not None else None)
    try:
        yield
    finally:
        _lent.reset(token)


def num_parts(work: int) -> int:
    """Into how many parts to cut so many multiplications: one for each thread, if they are worth it."""
    lent = _lent.get()
    return 1 if lent is None or work < _MIN_WORK else 1 + lent[1]


def num_column_parts(num_columns: int, work: int) -> int:
    """The same for columns: parts are equally wide, and no narrower than a register of 8."""
    most = min(num_parts(work), max(num_columns // 8, 1))
    return max(count for count in range(1, most + 1) if num_columns % count == 0)


def at_once(work: Callable[[Part], None], count: int) -> None:
    """Do all parts of some work: the first here, the others in the threads that were lent.

    What no thread has begun by then is done here, too: on a busy machine they may come late.
    """
    lent = _lent.get()
    if lent is None:
        for number in range(count):
            work((number, count))
        return
    others = {number: lent[0].submit(work, (number, count)) for number in range(1, count)}
    try:
        work((0, count))
        for number, other in others.items():
            if other.cancel():
                work((number, count))
            else:
                other.result()
    finally:
        wait(others.values())
