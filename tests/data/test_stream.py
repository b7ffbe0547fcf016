from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.data import Interactions, latest_share, load, stream_order

Make = Callable[..., Interactions]
UNKNOWN = -1


def test_by_time_over_all_users_and_equal_times_by_user(make: Make) -> None:
    data = make([1, 0, 1, 0], [0, 0, 1, 1], timestamps=[5, 7, 3, 5])
    assert stream_order(data).tolist() == [2, 3, 0, 1]
    assert stream_order(data).dtype == np.int64


def test_missing_times_by_hand(make: Make) -> None:
    """User 0 in its order: rows 3 (unknown), 0 (at 10), 2 (unknown), 1 (at 20); user 1: row 4 (at 10), 5 (at 15).

    Row 3 starts the history and takes the 10 of row 0, row 2 the 10 of the row before it. So at 10 there are 3, 0
    and 2 of user 0, then 4 of user 1; at 15 row 5; at 20 row 1.
    """
    data = make(
        [0, 0, 0, 0, 1, 1],
        [0, 1, 2, 3, 0, 1],
        timestamps=[10, 20, UNKNOWN, UNKNOWN, 10, 15],
        order=[1, 3, 2, 0, 0, 1],
    )
    assert stream_order(data).tolist() == [3, 0, 2, 4, 5, 1]
    assert data.timestamps is not None
    assert data.timestamps.tolist() == [10, 20, UNKNOWN, UNKNOWN, 10, 15]


def test_a_user_without_any_time_comes_first(make: Make) -> None:
    data = make([0, 1, 1], [0, 0, 1], timestamps=[4, UNKNOWN, UNKNOWN], order=[0, 1, 0])
    assert stream_order(data).tolist() == [2, 1, 0]


def test_the_order_of_a_user_rules_over_its_times(make: Make) -> None:
    """Row 1 is second by order though its time is earlier: it waits for row 0, and user 1's event goes before."""
    data = make([0, 0, 1], [0, 1, 0], timestamps=[9, 2, 5], order=[0, 1, 0])
    assert stream_order(data).tolist() == [2, 0, 1]


def test_without_order_unknown_times_follow_the_row_before_in_the_file(make: Make) -> None:
    data = make([0, 0, 1, 0], [0, 1, 0, 2], timestamps=[8, UNKNOWN, 9, 3])
    assert stream_order(data).tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("timestamps", [None, [UNKNOWN] * 4])
def test_without_any_time_the_file_goes_on_as_it_is(make: Make, timestamps: list[int] | None) -> None:
    data = make([1, 0, 1, 0], [3, 0, 1, 2], timestamps=timestamps)
    assert stream_order(data).tolist() == [0, 1, 2, 3]
    ordered = make([1, 0, 1, 0], [3, 0, 1, 2], timestamps=timestamps, order=[1, 0, 0, 1])
    assert stream_order(ordered).tolist() == [1, 2, 0, 3]


def test_no_rows(make: Make) -> None:
    assert stream_order(make([], [], timestamps=[], num_users=2, num_items=2)).tolist() == []


@given(st.data())
def test_equals_the_slow_way(draw: st.DataObject) -> None:
    """Histories walked one by one in Python; a user's events keep their order."""
    users = draw.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
    times = draw.draw(st.lists(st.sampled_from([UNKNOWN, 1, 2, 3]), min_size=len(users), max_size=len(users)))
    order = draw.draw(st.permutations(range(len(users))))
    columns = (np.array(users, np.int32), np.arange(len(users), dtype=np.int32), None, np.array(times, np.int64))
    data = Interactions(
        *columns, np.array(order, np.int32), np.arange(4), np.arange(len(users)), None, None, "made", "", False
    )
    keys = {}
    for user in range(4):
        history = sorted((row for row in range(len(users)) if users[row] == user), key=lambda row: order[row])
        known = [times[row] for row in history if times[row] != UNKNOWN]
        now = known[0] if known else UNKNOWN
        for place, row in enumerate(history):
            now = max(now, times[row])
            keys[row] = (now, user, place)
    if set(times) != {UNKNOWN}:
        assert stream_order(data).tolist() == sorted(keys, key=keys.__getitem__)
    for user in range(4):
        rows = [row for row in stream_order(data).tolist() if users[row] == user]
        assert [order[row] for row in rows] == sorted(order[row] for row in rows)


def test_real_ml_1m(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHREC_DATA", str(real_folder))
    train = latest_share(load("ml-1m"), 0.2).train
    rows = stream_order(train)
    assert len(np.unique(rows)) == len(rows) == len(train) == 800_193
    assert train.order is not None
    assert train.timestamps is not None
    by_user = rows[np.argsort(train.users[rows], kind="stable")]
    is_same = np.diff(train.users[by_user]) == 0
    assert (np.diff(train.order[by_user])[is_same] > 0).all()
    known = train.timestamps[rows]
    assert (np.diff(known[known != UNKNOWN]) >= 0).all()
