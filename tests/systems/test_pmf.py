import pytest

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
