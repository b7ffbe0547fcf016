from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FIXED_LIMIT, FRACTION_BITS
from hushrec.privacy.exact_sum import SUM_RANGE, ExactSum, row_limit
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
clients = st.lists(
    st.tuples(st.integers(0, NUM_ITEMS - 1), rows), max_size=4, unique_by=lambda entry: entry[0]
).map(sorted)


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
    assert total.mean(num_zeros=2).tolist() == [[0.75], [-0.25 / 3], [0.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2048.0, -2048.0, 2049.0, 3e38])
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
    assert total.limit == row_limit(num_summands) < FIXED_LIMIT
    assert total.limit * num_summands < SUM_RANGE
    inside = upload([(0, [0.999 * total.limit])])
    total.add(numbers(inside), inside)
    outside = upload([(0, [1.001 * total.limit])])
    with pytest.raises(DivergedError):
        total.add(numbers(outside), outside)


@pytest.mark.parametrize(
    ("num_summands", "limit"),
    [
        (0, 2048 - 2.0**-13),
        (1, 2048 - 2.0**-13),
        (4096, 2048 - 2.0**-13),
        (4097, 2047.5),
        (8192, 1024 - 2.0**-14),
        (2**23, 1 - 2.0**-24),
    ],
)
def test_limit_by_hand(num_summands: int, limit: float) -> None:
    """2^23 / n, up to 2048, less one step of float32: 2^-13 below 2048, 2^-14 below 1024, 2^-24 below 1.

    2^23 / 4097 = 2047.5 + 1/8194 is rounded up to 2047.5 + 2^-13; one step down is 2047.5.
    """
    assert row_limit(num_summands) == limit


def ends_of(num_summands: int) -> tuple[float, float]:
    """The largest number that is taken, and the float32 after it, which is not."""
    limit = np.float32(row_limit(num_summands))
    assert float(limit) == row_limit(num_summands)
    return float(limit), float(np.nextafter(limit, np.float32(np.inf)))


@pytest.mark.parametrize("num_summands", [4095, 4096, 4097, 4099, 8192, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_as_many_rows_as_announced_of_the_largest_size_do_not_wrap(num_summands: int, sign: int) -> None:
    """Their sum is right to the last bit and, if there are 4096 or more, close to the most that 64 bits hold."""
    largest, _ = ends_of(num_summands)
    total = ExactSum.zeros((1, 1), num_summands)
    message = upload(*[[(0, [sign * largest])]] * num_summands)
    total.add(numbers(message), message)
    assert total.totals.tolist() == [[sign * num_summands * to_fixed(largest)]]
    assert total.counts.tolist() == [num_summands]
    assert num_summands < 4096 or num_summands * largest > SUM_RANGE * (1 - 2.0**-21)


@pytest.mark.parametrize("num_summands", [1, 4096, 4097, 4099, 8192, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_step_above_the_limit_is_refused(num_summands: int, sign: int) -> None:
    _, too_large = ends_of(num_summands)
    message = upload([(0, [0.0])], [(0, [sign * too_large])])
    with pytest.raises(DivergedError, match=r"update of client 7 is not finite or not within ±"):
        ExactSum.zeros((1, 1), num_summands).add(numbers(message, 6), message)


def test_limit_is_not_rounded_up() -> None:
    """Whatever the quotient rounds to, as many rows as announced stay inside, by less than three half steps."""
    rounded_up = 0
    for num_summands in range(1, 20_000):
        quotient = min(Fraction(2**11), Fraction(2**23, num_summands))
        rounded_up += Fraction(float(np.float32(float(quotient)))) > quotient
        limit = Fraction(row_limit(num_summands))
        assert limit < quotient
        assert limit > quotient * (1 - Fraction(3, 2**23) / 2)
    assert rounded_up > 1000


# --- Messages that do not fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [NUM_ITEMS, -1, -NUM_ITEMS, 2**31 - 1, -(2**31)])
def test_items_outside_the_catalogue_are_refused_with_their_senders_name(item: int) -> None:
    """Clients 40, 41 (with no row) and 42, whose second item it is."""
    message = upload([(NUM_ITEMS - 1, [1.0] * 3)], [], [(0, [1.0] * 3), (item, [1.0] * 3)])
    total = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4)
    with pytest.raises(HushrecError, match=r"^client 42 lists an item that is not in the catalogue") as refused:
        total.add(numbers(message, 40), message)
    assert not isinstance(refused.value, DivergedError)  # another learning rate would not help


@pytest.mark.parametrize("items", [(2, 2), (1, 0), (0, 3, 3), (0, 1, 2, 1)])
def test_an_item_that_one_client_lists_twice_is_refused_with_its_name(items: tuple[int, ...]) -> None:
    """Client 41 lists it; 40 and 42 list the same items in order."""
    others = [(item, [1.0] * 3) for item in sorted(set(items))]
    message = upload(others, [(item, [1.0] * 3) for item in items], others)
    with pytest.raises(HushrecError, match=r"^client 41 lists items twice or not in ascending order"):
        ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4).add(numbers(message, 40), message)


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ((0, [np.nan] * 3), (NUM_ITEMS, [1.0] * 3), "update of client 40 is not finite"),
        ((NUM_ITEMS, [1.0] * 3), (0, [np.nan] * 3), "client 40 lists an item"),
        ((NUM_ITEMS, [np.nan] * 3), (0, [1.0] * 3), "client 40 lists an item"),
    ],
)
def test_the_first_of_two_faults_is_named(
    first: tuple[int, list[float]], second: tuple[int, list[float]], error: str
) -> None:
    message = upload([first], [second])
    with pytest.raises(HushrecError, match=error):
        ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4).add(numbers(message, 40), message)


@pytest.mark.parametrize("num_items", [0, 1, 3])
@pytest.mark.parametrize("shape", [(2, 3), (4, 3), (3, 2), (3, 4), (3, 0), (3,), (3, 3, 1)])
def test_gradients_of_another_shape_are_refused(num_items: int, shape: tuple[int, ...]) -> None:
    """Not one row of 3 numbers per listed item. Nothing of it is added."""
    starts = np.array([0, num_items])
    message = Upload(
        Ragged(starts, np.arange(num_items, dtype=np.int32)), Ragged(starts, np.ones(shape, np.float32))
    )
    total = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4)
    with pytest.raises(HushrecError, match=rf"gradients of shape .* came, not \({num_items}, 3\)"):
        total.add(numbers(message), message)
    assert not total.totals.any()
    assert not total.counts.any()


def test_a_message_without_rows_adds_nothing() -> None:
    starts = np.zeros(3, np.int64)
    message = Upload(Ragged(starts, np.empty(0, np.int32)), Ragged(starts, np.empty((0, 3), np.float32)))
    total = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 4)
    total.add(numbers(message), message)
    assert not total.counts.any()


# --- Words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "count", "is_taken"),
    [
        (2.0, 1, True), (2047.9, 1, True), (-2047.9, 1, True), (2048.5, 1, False), (-4096.5, 2, False),
        (0.0, 4097, False), (1e-9, 0, False), (0.0, 4096, True),
    ],
)  # fmt: skip
def test_words_that_are_no_sum_of_so_many_rows_are_refused(number: float, count: int, is_taken: bool) -> None:
    """Masks that do not cancel leave such words, and so does a client that sends more than a row."""
    words = np.array([to_fixed(number), 0, 0, count])
    total = ExactSum.zeros((1, NUM_FACTORS), 3)
    if is_taken:
        total.add_words(words)
        assert total.counts.tolist() == [count]
        return
    with pytest.raises(HushrecError, match="a sum is larger than its rows can be"):
        total.add_words(words)


def test_noise_may_be_larger_than_rows() -> None:
    total = ExactSum.zeros((1, NUM_FACTORS), 3)
    total.deviation = 1.0
    total.add_words(np.array([to_fixed(5.0), 0, 0, 0]))
    assert total.to_float().tolist() == [[5.0, 0.0, 0.0]]
