"""How unlike the items of a list are: by hand, at the edges, and against a sparse product of SciPy."""

import numpy as np
import pytest
from scipy import sparse

from hushrec.data import Interactions
from hushrec.evaluation.within_lists import diversity_within


def data_of(rows: list[list[int]], num_items: int) -> Interactions:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows]).astype(np.int32)
    items = np.array([item for row in rows for item in row], np.int32)
    return Interactions(
        users, items, None, None, None, np.arange(len(rows)), np.arange(num_items), None, None, "made", "", True
    )


def test_by_hand() -> None:
    """Users have 0 1 2, 0 1, 0 3 and 4. So 0 has three users, 1 two, 2, 3 and 4 one each, 5 nobody.

    The list 0 1 2: cosines 2 / sqrt(3 * 2), 1 / sqrt(3) and 1 / sqrt(2). The list 3 4: nobody has both. The list
    0 5: nobody has 5. The list of 2 alone has no pair.
    """
    train = data_of([[0, 1, 2], [0, 1], [0, 3], [4], []], 6).by_user()
    lists = np.array([[2, 0, 1], [4, 3, -1], [0, 5, -1], [2, -1, -1], [-1, -1, -1]], np.int32)
    first = 1 - (2 / np.sqrt(6) + 1 / np.sqrt(3) + 1 / np.sqrt(2)) / 3
    assert diversity_within(lists[:1], train, 6) == pytest.approx(first)
    assert diversity_within(lists, train, 6) == pytest.approx((first + 1 + 1) / 3)


def test_items_of_the_same_people_are_the_same() -> None:
    train = data_of([[0, 1, 2], [0, 1, 2], [3]], 4).by_user()
    assert diversity_within(np.array([[2, 0, 1]], np.int32), train, 4) == pytest.approx(0, abs=1e-12)


def test_without_a_pair_there_is_none() -> None:
    train = data_of([[0], [1]], 3).by_user()
    assert diversity_within(np.array([[2], [0]], np.int32), train, 3) is None
    assert diversity_within(np.full((2, 3), -1, np.int32), train, 3) is None


def test_as_by_a_sparse_product() -> None:
    """300 users, 80 items of which 50 are ever listed, lists of 7 in which some places are empty."""
    draws = np.random.default_rng(3)
    has = draws.random((300, 80)) < draws.random(80) ** 2
    train = data_of([np.flatnonzero(row).tolist() for row in has], 80).by_user()
    lists = np.array([draws.choice(50, 7, replace=False) for _ in range(300)], np.int32)
    lists[draws.random(lists.shape) < 0.1] = -1
    columns = sparse.csr_array(has.astype(float))
    together = (columns.T @ columns).toarray()
    lengths = np.sqrt(np.maximum(np.diag(together), 1))
    cosines = together / np.outer(lengths, lengths)
    expected = []
    for one in lists:
        own = one[one >= 0]
        upper = np.triu_indices(len(own), 1)
        expected.append(1 - cosines[np.ix_(own, own)][upper].mean())
    assert diversity_within(lists, train, 80) == pytest.approx(np.mean(expected), rel=1e-12)
