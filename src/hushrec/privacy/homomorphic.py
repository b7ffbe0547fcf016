"""Sums of integers that the adding side cannot read: BFV (SEAL, through TenSEAL) and Paillier (phe).

Numbers are cut into blocks; a block is one ciphertext and travels as a row of bytes of a fixed length. To add
takes an `Adder`, to encrypt and to decrypt a `SecretKey`.

Guarantee: who has no secret key learns nothing of the numbers but how many blocks there are (IND-CPA: under
ring-LWE with 128 bits of security for BFV, under composite residuosity for Paillier). Sums are exact while all of
them stay within +-SUM_LIMIT; whoever encrypts has to see to it. Not protected: anything against a holder of the
key, and against an adding side that sends the holders other ciphertexts than it was given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import shake_256
from importlib import import_module
from itertools import count
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Key
from hushrec.errors import HushrecError, MissingExtraError, how_to_install, option
from hushrec.privacy.seal_bytes import Bytes as Bytes
from hushrec.privacy.seal_bytes import bytes_of, padded, value_from
from hushrec.protocol import Numbers, Ragged

Scheme = Literal["bfv", "paillier"]
Integers = NDArray[np.int64]

SLOT_BITS = 32
SUM_LIMIT = 2**31 - 2**17  # below half of BFV's plain modulus, the largest batching prime of 32 bits
# A fresh ciphertext's error is at most 1/2 from rounding and 21 drawn independently with mean zero. A sum is read
# rightly while its error is below q / 2t = 2^22. For 2^21 summands rounding takes 2^20 at most; that the rest
# exceeds 3 * 2^20 has a probability below 2 exp(-5000) (Hoeffding).
MOST_ADDITIONS = 2**21

_DEGREE = 4096  # numbers per ciphertext of BFV
_MODULUS_BITS = [55, 54]  # of the coefficients; together 109, SEAL's largest for 128 bits of security
_FRESH_BYTES, _SUM_BYTES = 31_232, 62_464  # SEAL's own format, compressed and padded; a fresh one holds a seed


class Adder(Protocol):
    """What the adding side holds: it can add ciphertexts and read none."""

    slots: int  # numbers per ciphertext
    fresh_bytes: int  # of a ciphertext as it was encrypted
    sum_bytes: int  # of one that was computed

    def load(self, row: Bytes) -> Any:
        """A ciphertext from its bytes, to compute with."""
        ...

    def add(self, one: Any, other: Any) -> Any:
        """The ciphertext of the sum; may change the first."""
        ...

    def add_plain(self, one: Any, numbers: Integers) -> Any:
        """The ciphertext of the sum with numbers that everyone may know; may change the first."""
        ...

    def save(self, ciphertext: Any) -> Bytes:
        """The bytes of a computed ciphertext."""
        ...


class SecretKey(Protocol):
    """What those hold who may read."""

    adder: Adder

    def encrypt(self, numbers: Integers) -> Bytes:
        """The bytes of the ciphertext of one block."""
        ...

    def decrypt(self, row: Bytes) -> Integers:
        """The numbers of one block, fresh or computed."""
        ...


def adder_for(scheme: Scheme, seed: Key) -> Adder:
    """The adding side. Of the seed of the secret key it uses only what is public: of BFV's nothing.

    Of Paillier's it uses n, but makes the whole key to get it: whoever calls this with the seed could read.
    """
    return BfvAdder() if scheme == "bfv" else _paillier_key(*seed.tolist()).adder


def secret_key(scheme: Scheme, seed: Key) -> SecretKey:
    """The secret key that this seed gives."""
    return BfvKey.from_seed(seed) if scheme == "bfv" else _paillier_key(*seed.tolist())


def num_blocks(size: int, slots: int) -> int:
    """How many ciphertexts hold so many numbers."""
    return -(-size // slots)


def to_blocks(numbers: Integers, slots: int) -> Integers:
    """The numbers, one after the other, in rows of a block each, with zeros behind the last."""
    blocks = np.zeros((num_blocks(numbers.size, slots), slots), np.int64)
    blocks.ravel()[: numbers.size] = numbers.ravel()
    return blocks


def check_range(numbers: Integers) -> None:
    """Refuse numbers that would come out as others."""
    if numbers.size and max(-int(numbers.min()), int(numbers.max())) > SUM_LIMIT:
        raise HushrecError(
            f"a number to encrypt is not within ±{SUM_LIMIT}; use a lower {option('learning_rate')}"
        )


def imported(module: str, what: str, package: str, extra: str) -> Any:
    """A module of an extra."""
    try:
        return import_module(module)
    except ImportError:
        told = f"{what} needs {package}; install it with: {how_to_install(extra)}"
        raise MissingExtraError(told) from None


# --- BFV -------------------------------------------------------------------------------------------------


def _bfv_context(seal: Any, seed: list[int] | None = None) -> Any:
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(_DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(_DEGREE, _MODULUS_BITS))
    parameters.set_plain_modulus(seal.PlainModulus.Batching(_DEGREE, SLOT_BITS))
    if seed is not None:
        parameters.set_random_generator(seal.Blake2xbPRNGFactory(seed))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


class BfvAdder:
    """The adding side of BFV."""

    slots, fresh_bytes, sum_bytes = _DEGREE, _FRESH_BYTES, _SUM_BYTES

    def __init__(self) -> None:
        self.seal = imported("tenseal.sealapi", "BFV encryption", "TenSEAL", "he")
        self.context = _bfv_context(self.seal)
        self._evaluator = self.seal.Evaluator(self.context)
        self._encoder = self.seal.BatchEncoder(self.context)

    def __deepcopy__(self, _memo: object) -> "BfvAdder":
        """Itself: nothing of it changes, and SEAL's objects cannot be copied."""
        return self

    def load(self, row: Bytes) -> Any:
        """A ciphertext from its bytes; SEAL checks that it is one of these parameters."""
        empty, refusal = self.seal.Ciphertext(), "a ciphertext is damaged; leave it out"
        ciphertext = value_from(empty, self.context, row.tobytes(), refusal)
        if ciphertext.size() != 2:
            raise HushrecError("a ciphertext has the wrong size; leave it out")
        if ciphertext.is_ntt_form() or ciphertext.is_transparent():
            raise HushrecError("a ciphertext is of another kind than the one asked for; leave it out")
        return ciphertext

    def add(self, one: Any, other: Any) -> Any:
        """The ciphertext of the sum, in the first."""
        return self._computed(self._evaluator.add_inplace, one, other)

    def add_plain(self, one: Any, numbers: Integers) -> Any:
        """The ciphertext of the sum with known numbers, in the first."""
        return self._computed(self._evaluator.add_plain_inplace, one, self.encoded(numbers))

    def _computed(self, operation: Callable[[Any, Any], None], one: Any, other: Any) -> Any:
        """SEAL refuses to compute what everybody could read, as the sum of a ciphertext and its opposite."""
        try:
            operation(one, other)
        except (RuntimeError, ValueError):
            raise HushrecError("ciphertexts cancel each other out; begin the round again without them") from None
        return one

    def save(self, ciphertext: Any) -> Bytes:
        """The bytes of a sum."""
        return padded(bytes_of(ciphertext), _SUM_BYTES)

    def encoded(self, numbers: Integers) -> Any:
        """Numbers in the slots of a plaintext."""
        check_range(numbers)
        plain = self.seal.Plaintext()
        self._encoder.encode(numbers.tolist(), plain)
        return plain

    def decoded(self, plain: Any) -> Integers:
        """The numbers in the slots of a plaintext."""
        return np.array(self._encoder.decode_int64(plain), np.int64)


class BfvKey:
    """A secret key of BFV.

    Guarantee: the key follows from its seed; what a ciphertext is encrypted with does not, SEAL takes it anew
    from the operating system. So nothing that is decrypted depends on chance, but ciphertexts never repeat.
    """

    def __init__(self, adder: BfvAdder, key: Any) -> None:
        self.adder: Adder = adder
        self._bfv = adder
        self._encryptor = adder.seal.Encryptor(adder.context, key)
        self._decryptor = adder.seal.Decryptor(adder.context, key)

    @classmethod
    def from_seed(cls, seed: Key) -> "BfvKey":
        """The key that this seed gives."""
        adder = BfvAdder()
        seeded = _bfv_context(adder.seal, [int(word) for word in seed])
        return cls(adder, adder.seal.KeyGenerator(seeded).secret_key())

    def __deepcopy__(self, _memo: object) -> "BfvKey":
        """Itself, as its adder."""
        return self

    def encrypt(self, numbers: Integers) -> Bytes:
        """The bytes of a fresh ciphertext."""
        plain = self._bfv.encoded(numbers)
        while True:
            data = bytes_of(self._encryptor.encrypt_symmetric(plain))
            if len(data) <= _FRESH_BYTES:  # sizes after compression vary by some ten bytes
                return padded(data, _FRESH_BYTES)

    def decrypt(self, row: Bytes) -> Integers:
        """The numbers of a block."""
        plain, ciphertext = self._bfv.seal.Plaintext(), self._bfv.load(row)
        self._decryptor.decrypt(ciphertext, plain)
        return self._bfv.decoded(plain)

    def noise_budget(self, row: Bytes) -> int:
        """Bits that are left for noise; at 0 a ciphertext cannot be read any more."""
        return int(self._decryptor.invariant_noise_budget(self._bfv.load(row)))


# --- Paillier --------------------------------------------------------------------------------------------


class PaillierAdder:
    """The adding side of Paillier. Numbers are packed, 32 bits each, into one plaintext."""

    def __init__(self, public_key: Any) -> None:
        self.public_key = public_key
        bits = public_key.n.bit_length()
        self.slots = (bits - SLOT_BITS) // SLOT_BITS
        self.fresh_bytes = self.sum_bytes = bits // 4

    def load(self, row: Bytes) -> Any:
        """A ciphertext from its bytes."""
        value = int.from_bytes(row.tobytes(), "little")
        if not 0 < value < self.public_key.nsquare:
            raise HushrecError("a ciphertext is damaged; leave it out")
        return value

    def add(self, one: Any, other: Any) -> Any:
        """The ciphertext of the sum."""
        return one * other % self.public_key.nsquare

    def add_plain(self, one: Any, numbers: Integers) -> Any:
        """The ciphertext of the sum with known numbers."""
        return one * (1 + self.public_key.n * self.packed(numbers)) % self.public_key.nsquare

    def save(self, ciphertext: Any) -> Bytes:
        """The bytes of a ciphertext."""
        return np.frombuffer(ciphertext.to_bytes(self.sum_bytes, "little"), np.uint8)

    def packed(self, numbers: Integers) -> int:
        """sum_k numbers_k 2^(32 k), modulo n."""
        check_range(numbers)
        above, below = (np.maximum(part, 0).astype("<u4").tobytes() for part in (numbers, -numbers))
        return int((int.from_bytes(above, "little") - int.from_bytes(below, "little")) % self.public_key.n)


class PaillierKey:
    """A secret key of Paillier; like BFV's, its seed decides the key and not the ciphertexts."""

    def __init__(self, public_key: Any, private_key: Any) -> None:
        self._paillier = PaillierAdder(public_key)
        self.adder: Adder = self._paillier
        self._private_key = private_key

    @classmethod
    def from_seed(cls, seed: Key, bits: int = 2048) -> "PaillierKey":
        """The key that this seed gives."""
        phe = imported("phe", "Paillier encryption", "phe", "paillier")
        is_prime = import_module("phe.util").is_prime
        first, second = (_prime(bits // 2, seed.tobytes() + place, is_prime) for place in (b"p", b"q"))
        public_key = phe.PaillierPublicKey(first * second)
        return cls(public_key, phe.PaillierPrivateKey(public_key, first, second))

    def encrypt(self, numbers: Integers) -> Bytes:
        """The bytes of a fresh ciphertext."""
        return self._paillier.save(self._paillier.public_key.raw_encrypt(self._paillier.packed(numbers)))

    def decrypt(self, row: Bytes) -> Integers:
        """The numbers of a block."""
        packed, n = self._private_key.raw_decrypt(self._paillier.load(row)), self._paillier.public_key.n
        slots, half = self.adder.slots, 1 << (SLOT_BITS - 1)
        # With a half added to every slot none is below zero, and none borrows from the next.
        shifted = (packed if packed <= n // 2 else packed - n) + sum(half << (SLOT_BITS * k) for k in range(slots))
        words = np.frombuffer(shifted.to_bytes(4 * slots, "little"), "<u4")
        return words.astype(np.int64) - half


@lru_cache(4)
def _paillier_key(*seed: int) -> PaillierKey:
    return PaillierKey.from_seed(np.array(seed, np.uint32))


def _prime(bits: int, seed: bytes, is_prime: Callable[[int], bool]) -> int:
    """A prime with its two highest bits set, so that a product of two has twice the bits."""
    for attempt in count():
        drawn = int.from_bytes(shake_256(seed + attempt.to_bytes(8, "little")).digest(bits // 8), "little")
        candidate = drawn | (3 << (bits - 2)) | 1
        if is_prime(candidate):
            return candidate
    raise AssertionError("primes do not run out")


# --- Sums of uploads -------------------------------------------------------------------------------------


class EncryptedBlocks(Protocol):
    """A message with some encrypted blocks per party."""

    @property
    def places(self) -> Ragged:
        """Which blocks."""
        ...

    @property
    def blocks(self) -> Ragged:
        """Their ciphertexts."""
        ...


@dataclass
class EncryptedSum:
    """The fold that adds ciphertexts block by block. Modular addition: the same bits in any order."""

    adder: Adder
    num_blocks: int
    sums: dict[int, Any] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def fork(self) -> "EncryptedSum":
        """An empty sum of the same kind."""
        return EncryptedSum(self.adder, self.num_blocks)

    def add(self, numbers: Numbers, message: EncryptedBlocks) -> None:
        """Add every block of a batch, or none if one is damaged."""
        places, rows = message.places, message.blocks.values
        if rows.shape[1:] != (self.adder.fresh_bytes,) or len(rows) != len(places.values):
            raise HushrecError(f"ciphertexts do not have {self.adder.fresh_bytes} bytes each; leave them out")
        if ((places.values < 0) | (places.values >= self.num_blocks)).any():
            raise HushrecError("an upload has a block that is not of the catalogue; leave it out")
        is_again = places.not_ascending()
        if is_again.any():
            sender = numbers[np.searchsorted(places.starts, is_again.argmax(), side="right") - 1]
            raise HushrecError(f"client {sender} sends a block twice; leave it out")
        loaded = [self.adder.load(row) for row in rows]
        for place, ciphertext in zip(places.values.tolist(), loaded, strict=True):
            self._take(place, ciphertext, 1)

    def merge(self, other: "EncryptedSum") -> None:
        """Add another sum over the same blocks."""
        for place, ciphertext in other.sums.items():
            self._take(place, ciphertext, other.counts[place])

    def _take(self, place: int, ciphertext: Any, num_summands: int) -> None:
        self.counts[place] = self.counts.get(place, 0) + num_summands
        known = self.sums.get(place)
        self.sums[place] = ciphertext if known is None else self.adder.add(known, ciphertext)
