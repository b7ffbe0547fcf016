from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.privacy.filling import Listing
from hushrec.protocol import Ragged
from hushrec.systems.fedmf.fixed_sum import FixedSum, num_touched


@dataclass(frozen=True)
class Upload:
    places: Ragged
    blocks: Ragged


def upload(places: list[int], rows: np.ndarray) -> Upload:
    starts = np.array([0, len(places)])
    as_bytes = np.ascontiguousarray(rows, "<i4").view(np.uint8)
    return Upload(Ragged(starts, np.array(places, np.int32)), Ragged(starts, as_bytes))


ONE = np.zeros(1, np.int32)


def test_rows_add_up_where_they_belong() -> None:
    total = FixedSum(np.zeros((4, 2), np.int64))
    fork = total.fork()
    total.add(ONE, upload([1, 3], np.array([[2**31 - 1, -5], [7, -(2**31)]])))
    fork.add(ONE, upload([3, 1], np.array([[1, -1], [2**31 - 1, 0]])))
    total.merge(fork)
    assert total.totals.tolist() == [[0, 0], [2**32 - 2, -5], [0, 0], [8, -(2**31) - 1]]


def test_garbage_is_refused() -> None:
    total = FixedSum(np.zeros((4, 2), np.int64))
    with pytest.raises(HushrecError, match="rows do not have 8 bytes each"):
        total.add(ONE, upload([1], np.zeros((1, 3))))
    for place in (4, -1):
        with pytest.raises(HushrecError, match="a row that is not of the catalogue"):
            total.add(ONE, upload([place], np.zeros((1, 2))))


@pytest.mark.parametrize(("num_factors", "slots"), [(1, 4), (3, 4), (4, 4), (7, 4), (2, 64)])
def test_touched_blocks_are_counted(num_factors: int, slots: int) -> None:
    draws = np.random.default_rng(0)
    lists = [np.sort(draws.choice(40, size, replace=False)) for size in (0, 1, 0, 5, 40, 12, 0)]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    items = np.concatenate(lists).astype(np.int32)
    expected = [
        len({(int(item) * num_factors + k) // slots for item in one for k in range(num_factors)}) for one in lists
    ]
    listing = Listing(starts, items, np.zeros(len(items), np.int32))
    assert num_touched(listing, num_factors, slots).tolist() == expected
