"""Measures of lists: by hand, and by looking at every pair of users."""

from itertools import combinations

import numpy as np
import pytest

from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation import top_k
from hushrec.evaluation.lists import are_alike, list_measures


def data_of(rows: list[list[int]], num_items: int) -> Interactions:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows]).astype(np.int32)
    items = np.array([item for row in rows for item in row], np.int32)
    return Interactions(
        users, items, None, None, None, np.arange(len(rows)), np.arange(num_items), None, None, "made", "", True
    )


def test_by_hand() -> None:
    """Three users have item 0, which is no candidate; 1, 2 and 3 are had by one each, 4 by nobody.

    All rank 1, 2, 3, 4 in this order; the fourth user has no training row, and so no list. Lists of two: 2 3, 1 3,
    1 2 and, for the fifth user, who has 3, 1 2. So c = (0, 3, 3, 2, 0) of four lists and 8 places, and of four
    users one has each of the items 1, 2, 3.
    """
    train = data_of([[0, 1], [0, 2], [0], [], [3]], 5)
    scores = np.tile([9.0, 4.0, 3.0, 2.0, 1.0], (5, 1))
    is_candidate = np.array([False, True, True, True, True])
    rows = train.by_user()
    found = list_measures(lambda users: scores[users], rows, 5, 2, Draws(0), is_candidate)
    assert found["lists"] == 4
    assert found["distinct items"] == 3
    assert found["coverage"] == pytest.approx(3 / 5)
    assert found["popularity"] == pytest.approx(1 / 4)
    assert found["novelty"] == pytest.approx(2.0)
    assert found["diversity"] == pytest.approx(1 - (3 * 2 + 3 * 2 + 2 * 1) / (4 * 3) / 2)
    assert found["most listed"] == pytest.approx(3 / 4)
    assert found["diversity within"] == 1  # nobody has two of 1, 2 and 3


@pytest.mark.parametrize("seed", range(4))
def test_as_by_all_pairs(seed: int) -> None:
    """Lists of different lengths, too: some users have nearly every candidate."""
    generator = np.random.default_rng(seed)
    num_users, num_items, length = 23, 17, 5
    sizes = generator.integers(0, 15, num_users)
    rows = [sorted(generator.choice(num_items, size, replace=False).tolist()) for size in sizes]
    train = data_of(rows, num_items).by_user()
    scores = generator.normal(size=(num_users, num_items)) + 2 * generator.normal(size=num_items)
    is_candidate = generator.random(num_items) < 0.8
    found = list_measures(
        lambda users: scores[users], train, num_items, length, Draws(0), is_candidate, block_scores=4 * num_items
    )
    lists = []
    for user in np.flatnonzero(sizes):
        left = [item for item in range(num_items) if is_candidate[item] and item not in rows[user]]
        lists.append(set(sorted(left, key=lambda item: -scores[user, item])[:length]))
    having = {item: sum(item in row for row in rows) for item in range(num_items)}
    num_having = int(np.count_nonzero(sizes))
    places = [item for one in lists for item in one]
    raters = [{user for user, row in enumerate(rows) if item in row} for item in range(num_items)]
    within = [
        np.mean([1 - cosine(raters[one], raters[other]) for one, other in combinations(sorted(items), 2)])
        for items in lists
        if len(items) > 1
    ]
    overlaps = [len(one & other) for one, other in combinations(lists, 2)]
    assert found == {
        "users": num_having,
        "lists": len(lists),
        "distinct items": len(set(places)),
        "coverage": pytest.approx(len(set(places)) / num_items),
        "popularity": pytest.approx(np.mean([having[item] / num_having for item in places])),
        "novelty": pytest.approx(np.mean([-np.log2(max(having[item], 1) / num_having) for item in places])),
        "diversity": pytest.approx(1 - np.mean(overlaps) / np.mean([len(one) for one in lists])),
        "most listed": pytest.approx(max(sum(item in one for one in lists) for item in places) / len(lists)),
        "diversity within": pytest.approx(np.mean(within)),
    }


def cosine(one: set[int], other: set[int]) -> float:
    return len(one & other) / np.sqrt(len(one) * len(other)) if one and other else 0.0


def test_the_same_list_for_all_and_a_list_for_each() -> None:
    train = data_of([[0], [0], [0]], 7).by_user()
    same = list_measures(lambda users: np.tile(np.arange(7.0), (len(users), 1)), train, 7, 2, Draws(0))
    assert (same["diversity"], same["most listed"], same["distinct items"]) == (0, 1, 2)
    assert are_alike(same)
    own = np.zeros((3, 7))
    own[[0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]] = 1
    different = list_measures(lambda users: own[users], train, 7, 2, Draws(0))
    assert (different["diversity"], different["most listed"]) == (1, 1 / 3)
    assert not are_alike(different)
    assert are_alike(different | {"most listed": 0.76})
    assert are_alike(different | {"diversity": 0.49})


def test_of_many_users_some_are_drawn_by_the_seed() -> None:
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(200, 30))
    train = data_of([[0]] * 200, 30).by_user()
    seen: list[int] = []

    def score(users):  # type: ignore[no-untyped-def]
        seen.extend(users.tolist())
        return scores[users]

    found = list_measures(score, train, 30, 4, Draws(0), most_scores=50 * 30)
    assert found["lists"] == len(set(seen)) == 50
    assert found["users"] == 200
    items, _ = top_k(scores[sorted(seen)], 4, (np.arange(51), np.zeros(50, np.int32)))
    assert found["distinct items"] == len(np.unique(items))
    assert found == list_measures(score, train, 30, 4, Draws(0), most_scores=50 * 30)
    assert found != list_measures(score, train, 30, 4, Draws(1), most_scores=50 * 30)
    whole = list_measures(score, train, 30, 4, Draws(0))
    assert whole["lists"] == 200
    assert found["diversity"] == pytest.approx(whole["diversity"], abs=0.05)


def test_nobody_to_make_a_list_for() -> None:
    empty = data_of([[], []], 3).by_user()
    with pytest.raises(HushrecError, match="nobody to make a list for"):
        list_measures(lambda users: np.zeros((len(users), 3)), empty, 3, 2, Draws(0))
    full = data_of([[0, 1, 2]], 3).by_user()
    assert list_measures(lambda users: np.zeros((len(users), 3)), full, 3, 2, Draws(0)) == {}
