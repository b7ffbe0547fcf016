"""What is known of items: titles, genres and other columns, from a file beside the ratings or what was named."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from hushrec.data.arrow_columns import texts_of
from hushrec.data.frames import arrow_column, columns_of, joined
from hushrec.data.interactions import Interactions
from hushrec.data.json_lines import is_json, names_in, read_json, read_json_as_text
from hushrec.data.reading import Tell
from hushrec.data.sources import PACKED_SUFFIXES, Source, is_there, sources_of
from hushrec.data.text_tables import TextFormat, read_text, sniff
from hushrec.errors import HushrecError

Texts = npt.NDArray[np.str_]

_ITEM_NAMES = (
    "item", "itemid", "iid", "movieid", "filmid", "productid", "id", "asin", "bookid", "isbn", "gameid", "trackid",
    "songid", "artistid", "articleid", "sku", "animeid",
)  # fmt: skip
_TITLE_NAMES = ("title", "name", "movietitle", "itemtitle", "itemname", "productname", "booktitle", "label")
_GENRES_NAMES = ("genres", "genre", "categories", "category")
_LONGEST = 200  # signs of a text in another column; longer ones, such as descriptions, are left out
_NO_TEXT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
_NO_GENRE = ("", "unknown", "(no genres listed)")
_U_ITEM_GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_U_ITEM = ("item", "title", "released", "released_on_video", "address", "unknown", *_U_ITEM_GENRES)
# The publisher's own item files, which name no columns and are not UTF-8.
_MOVIELENS_FORMATS = {
    "u.item": TextFormat("|", _U_ITEM, has_header=False, has_quotes=False),
    "movies.dat": TextFormat("::", ("item", "title", "genres"), has_header=False, has_quotes=False),
}


@dataclass(frozen=True)
class AboutItems:
    """What a file or a frame says of items, a text each; titles and genres ("Comedy|Drama") if it has them."""

    source: str
    items: list[str]
    titles: list[str] | None = None
    genres: list[str] | None = None
    others: Mapping[str, list[str]] = field(default_factory=dict)  # by the name of the column


def items_beside(path: Path) -> Path | None:
    """The file about items that belongs to a file of ratings, if there is one.

    Beside `NAME.csv`: `NAME-items.parquet`, `NAME-items.csv`, RecBole's `NAME.item`; beside MovieLens'
    u.data, ratings.dat and ratings.csv: u.item, movies.dat and movies.csv.
    """
    if path.suffix in PACKED_SUFFIXES:
        path = path.with_suffix("")
    candidates = [f"{path.stem}-items.parquet", f"{path.stem}-items.csv", f"{path.stem}.item"]
    candidates += {"u.data": ["u.item"], "ratings.dat": ["movies.dat"]}.get(path.name, [])
    candidates += ["movies.csv"] if path.name == "ratings.csv" else []
    beside = (path.with_name(name) for name in candidates)
    return next((file for file in beside if file.is_file() and file != path), None)


def about_items(path: Path, encoding: str | None = None) -> AboutItems | None:
    """What a file says of items; None: it has no column of items."""
    if is_there(path) and path.is_dir():
        raise HushrecError(f"{path} is a folder; give a file with a column of items")
    is_movielens = path.name in _MOVIELENS_FORMATS
    table = _read_table(sources_of(path, "latin-1" if is_movielens else encoding)[0])
    return _about(table, str(path), path.suffix == ".item" and not is_movielens)


def _about(table: pa.Table, source: str, is_recbole: bool = False) -> AboutItems | None:
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in reversed(table.column_names)}
    item = next((plain[name] for name in _ITEM_NAMES if name in plain), None)
    if item is None:
        return None
    used = {item, *_used(plain, _TITLE_NAMES), *_used(plain, _GENRES_NAMES), *_U_ITEM_GENRES}
    try:
        titles, genres = _titles(table, plain, is_recbole), _genres(table, plain, is_recbole)
        items = [text.strip() for text in texts_of(table[item])]
    except _NO_TEXT:
        types = ", ".join(f"{name} {table[name].type}" for name in table.column_names if name in used)
        raise HushrecError(f"{source}: the columns are {types}; expected numbers and text") from None
    others = {name: _short_texts(table[name]) for name in table.column_names if name not in used}
    return AboutItems(source, items, titles, genres, {name: texts for name, texts in others.items() if texts})


def _short_texts(column: pa.ChunkedArray) -> list[str] | None:
    """The column as texts; None: it holds something else, or long ones."""
    try:
        texts = texts_of(column)
    except _NO_TEXT:
        return None
    return texts if max(map(len, texts), default=0) <= _LONGEST else None


def with_named_items(
    data: Interactions, source: str | Path | Any, encoding: str | None, notify: Tell | None
) -> Interactions:
    """The data with what a file or a frame says that somebody named: it must be about some of its items."""
    if isinstance(source, str | Path):
        about, name = about_items(Path(source), encoding), str(source)
    else:
        columns = {name: arrow_column(column, name) for name, column in columns_of(source).items()}
        about, name = _about(joined(columns, "items"), "items"), "items"
    if about is None:
        raise HushrecError(f"{name}: no item column; name one item, as in item,title,genres")
    return with_items(data, about, notify or (lambda note: None))


def with_items(data: Interactions, about: AboutItems | None, notify: Tell | None = None) -> Interactions:
    """The data with what a file says of its items; with `notify`, it must be about some of them."""
    if about is None:
        return data
    place_of = {text: place for place, text in enumerate(about.items)}
    places = np.array([place_of.get(str(item), -1) for item in data.item_ids.tolist()], np.int64)
    if notify is not None:
        num_known = int((places >= 0).sum())
        if not num_known:
            raise HushrecError(f"{about.source}: none of its {len(place_of):,} items is rated; check its ids")
        unknown, unsaid = len(place_of) - num_known, len(places) - num_known
        if unknown or unsaid:
            notify(
                f"{Path(about.source).name}: {unknown:,} of its {len(place_of):,} items are not in the ratings; "
                f"it says nothing of {unsaid:,} of the {len(places):,} that are"
            )

    def placed(texts: list[str]) -> Texts:
        return np.array([texts[place] if place >= 0 else "" for place in places.tolist()], np.str_)

    return replace(
        data,
        titles=data.titles if about.titles is None else placed(about.titles),
        genres=data.genres if about.genres is None else placed(about.genres),
        item_columns={name: placed(texts) for name, texts in about.others.items()},
    )


def _read_table(source: Source) -> pa.Table:
    if source.is_parquet:
        try:
            table = pa_parquet.read_table(pa.BufferReader(source.content))
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            raise HushrecError(f"{source.path}: not a Parquet file, or a damaged one; write it again") from None
    elif is_json(source):
        table = read_json(source)
        table = read_json_as_text(source, names_in(source)) if table is None else table
    else:
        text_format = _MOVIELENS_FORMATS.get(source.path.name) or sniff(source)
        table = read_text(source, text_format, dict.fromkeys(text_format.names, pa.string()))
    if len(set(table.column_names)) < len(table.column_names):
        raise HushrecError(f"{source.path}: two columns have the same name; rename one of them")
    return table


def _used(plain: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    """The first of these names that occurs, as it is written."""
    return [plain[name] for name in names if name in plain][:1]


def _titles(table: pa.Table, plain: Mapping[str, str], is_recbole: bool) -> list[str] | None:
    """RecBole keeps the year of a film in a column of its own; it is put back behind the title."""
    title = next(iter(_used(plain, _TITLE_NAMES)), None)
    if title is None:
        return None
    titles = [" ".join(text.split()) for text in texts_of(table[title])]  # also where a line ends within one
    if is_recbole and "releaseyear" in plain:
        pairs = zip(titles, texts_of(table[plain["releaseyear"]]), strict=True)
        titles = [f"{text} ({year})" if year.isdigit() else text for text, year in pairs]
    return titles


def _genres(table: pa.Table, plain: Mapping[str, str], is_recbole: bool) -> list[str] | None:
    """Genres go between bars, commas or semicolons, in RecBole's files spaces; u.item has a flag for each."""
    if tuple(table.column_names) == _U_ITEM:
        flags = zip(*(texts_of(table[genre]) for genre in _U_ITEM_GENRES), strict=True)
        pairs = (zip(_U_ITEM_GENRES, marks, strict=True) for marks in flags)
        return ["|".join(genre for genre, mark in marks if mark == "1") for marks in pairs]
    names = (*_GENRES_NAMES, "class") if is_recbole else _GENRES_NAMES
    column = next(iter(_used(plain, names)), None)
    if column is None:
        return None
    separator = r"\s+" if is_recbole else r"\s*[|,;]\s*"
    lists = (re.split(separator, text.strip()) for text in texts_of(table[column]))
    return ["|".join(genre for genre in genres if genre.lower() not in _NO_GENRE) for genres in lists]
