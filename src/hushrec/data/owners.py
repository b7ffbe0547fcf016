"""Owners: organisations that each hold some of the items, as in DRIFT; users are the same for all of them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import Interactions, Owners
from hushrec.data.row_order import count_starts
from hushrec.draws import Draws
from hushrec.errors import HushrecError

MOST_OWNERS = 1000
_SECOND_OWNER = 0.5  # the chance that an item dealt at random has a second owner
_WAYS = f"give genre, a number from 1 to {MOST_OWNERS}, or a file with lines of item, tab, owner"


@dataclass(frozen=True)
class OwnersSummary:
    """Who holds how much."""

    names: tuple[str, ...]
    num_items: tuple[int, ...]  # of each owner
    num_items_without: int
    owners_per_item: float  # the mean over the items that have an owner
    owners_per_interaction: float  # the mean over all rows

    @property
    def num_owners(self) -> int:
        """The number of owners."""
        return len(self.names)


def owned(data: Interactions, deal: str, seed: int) -> Interactions:
    """The same data with owners of its items.

    `deal` is "genre" (an owner for each genre, of all its items), a number of owners (items are dealt at random,
    each to one owner and, with chance 1/2, to a second), or the path of a file with lines of item, tab, owner.
    """
    if data.partners is not None:
        raise HushrecError(f"{data.name} is divided among partners; owners need data in one piece")
    if deal == "genre":
        names, items, owners = _by_genre(data)
    elif deal.isascii() and deal.isdigit():
        names, items, owners = _at_random(data, int(deal), seed)
    else:
        names, items, owners = _from_file(data, Path(deal).expanduser())
    if not 1 <= len(names) <= MOST_OWNERS:
        raise HushrecError(f"--owners {deal}: {len(names)} owners; {_WAYS}")
    pairs = np.unique(np.stack([items, owners]).astype(np.int32), axis=1)  # by item, then owner
    return replace(data, owners=Owners(names, count_starts(pairs[0], data.num_items), pairs[1].copy()))


def owners_summary(data: Interactions) -> OwnersSummary:
    """Who holds how much of data with owners."""
    if data.owners is None:
        raise HushrecError(f"nobody owns the items of {data.name}; say who with --owners")
    owners_of_item = np.diff(data.owners.starts)
    num_owned = int((owners_of_item > 0).sum())
    num_items = np.bincount(data.owners.owners, minlength=len(data.owners.names))
    return OwnersSummary(
        data.owners.names,
        tuple(num_items.tolist()),
        data.num_items - num_owned,
        len(data.owners.owners) / max(num_owned, 1),
        float(owners_of_item[data.items].sum()) / max(len(data), 1),
    )


Dealt = tuple[tuple[str, ...], NDArray[np.integer], NDArray[np.integer]]  # names; item and owner of each holding


def _by_genre(data: Interactions) -> Dealt:
    if data.genres is None or not data.genres.astype(np.bool_).any():
        raise HushrecError(f"{data.name} has no genres; give --owners a number, or a file of items and owners")
    held = [(item, genre) for item, text in enumerate(data.genres.tolist()) if text for genre in text.split("|")]
    return _numbered(held)


def _at_random(data: Interactions, num_owners: int, seed: int) -> Dealt:
    num_items = data.num_items
    if not 1 <= num_owners <= min(MOST_OWNERS, num_items):
        raise HushrecError(f"--owners {num_owners}: choose 1 to {min(MOST_OWNERS, num_items)}")
    items = np.arange(num_items)
    if num_owners == 1:
        return ("all",), items, np.zeros(num_items, np.int64)
    rng = Draws(seed).generator("owners")
    first = rng.permutation(num_items) % num_owners
    second = (first + rng.integers(1, num_owners, num_items)) % num_owners
    has_second = rng.random(num_items) < _SECOND_OWNER
    width = len(str(num_owners))
    names = tuple(f"owner{number:0{width}}" for number in range(1, num_owners + 1))
    return names, np.append(items, items[has_second]), np.append(first, second[has_second])


def _from_file(data: Interactions, path: Path) -> Dealt:
    held = []
    for number, item, owner in read_holdings(path, f"--owners {path}: no readable file; {_WAYS}"):
        try:
            held.append((data.item_number(item), owner))
        except HushrecError as error:
            raise HushrecError(f"{path}, line {number}: {error}") from None
    return _numbered(held)


class Holding(NamedTuple):
    """A line of a file of who holds what."""

    line: int
    item: str
    owner: str


def read_holdings(path: Path, if_unreadable: str) -> list[Holding]:
    """Lines of `item<TAB>owner`: who holds what. An item may have several owners, in a line each."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError:
        raise HushrecError(if_unreadable) from None
    except UnicodeDecodeError:
        raise HushrecError(f"{path} is not text in UTF-8; save it as that") from None
    held = []
    for number, line in enumerate(lines, start=1):
        fields = [field.strip() for field in line.strip().split("\t")]
        if fields == [""]:
            continue
        if len(fields) != 2 or not all(fields):
            raise HushrecError(f"{path}, line {number}: expected an item and an owner with a tab between them")
        if not fields[1].isprintable():
            raise HushrecError(f"{path}, line {number}: the owner's name cannot be printed; write it with letters")
        held.append(Holding(number, *fields))
    if not held:
        raise HushrecError(f"{path} names no item; write lines of item, tab, owner")
    return held


def _numbered(held: list[tuple[int, str]]) -> Dealt:
    names = sorted({name for _, name in held})
    number_of = {name: number for number, name in enumerate(names)}
    items = np.array([item for item, _ in held], np.int64)
    return tuple(names), items, np.array([number_of[name] for _, name in held], np.int64)
