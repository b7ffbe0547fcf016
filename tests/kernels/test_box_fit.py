"""Least squares within bounds, against SciPy's."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from hushrec.kernels.box_fit import box_fit


@pytest.mark.parametrize(("num_rows", "num_factors"), [(1, 1), (5, 8), (40, 8), (200, 3)])
@pytest.mark.parametrize("weight", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("expected", [0.0, 0.25, 1.0])
def test_as_scipy_does(num_rows: int, num_factors: int, weight: float, expected: float) -> None:
    """What is expected is one more equation per row, so that SciPy solves the same problem."""
    rng = np.random.default_rng(num_rows)
    rows, target = rng.normal(size=(num_rows, num_factors)), 3 * rng.normal(size=num_factors)
    got = box_fit(rows, target, expected, weight)
    matrix = np.vstack([rows.T, np.sqrt(weight) * np.eye(num_rows)])
    wanted = np.concatenate([target, np.full(num_rows, np.sqrt(weight) * expected)])
    best = lsq_linear(matrix, wanted, bounds=(0, 1), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(got, best, atol=1e-6)


def test_by_hand() -> None:
    """Rows 2 and -1, target 2, nothing expected: only all of the first and none of the second give 2."""
    got = box_fit(np.array([[2.0], [-1.0]]), np.array([2.0]), 0.0, 1e-9)
    np.testing.assert_allclose(got, [1.0, 0.0], atol=1e-6)


def test_what_explains_the_target_in_the_mean_stays_as_expected() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4))
    got = box_fit(rows, 0.25 * rows.sum(axis=0), 0.25, 1e-6)
    np.testing.assert_allclose(got, 0.25, atol=1e-9)


def test_no_target_and_no_rows() -> None:
    assert box_fit(np.zeros((3, 2)), np.zeros(2), 0.5, 1.0).tolist() == [0.5, 0.5, 0.5]
    assert box_fit(np.zeros((0, 2)), np.ones(2), 0.5, 1.0).tolist() == []
