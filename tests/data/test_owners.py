from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hushrec.data import Deal, Holding, Interactions, alone, copies, latest_share, load, owned
from hushrec.data.holdings import OWNERS, SOLE_OWNER
from hushrec.data.holdings.node_files import read_held_items
from hushrec.data.holdings.owners import owners_of, rows_of_owners
from hushrec.errors import HushrecError

Make = Callable[..., Interactions]


@pytest.fixture
def films(make: Make) -> Interactions:
    """Four films, ids 10..13; the last one is of no genre."""
    data = make([0, 0, 1, 1], [0, 1, 1, 3], [5, 1, 3, 2], [4, 1, 2, 3], num_items=4, rating_range=(1.0, 5.0))
    return replace(data, genres=np.array(["War|Comedy", "War", "Comedy", ""]))


def holdings(data: Interactions) -> list[list[str]]:
    """The names of each item's owners."""
    owners = owners_of(data)
    names = np.array(owners.names)
    return [names[part].tolist() for part in np.split(owners.owners, owners.starts[1:-1])]


# --- Who owns what -----------------------------------------------------------------------------------------


def test_an_owner_for_each_genre(films: Interactions) -> None:
    data = owned(films, "genre", 0)
    assert holdings(data) == [["Comedy", "War"], ["War"], ["Comedy"], []]
    owners = owners_of(data)
    assert (owners.starts.dtype, owners.owners.dtype) == (np.int64, np.int32)
    assert owners.has_users
    assert data.sha256 == films.sha256


def test_summary_by_hand(films: Interactions) -> None:
    """Four holdings of three owned items; the rows are of items with 2, 1, 1 and 0 owners."""
    data = owned(films, "genre", 0)
    assert OWNERS.lines_for_people(data) == [
        "2 owners: Comedy, War",
        "1.33 owners per item and 1.00 per interaction, 1 items have none",
    ]
    assert (OWNERS.how_many(data), OWNERS.num_parties(data)) == (2, 3), "the users' side is a party"
    assert OWNERS.names(data) == ["Comedy", "War"]
    assert OWNERS.lines_for_people(owned(films, "1", 0)) == [], "one owner of everything goes without saying"


def test_without_a_wish_owners_are_genres_or_five(films: Interactions) -> None:
    assert holdings(OWNERS.held(films)) == holdings(owned(films, "genre", 0))
    assert holdings(OWNERS.held(replace(films, genres=None))) == holdings(owned(films, "4", 0)), "of four items"
    data = load("synthetic:users=50,items=300,ratings=500")
    assert holdings(OWNERS.held(data)) == holdings(owned(data, "5", 0))
    dealt = owned(data, "7", 1)
    assert OWNERS.held(dealt) is dealt


def test_a_sole_owner_has_all_whoever_had_it_before(films: Interactions) -> None:
    for data in (films, owned(films, "genre", 0), owned(films, "1", 0)):
        assert holdings(SOLE_OWNER.held(data)) == [["all"]] * 4
    with pytest.raises(HushrecError, match="owners='2': saros knows no owners of items; leave it out"):
        SOLE_OWNER.dealt(films, "2", 0, "saros")


@pytest.mark.parametrize("genres", [None, np.array(["", "", "", ""])])
def test_data_without_genres_needs_another_deal(films: Interactions, genres: np.ndarray | None) -> None:
    with pytest.raises(HushrecError, match="made has no genres; give owners= a number"):
        owned(replace(films, genres=genres), "genre", 0)


def test_dealt_at_random() -> None:
    """Every owner has its share of first items, a half of all items has a second owner (8 sigma: 0.04)."""
    data = load("synthetic:users=50,items=10000,ratings=500")
    found = owners_of(owned(data, "10", 1))
    assert found.names[:2] == ("owner01", "owner02")
    assert list(found.names) == sorted(found.names)
    num_owners = np.diff(found.starts)
    assert set(num_owners.tolist()) == {1, 2}
    assert abs((num_owners == 2).mean() - 0.5) < 0.04
    counts = np.bincount(found.owners)
    assert min(counts) > 1000
    assert max(counts) < 1750
    is_first_of_two = np.flatnonzero(num_owners == 2)
    first = found.starts[is_first_of_two]
    assert (found.owners[first] < found.owners[first + 1]).all()


def test_the_deal_depends_on_the_seed_only(films: Interactions) -> None:
    data = load("synthetic:users=50,items=300,ratings=500")
    again, other = owned(data, "5", 3), owned(data, "5", 4)
    assert holdings(owned(data, "5", 3)) == holdings(again)
    assert holdings(other) != holdings(again)


def test_a_single_owner_has_all(films: Interactions) -> None:
    assert holdings(owned(films, "1", 0)) == [["all"]] * 4


@pytest.mark.parametrize("deal", ["0", "5", "1001"])
def test_numbers_that_cannot_be(films: Interactions, deal: str) -> None:
    with pytest.raises(HushrecError, match=f"owners={deal}: choose 1 to 4"):
        owned(films, deal, 0)


def test_owners_from_a_file(films: Interactions, tmp_path: Path) -> None:
    path = tmp_path / "owners.tsv"
    path.write_text("12\tZebra Film\n10\tArte\n\n 10\tZebra Film \n10\tArte\n")
    data = owned(films, str(path), 0)
    assert holdings(data) == [["Arte", "Zebra Film"], [], ["Zebra Film"], []]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("10\ta\n99\tb\n", r"owners\.tsv, line 2: no item '99' in made; item ids look like 10 \.\.\. 13"),
        ("10\ta\n\n11\n", r"owners\.tsv, line 3: expected an item and an owner with a tab"),
        ("10\t\n", r"owners\.tsv, line 1: expected an item and an owner"),
        ("10\ta\tb\n", r"owners\.tsv, line 1: expected an item and an owner"),
        ("\n", r"owners\.tsv names no item; write lines of item, tab, owner"),
    ],
)
def test_a_faulty_file_is_told_with_its_line(
    films: Interactions, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "owners.tsv").write_text(content)
    with pytest.raises(HushrecError, match=message):
        owned(films, str(tmp_path / "owners.tsv"), 0)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"i1\ta\x1b[31m\n", "line 1: the owner's name cannot be printed"), (b"i1\t\xe9\n", "is not text in UTF-8")],
)
def test_names_that_cannot_be_printed_are_refused(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "held.tsv"
    path.write_bytes(content)
    with pytest.raises(HushrecError, match=told):
        read_held_items(path, "unreadable")


def test_lines_of_who_holds_what(tmp_path: Path) -> None:
    path = tmp_path / "owners.tsv"
    path.write_bytes("\ufeff12\tZebra Film\r\n\n \t\n10 \t Arte\t\n".encode())
    assert read_held_items(path, "") == [(1, "12", "Zebra Film"), (4, "10", "Arte")]
    with pytest.raises(HushrecError, match=r"^bring a file$"):
        read_held_items(tmp_path / "none", "bring a file")


@pytest.mark.parametrize("deal", ["genres", "-1", "", "no/such.tsv"])
def test_what_is_no_deal(films: Interactions, deal: str) -> None:
    with pytest.raises(HushrecError, match="no readable file; give genre, a number from 1 to 1000, or a file"):
        owned(films, deal, 0)


def test_partners_have_no_owners() -> None:
    data = load("synthetic:users=30,items=40,ratings=400")
    for divided in (alone(data), next(copies(data, Deal(), 0)).train):
        with pytest.raises(HushrecError, match="is divided among other parties; owners need data in one piece"):
            owned(divided, "2", 0)


# --- What the parties hold ---------------------------------------------------------------------------------


def test_by_owner_by_hand(films: Interactions) -> None:
    """By time the rows are 1, 2, 3, 0; positive are the ratings of 3 and 5, from the middle of 1..5 up."""
    rows = rows_of_owners(owned(films, "genre", 0))
    assert rows.names == ("Comedy", "War")
    assert (rows.held_starts.tolist(), rows.held.tolist()) == ([0, 2, 4], [0, 2, 0, 1])
    assert (rows.users.tolist(), rows.items.tolist()) == ([0, 1, 1, 0], [1, 1, 3, 0])
    assert rows.is_positive.tolist() == [False, True, False, True]
    assert (rows.has_users, rows.num_users) == (True, 2)
    kinds = [array.dtype for array in (rows.held_starts, rows.held, rows.users, rows.items, rows.is_positive)]
    assert kinds == [np.int64, np.int32, np.int32, np.int32, np.bool_]


def test_signed_ratings_give_the_same_rows(films: Interactions) -> None:
    data = owned(films, "genre", 0)
    one, other = rows_of_owners(data), rows_of_owners(data.as_signed())
    np.testing.assert_array_equal(one.is_positive, other.is_positive)
    np.testing.assert_array_equal(one.items, other.items)


def test_the_node_of_an_owner_has_no_stream(films: Interactions) -> None:
    data = owned(films, "genre", 0)
    for node in (data, data.as_implicit()):
        rows = rows_of_owners(replace(node, holding=replace(owners_of(node), has_users=False)))
        assert (len(rows.users), len(rows.items), len(rows.is_positive)) == (0, 0, 0)
        assert (rows.has_users, rows.held.tolist()) == (False, [0, 2, 0, 1])


def test_by_owner_needs_owners_and_ratings(films: Interactions) -> None:
    with pytest.raises(HushrecError, match="nobody owns the items of made; say who with owners="):
        rows_of_owners(films)
    with pytest.raises(HushrecError, match="nobody owns the items of made"):
        OWNERS.lines_for_people(films)
    with pytest.raises(HushrecError, match="made has no ratings to tell good from bad"):
        rows_of_owners(owned(films, "1", 0).as_implicit())


def test_owners_and_genres_survive_select_and_follow_new_numbers(films: Interactions) -> None:
    data = owned(films, "genre", 0)
    assert holdings(data.select(np.array([2]))) == holdings(data)
    assert holdings(data.as_implicit()) == holdings(data)
    wider = replace(
        data,
        item_ids=np.arange(9, 14),
        items=data.items + np.int32(1),
        genres=np.array(["Drama", *films.genres.tolist()]),
        holding=Holding(),
    )
    wider = owned(wider, "genre", 0)
    moved = data.renumbered_as(wider)
    assert holdings(moved) == [["Drama"], ["Comedy", "War"], ["War"], ["Comedy"], []]
    assert moved.genres is wider.genres
    assert moved.items.tolist() == [1, 2, 2, 4]


def test_real_ml_1m_by_genre(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report speaks of 20 genres and about 3 for each film; the data has 18 and 1.65."""
    monkeypatch.setenv("HUSHREC_DATA", str(real_folder))
    data = owned(load("ml-1m"), "genre", 0)
    names, counts = OWNERS.lines_for_people(data)
    assert names.startswith("18 owners: Action, Adventure, ")
    assert counts == "1.65 owners per item and 2.10 per interaction, 69 items have none"
    rows = rows_of_owners(latest_share(data, 0.2).train)
    assert int(np.diff(owners_of(data).starts)[rows.items].sum()) == 1_699_997
    assert len(rows.users) == 800_193
    assert len(rows.held) == 6_408
    for owner in range(18):
        held = rows.held[rows.held_starts[owner] : rows.held_starts[owner + 1]]
        assert (np.diff(held) > 0).all()
        assert data.genres is not None
        assert all(rows.names[owner] in text.split("|") for text in data.genres[held].tolist())
