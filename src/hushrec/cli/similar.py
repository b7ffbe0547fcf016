"""`hushrec similar RUN --item ID`: the items nearest to one, by what the model learned."""

from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Fold, RunFolder
from hushrec.cli.recommend import Chosen, Length, MinRaters, WhoseModel


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
    work("similar").list_similar(run, chosen, item, k, min_raters, fold, side, as_json)
