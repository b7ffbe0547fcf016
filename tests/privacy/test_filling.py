from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushrec.draws import Draws
from hushrec.privacy.filling import Listing, draw_ratings, list_items, num_virtual_items

KEY = Draws(0).key("virtual-items")


@dataclass
class Held:
    starts: np.ndarray
    items: np.ndarray
    num_items: int


def held_by(rated: list[list[int]], num_items: int) -> Held:
    starts = np.concatenate([[0], np.cumsum([len(items) for items in rated])]).astype(np.int64)
    return Held(starts, np.array([item for items in rated for item in sorted(items)], np.int32), num_items)


def listed(held: Held, clients: list[int], rho: int, round_number: int = 1) -> Listing:
    """The numbers of clients are their rows plus 100: who they are is not where they are."""
    rows = np.array(clients, np.int64)
    return list_items(held, rows, (rows + 100).astype(np.int32), rho, KEY, round_number)


def slices(listing: Listing) -> list[tuple[list[int], list[int]]]:
    bounds = zip(listing.starts, listing.starts[1:], strict=False)
    return [(listing.items[a:b].tolist(), listing.rated_place[a:b].tolist()) for a, b in bounds]


@st.composite
def catalogues(draw: st.DrawFn) -> Held:
    num_items = draw(st.sampled_from([1, 5, 63, 64, 65, 130]))
    some_items = st.sets(st.integers(0, num_items - 1))
    return held_by([sorted(items) for items in draw(st.lists(some_items, min_size=1, max_size=5))], num_items)


@given(held=catalogues(), rho=st.integers(0, 4), round_number=st.integers(0, 9))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_what_a_client_lists(held: Held, rho: int, round_number: int) -> None:
    """Ascending without repetition; all rated items, each with its place; exactly as many virtual ones as due."""
    clients = list(range(len(held.starts) - 1))
    for client, (items, places) in enumerate(slices(listed(held, clients, rho, round_number))):
        rated = held.items[held.starts[client] : held.starts[client + 1]].tolist()
        assert items == sorted(set(items))
        assert all(0 <= item < held.num_items for item in items)
        assert [item for item, place in zip(items, places, strict=True) if place >= 0] == rated
        assert [place for place in places if place >= 0] == list(range(len(rated)))
        num_virtual = min(rho * len(rated), held.num_items - len(rated))
        assert places.count(-1) == num_virtual
        assert num_virtual_items(np.array([len(rated)]), rho, held.num_items).tolist() == [num_virtual]


@given(held=catalogues(), rho=st.integers(1, 3))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_client_lists_the_same_in_any_cohort(held: Held, rho: int) -> None:
    clients = list(range(len(held.starts) - 1))
    together = slices(listed(held, clients, rho))
    assert slices(listed(held, clients[::-1], rho))[::-1] == together
    assert [slices(listed(held, [client], rho))[0] for client in clients] == together


def test_draws_depend_on_client_and_round_only() -> None:
    """All hold the same items. A round number given again draws the same, which is how `once` works."""
    held = held_by([[3, 50]] * 40, 200)
    first = slices(listed(held, list(range(40)), 3))
    again, later = (slices(listed(held, list(range(40)), 3, round_number)) for round_number in (1, 2))
    assert first == again
    assert len({str(items) for items, _ in first}) == 40
    assert all(one != other for one, other in zip(first, later, strict=True))


@pytest.mark.parametrize(
    ("num_rated", "rho"),
    [pytest.param(4, 2, id="virtual items are drawn"), pytest.param(20, 2, id="left-out items are drawn")],
)
def test_virtual_items_are_uniform(num_rated: int, rho: int) -> None:
    """Of 67 items, 4000 clients draw without replacement among those they did not rate.

    An item that is not rated is listed with chance s = num_virtual / num_unrated, so its count over n clients has
    variance n s (1 - s); drawing without replacement leaves num_unrated - 1 degrees of freedom and makes the
    statistic sum (count - n s)^2 / (n s (1 - s)) * (num_unrated - 1) / num_unrated chi-square. Fixed seed,
    two-sided, false-alarm rate 2e-6.
    """
    num_items, num_clients = 67, 4000
    rated = list(range(0, 2 * num_rated, 2))
    listing = listed(held_by([rated] * num_clients, num_items), list(range(num_clients)), rho)
    counts = np.bincount(listing.items[listing.rated_place < 0], minlength=num_items)
    assert counts[rated].sum() == 0
    counts = np.delete(counts, rated)
    share = rho * num_rated / len(counts)
    statistic = ((counts - num_clients * share) ** 2).sum() / (num_clients * share * (1 - share))
    freedom = len(counts) - 1
    chance = stats.chi2.sf(statistic * freedom / len(counts), freedom)
    assert 1e-6 < chance < 1 - 1e-6


def test_pairs_of_virtual_items_are_uniform() -> None:
    """2 of 6 unrated items: each of the 15 pairs with chance 1/15. Chi-square over 6000 clients with a fixed
    seed, false-alarm rate 1e-6; both branches, since 4 of 6 are the pairs left out.
    """
    for rho in (1, 2):
        listing = listed(held_by([[1, 4]] * 6000, 8), list(range(6000)), rho)
        virtual = [tuple(item for item, place in zip(*one, strict=True) if place < 0) for one in slices(listing)]
        _, counts = np.unique([hash(items) for items in virtual], return_counts=True)
        assert len(counts) == 15
        assert stats.chisquare(counts).pvalue > 1e-6


# --- Virtual ratings -------------------------------------------------------------------------------------


@dataclass
class HeldRatings(Held):
    ratings: np.ndarray


def drawn(held: HeldRatings, clients: list[int], listing: Listing) -> np.ndarray:
    rows = np.array(clients, np.int64)
    return draw_ratings(held, rows, (rows + 100).astype(np.int32), listing, Draws(0).key("virtual-ratings"))


def some_held() -> HeldRatings:
    held = held_by([[1, 3, 5, 40], [2, 60], [0, 7, 9]], 70)
    return HeldRatings(**vars(held), ratings=np.array([1, 2, 2, 5, 3, 3, 4, 1, 2], np.float32))


def test_virtual_ratings_are_the_clients_own() -> None:
    held = some_held()
    listing = listed(held, [0, 1, 2], 5)
    ratings = drawn(held, [0, 1, 2], listing)
    assert (ratings[listing.rated_place >= 0] == 0).all()
    for client, own in enumerate(([1, 2, 5], [3], [1, 2, 4])):
        part = slice(listing.starts[client], listing.starts[client + 1])
        assert set(ratings[part][listing.rated_place[part] < 0]) == set(own)


def test_an_item_has_the_same_virtual_rating_in_every_list_and_cohort() -> None:
    held = some_held()
    first, second = listed(held, [0, 1, 2], 9, 1), listed(held, [0, 1, 2], 9, 2)
    one, other = drawn(held, [0, 1, 2], first), drawn(held, [0, 1, 2], second)
    for client in range(3):
        seen = []
        for listing, ratings in ((first, one), (second, other)):
            part = slice(listing.starts[client], listing.starts[client + 1])
            seen.append(dict(zip(listing.items[part].tolist(), ratings[part].tolist(), strict=True)))
        both = seen[0].keys() & seen[1].keys()
        assert len(both) > 4
        assert all(seen[0][item] == seen[1][item] for item in both)
    alone = listed(held, [2], 9, 1)
    np.testing.assert_array_equal(drawn(held, [2], alone), one[first.starts[2] :])


def test_virtual_ratings_are_as_frequent_as_the_clients_own() -> None:
    """A chi-square test of 2,000 draws from ratings 1, 2, 2, 5; false alarms: 1 in 1,000 seeds."""
    held = HeldRatings(**vars(held_by([[1, 3, 5, 40]], 2004)), ratings=np.array([1, 2, 2, 5], np.float32))
    listing = listed(held, [0], 500)
    virtual = drawn(held, [0], listing)[listing.rated_place < 0]
    counts = [np.count_nonzero(virtual == rating) for rating in (1, 2, 5)]
    assert sum(counts) == 2000
    assert stats.chisquare(counts, [500, 1000, 500]).pvalue > 1e-3
