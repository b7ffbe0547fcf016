# mypy: allow-untyped-defs, allow-untyped-calls
"""Shamir's scheme, byte by byte: a secret is cut into shares, of which any t give it back.

Shamir: How to Share a Secret (Communications of the ACM, 1979), over the field of 256 elements. Each byte is the
value at 0 of a polynomial of degree t - 1, and the share number x of it is the value at x, x = 1, 2, ..., 255.

Guarantee: any t - 1 shares are uniform whatever the secret is, if the other coefficients are uniform.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def _tables() -> tuple[Bytes, NDArray[np.int64]]:
    """Powers of 3, which gives all elements but 0, and logarithms; modulo x^8 + x^4 + x^3 + x + 1."""
    powers, logarithms, value = np.zeros(510, np.uint8), np.zeros(256, np.int64), 1
    for exponent in range(255):
        powers[exponent] = powers[exponent + 255] = value
        logarithms[value] = exponent
        doubled = value << 1
        value ^= doubled ^ (0x11B if doubled & 0x100 else 0)
    return powers, logarithms


_POWERS, _LOGARITHMS = _tables()


@numba.njit(nogil=True, cache=True, inline="always")
def _times(one, other):
    if one == 0 or other == 0:
        return np.uint8(0)
    return _POWERS[_LOGARITHMS[one] + _LOGARITHMS[other]]


@numba.njit(nogil=True, cache=True)
def _split(coefficients, shares):
    for party in range(len(shares)):
        for place in range(shares.shape[1]):
            for byte in range(shares.shape[2]):
                value = np.uint8(0)
                for power in range(coefficients.shape[1] - 1, -1, -1):  # Horner
                    value = _times(value, place + 1) ^ coefficients[party, power, byte]
                shares[party, place, byte] = value


def split(secrets: Bytes, others: Bytes, num_shares: int) -> Bytes:
    """Shares 1, 2, ... of each secret: (secrets, shares, bytes).

    `others`: the coefficients above the first, uniform, (secrets, t - 1, bytes).
    """
    coefficients = np.concatenate([secrets[:, None], others], axis=1)
    shares = np.empty((len(secrets), num_shares, secrets.shape[1]), np.uint8)
    _split(coefficients, shares)
    return shares


@numba.njit(nogil=True, cache=True)
def _combine(places, shares, secrets):
    for party in range(len(shares)):
        for one in range(places.shape[1]):
            weight = 0  # the logarithm of Lagrange's weight at 0: the product of x_j / (x_j - x_i)
            for other in range(places.shape[1]):
                if other != one:
                    below = _LOGARITHMS[places[party, other] ^ places[party, one]]
                    weight += _LOGARITHMS[places[party, other]] + 255 - below
            for byte in range(shares.shape[2]):
                secrets[party, byte] ^= _times(_POWERS[weight % 255], shares[party, one, byte])


def combine(places: NDArray[np.int64], shares: Bytes) -> Bytes:
    """Secrets from t shares each: (secrets, t) different places, (secrets, t, bytes)."""
    secrets = np.zeros((len(shares), shares.shape[2]), np.uint8)
    _combine(places, shares, secrets)
    return secrets
