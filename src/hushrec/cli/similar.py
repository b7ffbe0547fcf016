"""`hushrec similar RUN --item ID`: the items nearest to one, by what the model learned."""

from typing import Annotated

import typer
from rich.table import Table

from hushrec.cli.console import note, print_json, show
from hushrec.cli.options import AsJson, Fold, RunFolder
from hushrec.cli.recommend import Chosen, Length, MinRaters, WhoseModel
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.report.numbers import format_number
from hushrec.runs.lists import title_of


def similar(
    run: RunFolder,
    chosen: Chosen,
    item: Annotated[str, typer.Option(help="An item, by the id of the source.")],
    k: Length = 10,
    min_raters: MinRaters = None,
    fold: Fold = None,
    side: WhoseModel = None,
    as_json: AsJson = False,
) -> None:
    """List the items that a run's model finds most like one of them."""
    model = load_run(run, fold, side)
    ranker = model.ranker()
    if not ranker.explains:
        raise HushrecError(f"{model.system.name} has no vectors of items to compare; ask a run of another system")
    found = model.similar(item, k, min_raters, *chosen.ids(model))
    if as_json:
        print_json([entry.told() for entry in found])
        return
    if not found:
        note("no other item may be listed; choose others with --only")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("", "item", "cosine"):
        table.add_column(name, justify="right")
    table.add_column("title")
    for place, entry in enumerate(found, 1):
        table.add_row(str(place), str(entry.item), format_number(entry.score), entry.title)
    show(table)
    asked = title_of(ranker.train, model.item_number(item))
    note(f"nearest to {f'{asked} ({item})' if asked else item}, from {model.source}")
