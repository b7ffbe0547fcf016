import numpy as np

from hushrec.data import OwnerRows
from hushrec.draws import Draws
from hushrec.systems.drift.prepared_rows import with_unseen


def test_unseen_items_come_before_good_events_by_hand() -> None:
    """Four items. User 0 meets 0, 1 and 2, so that only item 3 can be drawn; user 1 meets all, so that none can.

    Before each good event (0 and 2 of user 0) comes a bad one about item 3; with two for each, two.
    """
    users, items = np.array([0, 1, 0, 1, 1, 0, 1], np.int32), np.array([0, 0, 1, 1, 2, 2, 3], np.int32)
    is_positive = np.array([1, 1, 0, 1, 1, 1, 1], bool)
    rows = OwnerRows((), np.array([0]), np.empty(0, np.int32), True, users, items, is_positive, 2)
    found = with_unseen(rows, 1, 4, Draws(0))
    assert found.users.tolist() == [0, 0, 1, 0, 1, 1, 0, 0, 1]
    assert found.items.tolist() == [3, 0, 0, 1, 1, 2, 3, 2, 3]
    assert found.is_positive.tolist() == [False, True, True, False, True, True, False, True, True]
    assert with_unseen(rows, 2, 4, Draws(0)).items.tolist() == [3, 3, 0, 0, 1, 1, 2, 3, 3, 2, 3]
    assert with_unseen(rows, 0, 4, Draws(0)) is rows
    wide = [with_unseen(rows, 1, 1000, Draws(seed)).items.tolist() for seed in (0, 0, 1)]
    assert wide[0] == wide[1] != wide[2]
