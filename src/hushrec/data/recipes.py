"""Recipes: from the public raw files to the data sets of the federated literature, row for row.

A recipe reads raw files and gives a draft with the whole vocabulary; the catalogue checks its digest, which is
that of the prepared file, as ids are the same: those of the source, or places in its order.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from hushrec.data.interactions import Ids, Interactions
from hushrec.data.titles import about_items, items_beside, with_items
from hushrec.draws import Draws
from hushrec.errors import HushrecError

Column = NDArray[np.int64]

_LEAST_GAMES = 5
_LEAST_CHECK_INS, _MOST_CHECK_INS = 20, 500
_LEAST_HOURS = 1.0
_STEAM_COLUMNS = ("user", "title", "behaviour", "hours", "zero")


def steam_200k(path: Path) -> Interactions:
    """Purchases of users with 5 or more games, from `steam-200k.csv` or `steam-200k-full.parquet` with its items.

    A game's name ends at the first comma of its title, an artefact of the literature's plain split on commas: all
    "Warhammer 40,000 ..." are one game. Games are numbered in order of first purchase by anyone, users in order of
    appearance among those who are kept.
    """
    users, titles = _purchases_of_csv(path) if path.suffix == ".csv" else _purchases_of_parquet(path)
    names, games = _first_come([title.split(",")[0] for title in titles.dictionary.to_pylist()])
    bought = games[titles.indices.to_numpy(zero_copy_only=False)]
    pairs, first = np.unique(np.stack([users, bought]), axis=1, return_index=True)
    users, bought = pairs[:, np.argsort(first)]
    _, number_of, num_games = np.unique(users, return_inverse=True, return_counts=True)
    is_kept = num_games[number_of] >= _LEAST_GAMES
    users, bought = users[is_kept], bought[is_kept]
    kept, first, number_of = np.unique(users, return_index=True, return_inverse=True)
    place = np.empty(len(kept), np.int64)
    place[np.argsort(first)] = np.arange(len(kept))
    item_ids = np.arange(len(names))
    return _draft(place[number_of], bought, np.arange(len(kept)), item_ids, np.array(names, np.str_))


def _first_come(texts: list[str]) -> tuple[list[str], Column]:
    """Distinct texts in order of appearance, and the place of each text among them."""
    places: dict[str, int] = {}
    codes = [places.setdefault(text, len(places)) for text in texts]
    return list(places), np.array(codes, np.int64)


def _purchases_of_csv(path: Path) -> tuple[Column, pa.DictionaryArray]:
    types = {"user": pa.int64(), "title": pa.string(), "behaviour": pa.string()}
    try:
        table = pa_csv.read_csv(
            path,
            pa_csv.ReadOptions(column_names=_STEAM_COLUMNS),
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):  # Arrow's own words may hold a row
        raise HushrecError("expected rows of user, title, behaviour, hours, 0") from None
    table = table.filter(pc.equal(table["behaviour"], "purchase"))
    if table["user"].null_count:
        raise HushrecError("a purchase has no user; expected rows of user, title, behaviour, hours, 0")
    return table["user"].to_numpy(), table["title"].combine_chunks().dictionary_encode()


def _purchases_of_parquet(path: Path) -> tuple[Column, pa.DictionaryArray]:
    table = pa_parquet.read_table(path, columns=["user", "item"])
    items = pa_parquet.read_table(path.with_name(f"{path.stem}-items.parquet"), columns=["item", "title"])
    places = pc.index_in(table["item"], items["item"])
    if places.null_count:
        raise HushrecError(f"{places.null_count} purchases are of games without a title")
    titles = items["title"].cast(pa.string()).take(places).combine_chunks()
    return table["user"].to_numpy().astype(np.int64), titles.dictionary_encode()


def steam_200k_hours(path: Path) -> Interactions:
    """All purchases of `steam-200k-full.parquet`: 1 if played for an hour or more, else 0.

    The source knows no times and lists the games of a user from the most played down. That order would tell what
    is to be learned, and no positive would follow a negative; so the rows are shuffled, always in the same way.
    """
    table = pa_parquet.read_table(path, columns=["user", "item", "hours"])
    rows = Draws(0).generator("steam-200k-hours").permutation(table.num_rows)
    hours = table["hours"].fill_null(0.0).to_numpy()[rows]
    draft = _renumbered(
        table["user"].to_numpy().astype(np.int64)[rows], table["item"].to_numpy().astype(np.int64)[rows]
    )
    ratings = (hours >= _LEAST_HOURS).astype(np.float32)
    draft = replace(draft, ratings=ratings, rating_range=(0.0, 1.0))
    beside = items_beside(path)
    return draft if beside is None else with_items(draft, about_items(beside))


def gowalla_20(path: Path) -> Interactions:
    """Three passes: users with 20 or more check-ins, then locations with 20 or more, then users with 20 to 500.

    This is the literature's "20-core", which is none. From `gowalla-10core.parquet`, or LightGCN's train.txt and
    the test.txt beside it; ids are those of LightGCN.
    """
    users, items = _check_ins(path)
    users, items = _having(users, items, users, _LEAST_CHECK_INS)
    users, items = _having(users, items, items, _LEAST_CHECK_INS)
    users, items = _having(users, items, users, _LEAST_CHECK_INS, _MOST_CHECK_INS)
    return _renumbered(users, items)


def gowalla_10core(path: Path) -> Interactions:
    """All check-ins of LightGCN's train.txt and the test.txt beside it."""
    return _renumbered(*_check_ins(path))


def _having(
    users: Column, items: Column, counted: Column, least: int, most: int | None = None
) -> tuple[Column, Column]:
    """The rows whose value in the counted column occurs often enough, and not too often."""
    counts = np.bincount(counted)[counted] if len(counted) else counted
    is_kept = counts >= least
    if most is not None:
        is_kept &= counts <= most
    return users[is_kept], items[is_kept]


def _check_ins(path: Path) -> tuple[Column, Column]:
    if path.suffix == ".parquet":
        table = pa_parquet.read_table(path, columns=["user", "item"])
        return table["user"].to_numpy().astype(np.int64), table["item"].to_numpy().astype(np.int64)
    parts = [_lines_of_lightgcn(file) for file in (path, path.with_name("test.txt"))]
    return np.concatenate([users for users, _ in parts]), np.concatenate([items for _, items in parts])


def _lines_of_lightgcn(path: Path) -> tuple[Column, Column]:
    """Each line is a user and the items of the user."""
    lines = [
        line.split() for line in path.read_text(encoding="ascii", errors="replace").splitlines() if line.strip()
    ]
    lengths = np.array([len(line) for line in lines], np.int64)
    try:
        numbers = np.array([int(number) for line in lines for number in line], np.int64)
    except ValueError:
        raise HushrecError(
            f"{path.name}: expected lines of a user's number and the numbers of its items"
        ) from None
    if len(numbers) and numbers.min() < 0:
        raise HushrecError(f"{path.name}: a number is below 0; expected those of users and items")
    is_user = np.zeros(len(numbers), bool)
    is_user[np.cumsum(lengths) - lengths] = True
    return np.repeat(numbers[is_user], lengths - 1), numbers[~is_user]


def _renumbered(users: Column, items: Column) -> Interactions:
    user_ids, of_users = np.unique(users, return_inverse=True)
    item_ids, of_items = np.unique(items, return_inverse=True)
    return _draft(of_users, of_items, user_ids, item_ids, None)


def _draft(
    users: Column, items: Column, user_ids: Ids, item_ids: Ids, titles: NDArray[np.str_] | None
) -> Interactions:
    return Interactions(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        ratings=None,
        timestamps=None,
        order=None,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        rating_range=None,
        name="",
        sha256="",
        is_synthetic=False,
    )
