"""The verbs of `hushrec`."""

from typing import Annotated

import typer

from hushrec import __version__
from hushrec.cli import audit, data, deploy, run
from hushrec.cli.commands import joined
from hushrec.cli.compare import compare
from hushrec.cli.recommend import recommend
from hushrec.cli.report import report
from hushrec.cli.reproduce import reproduce
from hushrec.cli.serve import serve
from hushrec.cli.similar import similar
from hushrec.cli.systems import systems

app = typer.Typer(
    name="hushrec",
    help="Federated recommender systems: run them, reproduce their papers, compare them, use them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: hushrec run fedrec++ --data ml-100k --rho 3",
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"hushrec {__version__}")
        raise typer.Exit


@app.callback()
def _hushrec(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    pass


app.add_typer(data.app, name="data")
app.command("systems", epilog="Example: hushrec systems fedrec++")(systems)
app.add_typer(run.app, name="run")
app.command("reproduce", epilog="Example: hushrec reproduce fedrec++ table2 --data ml-100k")(joined(reproduce))
app.add_typer(audit.app, name="audit")
app.command("compare", epilog="Example: hushrec compare runs/one runs/two")(joined(compare))
app.command("recommend", epilog="Example: hushrec recommend runs/one --user 1")(joined(recommend))
app.command("similar", epilog="Example: hushrec similar runs/one --item 50")(joined(similar))
app.add_typer(deploy.app, name="deploy")
app.command("serve", epilog="Example: hushrec serve runs/one --rate 100/second")(serve)
app.command("report", epilog="Example: hushrec report runs/one runs/two --out report.html")(report)
