# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Exact draws of the discrete Gaussian: whole numbers z with chances proportional to exp(-z^2 / (2 s^2)).

Karney's way (Sampling exactly from the normal distribution, 2016, Algorithm D) for a whole s. A trial draws

1. k >= 0 with chances proportional to exp(-k^2 / 2), a sign, and j uniform below s;
2. it rejects -0, and accepts +-(k s + j) with the chance exp(-x (2k + x) / 2), where x = j / s.

Nothing is rounded: where a chance is a real number, it is compared with a uniform number of which the first 32
bits are drawn. They decide as soon as they are farther from the chance than floating point may err. If not, which
happens once in about 10^9 trials, 512 bits more are drawn and compared with the chance to 640 bits. So each number
has just the chance that it should have, up to 2^-500, and the same bits come on every machine.

s has 16 leading bits at most: it is rounded up to q 2^b. Draws follow from a seed alone: its ChaCha20 stream, with
all 20 rounds, as masks have it.

Guarantee: a whole number with such noise is as private as one with Gaussian noise of the same deviation (Canonne,
Kamath and Steinke, NeurIPS 2020). `gap` bounds what sums of independent shares of it tell beyond that.
"""

import math
from functools import cache
from hashlib import blake2b

import numba
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

Words = NDArray[np.int64]

LEADING_BITS = 16
MOST_BITS = LEADING_BITS + 31  # of a deviation: j has 31 bits below those
_TRIAL_WORDS = 4
_MOST_TRIALS = 4096  # whose numbers are drawn at a time
_GUARD = 1e-14  # how far a chance in floating point may be from the true one, and much more than it is
_PRECISION = 640  # bits of a chance that is looked at closely
_K_COMPARISON, _ACCEPTANCE = 0, 1
_ASKED = -1  # what is not known yet
_FARTHEST = 40.0  # deviations: what is beyond has a chance below e^-800


# --- Chances to 640 bits -----------------------------------------------------------------------------------------


def _exp_bits(numerator: int, denominator: int) -> int:
    """exp(-numerator / denominator) times 2^640, to within some units."""
    # exp(-x) = exp(-x / 2^h)^(2^h), with a short series for the small argument, in 128 bits more.
    halvings = max(0, numerator.bit_length() - denominator.bit_length() + 1) + 16
    unit = 1 << (_PRECISION + 128)
    small = unit * numerator // (denominator << halvings)
    total, term, place = unit, unit, 0
    while term:
        place += 1
        term = term * small // unit // place
        total += -term if place % 2 else term
    for _ in range(halvings):
        total = total * total // unit
    return total >> 128


@cache
def _bounds_of_k() -> tuple[int, ...]:
    """The chances that k is 0, at most 1, at most 2, ... times 2^640; the last is as good as 1."""
    weights = [_exp_bits(k * k, 2) for k in range(31)]
    total, bounds, below = sum(weights), [], 0
    for weight in weights:
        below += weight
        bounds.append((below << _PRECISION) // total)
    return tuple(bounds)


@cache
def _k_thresholds() -> NDArray[np.uint32]:
    """The first 32 bits of these chances, as far as they differ from 1."""
    firsts = [bound >> (_PRECISION - 32) for bound in _bounds_of_k()]
    return np.array([first for first in firsts if first < 2**32 - 1], np.uint32)


def _looked_at_closely(seed: bytes, found: tuple[int, ...], deviation: int) -> int:
    """Which k, or whether it is accepted, by 544 bits of the uniform number instead of 32."""
    which, trial, word, k, j = found
    place = (2 * trial + which).to_bytes(8, "little")
    more = int.from_bytes(blake2b(place, key=seed, digest_size=64, person=b"hushrec closely").digest(), "little")
    uniform = (word << 512 | more) << (_PRECISION - 544)
    if which == _K_COMPARISON:
        return next(place for place, bound in enumerate(_bounds_of_k()) if uniform < bound)
    return int(uniform < _exp_bits(j * (2 * k * deviation + j), 2 * deviation * deviation))


# --- Draws -------------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_noise(stream, leading, shift, thresholds, guard, words, where, known, found):
    """Add a draw to each word, from where the last call stopped; tell whether it stopped for a close look.

    `stream`: four 32-bit numbers for each trial. `where`: the word that is next, the trial that is next, and how
    many trials are in streams before this one. `known`: k and acceptance of that trial, if they were looked at
    closely. `found`: what is to be looked at.
    """
    deviation, place, trial = leading << shift, where[0], where[1]
    per_deviation, low_bits = 1.0 / np.float64(deviation), (1 << shift) - 1
    # What Lemire's way must reject of 32 bits, so that each number below `leading` is as likely.
    uneven = np.uint64((1 << 32) % leading)
    is_stopped = False
    while place < words.size and trial < len(stream):
        k, is_accepted = known[0], known[1]
        if k < 0:
            word, k = stream[trial, 0], 0
            while k < thresholds.size and word > thresholds[k]:
                k += 1
            if k == thresholds.size or word == thresholds[k]:
                found[0], found[2], is_stopped = _K_COMPARISON, word, True
                break
        product, low = np.uint64(stream[trial, 1]) * np.uint64(leading), np.int64(stream[trial, 2])
        j = (np.int64(product >> np.uint64(32)) << shift) + ((low >> 1) & low_bits)
        is_negative = (low & 1) == 1
        is_even = (product & np.uint64(0xFFFFFFFF)) >= uneven
        if not is_even or (is_negative and k == 0 and j == 0):
            is_accepted = 0
        if is_accepted < 0:
            x = np.float64(j) * per_deviation
            chance, word = math.exp(-0.5 * x * (2.0 * k + x)), stream[trial, 3]
            if np.float64(word) + 1.0 <= (chance - guard) * 4294967296.0:
                is_accepted = 1
            elif np.float64(word) >= (chance + guard) * 4294967296.0:
                is_accepted = 0
            else:
                found[0], found[2], found[3], found[4] = _ACCEPTANCE, word, k, j
                known[0], is_stopped = k, True
                break
        if is_accepted == 1:
            words[place] += -(k * deviation + j) if is_negative else k * deviation + j
            place += 1
        known[0], known[1] = _ASKED, _ASKED
        trial += 1
    where[0], where[1], found[1] = place, trial, where[2] + trial
    return is_stopped


def parts_of(deviation: float) -> tuple[int, int]:
    """The least q 2^b that is not below a deviation, with q of 16 bits: q and b."""
    least = math.ceil(deviation)
    if not 1 <= least < 2**MOST_BITS - 2**32:
        raise ValueError("a deviation must be at least 1 and below 2^47")
    shift = max(0, least.bit_length() - LEADING_BITS)
    leading = -(-least >> shift)
    return (leading, shift) if leading < 2**LEADING_BITS else (leading >> 1, shift + 1)


def add_noise(words: Words, deviation: float, seed: bytes, guard: float = _GUARD) -> None:
    """Add an independent draw to each number, modulo 2^64, in place; deviations are rounded up to 16 bits.

    `seed`: 32 bytes, for these numbers and no others. A larger `guard` looks closely more often. It changes no
    draw, but how long they take.
    """
    leading, shift = parts_of(deviation)
    where, known, found = np.zeros(3, np.int64), np.full(2, _ASKED), np.zeros(5, np.int64)
    cipher = Cipher(ChaCha20(seed, bytes(16)), None).encryptor()
    while where[0] < len(words):
        num_trials = min(_MOST_TRIALS, 16 + 3 * (len(words) - int(where[0])) // 2)
        stream = np.frombuffer(cipher.update(bytes(16 * num_trials)), "<u4").reshape(-1, _TRIAL_WORDS)
        while _add_noise(stream, leading, shift, _k_thresholds(), guard, words, where, known, found):
            seen: tuple[int, ...] = tuple(found.tolist())
            known[seen[0]] = _looked_at_closely(seed, seen, leading << shift)
        where[1], where[2] = 0, where[2] + num_trials


# --- What sums of shares tell more -------------------------------------------------------------------------------


def gap(fewest: int, most: int, deviation: float) -> float:
    """How far the sum of so many shares is, at most, from Gaussian noise rounded to whole numbers.

    By logarithms of the chances of all numbers, but for those that have a chance below 2 e^-800 together.

    1. From one discrete Gaussian of the same variance: 10 sum_k exp(-2 pi^2 s^2 k / (k + 1)), k = 1 .. n - 1, for
       n shares of deviation s (Kairouz, Liu and Steinke, ICML 2021, Theorem 1); k / (k + 1) is at least 1/2.
    2. That from rounded Gaussian noise, S = s sqrt(n). The chance of z is the integral of the density over
       z +- 1/2, which is the density at z times the mean of exp(-t^2 / 2S^2) cosh(z t / S^2) over |t| <= 1/2:
       between exp(-1 / 8S^2) and exp(z^2 / 8S^4), and |z| is at most 40 S. The densities at whole numbers sum
       up to 1 and at most 3 exp(-2 pi^2 S^2) more.

    Numbers with rounded Gaussian noise are rounded numbers with Gaussian noise, which tell no more than those.
    """
    to_one = 10 * max(most - 1, 0) * math.exp(-(math.pi**2) * deviation**2)
    square = fewest * deviation**2
    return to_one + (1 + _FARTHEST**2) / (8 * square) + 3 * math.exp(-2 * math.pi**2 * square)
