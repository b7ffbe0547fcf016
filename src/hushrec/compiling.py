# mypy: allow-untyped-calls
"""Kernels are compiled when they are first called, and kept for every later run: where, and a word about it.

Numba keeps them beside the source, or in the user's cache where that cannot be written, or in $NUMBA_CACHE_DIR.
"""

import atexit
import logging
import shutil
import tempfile
import time
from collections.abc import Callable

import numba
from numba.core import event

_log = logging.getLogger("hushrec")

_SHORT_SECONDS = 1.0  # what takes no longer is not worth a word


class Word(event.Listener):
    """Says once that kernels are being compiled, as soon as that has taken a while. What is kept is no event."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds, self._began = clock, 0.0, 0.0
        self._depth, self._is_said = 0, False

    def on_start(self, event: object) -> None:
        """A kernel is about to be compiled, perhaps inside of one that calls it."""
        if not self._depth:
            self._began = self._clock()
        self._depth += 1

    def on_end(self, event: object) -> None:
        """A kernel is compiled."""
        self._depth -= 1
        taken = self._seconds + self._clock() - self._began
        if not self._depth:
            self._seconds = taken
        if taken > _SHORT_SECONDS and not self._is_said:
            self._is_said = True
            _log.warning("compiling kernels: once per machine, for up to a minute; later runs start at once")


def _probe() -> None:
    pass


def _find_room() -> None:
    """Without any place that can be written Numba refuses to start; then this process has one of its own."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:
        folder = tempfile.mkdtemp(prefix="hushrec-kernels-")  # nobody else can write there
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]
        _log.warning("compiled kernels cannot be kept; set NUMBA_CACHE_DIR to a folder that can be written")


_find_room()
event.register("numba:compile", Word())
