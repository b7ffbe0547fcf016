from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.kernels.rows import FIXED_LIMIT, FRACTION_BITS
from hushrec.privacy.exact_sum import SUM_RANGE, DivergedError, ExactSum
from hushrec.protocol import Ragged

NUM_ITEMS, NUM_FACTORS = 5, 3


@dataclass
class Upload:
    items: Ragged
    gradients: Ragged


def upload(*clients: list[tuple[int, list[float]]]) -> Upload:
    """One client per argument, each a list of (item, row)."""
    starts = np.concatenate([[0], np.cumsum([len(client) for client in clients])]).astype(np.int64)
    items = np.array([item for client in clients for item, _ in client], np.int32)
    rows = np.array([row for client in clients for _, row in client], np.float32)
    return Upload(Ragged(starts, items), Ragged(starts, rows))


def numbers(message: Upload, first: int = 0) -> np.ndarray:
    return np.arange(first, first + len(message.items), dtype=np.int32)


rows = st.lists(st.floats(-2000, 2000, width=32), min_size=NUM_FACTORS, max_size=NUM_FACTORS)
clients = st.lists(st.tuples(st.integers(0, NUM_ITEMS - 1), rows), max_size=4)


def to_fixed(number: float) -> int:
    return round(Fraction(number) * 2**FRACTION_BITS)


def python_sums(held: list[list[tuple[int, list[float]]]]) -> tuple[list[list[int]], list[int]]:
    totals = [[0] * NUM_FACTORS for _ in range(NUM_ITEMS)]
    counts = [0] * NUM_ITEMS
    for client in held:
        for item, row in client:
            counts[item] += 1
            totals[item] = [total + to_fixed(number) for total, number in zip(totals[item], row, strict=True)]
    return totals, counts


@given(held=st.lists(clients, min_size=1, max_size=6), data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_order_and_any_split_give_python_integers(
    held: list[list[tuple[int, list[float]]]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(held))))
    fork_of = data.draw(st.lists(st.integers(0, 2), min_size=len(held), max_size=len(held)))
    total = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), num_summands=24)
    folds = [total, total.fork(), total.fork()]
    for client in order:
        if held[client]:
            message = upload(held[client])
            folds[fork_of[client]].add(np.array([client], np.int32), message)
    for place in data.draw(st.permutations([1, 2])):
        total.merge(folds[place])
    assert (total.totals.tolist(), total.counts.tolist()) == python_sums(held)


@given(kept=clients.filter(bool), removed=clients.filter(bool))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_what_was_added_is_subtracted_exactly(
    kept: list[tuple[int, list[float]]], removed: list[tuple[int, list[float]]]
) -> None:
    expected, both = (ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 8) for _ in range(2))
    expected.add(np.array([0], np.int32), upload(kept))
    noise = both.fork()
    noise.add(np.array([1], np.int32), upload(removed))
    both.add(np.array([0, 1], np.int32), upload(kept, removed))
    both.subtract(noise)
    np.testing.assert_array_equal(both.totals, expected.totals)
    np.testing.assert_array_equal(both.counts, expected.counts)


def test_mean_and_to_float_by_hand() -> None:
    """Item 0 gets 1 and 2: total 3, mean 1.5. Item 1 gets -0.25 once. Item 2 gets nothing: mean 0, not NaN."""
    total = ExactSum.zeros((3, 1), 2)
    message = upload([(0, [1.0]), (1, [-0.25])], [(0, [2.0])])
    total.add(numbers(message), message)
    assert total.to_float().tolist() == [[3.0], [-0.25], [0.0]]
    assert total.mean().tolist() == [[1.5], [-0.25], [0.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2049.0, -2049.0, 3e38])
def test_refusal_names_the_sender(bad: float) -> None:
    """Clients 40, 41 (with no row), 42, 43: the bad number is in one of 42's three rows, and in 43's row too."""
    for place in range(3):
        rows = [(item, [0.0, bad, 0.0] if item == place else [1.0] * 3) for item in range(3)]
        message = upload([(0, [1.0] * 3)], [], rows, [(0, [bad] * 3)])
        with pytest.raises(DivergedError, match="update of client 42 is not finite or not within ±2048"):
            ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4).add(numbers(message, 40), message)


@pytest.mark.parametrize("num_summands", [0, 1, 4000, 5000, 1_000_000])
def test_limit_shrinks_with_the_number_of_summands(num_summands: int) -> None:
    """A row just below the limit is accepted, one just above it is not, and the rows together stay in range."""
    total = ExactSum.zeros((1, 1), num_summands)
    assert total.limit <= FIXED_LIMIT
    assert total.limit * num_summands <= SUM_RANGE
    inside = upload([(0, [0.999 * total.limit])])
    total.add(numbers(inside), inside)
    outside = upload([(0, [1.001 * total.limit])])
    with pytest.raises(DivergedError):
        total.add(numbers(outside), outside)


def test_largest_sum_below_the_range() -> None:
    """4095 rows of 2048 are 2^23 less 2048: the sum is right to the last bit."""
    total = ExactSum.zeros((1, 1), 4095)
    message = upload([(0, [2048.0])] * 4095)
    total.add(numbers(message), message)
    assert total.totals.tolist() == [[4095 * 2**51]]


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="the limit is inclusive: 4096 rows of exactly 2048 are 2^63 in fixed point, one more than int64 holds",
)
@pytest.mark.parametrize("num_summands", [4096, 8192])
def test_rows_at_the_limit_do_not_wrap(num_summands: int) -> None:
    total = ExactSum.zeros((1, 1), num_summands)
    message = upload([(0, [total.limit])] * num_summands)
    try:
        total.add(numbers(message), message)
    except DivergedError:
        return
    assert total.to_float()[0, 0] > 0


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="the limit is rounded to float32, here upwards, so the sum can leave the range",
)
def test_limit_is_not_rounded_up() -> None:
    num_summands = next(
        size for size in range(4097, 9000) if float(np.float32(SUM_RANGE / size)) * size >= SUM_RANGE
    )
    total = ExactSum.zeros((1, 1), num_summands)
    message = upload([(0, [float(np.float32(total.limit))])] * num_summands)
    try:
        total.add(numbers(message), message)
    except DivergedError:
        return
    assert total.to_float()[0, 0] > 0
