from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from hushrec.errors import DivergedError, HushrecError
from hushrec.privacy.dense_sum import DenseSum
from hushrec.protocol import Ragged


@dataclass(frozen=True)
class Upload:
    gradients: Ragged


def upload(tables: np.ndarray) -> Upload:
    num_parties, num_items, num_factors = tables.shape
    starts = np.arange(num_parties + 1, dtype=np.int64) * num_items
    return Upload(Ragged(starts, tables.reshape(-1, num_factors)))


def some_tables(num_parties: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(num_parties, 4, 5)).astype(np.float32)


def numbers(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.int32)


def test_sum_is_that_of_fractions_to_40_bits() -> None:
    total, tables = DenseSum.zeros((4, 5), num_summands=6), some_tables()
    total.add(numbers(6), upload(tables))
    for item in range(4):
        for factor in range(5):
            exact = sum(round(Fraction(float(one)) * 2**40) for one in tables[:, item, factor])
            assert total.totals[item, factor] == exact
    np.testing.assert_allclose(total.to_float(), tables.sum(axis=0), rtol=1e-5, atol=1e-6)


def test_order_and_forks_do_not_matter() -> None:
    tables = some_tables()
    whole = DenseSum.zeros((4, 5), 6)
    whole.add(numbers(6), upload(tables))
    here = DenseSum.zeros((4, 5), 6)
    fork = here.fork()
    fork.add(numbers(2, 4), upload(tables[4:]))
    here.add(numbers(4), upload(tables[:4]))
    here.merge(fork)
    np.testing.assert_array_equal(here.totals, whole.totals)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e7])
def test_what_cannot_be_summed_is_refused_with_its_sender(bad: float) -> None:
    tables = some_tables()
    tables[3, 1, 2] = bad
    with pytest.raises(DivergedError, match="the update of client 13 is not finite or not within"):
        DenseSum.zeros((4, 5), 6).add(numbers(6, 10), upload(tables))


def test_an_upload_that_is_no_table_is_refused() -> None:
    for shape in ((6, 3, 5), (6, 4, 4)):
        with pytest.raises(HushrecError, match="an upload is not a table of 4 x 5 numbers; leave it out"):
            DenseSum.zeros((4, 5), 6).add(numbers(6), upload(np.zeros(shape, np.float32)))
    uneven = Upload(Ragged(np.array([0, 3, 8]), np.zeros((8, 5), np.float32)))
    with pytest.raises(HushrecError, match="an upload is not a table"):
        DenseSum.zeros((4, 5), 6).add(numbers(2), uneven)
