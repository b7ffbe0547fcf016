# mypy: allow-untyped-defs, allow-untyped-calls
"""Rows clipped to an l1 norm and hidden in Laplace noise (FedCORE, Eqs. 12 and 13).

Guarantee: two rows clipped to l1 norm `clip` differ by at most 2 clip in l1 norm (the sensitivity); one released
row is epsilon-differentially private with epsilon = 2 clip / scale. Neighbours: the same data with one row
replaced by any other row. Releases of the same data add up (`Ledger`). It holds against whoever does not have
the key of the draws, and as long as no draw is used for two releases: their difference would be free of noise.

Not protected: that there is a row, which one it is, and how many there are.

Floating point: plain floating-point Laplace noise leaks through its lowest bits, as different rows can reach
different numbers (Mironov 2012). Here a draw has 64 random bits, and the sum of row and noise is rounded to a grid
of 2^-14 to 2^-13 of the scale, which depends on the scale alone. So each row reaches the same numbers, with
chances that differ from those of exact noise by about 1e-15 of the total per component; rounding itself is
post-processing and costs no privacy. This is a mitigation, not a proof: noise ends at 44.4 scales, and the time
that a draw takes is not hidden.
"""

import math
from hashlib import blake2b

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Key, chacha_block
from hushrec.errors import DivergedError, HushrecError

BLOCK_DRAWS = BLOCK_WORDS // 2
_GRID_BITS = 13
_CHUNK = 512  # draws at a time, about
# Without "numpy", each division checks for zero and the loops use no SIMD.
_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
_LOG_2 = math.log(2.0)
# Added to the bits of a positive double, this leaves above bit 52 its exponent plus _BIAS, where what is between
# sqrt(1/2) and twice it has exponent 0. Bits below 2^52 under those of 2^52 are that whole number plus 2^52.
_BIAS = 1024
_SHIFT = np.uint64((_BIAS << 52) - int(np.float64(math.sqrt(0.5)).view(np.int64)))
_WHOLE = 2.0**52
_WHOLE_BITS = np.float64(_WHOLE).view(np.uint64)


def scale_of(clip: float, epsilon: float) -> float:
    """The scale of the noise that gives a released row this epsilon."""
    return 2 * clip / epsilon


def grid_of(scale: float) -> float:
    """The grid that released numbers lie on: a power of two, 2^-14 to 2^-13 of the scale."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _GRID_BITS)


@_compiled
def _draw(words, noise, exponents):
    """Standard Laplace numbers from pairs of words: the sign from one bit, the size from 63.

    The logarithm is a series in plain arithmetic: the same bits on every machine, and loops that use SIMD.
    """
    for place in range(noise.size):
        high, low = words[2 * place], words[2 * place + 1]
        noise[place] = (high >> np.uint32(1)) * 2.0**-31 + (low + 0.5) * 2.0**-63
    bits, exponent_bits = noise.view(np.uint64), exponents.view(np.uint64)
    for place in range(noise.size):
        exponent = (bits[place] + _SHIFT) >> np.uint64(52)
        bits[place] -= (exponent - np.uint64(_BIAS)) << np.uint64(52)
        exponent_bits[place] = exponent | _WHOLE_BITS
    for place in range(noise.size):
        ratio = (noise[place] - 1.0) / (noise[place] + 1.0)
        square = ratio * ratio
        series = 1 / 11 + square * (1 / 13 + square * (1 / 15 + square * (1 / 17)))
        series = 1 / 5 + square * (1 / 7 + square * (1 / 9 + square * series))
        series = ratio * (2.0 + 2.0 * square * (1 / 3 + square * series))
        log = (exponents[place] - (_WHOLE + _BIAS)) * _LOG_2 + series
        noise[place] = log if words[2 * place] & np.uint32(1) else -log


@_compiled
def _privatize(rows, clip, scale, grid, stream, first, out):
    """Write clipped and noised rows; tell whether all rows were finite."""
    key, party, round_number = stream
    num_rows, width = rows.shape
    group = max(1, _CHUNK // max(width, 1))
    noise = np.empty((group * width // BLOCK_DRAWS + 2) * BLOCK_DRAWS)
    words = np.empty(2 * noise.size, np.uint32)
    exponents = np.empty(noise.size)
    per_grid = 1.0 / grid
    for row in range(num_rows):
        place = row % group * width
        if place == 0:
            block, skipped = divmod(first + row * width, BLOCK_DRAWS)
            num_blocks = -(-(skipped + min(group, num_rows - row) * width) // BLOCK_DRAWS)
            for number in range(num_blocks):
                chacha_block(key, party, round_number, block + number, words[number * BLOCK_WORDS :])
            _draw(words, noise[: num_blocks * BLOCK_DRAWS], exponents)
        norm = 0.0
        for column in range(width):
            norm += abs(np.float64(rows[row, column]))
        if not norm < np.inf:
            return False
        factor = clip / norm if norm > clip else 1.0
        for column in range(width):
            value = rows[row, column] * factor + noise[skipped + place + column] * scale
            out[row, column] = np.rint(value * per_grid) * grid
    return True


def key_for(key: Key, rows: NDArray[np.float32]) -> Key:
    """A key for the noise of these rows and no others.

    What is released again because a request was repeated gets the same noise. Other rows at the same place, as
    after a round that began again with other partners, get other noise: their difference tells nothing.
    """
    digest = blake2b(np.ascontiguousarray(rows).data, key=key.tobytes(), digest_size=32).digest()
    return np.frombuffer(digest, "<u4").astype(np.uint32)


def private_rows(
    rows: NDArray[np.float32], clip: float, scale: float, key: Key, party: int, round_number: int, first: int
) -> NDArray[np.float32]:
    """Rows clipped to l1 norm `clip`, plus independent Laplace noise, on the grid of the scale.

    Noise comes from the stream of (key, party, round); `first` is how many components the party has drawn before
    in this round, so that the steps of a round share no draw.
    """
    if not (0 < clip < math.inf and 0 < scale < math.inf and first >= 0):
        raise HushrecError(
            "the clipping norm and the scale of Laplace noise must be above 0 and finite; set both so"
        )
    out = np.empty(rows.shape, np.float32)
    if not _privatize(rows, clip, scale, grid_of(scale), (key, party, round_number), first, out):
        raise DivergedError("a gradient is not finite")
    return out
