"""Data of partners: the nine blocks of FedCORE's Figure 2, copies, pooled data, and joined files."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import Deal, Holding, Interactions, Measure, Partners, Split, alone, copies, join
from hushrec.data.checking import data_digest
from hushrec.data.dealing import NUM_COPIES
from hushrec.data.holdings import OWNERS, PARTNERS, USERS
from hushrec.data.holdings.node_files import Catalogue
from hushrec.data.holdings.partners import rows_of_partners
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import load_train, save_train

Make = Callable[..., Interactions]
Rows = list[tuple[str, str, float]]


def rows_of(data: Interactions) -> Rows:
    """User, item and rating by their ids, in the order of the data."""
    return list(zip(data.user_ids[data.users], data.item_ids[data.items], data.ratings.tolist(), strict=True))


def partners_of(data: Interactions) -> Partners:
    assert isinstance(data.holding, Partners)
    return data.holding


def of_partner(rows: Rows, name: str) -> set[tuple[int, int]]:
    """The (user, item) pairs of one partner, without its name; its items are its own."""
    mine = [(user, item) for user, item, _ in rows if user.startswith(f"{name}:")]
    assert all(item.startswith(f"{name}:") for _, item in mine)
    pairs = {(int(user.partition(":")[2]), int(item.partition(":")[2])) for user, item in mine}
    assert len(pairs) == len(mine), "no rating twice"
    return pairs


def selected(split: Split, group: str) -> Interactions:
    return split.test.select(split.groups[group])


@pytest.fixture
def grid(make: Make) -> Interactions:
    """40 users have rated all of 40 items; ratings 1 to 5, in the order of an odd step through the grid."""
    users, items = (place.ravel() for place in np.meshgrid(np.arange(40), np.arange(40), indexing="ij"))
    return make(
        users.tolist(), items.tolist(), (1 + (7 * users + 3 * items) % 5).tolist(), rating_range=(1.0, 5.0)
    )


def owners_in(split: Split, names: str) -> tuple[dict[int, str], dict[int, str]]:
    """Who has each user and item, as seen in the training rows: one partner's name, or all names."""
    rows, found = rows_of(split.train), []
    for column in (0, 1):
        seen: dict[int, set[str]] = {}
        for row in rows:
            name, _, own = row[column].partition(":")
            seen.setdefault(int(own), set()).add(name)
        found.append({own: "".join(sorted(held)) for own, held in seen.items()})
        assert set(found[-1].values()) <= {names, *names}
    return found[0], found[1]


# --- The nine blocks ---------------------------------------------------------------------------------------


def test_the_nine_blocks_of_two_partners(grid: Interactions) -> None:
    """10 users only at a, 10 only at b, 20 at both; items likewise. a has its own users with its own and common
    items, and the common users with its own items; of the common block it has some rows (next test). What it is
    tested on beside: users only of b with items only of a.
    """
    split = next(copies(grid, Deal(), 0))
    users, items = owners_in(split, "ab")
    for owners in (users, items):
        assert [sorted(owners.values()).count(held) for held in ("a", "b", "ab")] == [10, 10, 20]
    train, test = rows_of(split.train), rows_of(split.test)
    for name, other in (("a", "b"), ("b", "a")):
        own = of_partner(train, name)
        blocks = {(users[user], items[item]) for user, item in own}
        assert blocks == {(name, name), (name, "ab"), ("ab", name), ("ab", "ab")}
        tested = of_partner(rows_of(selected(split, f"{name} own")), name)
        assert {(users[user], items[item]) for user, item in tested} == blocks
        cold = of_partner(rows_of(selected(split, f"{name} cold")), name)
        assert {(users[user], items[item]) for user, item in cold} == {(other, name)}
        assert not own & tested
        # A fifth of 10 x 10 ratings, within four standard deviations of chance.
        assert 4 <= len(cold) <= 36
    assert sum(len(of_partner(test, name)) for name in "ab") == len(test)
    assert sum(is_in.sum() for is_in in split.groups.values()) == len(test), "each row is in one group"


def everything(grid: Interactions, deal: Deal) -> tuple[dict[str, set[tuple[int, int]]], Split]:
    """All rows of each partner, whether trained on, validated or tested; those of visitors are left out."""
    measures: tuple[Measure, Measure] = ("test", "validation")
    by_measure = [next(copies(grid, deal, 0, measure=measure)) for measure in measures]
    rows = {}
    for name in deal.names:
        parts = [of_partner(rows_of(by_measure[0].train), name)]
        parts += [of_partner(rows_of(selected(split, f"{name} own")), name) for split in by_measure]
        assert not any(one & other for one, other in pairwise([*parts, parts[0]])), "three parts without overlap"
        rows[name] = set.union(*parts)
    return rows, by_measure[0]


def test_of_the_common_block_each_has_two_fifths_and_both_have_one(grid: Interactions) -> None:
    """400 ratings of 20 common users and 20 common items: 160, 160 and 80 expected; 4 sigma are 39 and 32. All of
    the other blocks is a's: 10 x (10 + 20) + 20 x 10.
    """
    rows, split = everything(grid, Deal())
    users, items = owners_in(split, "ab")
    common = {name: {(u, i) for u, i in rows[name] if users[u] == items[i] == "ab"} for name in "ab"}
    both = common["a"] & common["b"]
    assert common["a"] | common["b"] == {(u, i) for u in users for i in items if users[u] == items[i] == "ab"}
    assert abs(len(both) - 80) <= 32
    assert all(abs(len(common[name] - both) - 160) <= 39 for name in "ab")
    for name in "ab":
        assert len(rows[name] - common[name]) == 10 * 30 + 20 * 10
    assert not (rows["a"] & rows["b"]) - both


def test_three_fifths_are_trained_on_and_one_is_measured(grid: Interactions) -> None:
    """Of the 1,600 ratings 960 are for training; the 200 of a's and b's visitors are among the others, unused."""
    rows, split = everything(grid, Deal())
    shares = {name: len(of_partner(rows_of(split.train), name)) / len(rows[name]) for name in "ab"}
    assert all(abs(share - 0.6) < 0.08 for share in shares.values())
    validated = next(copies(grid, Deal(), 0, measure="validation"))
    assert rows_of(validated.train) == rows_of(split.train)
    for name in ("a own", "a cold", "b own", "b cold"):
        assert not set(rows_of(selected(split, name))) & set(rows_of(selected(validated, name)))


def test_three_partners(grid: Interactions) -> None:
    """7 of 40 users each, 19 common. Of the common ratings a fifth goes to all three, the rest is shared out."""
    deal = Deal(num_partners=3)
    rows, split = everything(grid, deal)
    users, items = owners_in(split, "abc")
    for owners in (users, items):
        assert [sorted(owners.values()).count(held) for held in ("a", "b", "c", "abc")] == [7, 7, 7, 19]
    common = {name: {(u, i) for u, i in rows[name] if users[u] == items[i] == "abc"} for name in "abc"}
    everybody = common["a"] & common["b"] & common["c"]
    assert len(set.union(*common.values())) == 19 * 19
    assert abs(len(everybody) - 361 / 5) < 31
    for name in "abc":
        assert abs(len(common[name] - everybody) - 361 * 4 / 15) < 34
        cold = of_partner(rows_of(selected(split, f"{name} cold")), name)
        assert {users[user] for user, _ in cold} == set("abc") - {name}
        assert {items[item] for _, item in cold} == {name}
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        assert common[name] & common[other] == everybody, "two of three never share a rating that is not all's"


@pytest.mark.parametrize(("share", "num_own", "num_common"), [(0.0, 20, 0), (0.3, 14, 12), (1.0, 0, 40)])
def test_shares_of_common_users(grid: Interactions, share: float, num_own: int, num_common: int) -> None:
    split = next(copies(grid, Deal(common_users=share), 0))
    users, items = owners_in(split, "ab")
    assert [sorted(users.values()).count(held) for held in ("a", "b", "ab")] == [num_own, num_own, num_common]
    assert sorted(items.values()).count("ab") == 20, "items have a share of their own"


def test_every_user_has_an_account_everywhere_and_items_are_where_they_are_held(grid: Interactions) -> None:
    train = next(copies(grid, Deal(), 0)).train
    assert partners_of(train).names == ("a", "b")
    assert partners_of(train).user_starts.tolist() == [0, 40, 80]
    assert partners_of(train).item_starts.tolist() == [0, 30, 60]
    assert train.user_ids.tolist() == sorted(train.user_ids.tolist())
    assert train.item_ids.tolist() == sorted(train.item_ids.tolist())
    assert [one.partition(":")[2] for one in train.user_ids[:40]] == [
        one.partition(":")[2] for one in train.user_ids[40:]
    ]
    rows = rows_of_partners(train)
    for place, name in enumerate("ab"):
        own = slice(rows.starts[place], rows.starts[place + 1])
        users = rows.user_ids[rows.user_starts[place] :][rows.users[own]]
        items = rows.item_ids[rows.item_starts[place] :][rows.items[own]]
        listed = [(int(user), int(item)) for user, item in zip(users, items, strict=True)]
        assert set(listed) == of_partner(rows_of(train), name)
        keys = list(zip(rows.users[own].tolist(), rows.items[own].tolist(), strict=True))
        assert keys == sorted(keys)
    assert np.isin(rows.ratings, [1, 2, 3, 4, 5]).all()


def test_ids_of_the_source_mean_all_partners_and_named_ones_one(grid: Interactions) -> None:
    train = next(copies(grid, Deal(), 0)).train
    user, item = grid.user_ids[7].item(), grid.item_ids[3].item()
    (accounts,) = PARTNERS.accounts(train, np.array([user]))
    assert train.user_ids[accounts].tolist() == [f"a:{user}", f"b:{user}"]
    one, two = PARTNERS.accounts(train, np.array([f"b:{user}", f"a:{user}"]))
    assert (train.user_ids[one].tolist(), train.user_ids[two].tolist()) == ([f"b:{user}"], [f"a:{user}"])
    known, unknown = PARTNERS.copies(train, np.array([str(item), "nowhere"]))
    assert {str(found) for found in train.item_ids[known]} <= {f"a:{item}", f"b:{item}"}
    assert 1 <= len(known) <= 2
    assert not len(unknown)
    assert PARTNERS.source_id(f"a:{item}") == str(item)
    with pytest.raises(HushrecError, match="no user 'nobody' with any partner"):
        PARTNERS.accounts(train, np.array(["nobody"]))


def test_users_of_a_party(grid: Interactions) -> None:
    """A partner's are its accounts, a client is one itself, and an owner of items has none."""
    train = next(copies(grid, Deal(), 0)).train
    own = [PARTNERS.users_of(train, number) for number in range(2)]
    assert [{one[0] for one in train.user_ids[users].tolist()} for users in own] == [{"a"}, {"b"}]
    assert np.concatenate(own).tolist() == list(range(train.num_users))
    assert USERS.users_of(grid, 3).tolist() == [3]
    assert OWNERS.users_of(OWNERS.sample(grid, 0), 0).tolist() == []


def test_ids_of_users_and_items_in_one_piece(grid: Interactions) -> None:
    assert [own.tolist() for own in USERS.accounts(grid, grid.user_ids[[7, 2]])] == [[7], [2]]
    wanted = np.array([grid.item_ids[3], 10**9])
    assert [own.tolist() for own in USERS.copies(grid, wanted)] == [[3], []]
    assert USERS.copies(grid, np.empty(0, np.int64)) == []
    assert USERS.source_id(5) == 5


def test_ratings_and_titles_stay_with_their_pairs(grid: Interactions) -> None:
    titles = np.array([f"film {number}" for number in grid.item_ids])
    split = next(copies(replace(grid, titles=titles), Deal(), 0))
    known = dict(zip(zip(grid.users.tolist(), grid.items.tolist(), strict=True), grid.ratings, strict=True))
    for part in (split.train, split.test):
        for user, item, rating in rows_of(part):
            numbers = int(user.partition(":")[2]) - 10, int(item.partition(":")[2]) - 10
            assert known[numbers] == rating
        assert [f"film {one.partition(':')[2]}" for one in part.item_ids] == part.titles.tolist()


# --- Copies ------------------------------------------------------------------------------------------------


def signature(split: Split) -> tuple[Any, ...]:
    return (
        sorted(rows_of(split.train)),
        sorted(rows_of(split.test)),
        {name: sorted(rows_of(selected(split, name))) for name in split.groups},
    )


def test_five_copies_differ_and_repeat(grid: Interactions) -> None:
    first, again, other = (list(copies(grid, Deal(), seed)) for seed in (0, 0, 1))
    assert [split.fold for split in first] == [1, 2, 3, 4, 5]
    assert len(first) == NUM_COPIES
    assert [signature(split) for split in first] == [signature(split) for split in again]
    owners = [tuple(sorted(owners_in(split, "ab")[0].items())) for split in (*first, *other)]
    assert len(set(owners)) == 10, "users are dealt anew in every copy"


def test_one_deal_of_users_and_items_serves_all_copies_and_ratings_are_divided_as_with_a_deal_for_each(
    grid: Interactions,
) -> None:
    one, each = (list(copies(grid, Deal(deals=deals), 0)) for deals in ("one", "each"))
    assert signature(one[0]) == signature(each[0])
    assert [owners_in(split, "ab") for split in one] == [owners_in(each[0], "ab")] * NUM_COPIES
    assert len({tuple(sorted(rows_of(split.train))) for split in one}) == NUM_COPIES
    for ours, theirs in zip(one, each, strict=True):
        assert not set(bare(ours.test)) & set(bare(theirs.train)), "the same ratings are trained on, or measured"
    pooled = list(copies(grid, Deal(deals="one"), 0, is_pooled=True))
    owners = [set(split.test.items[split.groups["a cold"]].tolist()) for split in pooled]
    assert len(set.union(*owners)) == 10, "items that only a has"


def bare(data: Interactions) -> list[tuple[str, str]]:
    """The (user, item) pairs without the names of partners."""
    return [(user.partition(":")[2], item.partition(":")[2]) for user, item, _ in rows_of(data)]


def test_the_order_of_rows_in_the_file_does_not_matter(grid: Interactions) -> None:
    order = np.random.default_rng(0).permutation(len(grid))
    shuffled = replace(grid, users=grid.users[order], items=grid.items[order], ratings=grid.ratings[order])
    for is_pooled in (False, True):
        one, other = (next(copies(data, Deal(), 3, is_pooled)) for data in (grid, shuffled))
        assert signature(one) == signature(other)
    rows = [rows_of_partners(next(copies(data, Deal(), 3)).train) for data in (grid, shuffled)]
    for field in ("starts", "users", "items", "ratings"):
        np.testing.assert_array_equal(getattr(rows[0], field), getattr(rows[1], field))


@pytest.mark.parametrize("num_partners", [2, 3])
def test_pooled_is_the_union_without_duplicates_and_measured_on_the_same(
    grid: Interactions, num_partners: int
) -> None:
    deal = Deal(num_partners)
    apart, pooled = next(copies(grid, deal, 0)), next(copies(grid, deal, 0, is_pooled=True))
    names = deal.names
    union = set.union(*(of_partner(rows_of(apart.train), name) for name in names))
    assert type(pooled.train.holding) is Holding
    trained = list(zip(pooled.train.users.tolist(), pooled.train.items.tolist(), strict=True))
    assert len(trained) == len(set(trained))
    assert {(user + 10, item + 10) for user, item in trained} == union
    assert list(apart.groups) == list(pooled.groups) == [f"{n} {kind}" for n in names for kind in ("own", "cold")]
    for group in apart.groups:
        ours, theirs = selected(apart, group), selected(pooled, group)
        pairs = {(user + 10, item + 10) for user, item in zip(theirs.users, theirs.items, strict=True)}
        assert of_partner(rows_of(ours), group[0]) == pairs
        assert sorted(ours.ratings.tolist()) == sorted(theirs.ratings.tolist())


def test_one_row_and_no_row_are_dealt(make: Make) -> None:
    for split in copies(make([0], [0], [3.0]), Deal(), 0):
        assert len(split.train) + len(split.test) <= 4
    empty = next(copies(make([], [], [], num_users=4, num_items=4), Deal(), 0))
    assert (len(empty.train), len(empty.test)) == (0, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_partners": 1}, "partners=1: choose 2 to 26"),
        ({"num_partners": 27}, "partners=27: choose 2 to 26"),
        ({"common_users": 1.5}, "common_users=1.5 is no share; choose 0 to 1"),
        ({"common_items": -0.1}, "common_items=-0.1 is no share; choose 0 to 1"),
        ({"common_items": float("nan")}, "common_items=nan is no share; choose 0 to 1"),
        ({"deals": "two"}, "deals='two' is unknown; choose each or one"),
    ],
)
def test_deals_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=f"^{message}$"):
        Deal(**values)


def test_data_without_ratings_cannot_be_dealt(make: Make) -> None:
    with pytest.raises(HushrecError, match=r"^made has no ratings to deal to partners; choose data with explicit"):
        next(copies(make([0], [0]), Deal(), 0))


# --- Joined files ------------------------------------------------------------------------------------------


def test_joined_data_are_each_partners_own(make: Make) -> None:
    """Ids are numbers plus 10: both have users 10 and 11, only b has 12; b's item 10 is another than a's."""
    one = make([0, 1, 1], [1, 0, 1], [1, 2, 3], rating_range=(1.0, 5.0))
    two = make([2, 0], [0, 0], [4, 5], rating_range=(1.0, 5.0))
    joined = join({"shop": two, "film": one})
    assert joined.name == "film+shop"
    assert partners_of(joined).names == ("film", "shop")
    assert joined.user_ids.tolist() == ["film:10", "film:11", "shop:10", "shop:11", "shop:12"]
    assert joined.item_ids.tolist() == ["film:10", "film:11", "shop:10"]
    assert sorted(rows_of(joined)) == [
        ("film:10", "film:11", 1.0), ("film:11", "film:10", 2.0), ("film:11", "film:11", 3.0),
        ("shop:10", "shop:10", 5.0), ("shop:12", "shop:10", 4.0),
    ]  # fmt: skip
    rows = rows_of_partners(joined)
    assert rows.starts.tolist() == [0, 3, 5]
    assert rows.users.tolist() == [0, 1, 1, 0, 2]
    assert rows.items.tolist() == [1, 0, 1, 0, 0]
    assert rows.user_ids.tolist() == ["10", "11", "10", "11", "12"]
    assert joined.sha256 == data_digest(joined) != ""


def test_names_of_which_one_begins_like_another_are_kept_apart(make: Make) -> None:
    """By their ids a1:... come before a:..., as 1 is before the colon: numbers must follow the ids."""
    one, two = make([0], [0], [1], rating_range=(1, 5)), make([0], [1], [2], rating_range=(1, 5))
    joined = join({"a": one, "a1": two})
    assert joined.user_ids.tolist() == sorted(joined.user_ids.tolist())
    rows = rows_of_partners(joined)
    place = partners_of(joined).names.index("a1")
    assert rows.ratings[rows.starts[place] : rows.starts[place + 1]].tolist() == [2.0]


def test_joined_ids_with_a_colon_keep_it(make: Make) -> None:
    one = replace(make([0], [0], [1], rating_range=(1, 5)), user_ids=np.array(["x:y"]))
    joined = join({"a": one, "b": make([0], [0], [1], rating_range=(1, 5))})
    assert rows_of_partners(joined).user_ids.tolist() == ["x:y", "10"]


def test_data_that_cannot_be_joined_are_refused(make: Make) -> None:
    one = make([0], [0], [1], rating_range=(1, 5))
    with pytest.raises(HushrecError, match=r"^1 partner\(s\); join the data of at least 2$"):
        join({"a": one})
    with pytest.raises(HushrecError, match=r"^a partner's name is made of letters and digits$"):
        join({"a": one, "b:c": one})
    for other in (make([0], [0], [1], rating_range=(0, 5)), make([0], [0])):
        with pytest.raises(HushrecError, match=r"^partners need ratings in the same range; read each file with"):
            join({"a": one, "b": other})


def test_data_in_one_piece_are_those_of_one_partner(grid: Interactions) -> None:
    """Ratings and titles stay with their pairs, though ids 95 to 134 are sorted as texts: 100 comes before 95."""
    data = replace(
        grid, titles=np.array([f"film {number}" for number in grid.item_ids]), item_ids=grid.item_ids + 85
    )
    only = alone(data)
    assert partners_of(only).names == ("all",)
    assert rows_of_partners(only).starts.tolist() == [0, 1600]
    assert only.item_ids.tolist() == sorted(only.item_ids.tolist())
    before = list(zip(data.user_ids[data.users], data.item_ids[data.items], data.ratings, strict=True))
    assert rows_of(only) == [(f"all:{user}", f"all:{item}", rating) for user, item, rating in before]
    titles = dict(zip(data.item_ids.tolist(), data.titles.tolist(), strict=True))
    assert [titles[int(one.partition(":")[2])] for one in only.item_ids] == only.titles.tolist()


def test_who_needs_partners_says_how_to_get_them(grid: Interactions) -> None:
    for ask in (PARTNERS.held, PARTNERS.num_parties, PARTNERS.rows, PARTNERS.arrays):
        with pytest.raises(HushrecError, match=r"needs data of partners, made is in one piece: deal it \(--split"):
            ask(grid)
    dealt = next(copies(grid, Deal(3), 0)).train
    assert PARTNERS.num_parties(PARTNERS.held(dealt)) == PARTNERS.how_many(dealt) == 3
    assert partners_of(PARTNERS.held_in_run(grid)).names == ("all",), "the baseline without anybody else"


def test_nodes_are_told_no_item_of_a_partner_and_a_server_knows_how_many_there_are(grid: Interactions) -> None:
    train = next(copies(grid, Deal(3), 0)).train
    assert PARTNERS.catalogue(train) == Catalogue([], False)
    assert len(USERS.catalogue(grid).ids) == grid.num_items
    known = PARTNERS.known(grid.select(np.zeros(len(grid), np.bool_)), 3)
    assert PARTNERS.num_parties(known) == 3
    assert set(PARTNERS.rows(known).starts.tolist()) == {0}
    restored = PARTNERS.restored(known, PARTNERS.arrays(known))
    assert PARTNERS.names(restored) == ["0", "1", "2"]


# --- On disk -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_partners", [2, 3])
def test_partners_are_kept_on_disk(grid: Interactions, num_partners: int, tmp_path: Path) -> None:
    train, path = next(copies(grid, Deal(num_partners), 0)).train, tmp_path / "train.npz"
    save_train(path, train, SYSTEMS["fedcore"])
    found = load_train(path, SYSTEMS["fedcore"], train.name, train.sha256, train.is_synthetic)
    assert partners_of(found).names == partners_of(train).names
    assert sorted(rows_of(found)) == sorted(rows_of(train))
    for field in ("starts", "users", "items", "ratings", "user_starts", "item_starts", "user_ids", "item_ids"):
        np.testing.assert_array_equal(
            getattr(rows_of_partners(found), field), getattr(rows_of_partners(train), field)
        )
    save_train(path, grid, SYSTEMS["pmf"])
    assert type(load_train(path, SYSTEMS["pmf"], "made", "", False).holding) is Holding
    with pytest.raises(HushrecError, match="does not say who holds its rows"):
        load_train(path, SYSTEMS["fedcore"], "made", "", False)
