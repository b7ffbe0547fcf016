"""The files of a node: what each kind of party brings into a run, and how it is read and written."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hushrec.data.interactions import Ids, Interactions, Numbers, RatingRange
from hushrec.data.readers import read
from hushrec.data.reading import Columns, Reading
from hushrec.data.splits import Split
from hushrec.errors import HushrecError, NotAsOrderedError


@dataclass(frozen=True)
class NodeFiles:
    """Where a node's data is."""

    data: str | None = None  # ratings or events; None on a node of owners
    test: str | None = None  # ratings to measure on
    numbers: str | None = None  # agreed numbers of clients
    visitors: str | None = None  # users without a rating here
    items: str | None = None  # of a partner: its own catalogue; without it: the rated items
    owned: str | None = None  # of owners: the items that they hold
    columns: Columns | None = None
    duplicates: str = "error"


@dataclass(frozen=True)
class NodeData:
    """The parties of a node with their ratings."""

    train: Interactions
    numbers: Numbers | None  # of the users, if agreed on beforehand
    lists_users: bool = False  # whether the node keeps a list of its users and their numbers, for its owner


class Catalogue(msgspec.Struct, frozen=True):
    """The items of the federation, which everybody knows; numbers are places in it. Partners have none."""

    ids: list[str]
    are_numbers: bool
    titles: list[str] | None = None


def catalogue_of(data: Interactions) -> Catalogue:
    """The items of a dataset."""
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


def _is_number(item: str) -> bool:
    return item.removeprefix("-").isdecimal() and item == str(int(item)) and -(2**63) <= int(item) < 2**63


def ids_of(texts: list[str], are_numbers: bool) -> Ids:
    """Ids as they are kept in memory."""
    return np.array(texts, np.int64) if are_numbers else np.array(texts, np.str_)


# --- Reading ---------------------------------------------------------------------------------------------


def read_own(files: NodeFiles, path: str | None, rating_range: RatingRange) -> Interactions:
    """A file of the node's ratings."""
    if path is None:
        raise HushrecError("this node has no ratings; start it with --data")
    data = read(path, Reading(columns=files.columns, duplicates=files.duplicates))  # type: ignore[arg-type]
    if rating_range is None or data.ratings is None:
        return replace(data, name="own ratings")
    least, most = np.float32(rating_range[0]), np.float32(rating_range[1])
    beyond = data.ratings[(data.ratings < least) | (most < data.ratings)]
    if len(beyond):
        scale = f"{least:g} to {most:g}, the order's --rating-range"
        for_log = f"its ratings are not all within {scale}"
        raise NotAsOrderedError(f"{path}: a rating is {beyond[0]:g}; expected {scale}", for_log)
    return replace(data, name="own ratings", rating_range=rating_range)


def read_visitors(files: NodeFiles) -> NDArray[np.str_]:
    """Lines of ids."""
    if files.visitors is None:
        return np.empty(0, np.str_)
    try:
        lines = Path(files.visitors).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise HushrecError(f"cannot read the visitors in {files.visitors}; write one user per line") from None
    return np.array([line.strip() for line in lines if line.strip()], np.str_)


def as_in_catalogue(data: Interactions, user_ids: Ids, catalogue: Catalogue) -> Interactions:
    """The same ratings with the federation's numbers of items."""
    item_ids = ids_of(catalogue.ids, catalogue.are_numbers)
    used = _as_kind(data.item_ids[np.unique(data.items)], item_ids)
    num_unknown = len(used) - np.count_nonzero(np.isin(used, item_ids))
    if num_unknown:
        for_log = "some of its items are not in the catalogue, the order's --items"
        raise NotAsOrderedError(f"{num_unknown} rated items are not in the catalogue; leave them out", for_log)
    titles = None if catalogue.titles is None else np.array(catalogue.titles, np.str_)
    rows = _as_kind(data.user_ids, user_ids)
    num_strangers = len(rows) - np.count_nonzero(np.isin(rows, user_ids))
    if num_strangers:
        raise HushrecError(
            f"{num_strangers} users of the test ratings are not clients of this node: "
            "they have no rating to train on; leave them out"
        )
    return replace(
        data,
        users=np.searchsorted(user_ids, rows)[data.users].astype(np.int32),
        items=np.searchsorted(item_ids, _as_kind(data.item_ids, item_ids))[data.items].astype(np.int32),
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
    )


def _as_kind(ids: Ids, like: Ids) -> Ids:
    """Ids as numbers or as texts, as the others are; texts that are no numbers match nothing."""
    if ids.dtype.kind == like.dtype.kind:
        return ids
    if like.dtype.kind == "U":
        return ids.astype(np.str_)
    for_log = "its ids are texts, the order's numbers"
    raise NotAsOrderedError(
        "ids are texts here and numbers in the rest of the federation; use the same ids", for_log
    )


def read_numbers(path: Path, known: Ids) -> tuple[Ids, Numbers]:
    """Lines of `user<TAB>number`: clients whose numbers were agreed on, with or without ratings."""
    try:
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
        given = {user: int(number) for user, number in lines}
        if not all(0 <= number < 2**31 - 1 for number in given.values()):
            raise ValueError
    except (OSError, ValueError):
        raise HushrecError(f"{path} is no list of agreed numbers; write lines of user, tab, number") from None
    try:
        user_ids = ids_of(list(given), known.dtype.kind == "i")
    except ValueError:
        raise HushrecError(f"{path}: user ids are texts here and numbers in the ratings") from None
    order = np.argsort(user_ids)
    user_ids = user_ids[order]
    numbers: Numbers = np.array(list(given.values()), np.int32)[order]
    if len(given) < len(lines) or len(np.unique(user_ids)) < len(user_ids) or not np.isin(known, user_ids).all():
        raise HushrecError(f"{path} does not give one number to each user of the ratings")
    return user_ids, numbers


class HeldItem(NamedTuple):
    """A line of a file of who holds what."""

    line: int
    item: str
    owner: str


def read_held_items(path: Path, if_unreadable: str) -> list[HeldItem]:
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
        held.append(HeldItem(number, *fields))
    if not held:
        raise HushrecError(f"{path} names no item; write lines of item, tab, owner")
    return held


# --- Writing, for a federation on one machine --------------------------------------------------------------


def write_both(split: Split, is_own: NDArray[np.bool_], folder: Path) -> NodeFiles:
    """The ratings of some users: what to train on, and what to measure on."""
    folder.mkdir(mode=0o700, parents=True)
    ratings, test = folder / "ratings.csv", folder / "test.csv"
    for data, path in ((split.train, ratings), (split.test, test)):
        write_ratings(replace(data, timestamps=None).select(is_own[data.users]), path)
    return NodeFiles(str(ratings), str(test))


def write_lines(path: Path, lines: list[str]) -> None:
    """A file of lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_ratings(data: Interactions, path: Path) -> None:
    """A file of ratings, with their times if they have some."""
    columns = {"user": pa.array(data.user_ids[data.users]), "item": pa.array(data.item_ids[data.items])}
    if data.ratings is not None:
        columns["rating"] = pa.array(data.ratings)
    if data.timestamps is not None:
        columns["timestamp"] = pa.array(data.timestamps)
    pa.csv.write_csv(pa.table(columns), path)
