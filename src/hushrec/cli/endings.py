"""How a command ends: bad input, a full disk, too little memory and Ctrl-C are one line and an exit code each."""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hushrec.cli.alphabet import PLAIN
from hushrec.cli.signals import has_terminated
from hushrec.errors import HushrecError, naming_options

BAD_INPUT = 2
INTERRUPTED = 130  # the exit code that Typer makes of Ctrl-C
TERMINATED = 143
NO_READER = 141
_REMEDIES = {
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "choose a place that is yours",
    errno.EPERM: "choose a place that is yours",
    errno.ENOTDIR: "choose a place that is not below a file",
    errno.EMFILE: "allow more open files, as with: ulimit -n 4096",
    errno.ENOMEM: "close other programs, or use less data",
}


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, with words on what is left of the work."""


@contextmanager
def if_interrupted(words: str) -> Iterator[None]:
    """Say this, and no more, if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(words) from None


# --- Streams ------------------------------------------------------------------------------------------------


def _prepare_streams() -> None:
    """Whatever the terminal's alphabet, nothing that is printed is an error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)


def _leave(stream: Any) -> None:
    """Write no more to a stream, so that Python does not try to at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


# --- Endings ------------------------------------------------------------------------------------------------


def exits_cleanly(command: Callable[[], int | None]) -> None:
    """Run a command; bad input ends in one line and exit code 2."""
    _prepare_streams()
    try:
        with naming_options():
            exit_code = command() or 0
        sys.stdout.flush()
        if exit_code == INTERRUPTED:  # Typer takes Ctrl-C for a way to end, and says nothing
            raise KeyboardInterrupt
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        exit_code = _unread()  # Rich, which prints help, would end with 1
    except Interrupted as error:
        exit_code = _ended(INTERRUPTED, str(error))
    except KeyboardInterrupt:
        exit_code = _ended(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        exit_code = _unread()
    except Exception as error:
        text = told_of(error)
        if text is None:
            raise
        exit_code = _ended(BAD_INPUT, text)
    if exit_code == INTERRUPTED and has_terminated():
        exit_code = TERMINATED
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    sys.exit(exit_code)


def _unread() -> int:
    """End quietly when nobody reads any more."""
    _leave(sys.stdout)
    return NO_READER


def told_of(error: Exception) -> str | None:
    """What to say of an error that is no bug, in one line; None: it is one."""
    if isinstance(error, HushrecError):
        return str(error)
    if hasattr(error, "format_message"):  # of Typer
        return _of_typer(error)
    if isinstance(error, MemoryError) or _is_of_memory(error):
        return _of_memory(error)
    if isinstance(error, OSError):
        return _of_system(error)
    return None


def _of_typer(error: Any) -> str:
    """The message that Typer would print in a box of several lines."""
    text = " ".join(error.format_message().split())
    context, flag = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if flag and context is not None and hasattr(context.command, "commands"):
        text = (
            f"No such option: {flag} here; options go behind the command, as in {context.command_path} NAME {flag}"
        )
    return f"{text.rstrip('.')}; see {context.command_path if context else 'hushrec'} --help" if text else ""


def _is_of_memory(error: Exception) -> bool:
    """NumPy, PyTorch, the loader and threads have words of their own for too little memory."""
    signs = ("can't allocate memory", "not enough memory", "cannot allocate memory", "can't start new thread",
             "failed to map segment", "maximum allowed dimension exceeded", "array is too big")  # fmt: skip
    return isinstance(error, RuntimeError | ImportError | OSError | ValueError) and any(
        sign in str(error).lower() for sign in signs
    )


def _of_memory(error: Exception) -> str:
    wanted = " ".join(str(error).split())
    asked = f" ({wanted})" if wanted and len(wanted) < 200 else ""
    return f"too little memory{asked}: lower --num-factors or what else is large here, or use less data"


def _of_system(error: OSError) -> str:
    """What a file, a disk or a network refused."""
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        _leave(sys.stdout)
        return f"standard output, or a file, cannot be written ({os.strerror(error.errno)}); free some space"
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    what = error.strerror or " ".join(str(error).split()) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{where}{what}{f'; {remedy}' if remedy else ''}"


def _ended(exit_code: int, text: str) -> int:
    """Print the error, unless it is empty, and return the exit code."""
    if text:
        from hushrec.cli.console import say

        with suppress(OSError):
            say(f"hushrec: {text}", "red")
    return exit_code
