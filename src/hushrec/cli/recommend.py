"""`hushrec recommend RUN`: lists for a user of a run, or for a newcomer with a file of ratings."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from hushrec.cli.console import note, results
from hushrec.cli.options import AsJson, Fold, RunFolder
from hushrec.data.readers import checked_file, read_draft
from hushrec.errors import HushrecError
from hushrec.recommender import MIN_RATERS, Recommendation, Recommender, load_run
from hushrec.report.numbers import format_number
from hushrec.runs.folds import Side


def recommend(
    run: RunFolder,
    user: Annotated[str | None, typer.Option(help="A user, by the id of the source.")] = None,
    newcomer: Annotated[
        Path | None, typer.Option(help="Or a file with one newcomer's ratings; it does not leave this machine.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many items.")] = 10,
    min_raters: Annotated[int, typer.Option(help="Leave out items that fewer users have rated.")] = MIN_RATERS,
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
        found = model.recommend_newcomer(*newcomers_ratings(newcomer, model), k, not include_seen, min_raters)
    if user is not None and not len(model.ranker().train):
        note(f"a deployed server has no ids and items of users: {user} is the number of a client, counted from 0")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print_recommendations(found)
    note(f"computed on this machine from {model.source}")


def newcomers_ratings(file: Path, model: Recommender) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Items and ratings of a newcomer's file. Notes say what is left out: rows that come again, unknown items."""
    draft = read_draft(file, one_user=True)
    own = checked_file(file, draft, "last")
    if own.num_users != 1:
        raise HushrecError(f"{file} holds {own.num_users} users; a newcomer's file holds one")
    if own.ratings is None and model.system.feedback.needs_ratings:
        raise HushrecError(f"{file} has no ratings; give a column named rating")
    if len(own) < len(draft):
        note(f"{len(draft) - len(own)} rows are of items that come again later; the last row counts")
    items = own.item_ids[own.items]
    is_known = model.known_items(items)
    if is_known.any() and not is_known.all():  # if none is, the model says what its items look like
        note(f"{np.count_nonzero(~is_known)} of {len(items)} items are not known to this model and left out")
        return items[is_known], None if own.ratings is None else own.ratings[is_known]
    return items, own.ratings


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
