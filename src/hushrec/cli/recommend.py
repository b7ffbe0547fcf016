"""`hushrec recommend RUN`: lists for a user of a run, or for a newcomer with a file of ratings."""

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.table import Table

from hushrec.cli.console import note, results
from hushrec.cli.options import AsJson, Fold, RunFolder
from hushrec.data import read
from hushrec.errors import HushrecError
from hushrec.recommender import Recommendation, load_run
from hushrec.report.numbers import format_number
from hushrec.runs.folds import Side


def recommend(
    run: RunFolder,
    user: Annotated[str | None, typer.Option(help="A user, by the id of the source.")] = None,
    newcomer: Annotated[
        Path | None, typer.Option(help="Or a file with one newcomer's ratings; it does not leave this machine.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many items.")] = 10,
    min_raters: Annotated[
        int | None, typer.Option(help="Leave out items that fewer users have rated; default: as the run did.")
    ] = None,
    fold: Fold = None,
    side: Annotated[
        Side | None, typer.Option(help="Whose model, where both have one; default: the server's.")
    ] = None,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Items already rated, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recommend items to a user of a run, or to a newcomer."""
    if (user is None) == (newcomer is None):
        raise HushrecError("say for whom: --user ID, or --newcomer FILE with item and rating columns")
    model = load_run(run, fold, side)
    if user is not None:
        found = model.recommend([user], k, not include_seen, min_raters)[0]
    elif newcomer is not None:
        ratings = read(newcomer, one_user=True)
        if ratings.num_users != 1:
            raise HushrecError(f"{newcomer} holds {ratings.num_users} users; a newcomer's file holds one")
        if ratings.ratings is None and model.system.feedback.needs_ratings:
            raise HushrecError(f"{newcomer} has no ratings; give a column named rating")
        given = np.ones(len(ratings), np.float32) if ratings.ratings is None else ratings.ratings
        found = model.recommend_newcomer(ratings.item_ids[ratings.items], given, k, not include_seen, min_raters)
    if user is not None and not len(model.ranker().train):
        note(f"a deployed server has no ids and items of users: {user} is the number of a client, counted from 0")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print_recommendations(found)
    note(f"computed on this machine from {model.source}")


def print_recommendations(found: list[Recommendation]) -> None:
    """Print a list, best first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("item", justify="right")
    table.add_column("score", justify="right")
    table.add_column("title")
    for place, entry in enumerate(found, 1):
        table.add_row(str(place), str(entry.item), format_number(entry.score), entry.title)
    results().print(table)
