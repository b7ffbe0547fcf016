"""`hushrec export RUN`: a model in files for other programs."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from hushrec.choices import ExportForm
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Fold, RunFolder, beginning
from hushrec.cli.recommend import WhoseModel


def export(
    run: RunFolder,
    to: Annotated[Path, typer.Option(help="The folder to write into. A file that is there already stays.")],
    form: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="arrow|parquet|onnx",
            autocompletion=beginning(lambda: get_args(ExportForm)),
            help="arrow (default) or parquet: items' vectors. onnx: a scorer, from users' vectors to scores of "
            "all items. Can be given several times.",
        ),
    ] = None,
    with_users: Annotated[
        bool,
        typer.Option("--with-users", help="Users' vectors, too. They are private: they tell what users like."),
    ] = False,
    fold: Fold = None,
    side: WhoseModel = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's model for other programs: items' vectors as Arrow or Parquet, its scorer as ONNX."""
    work("export").export_run(run, to, form or ["arrow"], with_users, fold, side, as_json)
