"""The `hushrec` command, from its first moment: nothing that takes long is imported before Ctrl-C is heeded."""

import os

from hushrec.cli.signals import end_at_once

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run `hushrec` with the words of the command line."""

    def command() -> int | None:
        from hushrec.cli.verbs import app

        told: int | None = app(prog_name="hushrec", standalone_mode=False)
        return told

    run_command(command)


def run_command(command: "Callable[[], int | None]") -> None:
    """Run a command to its end, whichever it is; what it needs is best imported in it."""
    end_at_once()
    from hushrec.cli.endings import exits_cleanly

    def heeded() -> int | None:
        try:
            return command()
        finally:
            end_at_once()

    try:
        exits_cleanly(heeded)
    except SystemExit as end:
        if end.code in (130, 143):  # threads of an engine may hang on; what had to be kept is
            os._exit(int(end.code))
        raise


if __name__ == "__main__":
    main()
