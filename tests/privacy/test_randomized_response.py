import math
from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.privacy.filling import Listing
from hushrec.privacy.randomized_response import Response, epsilon_of_one_item, report_items

KEY = Draws(0).key("randomized-response")
NUM_ITEMS = 37  # not a multiple of a block's 16 words


@dataclass
class Held:
    starts: np.ndarray
    items: np.ndarray
    num_items: int = NUM_ITEMS


RATED = np.arange(0, NUM_ITEMS, 3, dtype=np.int32)


def everyone_rates(num_clients: int) -> Held:
    return Held(np.arange(num_clients + 1) * len(RATED), np.tile(RATED, num_clients))


def reported(held: Held, response: Response, round_number: int = 1, rows: np.ndarray | None = None) -> Listing:
    rows = np.arange(len(held.starts) - 1) if rows is None else rows
    return report_items(held, rows, (rows + 7).astype(np.int32), response, KEY, round_number)


def as_matrix(listing: Listing) -> np.ndarray:
    table = np.zeros((len(listing.starts) - 1, NUM_ITEMS), bool)
    table[np.repeat(np.arange(len(table)), np.diff(listing.starts)), listing.items] = True
    return table


def test_sorted_with_the_places_of_rated_items() -> None:
    listing = reported(everyone_rates(50), Response(0.5, 0.7, 0.2))
    for first, last in zip(listing.starts, listing.starts[1:], strict=False):
        items, places = listing.items[first:last], listing.rated_place[first:last]
        assert (np.diff(items) > 0).all()
        expected = np.where(items % 3 == 0, items // 3, -1)
        np.testing.assert_array_equal(places, expected)


def test_without_randomness_the_rated_items_are_reported() -> None:
    table = as_matrix(reported(everyone_rates(3), Response(0.0, 1.0, 0.0)))
    np.testing.assert_array_equal(np.flatnonzero(table[0]), RATED)
    assert (table == table[0]).all()


@pytest.mark.parametrize(
    "response", [Response(0.25, 0.75, 0.05), Response(1.0, 0.9, 0.3), Response(0.6, 0.5, 0.5)]
)
def test_rates_of_both_stages(response: Response) -> None:
    """The permanent bit of a rated item is set with chance 1 - f/2, of another with f/2; so an item is reported
    with chance s q + (1 - s) p. Binomial z-test, |z| < 5, fixed seed: false-alarm rate 6e-7 per rate.
    """
    flip, if_set, if_unset = response
    table = as_matrix(reported(everyone_rates(2000), response))
    is_rated = np.isin(np.arange(NUM_ITEMS), RATED)
    for columns, share_set in ((table[:, is_rated], 1 - flip / 2), (table[:, ~is_rated], flip / 2)):
        chance = share_set * if_set + (1 - share_set) * if_unset
        z = (columns.sum() - columns.size * chance) / math.sqrt(columns.size * chance * (1 - chance))
        assert abs(z) < 5


def test_permanent_bits_stay_over_rounds() -> None:
    """With q = 1 and p = 0 a round reports the permanent bits themselves: the same in every round."""
    held = everyone_rates(30)
    first = as_matrix(reported(held, Response(0.5, 1.0, 0.0), 1))
    for round_number in (2, 3, 50):
        np.testing.assert_array_equal(as_matrix(reported(held, Response(0.5, 1.0, 0.0), round_number)), first)
    is_rated = np.isin(np.arange(NUM_ITEMS), RATED)
    assert (first != is_rated).any()
    assert len(np.unique(first, axis=0)) == 30


def test_instant_bits_change_from_round_to_round() -> None:
    """Both rounds are the same in an item with chance q^2 + (1-q)^2 = 1/2. |z| < 5: false-alarm rate 6e-7."""
    held = everyone_rates(500)
    first, second = (as_matrix(reported(held, Response(1.0, 0.5, 0.5), number)) for number in (1, 2))
    z = ((first == second).sum() - first.size / 2) / math.sqrt(first.size / 4)
    assert abs(z) < 5


def test_a_client_reports_the_same_in_any_cohort() -> None:
    held, response = everyone_rates(9), Response(0.5, 0.7, 0.2)
    together = as_matrix(reported(held, response))
    for row in range(9):
        np.testing.assert_array_equal(as_matrix(reported(held, response, rows=np.array([row])))[0], together[row])


def test_a_client_without_ratings_reports_too() -> None:
    held = Held(np.zeros(2, np.int64), np.empty(0, np.int32))
    listing = reported(held, Response(0.5, 1.0, 0.0))
    assert len(listing.items) > 0
    assert (listing.rated_place == -1).all()


def test_epsilon_by_hand() -> None:
    """f = 1/2: the bit tells the truth with chance 3/4, lies with 1/4, so e^epsilon = 3. f = 1: a fair coin."""
    assert epsilon_of_one_item(0.5) == pytest.approx(math.log(3))
    assert epsilon_of_one_item(0.25) == pytest.approx(math.log(7))
    assert epsilon_of_one_item(1.0) == 0
    assert epsilon_of_one_item(0.0) == math.inf
