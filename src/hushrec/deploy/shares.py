"""One dataset dealt out to nodes, for a federation on one machine: a file of ratings per node, nothing shared."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hushrec.data import Interactions, Split
from hushrec.draws import Draws
from hushrec.errors import HushrecError


@dataclass(frozen=True)
class Share:
    """The files of one node."""

    data: Path
    numbers: Path
    test: Path


def deal(split: Split, nodes: list[str], seed: int, folder: Path) -> dict[str, Share]:
    """Write every node's files. Users are dealt at random; their numbers are those of `hushrec run`."""
    num_users = split.train.num_users
    if len(nodes) > num_users:
        raise HushrecError(f"{len(nodes)} nodes for {num_users} users; use at most one node per user")
    order = Draws(seed).generator("users-of-nodes").permutation(num_users)
    node_of = np.empty(num_users, np.int64)
    node_of[order] = np.arange(num_users) % len(nodes)
    return {name: _write(split, node_of == place, folder / name) for place, name in enumerate(nodes)}


def _write(split: Split, is_own: NDArray[np.bool_], folder: Path) -> Share:
    folder.mkdir(mode=0o700, parents=True)
    share = Share(folder / "ratings.csv", folder / "numbers.tsv", folder / "test.csv")
    for data, path in ((split.train, share.data), (split.test, share.test)):
        _write_ratings(data.select(is_own[data.users]), path)
    own = np.flatnonzero(is_own)
    ids = split.train.user_ids[own].tolist()
    lines = [f"{user}\t{number}\n" for user, number in zip(ids, own.tolist(), strict=True)]
    share.numbers.write_text("".join(lines), encoding="utf-8")
    return share


def _write_ratings(data: Interactions, path: Path) -> None:
    columns = {"user": pa.array(data.user_ids[data.users]), "item": pa.array(data.item_ids[data.items])}
    if data.ratings is not None:
        columns["rating"] = pa.array(data.ratings)
    pa.csv.write_csv(pa.table(columns), path)
