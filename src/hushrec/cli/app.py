"""The `hushrec` command."""

import sys
from collections.abc import Callable

import typer

from hushrec.cli import data, run
from hushrec.cli.compare import compare
from hushrec.cli.console import notes
from hushrec.cli.recommend import recommend
from hushrec.cli.report import report
from hushrec.cli.reproduce import reproduce
from hushrec.cli.systems import systems
from hushrec.errors import HushrecError

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
app.command("compare", epilog="Example: hushrec compare runs/one runs/two")(compare)
app.command("recommend", epilog="Example: hushrec recommend runs/one --user 1")(recommend)
app.command("report", epilog="Example: hushrec report runs/one runs/two --out report.html")(report)


def main() -> None:
    """Run the command line."""
    exits_cleanly(app)


def exits_cleanly(command: Callable[[], None]) -> None:
    """Run a command; bad input ends in one line and exit code 2."""
    try:
        command()
    except HushrecError as error:
        notes().print(f"hushrec: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        notes().print("hushrec: interrupted; a run with --out goes on with --resume", markup=False, soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)


if __name__ == "__main__":
    main()
