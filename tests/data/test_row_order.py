import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.data.row_order import canonical_order, count_starts, is_canonical

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=60)


@settings(deadline=None)
@given(pairs)
def test_canonical_order_is_the_stable_sort_of_the_pairs(rows: list[tuple[int, int]]) -> None:
    users = np.array([user for user, _ in rows], np.int32)
    items = np.array([item for _, item in rows], np.int32)
    expected = sorted(range(len(rows)), key=rows.__getitem__)
    order = canonical_order(users, items, 7, 9)
    assert order.rows.tolist() == expected
    assert order.items.tolist() == [rows[row][1] for row in expected]


@settings(deadline=None)
@given(pairs)
def test_is_canonical_means_strictly_rising_pairs(rows: list[tuple[int, int]]) -> None:
    users = np.array([user for user, _ in rows], np.int32)
    items = np.array([item for _, item in rows], np.int32)
    assert is_canonical(users, items) == (rows == sorted(set(rows)))


def test_count_starts() -> None:
    assert count_starts(np.array([2, 0, 2, 2], np.int32), 4).tolist() == [0, 1, 1, 4, 4]
