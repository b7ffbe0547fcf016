"""Ctrl-C and SIGTERM: while modules are loaded they end a command at once, then they stop its work, which is kept.

Only the standard library's smallest modules are needed here: the command imports this before anything else.
"""

import os
import signal
import sys

TYPE_CHECKING = False  # as type checkers read it; to import `typing` takes as long as the rest of this
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_HEEDED = (signal.SIGINT, signal.SIGTERM)
_LOADING = "<frozen importlib"  # the file of Python's own import
_RETRY_SECONDS = 0.05
_MOST_RETRIES = 200
_state = {"is_command": False, "is_stopping": False, "has_terminated": False}
_num_retries = 0


def end_at_once() -> None:
    """From now on, end without a word of Python's: nothing is open that could be lost."""
    _state["is_command"] = True
    _handle_with(_end)


def heed() -> None:
    """From now on, stop what is done, which may keep what it has. Nothing changes where Python calls a verb."""
    if _state["is_command"]:
        _handle_with(_stop)
        sys.unraisablehook = _not_lost


def has_terminated() -> bool:
    """Whether it was SIGTERM."""
    return _state["has_terminated"]


def _handle_with(handler: "Any") -> None:
    for number in _HEEDED:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a shell, or under nohup
            signal.signal(number, handler)


def _end(number: int, _frame: "FrameType | None") -> None:
    try:
        os.write(2, b"\nhushrec: interrupted\n")
    finally:  # whether or not anybody reads it
        os._exit(128 + number)


def _stop(number: int, frame: "FrameType | None") -> None:
    global _num_retries
    if _is_loading(frame) and _num_retries < _MOST_RETRIES:  # half a module fails in its own way, or goes on
        _num_retries += 1
        _send_again(number)
        return
    _state["is_stopping"] = True
    _state["has_terminated"] = number == signal.SIGTERM
    raise KeyboardInterrupt


def _is_loading(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_LOADING):
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    import threading

    # A real signal, as to ask Python for an interrupt wakes nobody who waits for a file, a lock or a clock.
    timer = threading.Timer(_RETRY_SECONDS, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _not_lost(found: "Any") -> None:
    """Ctrl-C in the middle of a callback, where nobody can be told: have it come again.

    What it leaves half made, as the compiler of kernels does, may fail once more while it is thrown away.
    """
    if found.exc_type is not None and issubclass(found.exc_type, KeyboardInterrupt):
        _send_again(signal.SIGTERM if has_terminated() else signal.SIGINT)
    elif not _state["is_stopping"]:
        sys.__unraisablehook__(found)
