import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.protocol import Answer, Ragged
from hushrec.systems.pmf import Ratings, Taken, take_over

from .runs import assert_same, digest, hand_worked, run, some_ratings

GOLDEN = "8768d812be03aeb3442b6ba7517bb9c1e1126d7085765fef93b8e1d4507812ab"


def test_hand_worked_round() -> None:
    """gamma = 1/4, lambda = 1/2, U = (1, 2), V = (1, 2).

    Errors: user 0 on item 0: 1*1 - 4 = -3. User 1 on item 0: 2*1 - 5 = -3, on item 1: 2*2 - 3 = 1.
    U_0: gradient -3*1 + 1/2 = -5/2, so 1 + 5/8 = 1.625. U_1: (-3*1 + 1*2) / 2 + 1 = 1/2, so 2 - 1/8 = 1.875.
    V_0: ((-3*1 + 1/2) + (-3*2 + 1/2)) / 2 = -4, so 1 + 1 = 2. V_1: 1*2 + 1 = 3, so 2 - 3/4 = 1.25.
    """
    finished = hand_worked("pmf", regularization=0.5)
    assert finished.user_factors.ravel().tolist() == [1.625, 1.875]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.25]


@pytest.mark.parametrize("num_users", [24, 700])
def test_equals_fedrec_without_virtual_items(num_users: int) -> None:
    """To the last bit, also with more users than the server takes at a time."""
    ratings = some_ratings(num_users)
    assert_same(run("pmf", ratings, num_rounds=12), run("fedrec", ratings, rho=0, filling="none", num_rounds=12))


def test_ratings_are_handed_over_once() -> None:
    finished = run("pmf", some_ratings(), num_rounds=3)
    assert {sent.round_number for sent in finished.transcript.recorded} == {1}


def test_golden_transcript() -> None:
    finished = run("pmf", some_ratings(6, 20), num_factors=3, num_rounds=2)
    assert digest(finished) == GOLDEN


def take_over_from(*handed: tuple[list[int], list[list[int]]], num_items: int = 3) -> Taken:
    """What the server has after these batches of clients and their items; an item's rating is its number."""
    taking = take_over(5, num_items)
    ask = next(taking)
    assert ask.to.tolist() == [0, 1, 2, 3, 4]
    for numbers, items in handed:
        starts = np.concatenate([[0], np.cumsum([len(one) for one in items])]).astype(np.int64)
        values = np.array([item for one in items for item in one], np.int32)
        ratings = Ragged(starts, values.astype(np.float32))
        ask.replies.add(np.array(numbers, np.int32), Ratings(Ragged(starts, values), ratings))
    with pytest.raises(StopIteration) as end:
        taking.send(Answer())
    taken: Taken = end.value.value
    return taken


def test_ratings_are_taken_over_in_the_order_of_clients() -> None:
    """Client 3 is lost, client 1 has none."""
    taken = take_over_from(([4], [[0, 2]]), ([0, 1, 2], [[1], [], [0, 1, 2]]))
    assert taken.starts.tolist() == [0, 1, 1, 4, 4, 6]
    assert taken.items.tolist() == [1, 0, 1, 2, 0, 2]
    assert taken.ratings.tolist() == taken.items.tolist()


@pytest.mark.parametrize("handed", [(), (([0, 1], [[], []]),)])
def test_a_server_that_gets_no_rating_says_so(handed: tuple[tuple[list[int], list[list[int]]], ...]) -> None:
    with pytest.raises(HushrecError, match=r"\Ano client handed over its ratings; there is nothing to train on\Z"):
        take_over_from(*handed)


@pytest.mark.parametrize("item", [-1, 3])
def test_an_item_that_is_not_in_the_catalogue_is_refused(item: int) -> None:
    """And its sender named, also behind clients without ratings."""
    with pytest.raises(
        HushrecError, match=r"\Aclient 4 lists an item that is not in the catalogue; leave it out\Z"
    ):
        take_over_from(([0, 1], [[1], []]), ([2, 4], [[], [0, item]]))
