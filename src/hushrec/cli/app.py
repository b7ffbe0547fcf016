"""The `hushrec` command, from its first moment: nothing that takes long is imported before Ctrl-C is heeded."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """End without a word of Python's: while modules are loaded, nothing is open that could be lost."""
    with suppress(OSError):
        os.write(2, b"\nhushrec: interrupted\n")
    os._exit(128 + number)


def main() -> None:
    """Run `hushrec` with the words of the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a shell, or under nohup
            signal.signal(number, _end_at_once)
    from hushrec.cli.endings import exits_cleanly, heeding_signals

    def command() -> int | None:
        from hushrec.cli.verbs import app

        with heeding_signals(_end_at_once):
            told: int | None = app(standalone_mode=False)
        return told

    try:
        exits_cleanly(command)
    except SystemExit as end:
        if end.code in (130, 143):  # threads of an engine may hang on; what had to be kept is
            os._exit(int(end.code))
        raise


if __name__ == "__main__":
    sys.argv[0] = "hushrec"
    main()
