"""Linear equations, against NumPy's."""

import numpy as np
import pytest

from hushrec.kernels.cholesky import solve


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_as_numpy_does(size: int) -> None:
    """From the lower half alone: what stands above the diagonal is not looked at."""
    rng = np.random.default_rng(size)
    parts, wanted = rng.normal(size=(size, 2 * size)), rng.normal(size=size)
    matrix = parts @ parts.T + np.eye(size)
    vector, lower = matrix @ wanted, np.tril(matrix) + np.triu(np.full((size, size), 99.0), 1)
    solve(lower, vector)
    np.testing.assert_allclose(vector, wanted, rtol=1e-9)
    np.testing.assert_allclose(vector, np.linalg.solve(matrix, matrix @ wanted), rtol=1e-9)


def test_by_hand() -> None:
    """4x + 2y = 10 and 2x + 2y = 6: x = 2, y = 1."""
    vector = np.array([10.0, 6.0])
    solve(np.array([[4.0, 2.0], [2.0, 2.0]]), vector)
    assert vector.tolist() == [2.0, 1.0]


def test_what_is_singular_is_not_finite() -> None:
    """No error comes out of a kernel: whoever adds such numbers up refuses them."""
    vector = np.array([1.0, 1.0])
    solve(np.zeros((2, 2)), vector)
    assert not np.isfinite(vector).any()
