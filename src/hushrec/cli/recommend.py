"""`hushrec recommend RUN`: lists for a user of a run, for all users, or for a newcomer with a file of ratings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushrec.choices import Side
from hushrec.cli.groups import work
from hushrec.cli.options import (
    AsJson,
    ColumnNames,
    DecimalSign,
    Fold,
    RunFolder,
    TextEncoding,
    WhatOfMissing,
    parse_columns,
)
from hushrec.errors import HushrecError

if TYPE_CHECKING:
    from hushrec.data import Reading

Length = Annotated[int, typer.Option("-k", help="How many items; more than there are: all.")]
MinRaters = Annotated[
    int | None, typer.Option(help="Leave out items that fewer users have rated; default: as the run did.")
]
WhoseModel = Annotated[Side | None, typer.Option(help="Whose model, where both have one; default: the server's.")]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which items may be listed."""

    only: Annotated[
        str | None,
        typer.Option(metavar="FILE|IDS", help="Only these items: a file with an id per line, or 1,2,3."),
    ] = None
    leave_out: Annotated[
        str | None, typer.Option("--not", metavar="FILE|IDS", help="Not these items, given in the same way.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Person:
    """For whom lists are made."""

    user: Annotated[str | None, typer.Option(help="A user, by the id of the source.")] = None
    newcomer: Annotated[
        Path | None, typer.Option(help="Or a file with one newcomer's ratings; it does not leave this machine.")
    ] = None
    all_users: Annotated[bool, typer.Option("--all-users", help="Or all users of the run, to --out.")] = False

    def __post_init__(self) -> None:
        if (self.user is not None) + (self.newcomer is not None) + self.all_users != 1:
            raise HushrecError(
                "say for whom: --user ID, or --newcomer FILE with item and rating columns, or --all-users"
            )


@dataclass(frozen=True, kw_only=True)
class NewcomersFile:
    """How the file of a newcomer is read."""

    columns: ColumnNames = None
    missing: WhatOfMissing = "refuse"
    encoding: TextEncoding = None
    decimal: DecimalSign = "."

    def check(self, has_file: bool) -> None:
        """Refuse what is said of a file that is not there."""
        if not has_file and self != NewcomersFile():
            told = next(f"--{name}" for name, value in vars(self).items() if value != getattr(NewcomersFile, name))
            raise HushrecError(f"{told} is of the file of --newcomer; give that, or leave {told} out")

    def reading(self) -> "Reading":
        """As a reader takes it."""
        from hushrec.data import Reading

        return Reading(
            columns=parse_columns(self.columns),
            one_user=True,
            missing=self.missing,
            encoding=self.encoding,
            decimal=self.decimal,
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the lists of all users go."""

    out: Annotated[Path | None, typer.Option(help="With --all-users: the file, .parquet, .csv or .jsonl.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out.")] = False


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """What a list must be like."""

    k: Length = 10
    min_raters: MinRaters = None
    why: Annotated[bool, typer.Option("--why", help="Say which own item each is near to.")] = False
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Items already rated, too.")] = False
    fold: Fold = None
    side: WhoseModel = None


def recommend(
    run: RunFolder,
    person: Person,
    file: NewcomersFile,
    chosen: Chosen,
    target: Target,
    options: ListOptions,
    as_json: AsJson = False,
) -> None:
    """Recommend items to a user of a run, to all of them, or to a newcomer."""
    work("recommend").recommend_from(run, person, file, chosen, target, options, as_json)
