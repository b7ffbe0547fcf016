# mypy: allow-untyped-defs, allow-untyped-calls
"""Noise on the numbers of a sum, a share from each participant: the distributed discrete Gaussian mechanism.

Kairouz, Liu, Steinke: The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation
(ICML 2021), without their rotation and their coarse rounding, for 64-bit numbers need neither.

1. All numbers of a participant are put on one grid of 2^-40, counts with a weight, and scaled down to l2 norm
   `clip`, rounded towards zero.
2. To each it adds a draw of the discrete Gaussian with deviation multiplier clip / sqrt(h). Of n participants, the
   settings let at most D be lost, or nothing is unmasked, and C be corrupted; h = n - D - C honest ones are left
   at least. So what is left of the noise without all others has the deviation multiplier clip, or more.
3. The server takes sums as they are, and counts below zero as zero.

Guarantee: removing one user's numbers moves the sum by at most `clip` in l2 norm (the sensitivity); the honest
survivors' noise has at least `multiplier` times that as its deviation. Sums of discrete Gaussians are not quite
Gaussian: `discrete_gaussian.gap`, times all numbers of a run, twice, is added up here, and refused if it is above
1e-6 of epsilon; with a clip of 1, a multiplier of 1 and any number of clients below a million it is 2e-22
for each number. Who does not add its share is one of the corrupted. Neighbours, and what is counted:
`user_privacy`.

Not protected: against whoever knows the seeds of clients, from which noise is drawn; against a server that names
participants who are not there, as their noise is not there either; that a training diverges.
"""

import math
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import floor
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Key
from hushrec.errors import HushrecError, option
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.discrete_gaussian import MOST_BITS, add_noise, gap
from hushrec.privacy.secure_sum.plan import plan_for
from hushrec.privacy.secure_sum.settings import SecureSums
from hushrec.privacy.user_privacy import most_sums, multiplier_of

Words = NDArray[np.int64]

_LARGEST_GAP = 1e-6  # of epsilon
_ROUNDING = 2.0**-30  # more than floating point errs in a norm


class Sized(Protocol):
    """What of a sum says how its numbers are to be read."""

    fraction_bits: int  # of its numbers but the last ones
    deviation: float  # of the noise in it; 0: none
    count_deviation: float  # of that in the counts

    @property
    def num_counts(self) -> int:
        """How many of its numbers, the last ones, are counts."""
        ...


@dataclass(frozen=True)
class Size:
    """How large the numbers of one client are, about."""

    clip: float  # l2 norm
    count_weight: float = 0.0  # what a count of one is in that norm; 0: counts are not needed, and not sent


@dataclass(frozen=True)
class Noise:
    """What each of so many participants does with its numbers."""

    size: Size
    multiplier: float
    num_parties: int
    least_honest: int  # of those who survive

    @property
    def clip_words(self) -> float:
        """The norm in units of the grid."""
        return self.size.clip * 2.0**FRACTION_BITS

    @property
    def share_deviation(self) -> float:
        """Of one participant's noise, in units of the grid."""
        return self.multiplier * self.clip_words / math.sqrt(self.least_honest)

    def deviation(self, num_survivors: int) -> float:
        """Of the noise in the sum of so many."""
        return self.multiplier * self.size.clip * math.sqrt(num_survivors / self.least_honest)


def noise_for(num_parties: int, num_words: int, usual: Size, per_round: int, config: Any) -> Noise:
    """The noise of a sum over so many participants; refuses what could not be kept."""
    honest = _least_honest(num_parties, config)
    size = replace(usual, clip=config.clip) if config.clip else usual
    noise = Noise(size, multiplier_of(config, per_round), num_parties, honest)
    if noise.share_deviation >= 2.0 ** (MOST_BITS - 1) or num_parties * noise.clip_words >= 2.0**62:
        raise HushrecError(
            f"{option('clip', size.clip)} is too large for {num_parties} clients; use a smaller one"
        )
    all_words = 2 * num_words * most_sums(config, per_round)
    if noise.share_deviation < 1 or all_words * gap(honest, num_parties, noise.share_deviation) > _LARGEST_GAP:
        raise HushrecError(
            f"noise of {noise.share_deviation:.3g} steps of 2^-{FRACTION_BITS} is too coarse; use a larger "
            f"{option('clip')}"
        )
    return noise


def _least_honest(num_parties: int, settings: SecureSums) -> int:
    """How many of the survivors of a sum are honest, at least."""
    # Both shares are below one half, so there is one.
    return plan_for(num_parties, settings).least - floor(settings.secure_corrupted * num_parties)


def _units(num_words: int, sized: Sized, size: Size) -> Words:
    """How many steps of the grid one is, for each number."""
    units = np.full(num_words, 1 << (FRACTION_BITS - sized.fraction_bits), np.int64)
    if sized.num_counts:
        units[num_words - sized.num_counts :] = round(size.count_weight * 2.0**FRACTION_BITS)
    return units


@numba.njit(nogil=True, cache=True)
def _clip(words, clip, rounding):
    """Scale numbers down to an l2 norm, each towards zero, in place."""
    square = 0.0
    for place in range(words.size):
        square += np.float64(words[place]) ** 2
    norm = math.sqrt(square) * (1.0 + rounding)
    if norm > clip:
        factor = clip / norm
        for place in range(words.size):
            words[place] = np.int64(np.float64(words[place]) * factor)


def clipped(words: Words, sized: Sized, noise: Noise) -> Words:
    """A participant's numbers on the grid, of norm `clip` at most."""
    on_grid: Words = words * _units(len(words), sized, noise.size)
    _clip(on_grid, noise.clip_words, _ROUNDING)
    return on_grid


def with_noise(words: Words, sized: Sized, noise: Noise, key: Key, number: int, attempt: int) -> Words:
    """A participant's numbers, clipped, with its share of noise.

    The same numbers get the same noise if the same attempt at a sum is asked for again. Other numbers have other
    noise, even if a participant has forgotten that it made this attempt: no difference of sums is free of noise.
    """
    noisy = clipped(words, sized, noise)
    place = number.to_bytes(8, "little") + attempt.to_bytes(8, "little")
    total = blake2b(place, key=key.tobytes(), digest_size=32, person=b"sum noise")
    total.update(noisy.data)
    add_noise(noisy, noise.share_deviation, total.digest())
    return noisy


def read_noisy(words: Words, sized: Sized, noise: Noise, num_survivors: int) -> Words:
    """Sums as the fold has them, rounded; counts are at least zero. The fold is told how much noise there is."""
    units = np.maximum(_units(len(words), sized, noise.size), 1)
    sums: Words = (words + units // 2) // units
    sized.deviation = noise.deviation(num_survivors)
    if sized.num_counts:
        weight = noise.size.count_weight
        counts = sums[len(sums) - sized.num_counts :]
        np.maximum(counts, 0, out=counts) if weight else counts.fill(0)
        sized.count_deviation = sized.deviation / weight if weight else 0.0
    return sums
