"""One dataset dealt out to nodes, for a federation on one machine: a file of ratings per node, nothing shared."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hushrec.data import Interactions, Owners, Split, stream_order
from hushrec.deploy.enrolment import NodeSettings
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.systems import SYSTEMS


@dataclass(frozen=True)
class Share:
    """The files of one node."""

    data: Path | None = None  # of events, or ratings; owners have none
    test: Path | None = None
    numbers: Path | None = None  # of clients
    visitors: Path | None = None  # of a partner
    items: Path | None = None  # of a partner
    owned: Path | None = None  # items of owners

    def settings(self) -> NodeSettings:
        """Of a node with these files that takes part in everything."""
        files = (self.data, self.test, self.numbers, self.visitors, self.items, self.owned)
        data, test, numbers, visitors, items, owned = (None if path is None else str(path) for path in files)
        return NodeSettings(
            data=data, numbers=numbers, test=test, visitors=visitors, items=items, owned=owned,
            systems=list(SYSTEMS), accepts_shared_seed=True,
        )  # fmt: skip


def deal(split: Split, nodes: list[str], seed: int, folder: Path) -> dict[str, Share]:
    """Write every node's files. Users are dealt at random; their numbers are those of `hushrec run`.

    Data of partners are dealt already: the first partner's go to the first node. Nodes are numbered by name.
    Where items have owners, these are dealt to all nodes but the last, which is the users' side.
    """
    if split.train.owners is not None:
        return _deal_owners(split.train, split.train.owners, nodes, folder)
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


def _deal_owners(train: Interactions, owners: Owners, nodes: list[str], folder: Path) -> dict[str, Share]:
    *holding, users = nodes
    if not 1 <= len(holding) <= len(owners.names):
        raise HushrecError(f"{len(holding)} nodes for {len(owners.names)} owners; use at most one node per owner")
    item_of = np.repeat(np.arange(train.num_items), np.diff(owners.starts))
    ids, shares = train.item_ids.tolist(), {}
    for place, name in enumerate(holding):
        shares[name] = Share(owned=folder / name / "items.tsv")
        is_own = owners.owners % len(holding) == place
        pairs = zip(item_of[is_own].tolist(), owners.owners[is_own].tolist(), strict=True)
        (folder / name).mkdir(mode=0o700, parents=True)
        _write_lines(folder / name / "items.tsv", [f"{ids[item]}\t{owners.names[owner]}" for item, owner in pairs])
    shares[users] = Share(data=folder / users / "events.csv", visitors=folder / users / "visitors.txt")
    (folder / users).mkdir(mode=0o700, parents=True)
    events = train.select(stream_order(train))
    _write_ratings(replace(events, timestamps=np.arange(len(events))), folder / users / "events.csv")
    has_event = np.bincount(train.users, minlength=train.num_users) > 0
    _write_lines(folder / users / "visitors.txt", [str(user) for user in train.user_ids[~has_event].tolist()])
    return shares


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
    ratings, test = folder / "ratings.csv", folder / "test.csv"
    for data, path in ((split.train, ratings), (split.test, test)):
        _write_ratings(replace(data, timestamps=None).select(is_own[data.users]), path)
    return Share(ratings, test)


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_ratings(data: Interactions, path: Path) -> None:
    columns = {"user": pa.array(data.user_ids[data.users]), "item": pa.array(data.item_ids[data.items])}
    if data.ratings is not None:
        columns["rating"] = pa.array(data.ratings)
    if data.timestamps is not None:
        columns["timestamp"] = pa.array(data.timestamps)
    pa.csv.write_csv(pa.table(columns), path)
