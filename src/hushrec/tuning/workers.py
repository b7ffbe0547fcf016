"""Pieces of work one after the other in this process, or several at once in processes of their own.

Processes get the data and tell what they measure through pipes: nothing of it is written to disk, and all
that is kept is kept by this process. One that loses its connection ends. Ctrl-C and SIGTERM, which a terminal or a
scheduler sends to all of them, are for this process alone: it keeps what is done and ends the others.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from hushrec.tuning.bench import Outcome


class Bench(Protocol):
    """Where work is done, in whichever process: trials of a search, rows of a comparison."""

    def make(self, attempt: Any, on_point: Any) -> Outcome:
        """Do a piece, and tell what is measured on the way."""
        ...


class Desk(Protocol):
    """Who gives out trials and takes in what comes of them."""

    def next(self) -> tuple[int, Any] | None:
        """The number of the next trial and what it tries; None: there are enough."""
        ...

    def on_point(self, number: int, round_number: int, value: Any) -> bool:
        """Note the measure after a round; whether the trial is to be given up."""
        ...

    def on_done(self, number: int, outcome: Outcome) -> None:
        """Note what came of a trial."""
        ...


def one_by_one(bench: Bench, desk: Desk) -> None:
    """Make all trials in this process."""
    while (given := desk.next()) is not None:
        number, attempt = given

        def on_point(round_number: int, value: Any, number: int = number) -> bool:
            return desk.on_point(number, round_number, value)

        desk.on_done(number, bench.make(attempt, on_point))


# --- Several at once ----------------------------------------------------------------------------------------


class _Worker:
    """A process that makes one trial after the other, told over its own input and output."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from hushrec.tuning.workers import serve; serve()"]
        with _unheard():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()
        self.number: int | None = None

    def send(self, order: Any) -> None:
        """Send an order; to a process that is gone it does not come, and there is no answer."""
        with suppress(BrokenPipeError):
            self._orders.send(order)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._orders.close()
        self.answers.close()


@contextmanager
def _unheard() -> Iterator[None]:
    """A process that is started in this block never gets the signals; to this one they come after it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def side_by_side(bench: Bench, desk: Desk, num_jobs: int) -> None:
    """Make so many trials at once, each in a process of its own."""
    workers: dict[Any, _Worker] = {}

    def start_next(worker: _Worker | None = None) -> None:
        given = desk.next()
        if given is None:
            return
        if worker is None:
            worker = _Worker()
            workers[worker.answers] = worker
            worker.send(bench)
        worker.number, attempt = given
        worker.send(attempt)

    try:
        for _ in range(num_jobs):
            start_next()
        while any(worker.number is not None for worker in workers.values()):
            for ready in wait([one for one, worker in workers.items() if worker.number is not None]):
                _serve_one(workers, workers[ready], desk, start_next)
    finally:
        for worker in workers.values():
            worker.end()


def _serve_one(
    workers: dict[Any, _Worker], worker: _Worker, desk: Desk, start_next: Callable[[_Worker | None], None]
) -> None:
    """Take in what a process tells; one that ended has a fault, and another takes its place."""
    number = worker.number
    assert number is not None
    try:
        told = worker.answers.recv()
    except (EOFError, OSError):
        worker.end()
        del workers[worker.answers]
        desk.on_done(number, Outcome({}, fault="its process was ended from outside, or had too little memory"))
        start_next(None)
        return
    if isinstance(told, Outcome):
        worker.number = None
        desk.on_done(number, told)
        start_next(worker)
    else:
        worker.send(desk.on_point(number, *told))


def serve() -> None:
    """What such a process does, until nobody is there any more."""
    orders, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what anything prints is no answer

    def on_point(round_number: int, value: Any) -> bool:
        answers.send((round_number, value))
        is_given_up: bool = _received(orders)
        return is_given_up

    with suppress(EOFError, BrokenPipeError):
        bench: Bench = _received(orders)
        while True:
            answers.send(bench.make(_received(orders), on_point))


def _received(orders: Connection) -> Any:
    """The next order; one that ends in its middle was the last."""
    try:
        return orders.recv()
    except OSError:
        raise EOFError from None
