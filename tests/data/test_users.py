"""Users on nodes: every rating on one node, nothing on two, numbers as in one process; what a node's files say."""

import stat
from pathlib import Path

import numpy as np
import pytest

from hushrec.data import k_folds, read, synthetic
from hushrec.data.holdings import USERS
from hushrec.data.holdings.node_files import Catalogue, NodeData, NodeFiles
from hushrec.data.reading import Columns
from hushrec.errors import HushrecError

SPLIT = next(iter(k_folds(synthetic(30, 40, 400), 5, 0)))
NODES = ["node-1", "node-2", "node-3"]


def rows(path: str | None) -> set[tuple[int, int, float]]:
    assert path is not None
    data = read(path)
    assert data.ratings is not None
    columns = data.user_ids[data.users], data.item_ids[data.items], data.ratings
    return set(zip(*(column.tolist() for column in columns), strict=True))


def numbers_of(share: NodeFiles) -> str:
    assert share.numbers is not None
    return Path(share.numbers).read_text()


def test_every_rating_is_on_one_node(tmp_path: Path) -> None:
    shares = USERS.deal(SPLIT, NODES, 0, tmp_path)
    for part, data in (("data", SPLIT.train), ("test", SPLIT.test)):
        held = [rows(getattr(share, part)) for share in shares.values()]
        assert sum(map(len, held)) == len(data) == len(set.union(*held))
        users = [{user for user, _, _ in one} for one in held]
        assert sum(map(len, users)) == len(set.union(*users))


def test_numbers_are_those_of_one_process(tmp_path: Path) -> None:
    shares = USERS.deal(SPLIT, NODES, 0, tmp_path)
    lines = [line.split("\t") for share in shares.values() for line in numbers_of(share).splitlines()]
    assert {int(number): int(user) for user, number in lines} == dict(enumerate(SPLIT.train.user_ids.tolist()))
    sizes = [len(numbers_of(share).splitlines()) for share in shares.values()]
    assert sorted(sizes) == [10, 10, 10]
    for share in shares.values():
        own = {int(line.split("\t")[0]) for line in numbers_of(share).splitlines()}
        assert {user for user, _, _ in rows(share.data) | rows(share.test)} <= own


def test_dealing_is_random_and_repeatable(tmp_path: Path) -> None:
    dealt = [
        [numbers_of(share) for share in USERS.deal(SPLIT, NODES, seed, tmp_path / str(place)).values()]
        for place, seed in enumerate((0, 0, 1))
    ]
    assert dealt[0] == dealt[1] != dealt[2]
    numbers = np.array([int(line.split("\t")[1]) for line in dealt[0][0].splitlines()])
    assert (np.diff(numbers) != 3).any(), "not every third"


def test_shares_are_closed_to_others(tmp_path: Path) -> None:
    for share in USERS.deal(SPLIT, NODES, 0, tmp_path / "shares").values():
        folder = Path(share.data or "").parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {path.name for path in folder.iterdir()} == {
            "ratings.csv",
            "numbers.tsv",
            "test.csv",
        }


def test_more_nodes_than_users_are_refused(tmp_path: Path) -> None:
    USERS.deal(SPLIT, [f"n{number}" for number in range(30)], 0, tmp_path)
    with pytest.raises(HushrecError, match="31 nodes for 30 users; use at most one node per user"):
        USERS.deal(SPLIT, [f"n{number}" for number in range(31)], 0, tmp_path / "more")


# --- What a node brings ------------------------------------------------------------------------------------------

CATALOGUE = Catalogue(["3", "7", "10", "40"], True, ["three", "seven", "ten", "forty"])
TEXTS = Catalogue(["a", "b", "c"], False)


def ratings(folder: Path, text: str, name: str = "ratings.csv") -> str:
    (folder / name).write_text("user,item,rating\n" + text)
    return str(folder / name)


def clients_of(files: NodeFiles, catalogue: Catalogue, rating_range: tuple[float, float] | None) -> NodeData:
    return USERS.read(files, "node-1", catalogue, rating_range)


def test_items_get_the_federations_numbers(tmp_path: Path) -> None:
    """A node has rated some of the items, in any order, and numbers its users by their ids."""
    data = ratings(tmp_path, "9,40,5\n2,7,1\n9,3,2\n")
    found = clients_of(NodeFiles(data), CATALOGUE, (1.0, 5.0))
    assert found.numbers is None
    assert found.train.user_ids.tolist() == [2, 9]
    rows = found.train.by_user()
    assert rows.items.tolist() == [1, 0, 3]
    assert rows.ratings.tolist() == [1, 2, 5]
    assert found.train.num_items == 4
    assert found.train.titles.tolist() == CATALOGUE.titles
    assert found.train.name == "own ratings"


def test_ids_that_are_numbers_here_and_texts_elsewhere_are_texts(tmp_path: Path) -> None:
    data = ratings(tmp_path, "1,7,5\n1,3,4\n")
    found = clients_of(NodeFiles(data), Catalogue(["10", "3", "7", "x"], False), None)
    assert found.train.by_user().items.tolist() == [1, 2]


def test_ids_that_are_texts_here_and_numbers_elsewhere_are_refused(tmp_path: Path) -> None:
    data = ratings(tmp_path, "1,x7,5\n1,3,4\n")
    with pytest.raises(HushrecError, match="texts here and numbers in the rest of the federation"):
        clients_of(NodeFiles(data), CATALOGUE, None)


def test_items_outside_the_catalogue_are_refused_and_not_named(tmp_path: Path) -> None:
    data = ratings(tmp_path, "1,7,5\n1,12345,4\n2,54321,4\n")
    with pytest.raises(HushrecError) as caught:
        clients_of(NodeFiles(data), CATALOGUE, None)
    assert str(caught.value) == "2 rated items are not in the catalogue; leave them out"


def test_a_large_item_id_is_not_mistaken_for_another(tmp_path: Path) -> None:
    """Beyond the last of the catalogue, and between two of it."""
    for item in (41, 8, 1):
        with pytest.raises(HushrecError, match="1 rated items are not in"):
            clients_of(NodeFiles(ratings(tmp_path, f"1,{item},5\n")), CATALOGUE, None)


def test_agreed_numbers_follow_users(tmp_path: Path) -> None:
    """Also users without a rating, and ids in any order."""
    data = ratings(tmp_path, "9,40,5\n2,7,1\n")
    (tmp_path / "numbers.tsv").write_text("9\t4\n5\t0\n2\t17\n")
    found = clients_of(NodeFiles(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)
    assert found.train.user_ids.tolist() == [2, 5, 9]
    assert found.numbers is not None
    assert found.numbers.tolist() == [17, 0, 4]
    assert np.diff(found.train.by_user().starts).tolist() == [1, 0, 1]


def test_agreed_numbers_of_texts(tmp_path: Path) -> None:
    data = ratings(tmp_path, "zoe,a,5\namy,b,1\n")
    (tmp_path / "numbers.tsv").write_text("zoe\t0\namy\t1\n")
    found = clients_of(NodeFiles(data, numbers=str(tmp_path / "numbers.tsv")), TEXTS, None)
    assert found.train.user_ids.tolist() == ["amy", "zoe"]
    assert found.numbers is not None
    assert found.numbers.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("9\t0\n", "does not give one number to each user"),
        ("9\t0\n2\t1\n9\t2\n", "does not give one number to each user"),
        ("9 0\n2 1\n", "no list of agreed numbers"),
        ("9\tx\n2\t1\n", "no list of agreed numbers"),
        ("9\t0\textra\n2\t1\n", "no list of agreed numbers"),
        ("nine\t0\ntwo\t1\n", "user ids are texts here and numbers in the ratings"),
    ],
)
def test_bad_lists_of_numbers_are_refused(tmp_path: Path, text: str, told: str) -> None:
    data = ratings(tmp_path, "9,40,5\n2,7,1\n")
    (tmp_path / "numbers.tsv").write_text(text)
    with pytest.raises(HushrecError, match=told):
        clients_of(NodeFiles(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)


@pytest.mark.parametrize("number", ["2147483648", "99999999999999999999"])
def test_numbers_beyond_all_are_refused(tmp_path: Path, number: str) -> None:
    data = ratings(tmp_path, "9,40,5\n")
    (tmp_path / "numbers.tsv").write_text(f"9\t{number}\n")
    with pytest.raises(HushrecError, match="number"):
        clients_of(NodeFiles(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)


def test_a_missing_list_of_numbers_is_refused(tmp_path: Path) -> None:
    data = ratings(tmp_path, "9,40,5\n")
    with pytest.raises(HushrecError, match="no list of agreed numbers"):
        clients_of(NodeFiles(data, numbers=str(tmp_path / "missing")), CATALOGUE, None)


def test_the_range_of_ratings_is_the_federations(tmp_path: Path) -> None:
    data = ratings(tmp_path, "9,40,5\n2,7,1\n")
    assert clients_of(NodeFiles(data), CATALOGUE, (1.0, 10.0)).train.rating_range == (1.0, 10.0)
    with pytest.raises(HushrecError, match="rat"):
        clients_of(NodeFiles(data), CATALOGUE, (2.0, 10.0))


def test_columns_and_duplicates_are_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("who,what,stars\n9,40,5\n9,40,3\n")
    columns = Columns(user="who", item="what", rating="stars")
    with pytest.raises(HushrecError):
        clients_of(NodeFiles(str(path), columns=columns), CATALOGUE, None)
    found = clients_of(NodeFiles(str(path), columns=columns, duplicates="mean"), CATALOGUE, None)
    assert found.train.ratings is not None
    assert found.train.ratings.tolist() == [4.0]
