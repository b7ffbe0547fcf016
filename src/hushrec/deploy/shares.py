"""One dataset dealt out to nodes, for a federation on one machine: a file of ratings per node, nothing shared."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hushrec.data import Interactions, Split
from hushrec.deploy.enrolment import NodeSettings
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.systems import SYSTEMS


@dataclass(frozen=True)
class Share:
    """The files of one node."""

    data: Path
    test: Path
    numbers: Path | None = None  # of clients
    visitors: Path | None = None  # of a partner
    items: Path | None = None  # of a partner

    def settings(self) -> NodeSettings:
        """Of a node with these files that takes part in everything."""
        numbers, visitors, items = (
            None if path is None else str(path) for path in (self.numbers, self.visitors, self.items)
        )
        return NodeSettings(
            data=str(self.data), numbers=numbers, test=str(self.test), visitors=visitors, items=items,
            systems=list(SYSTEMS), accepts_shared_seed=True,
        )  # fmt: skip


def deal(split: Split, nodes: list[str], seed: int, folder: Path) -> dict[str, Share]:
    """Write every node's files. Users are dealt at random; their numbers are those of `hushrec run`.

    Data of partners are dealt already: the first partner's go to the first node. Nodes are numbered by name.
    """
    partners, num_users = split.train.partners, split.train.num_users
    if partners is not None:
        if len(nodes) != len(partners.names) or sorted(nodes) != nodes:
            raise HushrecError(f"{len(nodes)} nodes for {len(partners.names)} partners; use one each, by name")
        return {name: _write_partner(split, place, folder / name) for place, name in enumerate(nodes)}
    if len(nodes) > num_users:
        raise HushrecError(f"{len(nodes)} nodes for {num_users} users; use at most one node per user")
    order = Draws(seed).generator("users-of-nodes").permutation(num_users)
    node_of = np.empty(num_users, np.int64)
    node_of[order] = np.arange(num_users) % len(nodes)
    return {name: _write(split, node_of == place, folder / name) for place, name in enumerate(nodes)}


def _write(split: Split, is_own: NDArray[np.bool_], folder: Path) -> Share:
    share = replace(_write_both(split, is_own, folder), numbers=folder / "numbers.tsv")
    own = np.flatnonzero(is_own)
    ids = split.train.user_ids[own].tolist()
    _write_lines(folder / "numbers.tsv", [f"{user}\t{number}" for user, number in zip(ids, own, strict=True)])
    return share


def _write_partner(split: Split, place: int, folder: Path) -> Share:
    """Under the names that the partner itself has for users and items."""
    train, rows = split.train, split.train.by_partner()
    users, items = (slice(*starts[place : place + 2].tolist()) for starts in (rows.user_starts, rows.item_starts))
    is_own, is_rated = np.zeros((2, train.num_users), np.bool_)
    is_own[users], is_rated[train.users] = True, True
    plain = Split(
        replace(train, user_ids=rows.user_ids, item_ids=rows.item_ids),
        replace(split.test, user_ids=rows.user_ids, item_ids=rows.item_ids),
        split.fold,
    )
    share = _write_both(plain, is_own, folder)
    _write_lines(folder / "visitors.txt", rows.user_ids[is_own & ~is_rated].tolist())
    titles = [""] * train.num_items if train.titles is None else train.titles.tolist()
    lines = zip(rows.item_ids[items], titles[items], strict=True)
    _write_lines(folder / "items.tsv", [f"{item}\t{' '.join(title.split())}" for item, title in lines])
    return replace(share, visitors=folder / "visitors.txt", items=folder / "items.tsv")


def _write_both(split: Split, is_own: NDArray[np.bool_], folder: Path) -> Share:
    """The ratings of some users: what to train on, and what to measure on."""
    folder.mkdir(mode=0o700, parents=True)
    share = Share(folder / "ratings.csv", folder / "test.csv")
    for data, path in ((split.train, share.data), (split.test, share.test)):
        _write_ratings(data.select(is_own[data.users]), path)
    return share


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_ratings(data: Interactions, path: Path) -> None:
    columns = {"user": pa.array(data.user_ids[data.users]), "item": pa.array(data.item_ids[data.items])}
    if data.ratings is not None:
        columns["rating"] = pa.array(data.ratings)
    pa.csv.write_csv(pa.table(columns), path)
