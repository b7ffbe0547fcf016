"""Catalogues of items: from a dataset, or from a file of the operator, of a partner or of owners."""

from pathlib import Path

import numpy as np

from hushrec.data import Interactions
from hushrec.data.owners import MOST_OWNERS, read_holdings
from hushrec.deploy.orders import Catalogue
from hushrec.errors import HushrecError


def catalogue_of(data: Interactions) -> Catalogue:
    """The items of a dataset, which all parties know; those of partners are their own."""
    if data.partners is not None:
        return Catalogue([], False)
    titles = None if data.titles is None else data.titles.tolist()
    return Catalogue([str(item) for item in data.item_ids.tolist()], data.item_ids.dtype.kind == "i", titles)


def read_catalogue(path: Path, as_texts: bool = False) -> Catalogue:
    """Lines of `item`, or `item<TAB>title`. Items are numbered as in a dataset: by value, or by code point."""
    try:
        lines = [line.partition("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise HushrecError(f"cannot read the items in {path} ({error}); write one item per line") from None
    titles = {item.strip(): title.strip() for item, _, title in lines}
    if not titles or "" in titles:
        raise HushrecError(f"{path} is no list of items; write lines of item, tab, title")
    if len(titles) < len(lines):
        raise HushrecError(f"{path} names an item twice; name each once")
    are_numbers = not as_texts and all(_is_number(item) for item in titles)
    ids = sorted(titles, key=int) if are_numbers else np.sort(np.array(list(titles), np.str_)).tolist()
    return Catalogue(ids, are_numbers, [titles[item] for item in ids] if any(titles.values()) else None)


def read_owned(path: Path) -> list[tuple[str, str]]:
    """Who holds what, as items and owners."""
    lines = read_holdings(path, f"cannot read the owned items in {path}; write lines of item, tab, owner")
    held = [(item, owner) for _, item, owner in lines]
    num_owners = len({owner for _, owner in held})
    if num_owners > MOST_OWNERS:  # perhaps a list of titles
        raise HushrecError(
            f"{path} names {num_owners} owners, more than {MOST_OWNERS}; write lines of item, tab, owner"
        )
    return held


def _is_number(item: str) -> bool:
    return item.removeprefix("-").isdecimal() and item == str(int(item)) and -(2**63) <= int(item) < 2**63
