"""What a node brings into a run: its own ratings, with the federation's numbers of items and clients."""

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import Federation, Wire, small, some_split

from hushrec import settings
from hushrec.data.readers import Columns
from hushrec.deploy.enrolment import (
    NodeSettings,
    clients_of,
    letter_bytes,
    numbers_digest,
    read_settings,
    write_settings,
)
from hushrec.deploy.items import catalogue_of
from hushrec.deploy.orders import Catalogue
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.runtime.packets import Contents, about, contents_of, decode_packet
from hushrec.registry import SYSTEMS

CATALOGUE = Catalogue(["3", "7", "10", "40"], True, ["three", "seven", "ten", "forty"])
TEXTS = Catalogue(["a", "b", "c"], False)


def ratings(folder: Path, text: str, name: str = "ratings.csv") -> str:
    (folder / name).write_text("user,item,rating\n" + text)
    return str(folder / name)


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    wanted = NodeSettings(
        "x.csv", Columns(user="who"), "mean", "n.tsv", "t.csv", ["fedrec"], {"rho": "3"}, True, 1000
    )
    write_settings(tmp_path, wanted)
    assert read_settings(tmp_path) == wanted
    path = tmp_path / "private" / "node.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text("{")
    with pytest.raises(HushrecError, match=r"is damaged .*; run hushrec deploy node again"):
        read_settings(tmp_path)


def test_items_get_the_federations_numbers(tmp_path: Path) -> None:
    """A node has rated some of the items, in any order, and numbers its users by their ids."""
    data = ratings(tmp_path, "9,40,5\n2,7,1\n9,3,2\n")
    found = clients_of(NodeSettings(data), CATALOGUE, (1.0, 5.0))
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
    found = clients_of(NodeSettings(data), Catalogue(["10", "3", "7", "x"], False), None)
    assert found.train.by_user().items.tolist() == [1, 2]


def test_ids_that_are_texts_here_and_numbers_elsewhere_are_refused(tmp_path: Path) -> None:
    data = ratings(tmp_path, "1,x7,5\n1,3,4\n")
    with pytest.raises(HushrecError, match="texts here and numbers in the rest of the federation"):
        clients_of(NodeSettings(data), CATALOGUE, None)


def test_items_outside_the_catalogue_are_refused_and_not_named(tmp_path: Path) -> None:
    data = ratings(tmp_path, "1,7,5\n1,12345,4\n2,54321,4\n")
    with pytest.raises(HushrecError) as caught:
        clients_of(NodeSettings(data), CATALOGUE, None)
    assert str(caught.value) == "2 rated items are not in the catalogue; leave them out"


def test_a_large_item_id_is_not_mistaken_for_another(tmp_path: Path) -> None:
    """Beyond the last of the catalogue, and between two of it."""
    for item in (41, 8, 1):
        with pytest.raises(HushrecError, match="1 rated items are not in"):
            clients_of(NodeSettings(ratings(tmp_path, f"1,{item},5\n")), CATALOGUE, None)


def test_agreed_numbers_follow_users(tmp_path: Path) -> None:
    """Also users without a rating, and ids in any order."""
    data = ratings(tmp_path, "9,40,5\n2,7,1\n")
    (tmp_path / "numbers.tsv").write_text("9\t4\n5\t0\n2\t17\n")
    found = clients_of(NodeSettings(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)
    assert found.train.user_ids.tolist() == [2, 5, 9]
    assert found.numbers is not None
    assert found.numbers.tolist() == [17, 0, 4]
    assert np.diff(found.train.by_user().starts).tolist() == [1, 0, 1]


def test_agreed_numbers_of_texts(tmp_path: Path) -> None:
    data = ratings(tmp_path, "zoe,a,5\namy,b,1\n")
    (tmp_path / "numbers.tsv").write_text("zoe\t0\namy\t1\n")
    found = clients_of(NodeSettings(data, numbers=str(tmp_path / "numbers.tsv")), TEXTS, None)
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
        clients_of(NodeSettings(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)


@pytest.mark.parametrize("number", ["2147483648", "99999999999999999999"])
def test_numbers_beyond_all_are_refused(tmp_path: Path, number: str) -> None:
    data = ratings(tmp_path, "9,40,5\n")
    (tmp_path / "numbers.tsv").write_text(f"9\t{number}\n")
    with pytest.raises(HushrecError, match="number"):
        clients_of(NodeSettings(data, numbers=str(tmp_path / "numbers.tsv")), CATALOGUE, None)


def test_a_missing_list_of_numbers_is_refused(tmp_path: Path) -> None:
    data = ratings(tmp_path, "9,40,5\n")
    with pytest.raises(HushrecError, match="no list of agreed numbers"):
        clients_of(NodeSettings(data, numbers=str(tmp_path / "missing")), CATALOGUE, None)


def test_the_range_of_ratings_is_the_federations(tmp_path: Path) -> None:
    data = ratings(tmp_path, "9,40,5\n2,7,1\n")
    assert clients_of(NodeSettings(data), CATALOGUE, (1.0, 10.0)).train.rating_range == (1.0, 10.0)
    with pytest.raises(HushrecError, match="rat"):
        clients_of(NodeSettings(data), CATALOGUE, (2.0, 10.0))


def test_columns_and_duplicates_are_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("who,what,stars\n9,40,5\n9,40,3\n")
    columns = Columns(user="who", item="what", rating="stars")
    with pytest.raises(HushrecError):
        clients_of(NodeSettings(str(path), columns), CATALOGUE, None)
    found = clients_of(NodeSettings(str(path), columns, "mean"), CATALOGUE, None)
    assert found.train.ratings is not None
    assert found.train.ratings.tolist() == [4.0]


def test_the_digest_of_numbers_depends_on_each_and_on_their_order() -> None:
    digests = {numbers_digest(numbers) for numbers in ([], [0], [1], [0, 1], [1, 0], [256], [0, 0])}
    assert len(digests) == 7
    assert all(len(digest) == 32 for digest in digests)


# --- Room for letters ------------------------------------------------------------------------------------------


WITH_ONIONS = [name for name, system in SYSTEMS.items() if system.inboxes and system.parties == "users"]


@pytest.mark.parametrize("name", WITH_ONIONS)
@pytest.mark.parametrize("values", [{}, {"denoisers": 1}, {"num_factors": 1}])
def test_a_letter_has_room_for_all_mail_of_a_node(tmp_path: Path, name: str, values: dict[str, Any]) -> None:
    """However clients are assigned to denoisers, no letter needs a second helping of padding."""
    federation = Federation(tmp_path / "f", 2)
    ordered, wire = federation.order(name, small(name, **values), relay="onion"), Wire(federation)
    assert ordered.drive(wire).status == "done"
    sizes = set()
    for leg, data in wire.replies:
        if leg.phase == "ItemFactors":
            reply = decode_packet(data)
            sizes |= {len(letter) for _, letter in contents_of(reply)[1]}
            assert about(reply, Contents).num_frames == 1
    assert len(sizes) == 1


def test_room_for_letters_is_told_coarsely() -> None:
    """Two binary digits: from the size one cannot tell how many ratings there are."""
    system, split = SYSTEMS["fedrec++"], some_split()
    config = settings.build(system.config, small("fedrec++"))
    numbers = np.arange(split.train.num_users, dtype=np.int32)
    private = system.enrol(numbers, split.train.by_user(), split.train.num_items, config, Draws(0))
    size, reply_bytes = letter_bytes(system, private, config), system.reply_bytes(private, config)
    assert size >= reply_bytes.sum()
    assert size <= 4 * reply_bytes.sum()
    assert bin(size).count("1") <= 2
    assert catalogue_of(split.train).ids
