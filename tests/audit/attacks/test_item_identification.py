import time

import numpy as np
import pytest

from hushrec.audit.attacks.item_identification import twin_ranks
from hushrec.errors import HushrecError


def num_identified(theirs: np.ndarray, own: np.ndarray, twins: np.ndarray, top: int) -> int:
    """How many have their twin strictly above the `top`-th most similar of the other own items."""
    return int(np.count_nonzero(twin_ranks(theirs, own, twins) < top))


def test_ranks_by_hand() -> None:
    """The first is nearest to its twin, whatever the lengths; the second's twin has one better; the third two."""
    own = np.array([[5.0, 0], [1, 1], [0, 0.1]])
    theirs = np.array([[1.0, 0.1], [0.5, 0.4], [-1, 0]])
    twins = np.array([0, 0, 0])
    assert twin_ranks(theirs, own, twins).tolist() == [0, 1, 2]
    assert [num_identified(theirs, own, twins, top) for top in range(4)] == [0, 1, 2, 3]


def test_a_tie_with_another_does_not_count() -> None:
    """Strictly above the other: with top 1 a twin with a copy is not found, with top 2 it is."""
    own = np.array([[1.0, 0], [1, 0], [0, 1]])
    assert num_identified(np.array([[2.0, 0]]), own, np.array([1]), 1) == 0
    assert num_identified(np.array([[2.0, 0]]), own, np.array([1]), 2) == 1


def test_ranks_are_those_of_sorting() -> None:
    generator = np.random.default_rng(0)
    theirs, own, twins = (
        generator.normal(size=(300, 6)),
        generator.normal(size=(70, 6)),
        generator.integers(0, 70, 300),
    )
    cosines = (theirs / np.linalg.norm(theirs, axis=1)[:, None]) @ (own / np.linalg.norm(own, axis=1)[:, None]).T
    order = np.argsort(-cosines, axis=1)
    assert twin_ranks(theirs, own, twins).tolist() == np.nonzero(order == twins[:, None])[1].tolist()


def test_ml_1m_takes_well_under_a_second() -> None:
    generator = np.random.default_rng(0)
    theirs, own = generator.normal(size=(1976, 20)), generator.normal(size=(2964, 20))
    start = time.process_time()
    found = num_identified(theirs, own, np.arange(1976), 20)
    assert time.process_time() - start < 1
    assert 0 < found < 40  # blindly 1976 * 20 / 2964 = 13


def test_zero_vectors_are_not_near_anything() -> None:
    assert num_identified(np.zeros((1, 2)), np.eye(2), np.array([0]), 1) == 0


@pytest.mark.parametrize("twins", [[0, 1], [3], [-1]])
def test_twins_must_fit(twins: list[int]) -> None:
    with pytest.raises(HushrecError, match="twin"):
        twin_ranks(np.ones((1, 2)), np.ones((3, 2)), np.array(twins))
