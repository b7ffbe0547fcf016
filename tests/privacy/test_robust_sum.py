"""Robust sums against NumPy, row by row; liars within their number cannot move an item beyond its honest rows."""

from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.errors import HushrecError, OutOfRangeError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.dense_sum import DenseSum
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.robust_sum import (
    BoundedSum,
    RobustSum,
    add_up,
    lengths_of,
    robust_fold,
    shortened,
)
from hushrec.protocol import Ragged
from hushrec.registry import SYSTEMS

NUM_ITEMS, NUM_FACTORS = 7, 3


@dataclass
class Upload:
    items: Ragged
    gradients: Ragged


def of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def uploads(num_clients: int = 12, seed: int = 0) -> list[Upload]:
    """Item i is listed by the first so many clients; item 6 by nobody."""
    draws, made = np.random.default_rng(seed), []
    raters = [num_clients, 1, 2, 3, 5, 8, 0]
    for client in range(num_clients):
        items = np.flatnonzero(np.array(raters) > client).astype(np.int32)
        rows = draws.normal(size=(len(items), NUM_FACTORS)).astype(np.float32)
        made.append(Upload(Ragged.one(items), Ragged.one(rows)))
    return made


def robust(how: str, liars: int, sent: list[Upload], order: np.ndarray | None = None) -> ExactSum:
    total = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 100)
    fold = RobustSum(total, how, liars, 0.0)
    halves = fold.fork(), fold.fork()
    for client in (np.arange(len(sent)) if order is None else order).tolist():
        halves[client % 2].add(of(client), sent[client])
    for half in halves:
        fold.merge(half)
    add_up(fold)
    return total


def rows_of(item: int, sent: list[Upload]) -> np.ndarray:
    return np.array(
        [one.gradients.values[one.items.values == item][0] for one in sent if item in one.items.values]
    )


def trimmed(rows: np.ndarray, liars: int) -> np.ndarray:
    return np.sort(rows, axis=0)[liars : len(rows) - liars].astype(np.float64).mean(axis=0)


def median(rows: np.ndarray, _liars: int) -> np.ndarray:
    return np.median(rows.astype(np.float64), axis=0)


def krum(rows: np.ndarray, liars: int) -> np.ndarray:
    apart = ((rows[:, None].astype(np.float64) - rows[None]) ** 2).sum(axis=2)
    scores = np.sort(apart, axis=1)[:, 1 : len(rows) - liars - 1].sum(axis=1)
    return rows[np.argsort(scores)[: len(rows) - liars]].astype(np.float64).mean(axis=0)


WAYS = {"trimmed": (trimmed, 1), "median": (median, 1), "krum": (krum, 3)}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("liars", [1, 2, 3])
def test_each_item_moves_by_what_numpy_says(how: str, liars: int) -> None:
    """And one with too few rows not at all."""
    sent, (by_numpy, more) = uploads(), WAYS[how]
    total = robust(how, liars, sent)
    for item in range(NUM_ITEMS):
        num_rows = sum(item in one.items.values for one in sent)
        if num_rows < 2 * liars + more:
            assert total.counts[item] == 0
            assert not total.totals[item].any()
            continue
        assert total.counts[item] == num_rows
        np.testing.assert_allclose(total.mean()[item], by_numpy(rows_of(item, sent), liars), atol=1e-6)


def test_by_hand() -> None:
    """Rows 0, 1, 2, 3, 100: without an end each 2, the middle 2. Krum with one liar: sums of squares to the two

    nearest are 5, 2, 2, 5 and far more, so 100 is left out: the mean of the others is 1.5.
    """
    sent = [Upload(Ragged.one(of(0)), Ragged.one(np.full((1, 3), row, np.float32))) for row in (0, 1, 2, 3, 100)]
    expected = {"trimmed": 2.0, "median": 2.0, "krum": 1.5}
    for how, mean in expected.items():
        assert robust(how, 1, sent).mean()[0].tolist() == [mean] * 3


@pytest.mark.parametrize("how", WAYS)
def test_the_order_of_arrival_does_not_matter(how: str) -> None:
    sent = uploads()
    expected = robust(how, 1, sent)
    for seed in range(3):
        other = robust(how, 1, sent, np.random.default_rng(seed).permutation(len(sent)))
        np.testing.assert_array_equal(other.totals, expected.totals)


@pytest.mark.parametrize("how", ["trimmed", "median"])
def test_liars_stay_within_what_honest_rows_say(how: str) -> None:
    """Two of twelve send as much as is accepted, in any direction."""
    sent = uploads()
    honest = rows_of(0, sent[2:])
    for sign in (1, -1):
        for liar in sent[:2]:
            liar.gradients.values[:] = sign * 2000
        mean = robust(how, 2, sent).mean()[0]
        assert (honest.min(axis=0) <= mean).all()
        assert (mean <= honest.max(axis=0)).all()


@pytest.mark.parametrize("how", WAYS)
def test_the_largest_rows_do_not_wrap(how: str) -> None:
    total = ExactSum.zeros((1, 1), 5000)
    fold, starts = RobustSum(total, how, 1, 0.0), np.arange(5001)
    if how == "krum":  # whose pairs are many
        starts = starts[:201]
    num = len(starts) - 1
    rows = np.full((num, 1), total.limit, np.float32)
    fold.add(np.arange(num, dtype=np.int32), Upload(Ragged(starts, np.zeros(num, np.int32)), Ragged(starts, rows)))
    add_up(fold)
    assert total.totals.tolist() == [[num * int(total.limit * 2**FRACTION_BITS)]]


def test_tables_of_all_items() -> None:
    """Of each number the middle of three."""
    total = DenseSum.zeros((2, 2), 3)
    fold = RobustSum(total, "median", 1, 0.0)
    rows = np.array([[1, 9], [0, 0], [2, 8], [5, 5], [3, 7], [9, 1]], np.float32)
    fold.add(of(0, 1, 2), Upload(Ragged.one(of()), Ragged(np.array([0, 2, 4, 6]), rows)))
    add_up(fold)
    assert total.to_float().tolist() == [[6, 24], [15, 3]]
    with pytest.raises(HushrecError, match="not a table of 2 x 2 numbers"):
        fold.add(of(0), Upload(Ragged.one(of()), Ragged.one(rows[:1])))


# --- Length ------------------------------------------------------------------------------------------------------


def test_rows_are_shortened_by_hand() -> None:
    """(3, 4) has length 5; of length 1 it is (.6, .8). What is shorter stays, and 0 is no bound."""
    rows = np.array([[3, 4], [0.3, 0.4], [0, 0]], np.float32)
    np.testing.assert_allclose(shortened(rows, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6)
    assert shortened(rows, 0.0) is rows
    assert (lengths_of(shortened(1e30 * rows, 2.0)) <= 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("how", ["none", "median"])
def test_a_row_beyond_the_bound_is_its_senders_fault(how: str) -> None:
    fold = robust_fold(
        ExactSum.zeros((NUM_ITEMS, 2), 9), SYSTEMS["fedrec"].configure({"robust": how, "row_norm": 1.0})
    )
    starts = np.array([0, 1, 1, 2])
    rows = np.array([[0.6, 0.8], [0.61, 0.8]], np.float32)
    with pytest.raises(OutOfRangeError, match=r"^client 9 sent a row longer than 1; leave it out"):
        fold.add(of(7, 8, 9), Upload(Ragged(starts, of(1, 1)), Ragged(starts, rows)))
    fold.add(of(7), Upload(Ragged.one(of(1)), Ragged.one(rows[:1])))


def test_a_server_that_sees_sums_only_checks_nothing() -> None:
    total = ExactSum.zeros((NUM_ITEMS, 2), 9)
    assert robust_fold(total, SYSTEMS["fedrec"].configure({"row_norm": 1.0, "secure_sums": True})) is total
    assert isinstance(robust_fold(total, SYSTEMS["fedrec"].configure({"row_norm": 1.0})), BoundedSum)


@pytest.mark.parametrize("name", ["fedrec", "sdcf", "fcf"])
def test_sums_in_secret_have_no_rows_to_compare(name: str) -> None:
    with pytest.raises(HushrecError, match=r"robust='median' compares rows .*row_norm=, which clients keep to"):
        SYSTEMS[name].configure({"robust": "median", "secure_sums": True})


def test_fcf_compares_no_pairs() -> None:
    with pytest.raises(HushrecError, match="use robust='median'"):
        SYSTEMS["fcf"].configure({"robust": "krum"})
