"""Items that somebody chose: those that a list may have only, or must not have."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushrec.data.interactions import Interactions, Numbers
from hushrec.errors import HushrecError

Mask = npt.NDArray[np.bool_]  # of each item, or each id

_HEADERS = ("item", "item_id", "itemid", "id")


def read_choice(text: str, flag: str, are_known: Callable[[list[str]], Mask]) -> tuple[list[str], int]:
    """The items of a file, or of ids between commas; and how many ids of a file are not known.

    A file has one id per line, or commas or tabs and a column named item. Typed ids must all be known.
    """
    path = Path(text)
    is_file = _is_file(path)
    ids = _ids_of(path, flag) if is_file else [part.strip() for part in text.split(",")]
    known = [item for item, is_known in zip(ids, are_known(ids).tolist(), strict=True) if is_known]
    if is_file and not known:
        raise HushrecError(f"{flag} {path}: none of its {len(ids)} ids is an item of this run; check the ids")
    if not is_file and len(known) < len(ids):
        raise HushrecError(f"{flag} {text} is no file; as ids, {len(ids) - len(known)} of {len(ids)} are unknown")
    return known, len(ids) - len(known)


def may_be_listed(
    train: Interactions,
    only: npt.ArrayLike | None,
    leave_out: npt.ArrayLike | None,
    copies: Callable[[Interactions, npt.NDArray[Any]], list[Numbers]],
) -> Mask | None:
    """Of each item, whether a list may have it; None: nothing was chosen. `copies` finds the numbers of ids."""
    if only is None and leave_out is None:
        return None

    def chosen(ids: npt.ArrayLike) -> Numbers:
        given = np.atleast_1d(np.asarray(ids))
        found = copies(train, given) if given.size else []
        for item, numbers in zip(given.tolist(), found, strict=True):
            if not len(numbers):
                train.item_number(item)  # which says that there is none
        return np.concatenate([np.empty(0, np.int32), *found])

    mask = np.full(train.num_items, only is None)
    if only is not None:
        mask[chosen(only)] = True
    if leave_out is not None:
        mask[chosen(leave_out)] = False
    return mask


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or a null byte: these are ids
        return False


def _ids_of(path: Path, flag: str) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError):
        raise HushrecError(f"{flag} {path} cannot be read; give a text file with one id per line") from None
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise HushrecError(f"{flag} {path}: the file is empty; give one id per line")
    separator = "\t" if "\t" in lines[0] else ","
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    except csv.Error:  # a cell of more than 131,072 characters, as in a file of something else
        raise HushrecError(f"{flag} {path} is no list of ids; give a text file with one id per line") from None
    names = [cell.lower() for cell in rows[0]]
    column = next((names.index(name) for name in _HEADERS if name in names), None)
    if column is None and len(rows[0]) > 1:
        raise HushrecError(
            f"{flag} {path} has {len(rows[0])} columns, none named item; name it, or keep one column"
        )
    ids = [row[column or 0] for row in rows[column is not None :] if len(row) > (column or 0)]
    if not ids:
        raise HushrecError(f"{flag} {path} has a header and no ids; give one id per line")
    return ids
