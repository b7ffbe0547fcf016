# mypy: allow-untyped-defs, allow-untyped-calls
"""Small systems of linear equations, solved in place in float64, always in one order."""

import numba
import numpy as np


# A matrix that is singular after rounding gives numbers that are not finite, which exact sums refuse.
@numba.njit(nogil=True, cache=True, error_model="numpy")
def solve(matrix, vector):
    """Solve by Cholesky's decomposition; of `matrix`, positive definite, only the lower half is looked at."""
    size = len(vector)
    for column in range(size):
        for row in range(column, size):
            total = matrix[row, column]
            for place in range(column):
                total -= matrix[row, place] * matrix[column, place]
            matrix[row, column] = np.sqrt(total) if row == column else total / matrix[column, column]
    for row in range(size):
        for place in range(row):
            vector[row] -= matrix[row, place] * vector[place]
        vector[row] /= matrix[row, row]
    for row in range(size - 1, -1, -1):
        for place in range(row + 1, size):
            vector[row] -= matrix[place, row] * vector[place]
        vector[row] /= matrix[row, row]
