"""Lists for a user of a run, for all users, or for a newcomer with a file of ratings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.table import Table

from hushrec.cli.console import counting, note, print_json, results, show
from hushrec.cli.recommend import Chosen, ListOptions, NewcomersFile, Person, Target
from hushrec.data import Interactions
from hushrec.data.item_choice import read_choice
from hushrec.data.readers import read_draft
from hushrec.data.reading import Reading, naming_of
from hushrec.data.tables import checked_rows
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.recommender import Recommender
from hushrec.report.numbers import format_number
from hushrec.runs.lists import Recommendation, check_lists_file, write_lists


def chosen_ids(chosen: Chosen, model: Recommender) -> tuple[list[str] | None, list[str] | None]:
    """The items that lists may have, and those that they must not have; None: nothing was said."""
    return _ids_of("--only", chosen.only, model), _ids_of("--not", chosen.leave_out, model)


def _ids_of(flag: str, text: str | None, model: Recommender) -> list[str] | None:
    if text is None:
        return None
    ids, num_unknown = read_choice(text, flag, model.known_items)
    if num_unknown:
        note(f"{flag} {text}: {num_unknown} of {len(ids) + num_unknown} ids are not in this run; passed over")
    return ids


def _check_target(target: Target, person: Person) -> None:
    """Refuse what does not fit together, before a model is loaded."""
    if person.all_users and target.out is None:
        raise HushrecError("--all-users needs a file for the lists, as in --out lists.parquet")
    if not person.all_users and target.out is not None:
        raise HushrecError("--out is for --all-users; the list of one person is printed, with --json as JSON")
    if target.out is not None:
        check_lists_file(target.out, target.force)


def recommend_from(
    run: Path,
    person: Person,
    file: NewcomersFile,
    chosen: Chosen,
    target: Target,
    options: ListOptions,
    as_json: bool,
) -> None:
    """Print a list, or write those of all users."""
    _check_target(target, person)
    file.check(person.newcomer is not None)
    reading = file.reading()
    model = load_run(run, options.fold, options.side)
    train, why = model.ranker().train, options.why
    wish = options.k, not options.include_seen, options.min_raters, *chosen_ids(chosen, model), why
    if why and not model.ranker().explains:
        raise HushrecError(f"{model.system.name} has no vectors of items to compare; leave --why out")
    if target.out is not None:
        _write_all(target.out, model.recommend_all(*wish), train, as_json)
    elif person.newcomer is not None:
        items, ratings = newcomers_ratings(person.newcomer, model, reading)
        _show(model.recommend_newcomer(items, ratings, *wish), why, as_json)
    elif person.user is not None:
        if not len(train):
            told = f"{person.user} is the number of a client, counted from 0"
            note(f"a deployed server has no ids and items of users: {told}")
        _show(model.recommend([person.user.strip()], *wish)[0], why, as_json)
    if not as_json:
        note(f"computed on this machine from {model.source}")


def newcomers_ratings(
    file: Path, model: Recommender, reading: Reading
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Items and ratings of a newcomer's file. Notes say what is left out: rows that come again, unknown items."""
    rows, draft = read_draft(file, reading, note)
    own = checked_rows(rows, draft, "last")
    if own.num_users != 1:
        raise HushrecError(
            f"{file} holds {own.num_users} users; a newcomer's file holds one, leave the others out"
        )
    if own.ratings is None and model.system.feedback.needs_ratings:
        raise HushrecError(
            f"{file} has no ratings; give a column named rating, or name it with {naming_of(['rating'])}"
        )
    if len(own) < len(draft):
        note(f"{len(draft) - len(own)} rows are of items that come again later; the last row counts")
    items = own.item_ids[own.items]
    is_known = model.known_items(items)
    if is_known.any() and not is_known.all():  # if none is, the model says what its items look like
        note(f"{np.count_nonzero(~is_known)} of {len(items)} items are not known to this model and left out")
        return items[is_known], None if own.ratings is None else own.ratings[is_known]
    return items, own.ratings


def _write_all(out: Path, blocks: Iterator[pa.RecordBatch], train: Interactions, as_json: bool) -> None:
    """Write the lists of all users, and say how many there are."""
    num_users = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal num_users
        for block in blocks:
            num_users += pc.count_distinct(block["user"]).as_py()
            yield block
            tell(num_users)

    with counting("lists", train.num_users, "users") as tell:
        num_rows = write_lists(out, watched())
    if as_json:
        print_json({"out": str(out), "users": num_users, "rows": num_rows})
        return
    results().print(f"{num_rows:,} rows for {num_users:,} users in {out}", soft_wrap=True)
    if num_users < train.num_users:
        note(f"{train.num_users - num_users:,} users have no list: no item that may be listed is left for them")


def _show(found: list[Recommendation], why: bool, as_json: bool) -> None:
    if as_json:
        print_json([entry.told(why) for entry in found])
    elif found:
        print_recommendations(found, why)
    else:
        note("no item that may be listed is left; --include-seen lists items already rated, too")


def print_recommendations(found: list[Recommendation], why: bool = False) -> None:
    """Print a list, best first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("item", justify="right")
    table.add_column("score", justify="right")
    has_titles = any(entry.title for entry in found)
    if has_titles:
        table.add_column("title")
    if why:
        table.add_column("because of")
    for place, entry in enumerate(found, 1):
        cells = [str(place), str(entry.item), format_number(entry.score), *([entry.title] if has_titles else [])]
        table.add_row(*cells, *([_reason(entry)] if why else []))
    show(table, num_keys=2)


def _reason(entry: Recommendation) -> str:
    """The title of the item that is the reason, or its id; "" if there is none."""
    return "" if entry.because is None else entry.because.title or str(entry.because.item)
