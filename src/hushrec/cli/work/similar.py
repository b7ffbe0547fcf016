"""The items nearest to one, by what a run's model learned."""

from pathlib import Path

from rich.table import Table

from hushrec.choices import Side
from hushrec.cli.console import note, print_json, show
from hushrec.cli.recommend import Chosen
from hushrec.cli.work.recommend import chosen_ids
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.report.numbers import format_number
from hushrec.runs.lists import title_of


def list_similar(
    run: Path,
    chosen: Chosen,
    item: str,
    k: int,
    min_raters: int | None,
    fold: int | None,
    side: Side | None,
    as_json: bool,
) -> None:
    """Print the items most like one of them."""
    model = load_run(run, fold, side)
    ranker = model.ranker()
    if not ranker.explains:
        raise HushrecError(f"{model.system.name} has no vectors of items to compare; ask a run of another system")
    found = model.similar(item, k, min_raters, *chosen_ids(chosen, model))
    if as_json:
        print_json([entry.told() for entry in found])
        return
    if not found:
        note("no other item may be listed; choose others with --only")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("", "item", "cosine"):
        table.add_column(name, justify="right")
    has_titles = any(entry.title for entry in found)
    if has_titles:
        table.add_column("title")
    for place, entry in enumerate(found, 1):
        cells = [str(place), str(entry.item), format_number(entry.score)]
        table.add_row(*cells, *([entry.title] if has_titles else []))
    show(table, num_keys=2)
    asked = title_of(ranker.train, model.item_number(item))
    note(f"nearest to {f'{asked} ({item})' if asked else item}, from {model.source}")
