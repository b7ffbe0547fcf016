import doctest

import numpy as np
import pytest

from hushrec.evaluation import neighbours
from hushrec.evaluation.neighbours import directions, liking, reasons

EVERYONE = np.ones(3, np.bool_)


def test_the_example_is_right() -> None:
    assert doctest.testmod(neighbours).failed == 0


def test_nearness_is_measured_from_the_mean() -> None:
    """The mean of (4, 1), (6, 1), (5, 4) is (5, 2): from there (-1, -1), (1, -1), (0, 2); cosines are 0 and -.71.

    Seen from the origin all three would point nearly the same way.
    """
    vectors = np.array([[4, 1], [6, 1], [5, 4]], np.float32)
    found = directions(vectors, EVERYONE)
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(found, [[-half, -half], [half, -half], [0, 1]], rtol=1e-6)
    np.testing.assert_allclose(found @ found.T, [[1, 0, -half], [0, 1, -half], [-half, -half, 1]], atol=1e-6)


def test_untrained_items_do_not_move_the_mean_and_the_mean_has_no_direction() -> None:
    vectors = np.array([[1, 0], [3, 0], [2, 0], [100, 100]], np.float32)
    found = directions(vectors, np.array([True, True, False, False]))
    np.testing.assert_allclose(found[:3], [[-1, 0], [1, 0], [0, 0]])
    assert np.isfinite(found).all()


def test_without_any_trained_item_all_count() -> None:
    vectors = np.array([[1, 0], [3, 0]], np.float32)
    np.testing.assert_allclose(directions(vectors, np.zeros(2, np.bool_)), [[-1, 0], [1, 0]])


@pytest.mark.parametrize("rating_range", [None, (3.0, 3.0)])
def test_without_a_range_all_are_liked_alike(rating_range: tuple[float, float] | None) -> None:
    assert liking(np.array([1, 5], np.float32), rating_range, 2).tolist() == [1, 1]
    assert liking(None, (1.0, 5.0), 3).tolist() == [1, 1, 1]


def test_a_reason_is_near_and_liked() -> None:
    """Item 0 lies at an angle of 0 to item 1 and of 60 degrees to item 2; 3 is opposite.

    Rated 2 of 1..5, item 1 counts 1 * .25; rated 5, item 2 counts .5 * 1: it is the reason, with its own cosine.
    """
    of_items = np.array([[1, 0], [1, 0], [0.5, np.sqrt(0.75)], [-1, 0]], np.float32)
    listed, own = np.array([[0]], np.int32), np.array([1, 2, 3], np.int32)
    starts = np.array([0, 3])
    liked = liking(np.array([2, 5, 5], np.float32), (1.0, 5.0), 3)
    found, cosines = reasons(of_items, listed, starts, own, liked)
    assert found.tolist() == [[2]]
    assert cosines[0, 0] == pytest.approx(0.5)
    found, cosines = reasons(of_items, listed, starts, own, np.ones(3, np.float32))
    assert (found.tolist(), cosines.tolist()) == ([[1]], [[1]])


def test_what_is_opposite_or_not_liked_or_the_item_itself_is_no_reason() -> None:
    of_items = np.array([[1, 0], [1, 0], [-1, 0]], np.float32)
    listed, starts = np.array([[0, 1, -1]], np.int32), np.array([0, 3])
    own, liked = np.array([0, 1, 2], np.int32), np.array([0, 1, 1], np.float32)
    found, cosines = reasons(of_items, listed, starts, own, liked)
    assert found.tolist() == [[1, -1, -1]]
    assert cosines.tolist() == [[1, 0, 0]]


def test_reasons_equal_a_slow_search() -> None:
    draws = np.random.default_rng(0)
    of_items = directions(draws.normal(size=(30, 4)).astype(np.float32), np.ones(30, np.bool_))
    lengths = draws.integers(0, 9, 20)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    own = draws.integers(0, 30, starts[-1]).astype(np.int32)
    liked = draws.uniform(0, 1, starts[-1]).astype(np.float32)
    listed = draws.integers(-1, 30, (20, 5)).astype(np.int32)
    found, cosines = reasons(of_items, listed, starts, own, liked)
    for row, place in np.ndindex(listed.shape):
        item, mine = listed[row, place], slice(starts[row], starts[row + 1])
        near = of_items[own[mine]].astype(np.float64) @ of_items[item]
        weighted = np.where(own[mine] == item, -np.inf, near * liked[mine])
        if item < 0 or not len(weighted) or weighted.max() <= 0:
            assert found[row, place] == -1
        else:
            assert found[row, place] == own[mine][weighted.argmax()]
            assert cosines[row, place] == pytest.approx(near[weighted.argmax()], abs=1e-5)
