# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Keyed randomness: a draw is a function of (run seed, purpose, party, round), never of the order of calls.

Parties draw from ChaCha8 streams inside compiled kernels: key = hash(seed, purpose), nonce = (party, round).
So a run with 1 or 8 threads, 1 or 5 nodes, resumed or not, is the same run, and whoever does not hold the
seed cannot guess a client's draws from those it has seen. The driving side draws from NumPy generators that
are keyed in the same way.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numba
import numpy as np
from numpy.typing import NDArray

import hushrec.compiling  # noqa: F401 - before the first kernel

Key = NDArray[np.uint32]

_ROUNDS = 8
_SIGMA = np.frombuffer(b"expand 32-byte k", dtype="<u4")
BLOCK_WORDS = 16


@dataclass(frozen=True)
class Draws:
    """All randomness of one run."""

    seed: int

    def key(self, purpose: str) -> Key:
        """The ChaCha key of one purpose, for use in kernels."""
        return _key(self.seed, purpose)

    def generator(self, purpose: str, round_number: int = 0) -> np.random.Generator:
        """A NumPy generator for draws of the driving side."""
        words = [int(word) for word in self.key(purpose)]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([*words, round_number])))


@cache
def _key(seed: int, purpose: str) -> Key:
    digest = blake2b(f"{seed}/{purpose}".encode(), digest_size=32, person=b"hushrec draws").digest()
    key: Key = np.frombuffer(digest, dtype="<u4").astype(np.uint32)
    return key


@numba.njit(nogil=True, cache=True, inline="always")
def _quarter_round(a, b, c, d):
    a = np.uint32(a + b)
    d = np.uint32(d ^ a)
    d = np.uint32((d << np.uint32(16)) | (d >> np.uint32(16)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32((b << np.uint32(12)) | (b >> np.uint32(20)))
    a = np.uint32(a + b)
    d = np.uint32(d ^ a)
    d = np.uint32((d << np.uint32(8)) | (d >> np.uint32(24)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32((b << np.uint32(7)) | (b >> np.uint32(25)))
    return a, b, c, d


@numba.njit(nogil=True, cache=True)
def chacha_block(key, party, round_number, counter, out, rounds=_ROUNDS):
    """Write block `counter` of the stream of (key, party, round) to `out`, 16 words.

    The layout is the original ChaCha's: words 12-13 count blocks, words 14-15 are the nonce.
    """
    s0, s1, s2, s3 = _SIGMA[0], _SIGMA[1], _SIGMA[2], _SIGMA[3]
    k0, k1, k2, k3 = key[0], key[1], key[2], key[3]
    k4, k5, k6, k7 = key[4], key[5], key[6], key[7]
    c0, c1 = np.uint32(counter & 0xFFFFFFFF), np.uint32(counter >> 32)
    n0, n1 = np.uint32(party), np.uint32(round_number)
    x0, x1, x2, x3, x4, x5, x6, x7 = s0, s1, s2, s3, k0, k1, k2, k3
    x8, x9, x10, x11, x12, x13, x14, x15 = k4, k5, k6, k7, c0, c1, n0, n1
    for _ in range(rounds // 2):
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    out[0], out[1], out[2], out[3] = x0 + s0, x1 + s1, x2 + s2, x3 + s3
    out[4], out[5], out[6], out[7] = x4 + k0, x5 + k1, x6 + k2, x7 + k3
    out[8], out[9], out[10], out[11] = x8 + k4, x9 + k5, x10 + k6, x11 + k7
    out[12], out[13], out[14], out[15] = x12 + c0, x13 + c1, x14 + n0, x15 + n1


@numba.njit(nogil=True, cache=True)
def _uniform_rows(key, parties, round_number, low, high, out):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for row in range(parties.size):
        for column in range(out.shape[1]):
            place = column % BLOCK_WORDS
            if place == 0:
                chacha_block(key, parties[row], round_number, column // BLOCK_WORDS, words)
            # 23 bits and a half: strictly inside (0, 1), exact in float32.
            share = (np.float32(words[place] >> np.uint32(9)) + np.float32(0.5)) * np.float32(2.0**-23)
            out[row, column] = low + (high - low) * share


def uniform_rows(
    key: Key, parties: NDArray[np.int32], num_columns: int, low: float, high: float, round_number: int = 0
) -> NDArray[np.float32]:
    """One row of independent uniform numbers in (low, high) per party."""
    out = np.empty((len(parties), num_columns), np.float32)
    _uniform_rows(key, parties, round_number, np.float32(low), np.float32(high), out)
    return out


@numba.njit(nogil=True, cache=True)
def normal_pair(first, second):
    """Two independent standard normal numbers from two 32-bit words (Box-Muller)."""
    radius = np.sqrt(-2.0 * np.log((first + 0.5) * 2.0**-32))
    angle = 2.0 * np.pi * (second * 2.0**-32)
    return np.float32(radius * np.cos(angle)), np.float32(radius * np.sin(angle))


@numba.njit(nogil=True, cache=True)
def shuffle(key, party, round_number, epoch, words, order, size):
    """The numbers below `size` in random order (Fisher-Yates)."""
    for place in range(size):
        order[place] = place
    for last in range(size - 1, 0, -1):
        word = (size - 1 - last) % BLOCK_WORDS
        if word == 0:
            block = (size - 1 - last) // BLOCK_WORDS
            chacha_block(key, party, round_number, (epoch << 32) + block, words)
        place = np.int64((np.uint64(words[word]) * np.uint64(last + 1)) >> np.uint64(32))
        order[last], order[place] = order[place], order[last]
