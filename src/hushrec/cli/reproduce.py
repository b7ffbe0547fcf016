"""`hushrec reproduce SYSTEM TABLE`: a published table, ours beside it; with --all, every one of a dataset."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Threads, beginning
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.files import check_file_to_write, check_folder_to_write
from hushrec.report.canvas import check_picture

_MOST_SEEDS = 1000


def _systems(incomplete: str) -> list[str]:
    from hushrec.experiments.published import tables

    return beginning(lambda: dict.fromkeys(system for system, _ in tables()))(incomplete)


def _tables_of(context: typer.Context, incomplete: str) -> list[str]:
    from hushrec.experiments.published import tables

    names = [name for system, name in tables() if system == context.params.get("system")]
    return beginning(lambda: names)(incomplete)


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Which tables, how often, and where what comes of them goes."""

    said: Said
    is_all: Annotated[
        bool, typer.Option("--all", help="Every table of a dataset, or of a system on it, and a summary.")
    ] = False
    data: Annotated[str | None, typer.Option(help="Only the rows on this dataset.")] = None
    row: Annotated[str | None, typer.Option(help="Only rows whose name holds this text.")] = None
    preset: Annotated[str | None, typer.Option(help="Only this preset, where a table has several.")] = None
    seed: Annotated[int, typer.Option(help="Of the folds and everything else.")] = 0
    folds: Annotated[
        int | None,
        typer.Option(help="How many of the five folds. Default: all, fewer where only a figure is known."),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(help="Average over so many, from --seed on, and tell the spread. Default: 1 for most."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Folder to keep the runs in; an interrupted table goes on from it.")
    ] = None
    hours: Annotated[
        float | None,
        typer.Option(help="With --all: start no row after so many hours of CPU; 0: only what --out has."),
    ] = None
    is_unmeasured: Annotated[
        bool,
        typer.Option("--unmeasured", help="With --all: take tables that hushrec's own record has whole from it."),
    ] = False
    threads: Threads = None
    picture: Annotated[Path | None, typer.Option(help="Draw ours and published into a PNG or SVG file.")] = None
    page: Annotated[
        Path | None, typer.Option(help="With --all: write a page (Markdown), its record (JSON) and pictures.")
    ] = None
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if self.seeds is not None and not 1 <= self.seeds <= _MOST_SEEDS:
            raise HushrecError(f"--seeds {self.seeds}: choose 1 to {_MOST_SEEDS}")
        if self.hours is not None and not 0 <= self.hours < math.inf:
            raise HushrecError(f"--hours {self.hours:g}: choose 0 or more")
        if not self.is_all and (self.hours is not None or self.page is not None or self.is_unmeasured):
            raise HushrecError("--hours, --page and --unmeasured go with --all; leave them out")
        if self.is_unmeasured and (self.seed or self.folds is not None):
            raise HushrecError(
                "--unmeasured: the record has the usual seed and folds; leave --seed and --folds out"
            )
        if self.page is not None and self.page.suffix != ".md":
            raise HushrecError(f"--page {self.page}: write a file that ends in .md")
        if self.page is not None:
            check_file_to_write(self.page, "--page")
        if self.out is not None:
            check_folder_to_write(self.out, "--out")
        check_picture(self.picture)


def reproduce(
    options: ReproduceOptions,
    system: Annotated[str | None, typer.Argument(help="A system.", autocompletion=_systems)] = None,
    table: Annotated[
        str | None, typer.Argument(help="Its table or figure, as table2.", autocompletion=_tables_of)
    ] = None,
) -> None:
    """Run published tables' experiments and print ours beside the paper's, with spread and verdict."""
    work("reproduce").reproduce_tables(system, table, options)
