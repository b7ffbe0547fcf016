"""Gradients of a batch, what of them is shared, and moves that are the same at all partners."""

from typing import Any

import numpy as np
import pytest

from hushrec.errors import DivergedError, HushrecError
from hushrec.systems.fedcore.co_training import Sums, move_layers, move_own, pmf_gradients, shared_rows

UNIT = 2.0**-40  # of the fixed point in which gradients are summed


def rows_of(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def numbers_of(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


# --- Gradients ---------------------------------------------------------------------------------------------


def gradients(
    user_factors: np.ndarray, item_factors: np.ndarray, triples: list[tuple[int, int, float]], places: list[int],
    regularization: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    users, items = (numbers_of(*(triple[column] for triple in triples)) for column in (0, 1))
    ratings = np.array([rating for _, _, rating in triples], np.float32)
    user_rows, item_rows = np.full((2, len(places), user_factors.shape[1]), np.nan, np.float32)
    batch = np.array(places, np.int64)
    pmf_gradients(user_factors, item_factors, users, items, ratings, batch, regularization, user_rows, item_rows)
    return user_rows, item_rows


def test_hand_worked_gradients() -> None:
    """U = ((1, 2), (0, 1)), V = ((3, 1), (2, -1)); the batch is ratings 2 and 0 of three, B = 2, so 2/B = 1.

    Rating 2, r(1, 1) = 1: e = -1 - 1 = -2, rows -2 V_1 = (-4, 2) and -2 U_1 = (0, -2).
    Rating 0, r(0, 0) = 4: e = 5 - 4 = 1, rows V_0 = (3, 1) and U_0 = (1, 2).
    With alpha = 1/2 there is half of the own vector more.
    """
    user_factors, item_factors = rows_of([1, 2], [0, 1]), rows_of([3, 1], [2, -1])
    triples = [(0, 0, 4.0), (0, 1, 5.0), (1, 1, 1.0)]
    user_rows, item_rows = gradients(user_factors, item_factors, triples, [2, 0])
    assert user_rows.tolist() == [[-4, 2], [3, 1]]
    assert item_rows.tolist() == [[0, -2], [1, 2]]
    user_rows, item_rows = gradients(user_factors, item_factors, triples, [2, 0], 0.5)
    assert user_rows.tolist() == [[-4, 2.5], [3.5, 2]]
    assert item_rows.tolist() == [[1, -2.5], [2.5, 2.5]]


@pytest.mark.parametrize("num_factors", [1, 5, 20])
def test_gradients_are_those_of_autograd(num_factors: int) -> None:
    """Of the mean over the batch of (U_u V_i - r)^2 + alpha (|U_u|^2 + |V_i|^2), summed by user and by item."""
    torch = pytest.importorskip("torch")
    rng, alpha = np.random.default_rng(num_factors), 0.1
    user_factors, item_factors = (rng.normal(size=(size, num_factors)).astype(np.float32) for size in (6, 9))
    triples = [(int(rng.integers(6)), int(rng.integers(9)), float(rng.integers(1, 6))) for _ in range(40)]
    places = rng.permutation(40)[:25].tolist()
    user_rows, item_rows = gradients(user_factors, item_factors, triples, places, alpha)
    tables = [torch.tensor(table.astype(np.float64), requires_grad=True) for table in (user_factors, item_factors)]
    users, items, ratings = (torch.tensor([triples[place][column] for place in places]) for column in (0, 1, 2))
    of_users, of_items = tables[0][users], tables[1][items]
    errors = (of_users * of_items).sum(dim=1) - ratings.double()
    norms = (of_users**2).sum(dim=1) + (of_items**2).sum(dim=1)
    (errors**2 + alpha * norms).mean().backward()
    for table, rows, owners in zip(tables, (user_rows, item_rows), (users, items), strict=True):
        summed = np.zeros(tuple(table.shape))
        np.add.at(summed, owners.numpy(), rows)
        np.testing.assert_allclose(summed, table.grad.numpy(), atol=2e-6, rtol=1e-5)


# --- What is shared ----------------------------------------------------------------------------------------


OWNERS = numbers_of(3, 1, 0, 3, 2, 3, 1)  # of seven ratings
COMMON = numbers_of(-1, 7, -1, 4)  # users 1 and 3 are common, as numbers 7 and 4
PLACES = np.array([6, 2, 0, 3, 5], np.int64)  # the batch: users 1, 0, 3, 3, 3
ROWS = rows_of([1, 2], [9, 9], [3, 0], [0, 6], [3, 3])


def shared(is_averaged: bool, places: np.ndarray = PLACES, rows: np.ndarray = ROWS) -> tuple[Any, Any]:
    slots, numbers, out = np.full(4, -1, np.int32), np.zeros((len(rows), 2), np.int32), np.zeros_like(rows)
    count = shared_rows(OWNERS, places, rows, COMMON, is_averaged, slots, numbers, out)
    assert slots.tolist() == [-1] * 4, "scratch is left as it was"
    return numbers[:count, 0].tolist(), out[:count].tolist()


def test_of_common_users_there_is_a_row_per_rating_in_the_order_of_the_batch() -> None:
    assert shared(False) == ([7, 4, 4, 4], [[1, 2], [3, 0], [0, 6], [3, 3]])


def test_averaged_there_is_one_row_per_common_user() -> None:
    """User 3: ((3, 0) + (0, 6) + (3, 3)) / 3 = (2, 3). User 0 is nobody else's and stays at home."""
    assert shared(True) == ([7, 4], [[1, 2], [2, 3]])


def test_a_batch_without_common_users_shares_nothing() -> None:
    places = np.array([2, 4], np.int64)
    for is_averaged in (False, True):
        assert shared(is_averaged, places, ROWS[:2]) == ([], [])
    assert shared(True, places[:0], ROWS[:0]) == ([], [])


def test_vectors_of_ones_own_move_by_their_rows_and_common_ones_do_not() -> None:
    vectors = np.zeros((4, 2), np.float32)
    places, rows = np.array([2, 4, 2, 6], np.int64), rows_of([1, 2], [4, 0], [3, -1], [5, 5])
    move_own(vectors, OWNERS, places, rows, COMMON, 0.5)
    assert vectors.tolist() == [[-2, -0.5], [0, 0], [-2, 0], [0, 0]]


# --- The common move ---------------------------------------------------------------------------------------


EVERYTHING = numbers_of(0, 1, 2, 3)


def moved(*partners: tuple[np.ndarray, np.ndarray], rate: float = 1.0, place_of: np.ndarray = EVERYTHING) -> Any:
    vectors, sums = np.zeros((4, 2), np.float32), Sums.zeros(4, 2)
    for numbers, rows in partners:
        sums.add(numbers, rows, place_of)
    sums.move(vectors, rate)
    return vectors


def test_a_vector_moves_by_the_mean_over_the_partners_that_have_it_in_their_batch() -> None:
    """Number 2: one partner's two rows are summed, (1, 0) + (3, 4), and the other's is (2, 2): the mean is (3, 3).
    Number 0 is in one batch only and moves by its row. Nobody has 1 and 3.
    """
    one = (numbers_of(2, 0, 2), rows_of([1, 0], [8, -8], [3, 4]))
    other = (numbers_of(2), rows_of([2, 2]))
    assert moved(one, other).tolist() == [[-8, 8], [0, 0], [-3, -3], [0, 0]]
    assert moved(one, other, rate=0.5).tolist() == [[-4, 4], [0, 0], [-1.5, -1.5], [0, 0]]
    nobody = (numbers_of(), np.empty((0, 2), np.float32))
    assert moved(one, nobody, other).tolist() == moved(one, other).tolist(), "who has nothing does not count"


def test_numbers_are_looked_up() -> None:
    """Common number 1 is vector 3 here."""
    vectors = moved((numbers_of(1), rows_of([1, 2])), place_of=numbers_of(-1, 3))
    assert vectors.tolist() == [[0, 0], [0, 0], [0, 0], [-1, -2]]


def test_no_order_changes_a_bit() -> None:
    """Floating-point sums of these numbers depend on their order; sums in fixed point do not."""
    rng = np.random.default_rng(0)
    partners = []
    for _ in range(3):
        rows = rng.normal(size=(400, 2)) * 10.0 ** rng.integers(-6, 2, size=(400, 1))
        partners.append((rng.integers(0, 4, 400).astype(np.int32), rows.astype(np.float32)))
    expected = moved(*partners, rate=0.4)
    is_sum_affected = False
    for _ in range(5):
        shuffled = []
        for place in rng.permutation(3):
            numbers, rows = partners[place]
            order = rng.permutation(len(numbers))
            shuffled.append((numbers[order], rows[order]))
        assert moved(*shuffled, rate=0.4).tobytes() == expected.tobytes()
        plain = [np.zeros((4, 2), np.float32) for _ in range(2)]
        for total, given in zip(plain, (partners, shuffled), strict=True):
            for numbers, rows in given:
                np.add.at(total, numbers, rows)
        is_sum_affected |= plain[0].tobytes() != plain[1].tobytes()
    assert is_sum_affected, "the rows are no test of the order"


def test_rounding_is_to_the_fixed_point() -> None:
    """Three fifths of a unit round to one, two fifths to none."""
    vectors = moved((numbers_of(0, 1), np.array([[0.6 * UNIT] * 2, [0.4 * UNIT] * 2], np.float32)))
    assert vectors[0].tolist() == [-UNIT] * 2
    assert vectors[1].tolist() == [0.0] * 2


def test_sums_are_empty_after_a_move() -> None:
    sums, vectors = Sums.zeros(4, 2), np.zeros((4, 2), np.float32)
    for _ in range(2):
        for _ in range(3):
            sums.add(numbers_of(1, 3), rows_of([1, 1], [2, 2]), EVERYTHING)
        sums.move(vectors, 1.0)
        for array in (sums.totals, sums.num_partners, sums.last_sender):
            assert not array.any()
        assert (sums.touched[0], sums.senders) == (0, 0)
    assert vectors.tolist() == [[0, 0], [-2, -2], [0, 0], [-4, -4]]
    sums.move(vectors, 1.0)
    assert vectors[1].tolist() == [-2, -2], "a move without sums moves nothing"


@pytest.mark.parametrize("number", [-1, 2, 4, 1000, 2**31 - 1])
def test_numbers_that_nobody_knows_are_refused(number: int) -> None:
    with pytest.raises(HushrecError, match=r"^a partner sent gradients of what is not common; align again$"):
        Sums.zeros(4, 2).add(numbers_of(number), rows_of([1, 1]), numbers_of(0, 1, -1, 3))


@pytest.mark.parametrize("rows", [rows_of([1, 2, 3]), rows_of([1]), rows_of([1, 2], [3, 4])])
def test_rows_of_another_width_or_number_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(
        HushrecError, match=r"^a partner's vectors have \d numbers, ours 2; agree on the same num_factors="
    ):
        Sums.zeros(4, 2).add(numbers_of(0), rows, EVERYTHING)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1025.0, -3e38])
def test_what_cannot_be_summed_is_refused_as_divergence(value: float) -> None:
    with pytest.raises(DivergedError, match=r"^a gradient is not finite or far too large$"):
        Sums.zeros(4, 2).add(numbers_of(0), np.array([[0, value]], np.float32), EVERYTHING)
    vectors = moved((numbers_of(0), rows_of([0, 1023.0])))
    assert vectors[0].tolist() == [0, -1023.0], "just below the limit is fine"


def test_what_a_failed_step_left_in_the_sums_can_be_forgotten() -> None:
    sums, vectors = Sums.zeros(4, 2), np.zeros((4, 2), np.float32)
    with pytest.raises(HushrecError, match="not common"):
        sums.add(numbers_of(1, 9), rows_of([5, 5], [1, 1]), EVERYTHING)
    sums.clear()
    sums.add(numbers_of(2), rows_of([1, 1]), EVERYTHING)
    sums.move(vectors, 1.0)
    assert vectors.tolist() == [[0, 0], [0, 0], [-1, -1], [0, 0]]


# --- Layers ------------------------------------------------------------------------------------------------


def test_layers_move_by_the_mean_of_all_partners_gradients_whatever_their_order() -> None:
    layers = np.array([1.0, 2.0, 3.0], np.float32)
    move_layers(layers, [np.array([1, 0, -2], np.float32), np.array([3, 0, 0], np.float32)], 0.5)
    assert layers.tolist() == [0.0, 2.0, 3.5]
    gradients = [
        (np.random.default_rng(seed).normal(size=(3,)) * 10.0**-seed).astype(np.float32) for seed in range(4)
    ]
    results = set()
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
        layers = np.zeros(3, np.float32)
        move_layers(layers, [gradients[place] for place in order], 0.4)
        results.add(layers.tobytes())
    assert len(results) == 1
    np.testing.assert_allclose(layers, -0.4 * np.mean(gradients, axis=0), rtol=1e-6)


def test_layers_that_cannot_be_moved_are_refused_and_stay() -> None:
    layers = np.ones(3, np.float32)
    with pytest.raises(
        HushrecError, match=r"^a partner's layers have another shape; agree on the same num_factors="
    ):
        move_layers(layers, [np.zeros(3, np.float32), np.zeros(4, np.float32)], 0.5)
    for value in (np.nan, np.inf, -2048.0):
        with pytest.raises(DivergedError, match=r"^a gradient of the layers is not finite or far too large$"):
            move_layers(layers, [np.zeros(3, np.float32), np.array([0, value, 0], np.float32)], 0.5)
    assert layers.tolist() == [1, 1, 1]
