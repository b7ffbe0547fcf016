"""The verbs of `hushrec`."""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup

from hushrec.cli.groups import SystemOrFolder, made_when_needed, per_system
from hushrec.errors import naming_options

# A line on each verb, so that they can be listed without being loaded.
VERBS = {
    "demo": "Show the main job in a minute: three runs on ML-100K, their bytes, recommendations, a report.",
    "data": "Data sets: list the known ones, fetch one, describe one or a file.",
    "systems": "List the systems, or show one: paper, roles, messages and what each reveals, settings.",
    "run": "Run a system in this process and measure it.",
    "reproduce": "Run published tables' experiments and print ours beside the paper's, with spread and verdict.",
    "audit": "Attack what the server, a partner or an observer saw: of a system on data, or of a run in a folder.",
    "tune": "Look for settings that suit a file: many are tried, on validation data only.",
    "compare": "Compare runs, or with --data all systems: accuracy, bytes, CPU time, and what attackers learn.",
    "recommend": "Recommend items to a user of a run, to all of them, or to a newcomer.",
    "similar": "List the items that a run's model finds most like one of them.",
    "deploy": "Run systems over a real network: a server, nodes that keep their ratings, mutual TLS.",
    "serve": "Serve recommendations over HTTP: lists for users and newcomers, behind a token and limits.",
    "export": "Write a run's model for other programs: items' vectors as Arrow or Parquet, its scorer as ONNX.",
    "card": "Write a model card: what was trained, on how many people, how good it is, what it reveals to whom.",
    "report": "Write one HTML page about runs: a verdict, accuracy, learning curves, bytes, what is revealed, "
    "provenance.",
}
_EXAMPLES = {
    "demo": "demo --out demo",
    "export": "export runs/one --to exported --format arrow",
    "card": "card runs/one --out card.md",
    "systems": "systems fedrec++",
    "reproduce": "reproduce fedrec++ table2 --data ml-100k",
    "compare": "compare runs/one runs/two",
    "recommend": "recommend runs/one --user 1",
    "similar": "similar runs/one --item 50",
    "serve": "serve runs/one --rate 100/second",
    "report": "report runs/one runs/two --out report.html",
}


def verb_named(name: str) -> typer.Typer:
    """The command or the group of a verb; its module is loaded here."""
    if name == "run":
        return _group(
            name,
            per_system("hushrec.cli.run:command_of"),
            "run fedrec++ --data ml-100k --rho 3 --folds 5 --out runs/one",
        )
    if name == "tune":
        return _group(
            name,
            per_system("hushrec.cli.tune:command_of"),
            "tune fedrec++ --data ml-100k --trials 20 --jobs 2 --out tuned",
        )
    if name == "audit":
        return _group(
            name, SystemOrFolder, "audit ptf-fedrec --data ml-100k --rounds 5, or: hushrec audit runs/one"
        )
    module = import_module(f"hushrec.cli.{name}")
    if name not in _EXAMPLES:
        group: typer.Typer = module.app
        return group
    from hushrec.cli.commands import alone, joined

    return alone(joined(getattr(module, name)), name, _EXAMPLES[name])


def _group(name: str, commands: type[TyperGroup], example: str) -> typer.Typer:
    return typer.Typer(cls=commands, help=VERBS[name], no_args_is_help=True, epilog=f"Example: hushrec {example}")


app = typer.Typer(
    name="hushrec",
    cls=made_when_needed(VERBS, lambda: VERBS, verb_named),
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
        print(f"hushrec {version('hushrec')}")
        raise typer.Exit


@app.callback()
def _hushrec(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    context.with_resource(naming_options())
