"""The `hushrec` command."""

import sys
from collections.abc import Callable
from importlib import import_module

import typer

from hushrec.cli import audit, data, deploy, run, tune
from hushrec.cli.commands import joined
from hushrec.cli.compare import compare
from hushrec.cli.console import INTERRUPTED, notes
from hushrec.cli.recommend import recommend
from hushrec.cli.report import report
from hushrec.cli.reproduce import reproduce
from hushrec.cli.serve import serve
from hushrec.cli.similar import similar
from hushrec.cli.systems import systems
from hushrec.errors import HushrecError

# Flower pins an old Typer, whose errors are those of click; a newer one brings its own.
_TYPER_ERROR: type[Exception] = getattr(typer, "TyperException", None) or import_module("click").ClickException

app = typer.Typer(
    name="hushrec",
    help="Federated recommender systems: run them, reproduce their papers, compare them, use them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: hushrec run fedrec++ --data ml-100k --rho 3",
)
app.add_typer(data.app, name="data")
app.command("systems", epilog="Example: hushrec systems fedrec++")(systems)
app.add_typer(run.app, name="run")
app.command("reproduce", epilog="Example: hushrec reproduce fedrec++ table2 --data ml-100k")(reproduce)
app.add_typer(audit.app, name="audit")
app.add_typer(tune.app, name="tune")
app.command("compare", epilog="Example: hushrec compare runs/one runs/two")(compare)
app.command("recommend", epilog="Example: hushrec recommend runs/one --user 1")(joined(recommend))
app.command("similar", epilog="Example: hushrec similar runs/one --item 50")(joined(similar))
app.add_typer(deploy.app, name="deploy")
app.command("serve", epilog="Example: hushrec serve runs/one --rate 100/second")(serve)
app.command("report", epilog="Example: hushrec report runs/one runs/two --out report.html")(report)


def main() -> None:
    """Run `hushrec` with the words of the command line."""
    exits_cleanly(lambda: app(standalone_mode=False))


def exits_cleanly(command: Callable[[], int | None]) -> None:
    """Run a command; bad input ends in one line and exit code 2."""
    try:
        exit_code = command() or 0
    except HushrecError as error:
        exit_code = _fail_with(str(error))
    except _TYPER_ERROR as error:
        exit_code = _fail_with(_in_one_line(error))
    except KeyboardInterrupt:
        exit_code = INTERRUPTED
    except BrokenPipeError:
        exit_code = 141
    if exit_code == INTERRUPTED:
        _fail_with("interrupted; a run with --out goes on with --resume")
    sys.exit(exit_code)


def _in_one_line(error: Exception) -> str:
    """The message that Typer would print in a box of several lines."""
    text = " ".join(error.format_message().split()) if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    return f"{text.rstrip('.')}; see {context.command_path if context else 'hushrec'} --help" if text else ""


def _fail_with(text: str) -> int:
    """Print the error, unless it is empty, and return the exit code of bad input."""
    if text:
        notes().print(f"hushrec: {text}", style="red", soft_wrap=True)
    return 2


if __name__ == "__main__":
    main()
