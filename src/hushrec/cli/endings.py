"""How a command ends: bad input, a full disk, too little memory and Ctrl-C are one line and an exit code each."""

import _thread
import codecs
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from hushrec.errors import HushrecError, naming_options

BAD_INPUT = 2
INTERRUPTED = 130  # the exit code that Typer makes of Ctrl-C
TERMINATED = 143
NO_READER = 141
_PLAIN = "hushrec.plain"
_AS_ASCII = {
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺╼╾", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻", "|"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▇▆▅▄▃▂▁", "#"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("–—", "-"),
    **{"±": "+-", "…": "...", "×": "x", "·": ".", "•": "*", "→": "->", "≤": "<=", "≥": ">=", "≈": "~"},
}
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
_has_terminated = False


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


def _plain(error: UnicodeError) -> tuple[bytes, int]:
    """What a stream cannot show: bytes of file names as they are, lines and dots in ASCII, else as in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return b"".join(_plain_character(one) for one in found), error.end


def _plain_character(one: str) -> bytes:
    code = ord(one)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no text
        return bytes([code - 0xDC00])
    if one in _AS_ASCII or 0x2500 <= code <= 0x257F:
        return _AS_ASCII.get(one, "+").encode()
    units = one.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%04x" % int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))


def _prepare_streams() -> None:
    """Whatever the terminal's alphabet, nothing that is printed is an error."""
    codecs.register_error(_PLAIN, _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAIN)


def _leave(stream: Any) -> None:
    """Write no more to a stream, so that Python does not try to at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


# --- Signals ------------------------------------------------------------------------------------------------


@contextmanager
def heeding_signals(at_once: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the block, which may keep what it has; what comes after it ends `at_once`."""

    def stop(number: int, _frame: FrameType | None) -> None:
        global _has_terminated
        _has_terminated = number == signal.SIGTERM
        raise KeyboardInterrupt

    heeded = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, stop)
    sys.unraisablehook = _not_lost
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, at_once)


def _not_lost(found: Any) -> None:
    """Ctrl-C in the middle of a callback, where nobody can be told: have it come again."""
    if found.exc_type is not None and issubclass(found.exc_type, KeyboardInterrupt):
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(found)


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
    except Interrupted as error:
        exit_code = _ended(INTERRUPTED, str(error))
    except KeyboardInterrupt:
        exit_code = _ended(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        _leave(sys.stdout)
        exit_code = NO_READER
    except Exception as error:
        text = told_of(error)
        if text is None:
            raise
        exit_code = _ended(BAD_INPUT, text)
    if exit_code == INTERRUPTED and _has_terminated:
        exit_code = TERMINATED
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    sys.exit(exit_code)


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
    context = getattr(error, "ctx", None)
    return f"{text.rstrip('.')}; see {context.command_path if context else 'hushrec'} --help" if text else ""


def _is_of_memory(error: Exception) -> bool:
    """PyTorch, the loader and threads have words of their own for too little memory."""
    signs = ("can't allocate memory", "not enough memory", "cannot allocate memory", "can't start new thread",
             "failed to map segment")  # fmt: skip
    return isinstance(error, RuntimeError | ImportError | OSError) and any(
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
        from hushrec.cli.console import notes

        with suppress(OSError):
            notes().print(f"hushrec: {text}", style="red", soft_wrap=True)
    return exit_code
