"""Titles and genres of items, from the file that lies beside a file of ratings."""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from hushrec.data.arrow_columns import texts_of
from hushrec.data.interactions import Ids
from hushrec.data.text_tables import TextFormat, read_text, sniff
from hushrec.errors import HushrecError

Texts = npt.NDArray[np.str_]

_ITEM_NAMES = ("item", "itemid", "movieid", "productid", "id", "asin", "bookid", "gameid")
_TITLE_NAMES = ("title", "name", "movietitle", "itemtitle", "itemname", "productname", "label")
_GENRES_NAMES = ("genres", "genre", "categories", "category")
_NO_GENRE = ("", "unknown", "(no genres listed)")
_U_ITEM_GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_U_ITEM = ("item", "title", "released", "released_on_video", "address", "unknown", *_U_ITEM_GENRES)
# The publisher's own item files, which name no columns and are not UTF-8.
_MOVIELENS_FORMATS = {
    "u.item": TextFormat("|", _U_ITEM, has_header=False, has_quotes=False, encoding="latin-1"),
    "movies.dat": TextFormat("::", ("item", "title", "genres"), False, False, encoding="latin-1"),
}


def titles_file(path: Path) -> Path | None:
    """The file with titles and genres that belongs to a file of ratings, if there is one.

    Beside `NAME.csv`: `NAME-items.parquet`, `NAME-items.csv`, RecBole's `NAME.item`; beside MovieLens'
    u.data, ratings.dat and ratings.csv: u.item, movies.dat and movies.csv.
    """
    candidates = [f"{path.stem}-items.parquet", f"{path.stem}-items.csv", f"{path.stem}.item"]
    candidates += {"u.data": ["u.item"], "ratings.dat": ["movies.dat"]}.get(path.name, [])
    candidates += ["movies.csv"] if path.name == "ratings.csv" else []
    beside = (path.with_name(name) for name in candidates)
    return next((file for file in beside if file.is_file() and file != path), None)


def texts_beside(path: Path, item_ids: Ids) -> tuple[Texts | None, Texts | None]:
    """A title and the genres ("Comedy|Drama") of each item, "" where unknown; None where no file has them."""
    file = titles_file(path)
    if file is None:
        return None, None
    table = _read_table(file)
    plain = {name.lower().replace("_", "").replace(" ", ""): name for name in reversed(table.column_names)}
    item = next((plain[name] for name in _ITEM_NAMES if name in plain), None)
    if item is None:
        return None, None
    items = texts_of(table[item])

    def placed(texts: list[str] | None) -> Texts | None:
        if texts is None:
            return None
        text_of = dict(zip(items, texts, strict=True))
        return np.array([text_of.get(str(item), "") for item in item_ids.tolist()], np.str_)

    is_recbole = file.suffix == ".item"
    return placed(_titles(table, plain, is_recbole)), placed(_genres(table, plain, is_recbole))


def _read_table(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        try:
            return pa_parquet.read_table(path)
        except (pa.ArrowInvalid, OSError):
            raise HushrecError(f"{path}: not a Parquet file, or a damaged one; write it again") from None
    text_format = _MOVIELENS_FORMATS.get(path.name) or sniff(path)
    return read_text(path, text_format, dict.fromkeys(text_format.names, pa.string()))


def _titles(table: pa.Table, plain: dict[str, str], is_recbole: bool) -> list[str] | None:
    """RecBole keeps the year of a film in a column of its own; it is put back behind the title."""
    title = next((plain[name] for name in _TITLE_NAMES if name in plain), None)
    if title is None:
        return None
    titles = [text.strip() for text in texts_of(table[title])]
    if is_recbole and "releaseyear" in plain:
        pairs = zip(titles, texts_of(table[plain["releaseyear"]]), strict=True)
        titles = [f"{text} ({year})" if year.isdigit() else text for text, year in pairs]
    return titles


def _genres(table: pa.Table, plain: dict[str, str], is_recbole: bool) -> list[str] | None:
    """Genres go between bars, commas or semicolons, in RecBole's files spaces; u.item has a flag for each."""
    if tuple(table.column_names) == _U_ITEM:
        flags = zip(*(texts_of(table[genre]) for genre in _U_ITEM_GENRES), strict=True)
        pairs = (zip(_U_ITEM_GENRES, marks, strict=True) for marks in flags)
        return ["|".join(genre for genre, mark in marks if mark == "1") for marks in pairs]
    names = (*_GENRES_NAMES, "class") if is_recbole else _GENRES_NAMES
    column = next((plain[name] for name in names if name in plain), None)
    if column is None:
        return None
    separator = r"\s+" if is_recbole else r"\s*[|,;]\s*"
    lists = (re.split(separator, text.strip()) for text in texts_of(table[column]))
    return ["|".join(genre for genre in genres if genre.lower() not in _NO_GENRE) for genres in lists]
