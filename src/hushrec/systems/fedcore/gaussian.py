# mypy: allow-untyped-defs, allow-untyped-calls
"""Rows clipped to an l2 norm and hidden in Gaussian noise.

Guarantee: two rows clipped to l2 norm `clip` differ by at most 2 clip in l2 norm (the sensitivity). With noise of
standard deviation s one released row has the privacy curve of a Gaussian mechanism with noise multiplier
s / (2 clip) (Balle and Wang 2018). Many, adaptive ones together are one with a smaller multiplier (`Ledger`).
Neighbours: the same data with one row replaced by any other row. It holds against whoever does not have the key of
the draws, and as long as no draw is used for two releases (`laplace.key_for`).

Not protected: that there is a row, which one it is, and how many there are.

Floating point: as in `laplace.py`, the sum of row and noise is rounded to a grid that depends on the noise alone.
Noise has 64 random bits and ends at 6.8 standard deviations; exact noise is beyond that with a chance of 1.2e-11
per number. This is a mitigation, not a proof.
"""

import math

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.errors import DivergedError, HushrecError
from hushrec.systems.fedcore.laplace import BLOCK_DRAWS, grid_of


@numba.njit(nogil=True, cache=True)
def _privatize(rows, clip, deviation, grid, stream, first, out):
    """Write clipped and noised rows; tell whether all rows were finite."""
    key, party, round_number = stream
    words, drawn = np.empty(BLOCK_WORDS, np.uint32), np.int64(-1)
    for row in range(rows.shape[0]):
        square = 0.0
        for column in range(rows.shape[1]):
            square += np.float64(rows[row, column]) ** 2
        norm = math.sqrt(square)
        if not norm < np.inf:
            return False
        factor = clip / norm if norm > clip else 1.0
        for column in range(rows.shape[1]):
            block, place = divmod(first + row * rows.shape[1] + column, BLOCK_DRAWS)
            if block != drawn:
                chacha_block(key, party, round_number, block, words)
                drawn = block
            radius = math.sqrt(-2.0 * math.log((words[2 * place] + 0.5) * 2.0**-32))  # Box-Muller
            noise = radius * math.cos(2.0 * math.pi * (words[2 * place + 1] * 2.0**-32))
            out[row, column] = np.rint((rows[row, column] * factor + noise * deviation) / grid) * grid
    return True


def gaussian_rows(
    rows: NDArray[np.float32], clip: float, deviation: float, key: Key, party: int, round_number: int, first: int
) -> NDArray[np.float32]:
    """Rows clipped to l2 norm `clip`, plus independent Gaussian noise, on the grid of its standard deviation.

    Noise comes from the stream of (key, party, round); `first` is how many components the party has drawn before
    in this round, so that the steps of a round share no draw.
    """
    if not (0 < clip < math.inf and 0 < deviation < math.inf and first >= 0):
        raise HushrecError(
            "the clipping norm and the standard deviation of noise must be above 0 and finite; set both so"
        )
    out = np.empty(rows.shape, np.float32)
    if not _privatize(rows, clip, deviation, grid_of(deviation), (key, party, round_number), np.int64(first), out):
        raise DivergedError("a gradient is not finite")
    return out
