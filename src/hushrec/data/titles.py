"""Titles of items, from the file that lies beside a file of ratings."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from hushrec.data.arrow_columns import texts_of
from hushrec.data.interactions import Ids
from hushrec.data.text_tables import TextFormat, read_text, sniff
from hushrec.errors import HushrecError

_ITEM_NAMES = ("item", "itemid", "movieid", "productid", "id", "asin", "bookid", "gameid")
_TITLE_NAMES = ("title", "name", "movietitle", "itemtitle", "itemname", "productname", "label")
_U_ITEM = ("item", "title", *(f"field_{place}" for place in range(22)))
# The publisher's own item files, which name no columns and are not UTF-8.
_MOVIELENS_FORMATS = {
    "u.item": TextFormat("|", _U_ITEM, has_header=False, has_quotes=False, encoding="latin-1"),
    "movies.dat": TextFormat("::", ("item", "title", "genres"), False, False, encoding="latin-1"),
}


def titles_file(path: Path) -> Path | None:
    """The file with titles that belongs to a file of ratings, if there is one.

    Beside `NAME.csv`: `NAME-items.parquet`, `NAME-items.csv`, RecBole's `NAME.item`; beside MovieLens'
    u.data, ratings.dat and ratings.csv: u.item, movies.dat and movies.csv.
    """
    candidates = [f"{path.stem}-items.parquet", f"{path.stem}-items.csv", f"{path.stem}.item"]
    candidates += {"u.data": ["u.item"], "ratings.dat": ["movies.dat"]}.get(path.name, [])
    candidates += ["movies.csv"] if path.name == "ratings.csv" else []
    beside = (path.with_name(name) for name in candidates)
    return next((file for file in beside if file.is_file() and file != path), None)


def titles_beside(path: Path, item_ids: Ids) -> npt.NDArray[np.str_] | None:
    """A title for each item, "" where the file has none; None without a file or a column of titles.

    RecBole keeps the year of a film in a column of its own; it is put back behind the title.
    """
    file = titles_file(path)
    columns = _read_titles(file) if file else None
    if columns is None:
        return None
    items, titles = columns
    title_of = {item: title.strip() for item, title in zip(items, titles, strict=True)}
    return np.array([title_of.get(str(item), "") for item in item_ids.tolist()], np.str_)


def _read_titles(path: Path) -> tuple[list[str], list[str]] | None:
    if path.suffix == ".parquet":
        try:
            table = pa_parquet.read_table(path)
        except (pa.ArrowInvalid, OSError):
            raise HushrecError(f"{path}: not a Parquet file, or a damaged one; write it again") from None
    else:
        text_format = _MOVIELENS_FORMATS.get(path.name) or sniff(path)
        table = read_text(path, text_format, dict.fromkeys(text_format.names, pa.string()))
    plain = {name.lower().replace("_", "").replace(" ", ""): name for name in reversed(table.column_names)}
    item = next((plain[name] for name in _ITEM_NAMES if name in plain), None)
    title = next((plain[name] for name in _TITLE_NAMES if name in plain), None)
    if item is None or title is None:
        return None
    titles = texts_of(table[title])
    if path.suffix == ".item" and "releaseyear" in plain:
        years = texts_of(table[plain["releaseyear"]])
        pairs = zip(titles, years, strict=True)
        titles = [f"{text} ({year})" if year.isdigit() else text for text, year in pairs]
    return texts_of(table[item]), titles
