"""Masks: streams of 64-bit numbers that two neighbours agree on, or that a participant draws for itself.

Two neighbours agree by X25519; BLAKE2b makes a key of what they agree on and of a digest of what each was told of
the sum (`messages.told_to_all`): masks cancel among those alone who were told the same. The stream is ChaCha20
with all its 20 rounds, as OpenSSL has it: draws of a simulation may use 8 rounds, but masks are all that stands
between a server and an upload. OpenSSL's code is reviewed, takes the same time whatever the key is, and uses
vector registers.

Guarantee: a number plus one of such a stream, modulo 2^64, is uniform to whoever has not the key (computational,
about 128 bits). A key is for one sum: a stream that masks two uploads tells their difference.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from hushrec.draws import Key
from hushrec.errors import HushrecError

KEY_BYTES = 32
_NONCE = bytes(16)  # a key has one stream

Words = NDArray[np.int64]
Bytes = NDArray[np.uint8]


class Secrets(NamedTuple):
    """What a participant draws for one sum."""

    private_key: bytes
    seed: bytes  # of its own mask
    coefficients: bytes  # of the polynomials that share both


def draw_secrets(key: Key, number: int, attempt: int, threshold: int = 1) -> Secrets:
    """The secrets of a participant's attempt at a sum; to be used for no other."""
    place = number.to_bytes(8, "little") + attempt.to_bytes(8, "little")

    def drawn(what: bytes, size: int) -> bytes:
        seed = blake2b(place, key=key.tobytes(), digest_size=32, person=what).digest()
        return seed if size == KEY_BYTES else _stream(seed, size)

    return Secrets(
        drawn(b"sum private key", KEY_BYTES),
        drawn(b"sum own mask", KEY_BYTES),
        drawn(b"sum shares", 2 * KEY_BYTES * (threshold - 1)),
    )


def _stream(key: bytes, num_bytes: int) -> bytes:
    return Cipher(ChaCha20(key, _NONCE), None).encryptor().update(bytes(num_bytes))


def public_key_of(private_key: bytes) -> bytes:
    """The public key that belongs to a private one."""
    return X25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()


class Agreements:
    """The keys of masks that one participant has in common with others who were told the same."""

    def __init__(self, private_key: bytes, told: bytes) -> None:
        self._private_key, self._told = X25519PrivateKey.from_private_bytes(private_key), told

    def mask_key(self, public_key: bytes) -> bytes:
        """The same for both of two participants, if both were told the same."""
        try:
            agreed = self._private_key.exchange(X25519PublicKey.from_public_bytes(public_key))
        except ValueError:
            raise HushrecError("a participant's public key is not an X25519 key; leave it out") from None
        return blake2b(agreed, digest_size=KEY_BYTES, key=self._told, person=b"hushrec sum mask").digest()


class Streams:
    """Adds streams to rows of numbers of one length, or takes them away, in place."""

    def __init__(self, num_words: int) -> None:
        self._zeros, self._drawn = bytes(8 * num_words), bytearray(8 * num_words)
        self._words: Words = np.frombuffer(self._drawn, "<i8")

    def add(self, words: Words, key: bytes, sign: int) -> None:
        """Add the stream of a key, modulo 2^64; with sign -1, subtract it."""
        Cipher(ChaCha20(key, _NONCE), None).encryptor().update_into(self._zeros, self._drawn)
        (np.add if sign > 0 else np.subtract)(words, self._words, out=words)


def sign_of(number: int, neighbour: int) -> int:
    """Of two neighbours the one with the lower number adds their mask, the other subtracts it."""
    return 1 if number < neighbour else -1
