# mypy: allow-untyped-defs, allow-untyped-calls
"""Products of vectors inside compiled kernels; numba's own would need SciPy."""

import numba


@numba.njit(nogil=True, cache=True)
def dot(left, right):
    """The inner product, in double precision, from the first number to the last."""
    total = 0.0
    for place in range(len(left)):
        total += left[place] * right[place]
    return total
