"""A dataset dealt to nodes: every rating on one node, nothing on two, numbers as in one process."""

import stat
from pathlib import Path

import numpy as np
import pytest
from federation import some_split

from hushrec.data import read
from hushrec.deploy.shares import deal
from hushrec.errors import HushrecError

NODES = ["node-1", "node-2", "node-3"]


def rows(path: Path) -> set[tuple[int, int, float]]:
    data = read(path)
    assert data.ratings is not None
    columns = data.user_ids[data.users], data.item_ids[data.items], data.ratings
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_every_rating_is_on_one_node(tmp_path: Path) -> None:
    split = some_split()
    shares = deal(split, NODES, 0, tmp_path)
    for part, data in (("data", split.train), ("test", split.test)):
        held = [rows(getattr(share, part)) for share in shares.values()]
        assert sum(map(len, held)) == len(data) == len(set.union(*held))
        users = [{user for user, _, _ in one} for one in held]
        assert sum(map(len, users)) == len(set.union(*users))


def test_numbers_are_those_of_one_process(tmp_path: Path) -> None:
    split = some_split()
    shares = deal(split, NODES, 0, tmp_path)
    lines = [line.split("\t") for share in shares.values() for line in share.numbers.read_text().splitlines()]
    assert {int(number): int(user) for user, number in lines} == dict(enumerate(split.train.user_ids.tolist()))
    sizes = [len(share.numbers.read_text().splitlines()) for share in shares.values()]
    assert sorted(sizes) == [10, 10, 10]
    for share in shares.values():
        own = {int(line.split("\t")[0]) for line in share.numbers.read_text().splitlines()}
        assert {user for user, _, _ in rows(share.data) | rows(share.test)} <= own


def test_dealing_is_random_and_repeatable(tmp_path: Path) -> None:
    split = some_split()
    dealt = [
        [share.numbers.read_text() for share in deal(split, NODES, seed, tmp_path / str(place)).values()]
        for place, seed in enumerate((0, 0, 1))
    ]
    assert dealt[0] == dealt[1] != dealt[2]
    numbers = np.array([int(line.split("\t")[1]) for line in dealt[0][0].splitlines()])
    assert (np.diff(numbers) != 3).any(), "not every third"


def test_shares_are_closed_to_others(tmp_path: Path) -> None:
    for share in deal(some_split(), NODES, 0, tmp_path / "shares").values():
        assert stat.S_IMODE(share.data.parent.stat().st_mode) == 0o700
        assert {path.name for path in share.data.parent.iterdir()} == {"ratings.csv", "numbers.tsv", "test.csv"}


def test_more_nodes_than_users_are_refused(tmp_path: Path) -> None:
    deal(some_split(), [f"n{number}" for number in range(30)], 0, tmp_path)
    with pytest.raises(HushrecError, match="31 nodes for 30 users; use at most one node per user"):
        deal(some_split(), [f"n{number}" for number in range(31)], 0, tmp_path / "more")
