from collections.abc import Callable

import numpy as np
import pytest

from hushrec.systems.drift.blocks import Blocks, Groups
from hushrec.systems.drift.gradients import block_loss, group_gradients

NUM_USERS, NUM_ITEMS, NUM_FACTORS = 5, 9, 4
Stream = tuple[np.ndarray, np.ndarray, np.ndarray]


def groups_of(stream: Stream, theta: int) -> Groups:
    users, items, is_positive = stream
    blocks = Blocks()
    blocks.make_room(len(users), NUM_USERS)
    blocks.add(np.arange(1, len(users) + 1), users, items, is_positive, 1, 1)
    return blocks.learn(theta, "blocks", 1)


def some_stream(size: int = 200, seed: int = 0) -> Stream:
    draws = np.random.default_rng(seed)
    users, items = draws.integers(0, NUM_USERS, size), draws.integers(0, NUM_ITEMS, size)
    return users.astype(np.int32), items.astype(np.int32), draws.random(size) < 0.6


def some_vectors(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Of users and of items."""
    draws = np.random.default_rng(seed)
    shapes = (NUM_USERS, NUM_FACTORS), (NUM_ITEMS, NUM_FACTORS)
    return tuple(draws.normal(size=shape).astype(np.float32) for shape in shapes)


def rows_of(groups: Groups, vectors: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The vector of each row."""
    pairs = zip(groups.is_item, groups.numbers, strict=True)
    return np.array([vectors[kind][number] for kind, number in pairs], np.float32).reshape(-1, NUM_FACTORS)


def loss_of(groups: Groups, block: int, rows: np.ndarray, ridge: float) -> float:
    """Of one block, as the module's docstring says; the ridge is on the user and on each of its items."""
    first, last = groups.block_starts[block : block + 2]
    user, items = rows[groups.user_rows[block]], rows[groups.row_of_entry[first:last]]
    is_positive = groups.is_positive[first:last]
    margins = [user @ (good - bad) for good in items[is_positive] for bad in items[~is_positive]]
    return float(np.mean(np.log1p(np.exp(-np.array(margins)))) + ridge / 2 * ((user**2).sum() + (items**2).sum()))


def slope(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        change = np.zeros_like(at)
        change[place] = step
        found[place] = (function(at + change) - function(at - change)) / (2 * step)
    return found


def test_one_pair_by_hand() -> None:
    """v = 1, psi = 2 (good) and 1 (bad): w = 1, sigma = 0.731059. With s = 1 - sigma = 0.268941 and ridge 0.1:

    gradients: user -s (2 - 1) + 0.1 * 1, good -s * 1 + 0.1 * 2, bad +s * 1 + 0.1 * 1.
    """
    stream = (np.zeros(3, np.int32), np.array([0, 1, 2], np.int32), np.array([False, True, False]))
    groups = groups_of(stream, 1)
    assert groups.numbers.tolist() == [0, 0, 1]
    found = group_gradients(groups, np.array([[1], [1], [2]], np.float32), 0.5, 0.1)
    s = 0.268941
    assert found.ravel() == pytest.approx([-s + 0.1, s + 0.1, -s + 0.2], abs=1e-6)


def test_two_pairs_by_hand() -> None:
    """v = 1, bad 1 and bad 0, good 2: w = 1 and 2, so s = 0.268941 and 0.119203.

    Summed (Algorithm 3): user -s1 (2 - 1) - s2 (2 - 0), good -(s1 + s2), bad +s1 and +s2. The mean (Sec. 3.4)
    is half of that.
    """
    stream = (np.zeros(4, np.int32), np.arange(4, dtype=np.int32), np.array([False, False, True, False]))
    groups = groups_of(stream, 1)
    vectors, (s1, s2) = np.array([[1], [1], [0], [2]], np.float32), (0.268941, 0.119203)
    summed, mean = (group_gradients(groups, vectors, 0.5, 0.0, one) for one in ("sum", "mean"))
    assert summed.ravel() == pytest.approx([-s1 - 2 * s2, s1, s2, -s1 - s2], abs=1e-6)
    np.testing.assert_allclose(2 * mean, summed, atol=1e-6)


def test_a_block_without_a_pair_has_no_gradient_and_no_ridge() -> None:
    """Good 0, good 1, then bad 2 completes a block that Algorithm 2, read literally, saves."""
    blocks = Blocks(reading="literal")
    blocks.make_room(3, 1)
    signs = np.array([True, True, False])
    blocks.add(np.arange(1, 4), np.zeros(3, np.int32), np.arange(3, dtype=np.int32), signs, 1, 1)
    groups = blocks.learn(1, "blocks", 1)
    assert groups.numbers.tolist() == [0, 0, 1]
    assert not group_gradients(groups, np.ones((3, 2), np.float32), 0.5, 0.1).any()


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_gradients_of_one_group_are_slopes_of_its_loss(ridge: float) -> None:
    """All blocks of a stream in one group; some have an item twice, some share items and users."""
    theta = groups_of(some_stream(60), 1).num_blocks
    groups = groups_of(some_stream(60), theta)
    assert groups.num_blocks == theta > 5
    rows = rows_of(groups, some_vectors()).astype(np.float64)
    expected = slope(lambda at: sum(loss_of(groups, block, at, ridge) for block in range(theta)), rows)
    found = group_gradients(groups, rows.astype(np.float32), 0.1, ridge)
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("theta", [1, 2, 3])
def test_each_group_sees_what_those_before_it_moved(theta: int) -> None:
    """Against a loop over the groups, which moves all vectors before it goes on."""
    rate, ridge = 0.5, 0.1
    groups, moving = groups_of(some_stream(), theta), tuple(part.astype(np.float64) for part in some_vectors())
    found = group_gradients(groups, rows_of(groups, some_vectors()), rate, ridge)
    num_groups = groups.num_blocks // theta
    assert num_groups > 5
    for group in range(num_groups):
        rows = np.array([moving[kind][one] for kind, one in zip(groups.is_item, groups.numbers, strict=True)])
        blocks = range(theta * group, theta * (group + 1))
        is_of_it = groups.group_of_row == group

        def loss(part: np.ndarray, rows: np.ndarray = rows, blocks: range = blocks) -> float:
            at = rows.copy()
            at[is_of_it] = part  # noqa: B023  # called before the next group
            return sum(loss_of(groups, block, at, ridge) for block in blocks)

        expected = slope(loss, rows[is_of_it])
        np.testing.assert_allclose(found[is_of_it], expected, atol=5e-6)
        for kind, number, row in zip(
            groups.is_item[is_of_it], groups.numbers[is_of_it], found[is_of_it], strict=True
        ):
            moving[kind][number] -= rate * row


def test_the_sequence_makes_a_difference() -> None:
    groups = groups_of(some_stream(), 1)
    rows = rows_of(groups, some_vectors())
    small, large = (group_gradients(groups, rows, rate, 0.1) for rate in (1e-9, 0.5))
    assert np.abs(small - large).max() > 0.01


def test_descent_lowers_the_loss() -> None:
    """Of the blocks that it learns from: not so with the sign that the report prints."""
    stream, vectors = some_stream(), some_vectors()
    groups, before = groups_of(stream, 1), block_loss(*vectors, *stream)
    for _ in range(5):
        rows = rows_of(groups, vectors)
        gradients = group_gradients(groups, rows, 0.05, 0.0)
        for kind, number, row in zip(groups.is_item, groups.numbers, gradients, strict=True):
            vectors[kind][number] -= 0.05 * row
    assert block_loss(*vectors, *stream) < 0.8 * before


def test_the_loss_is_the_mean_over_blocks() -> None:
    stream, vectors = some_stream(), some_vectors()
    groups = groups_of(stream, 1)
    rows = rows_of(groups, vectors).astype(np.float64)
    expected = np.mean([loss_of(groups, block, rows, 0.0) for block in range(groups.num_blocks)])
    assert block_loss(*vectors, *stream) == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_nothing_is_not_a_number() -> None:
    users, items, _ = some_stream()
    assert np.isnan(block_loss(*some_vectors(), users, items, np.ones(len(users), np.bool_)))


@pytest.mark.parametrize("sign", [1, -1])
def test_huge_margins_give_finite_numbers(sign: int) -> None:
    """w = +-10^6: the loss is 0 or 10^6, the user's gradient 0 or -(psi_p - psi_n)."""
    stream = (np.zeros(3, np.int32), np.array([0, 1, 2], np.int32), np.array([False, True, False]))
    users, items = np.array([[1000]], np.float32), np.array([[0], [sign * 1000], [0]], np.float32)
    assert block_loss(users, items, *stream) == pytest.approx(0 if sign > 0 else 1e6)
    rows = np.array([[1000], [0], [sign * 1000]], np.float32)
    found = group_gradients(groups_of(stream, 1), rows, 0.1, 0.0)
    assert found[0, 0] == pytest.approx(0 if sign > 0 else 1000)


def test_no_groups_have_no_gradients() -> None:
    nothing = np.empty(0, np.int32)
    groups = groups_of((nothing, nothing, np.empty(0, np.bool_)), 2)
    assert group_gradients(groups, np.empty((0, 4), np.float32), 0.1, 0.1).shape == (0, 4)
