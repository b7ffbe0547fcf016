import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation import top_k


def test_hand_worked() -> None:
    """Row 0: items 1 and 3 tie at 5, the lower number first, then item 0. Row 1: without item 2 (the best)
    there remain items 0 (4), 3 (2) and 1 (1).
    """
    scores = np.array([[2, 5, 1, 5], [4, 1, 9, 2]], np.float32)
    items, best = top_k(scores, 3, (np.array([0, 0, 1]), np.array([2], np.int32)))
    assert items.tolist() == [[1, 3, 0], [0, 3, 1]]
    assert best.tolist() == [[5, 5, 2], [4, 2, 1]]
    assert (items.dtype, best.dtype) == (np.int32, np.float32)


def test_rows_with_few_candidates_are_padded() -> None:
    exclude = (np.array([0, 2, 5]), np.array([2, 0, 0, 1, 2], np.int32))
    items, best = top_k(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]), 4, exclude)
    assert items.tolist() == [[1, -1, -1, -1], [-1, -1, -1, -1]]
    assert best.tolist() == [[2.0, -np.inf, -np.inf, -np.inf], [-np.inf] * 4]


def test_infinite_scores_are_ordered_and_not_taken_for_padding() -> None:
    items, best = top_k(np.array([[-np.inf, 0.0, np.inf, -np.inf]]), 5)
    assert items.tolist() == [[2, 1, 0, 3, -1]]
    assert best.tolist() == [[np.inf, 0.0, -np.inf, -np.inf, -np.inf]]


def test_no_rows_and_no_items() -> None:
    assert top_k(np.empty((0, 5)), 2)[0].shape == (0, 2)
    assert top_k(np.empty((2, 0)), 1)[0].tolist() == [[-1], [-1]]


def test_layout_and_dtype_do_not_matter() -> None:
    whole = np.random.default_rng(0).integers(0, 6, (30, 20))
    expected = top_k(whole.astype(np.float32), 7)[0]
    for scores in (whole, whole.astype(np.float16), np.asfortranarray(whole, np.float64)):
        np.testing.assert_array_equal(top_k(scores, 7)[0], expected)


@given(seed=st.integers(0, 2**32), num_levels=st.sampled_from([1, 3, 1000]), k=st.integers(1, 40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_equals_sorting(seed: int, num_levels: int, k: int) -> None:
    """Few levels make many ties; the slow way is Python's sort by (-score, item)."""
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, num_levels, (8, 30)).astype(np.float32)
    is_excluded = draws.random((8, 30)) < draws.random((8, 1))
    starts = np.concatenate(([0], np.cumsum(is_excluded.sum(axis=1))))
    items, best = top_k(scores, k, (starts, np.nonzero(is_excluded)[1].astype(np.int32)))
    for row in range(8):
        candidates = sorted((-scores[row, item], item) for item in range(30) if not is_excluded[row, item])
        expected = [item for _, item in candidates][:k]
        assert items[row].tolist() == expected + [-1] * (k - len(expected))
        np.testing.assert_array_equal(best[row, : len(expected)], scores[row, expected])
        assert (best[row, len(expected) :] == -np.inf).all()


@pytest.mark.parametrize(
    ("scores", "k", "exclude", "message"),
    [
        (np.ones((1, 3)), 0, None, "at least 1 item"),
        (np.ones(3), 1, None, "rows, num_items"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), 1, None, "row 1 has a score that is not a number"),
        (np.ones((1, 3)), 1, ([0], []), "give 2 starts"),
        (np.ones((1, 3)), 1, ([0, 2], [1]), "must rise from 0 to its 1 items"),
        (np.ones((2, 3)), 1, ([0, 2, 1], [1]), "must rise"),
        (np.ones((1, 3)), 1, ([0, 1], [3]), "score all items"),
        (np.ones((1, 3)), 1, ([0, 1], [-1]), "score all items"),
    ],
)
def test_refuses(scores: np.ndarray, k: int, exclude: tuple[list[int], list[int]] | None, message: str) -> None:
    rows = None if exclude is None else (np.array(exclude[0], np.int64), np.array(exclude[1], np.int32))
    with pytest.raises(HushrecError, match=message) as refused:
        top_k(scores, k, rows)
    assert isinstance(refused.value, DivergedError) == ("not a number" in message)


@given(seed=st.integers(0, 2**32), num_levels=st.sampled_from([2, 50, 10**6]), k=st.sampled_from([1, 10, 200]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_long_rows_equal_sorting_with_columns_of_all_items_and_of_candidates(
    seed: int, num_levels: int, k: int
) -> None:
    """Rows are longer than what is looked at together, with scores of minus infinity and with ties."""
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, num_levels, (5, 700)).astype(np.float32)
    scores[draws.random(scores.shape) < 0.05] = -np.inf
    is_candidate = draws.random(700) < 0.7
    is_excluded = draws.random(scores.shape) < 0.1
    exclude = np.append(0, np.cumsum(is_excluded.sum(axis=1))), np.nonzero(is_excluded)[1].astype(np.int32)
    wide = top_k(scores, k, exclude, is_candidate)
    narrow = top_k(scores[:, is_candidate], k, exclude, is_candidate)
    for found, same in zip(wide, narrow, strict=True):
        np.testing.assert_array_equal(found, same)
    for row in range(5):
        left = np.flatnonzero(is_candidate & ~is_excluded[row])
        expected = left[np.lexsort((left, -scores[row, left]))][:k]
        assert wide[0][row, : len(expected)].tolist() == expected.tolist()
        assert (wide[0][row, len(expected) :] == -1).all()


@pytest.mark.parametrize("place", [0, 9, 10, 130, 255, 299])
def test_what_is_not_a_number_is_found_wherever_it_is(place: int) -> None:
    scores = np.zeros((2, 300), np.float32)
    scores[:, :10] = 1.0
    scores[1, place] = np.nan
    with pytest.raises(DivergedError, match="row 1"):
        top_k(scores, 10, (np.array([0, 0, 1]), np.array([place], np.int32)))
