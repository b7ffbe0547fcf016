"""Items that somebody chose: those that a list may have only, or must not have."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushrec.data.interactions import Interactions
from hushrec.errors import HushrecError

_HEADERS = ("item", "item_id", "itemid", "id")


def read_choice(text: str, train: Interactions, flag: str) -> tuple[list[Any], int]:
    """The items of a file, or of ids between commas; and how many ids of a file are none of the run's.

    A file has one id per line, or commas or tabs and a column named item. Typed ids must all be known.
    """
    path = Path(text)
    if not _is_file(path):
        try:
            return train.item_ids[train.item_numbers([part.strip() for part in text.split(",")])].tolist(), 0
        except HushrecError as error:
            raise HushrecError(f"{flag} {text} is no file, and as ids: {error}") from None
    ids = _ids_of(path, flag)
    found, num_unknown = known_items(ids, train)
    if not found:
        raise HushrecError(f"{flag} {path}: none of its {len(ids)} ids is an item of this run; check the ids")
    return found, num_unknown


def known_items(ids: Sequence[Any], train: Interactions) -> tuple[list[Any], int]:
    """Those of the ids that the data knows, and how many others there are."""
    by_text = {str(known): known for known in train.item_ids.tolist()}
    found = [by_text[text] for text in map(str, ids) if text in by_text]
    return found, len(ids) - len(found)


def may_be_listed(
    train: Interactions, only: npt.ArrayLike | None, leave_out: npt.ArrayLike | None
) -> npt.NDArray[np.bool_] | None:
    """Of each item, whether a list may have it; None: nothing was chosen."""
    if only is None and leave_out is None:
        return None
    mask = np.full(train.num_items, only is None)
    if only is not None:
        mask[_numbers(train, only)] = True
    if leave_out is not None:
        mask[_numbers(train, leave_out)] = False
    return mask


def _numbers(train: Interactions, ids: npt.ArrayLike) -> npt.NDArray[np.int32]:
    given = np.atleast_1d(np.asarray(ids))
    return train.item_numbers(given) if given.size else np.empty(0, np.int32)


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
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    names = [cell.lower() for cell in rows[0]]
    column = next((names.index(name) for name in _HEADERS if name in names), None)
    if column is None and len(rows[0]) > 1:
        raise HushrecError(
            f"{flag} {path} has {len(rows[0])} columns, none named item; name it, or keep one column"
        )
    return [row[column or 0] for row in rows[column is not None :] if len(row) > (column or 0)]
