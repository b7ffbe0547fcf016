"""Scores of items for a user whose vector the owner of the items cannot read: CKKS (SEAL, through TenSEAL).

One partner (`KeyHolder`) encrypts user vectors. The other (`ItemScorer`) multiplies its plain item matrix with
them and never sees a vector or a score. The first decrypts.

How: the vector is repeated over the 4,096 complex slots of a ciphertext. A slot of an answer is for two items,
one in its real and one in its imaginary part. The score of slot j is
sum_t item[j, (j + t) % d] * user[(j + t) % d]: the user's part is the ciphertext turned by t, the item's is one
plain diagonal per t. With t = i + g * b and i < b, the ciphertext is turned for every i (baby steps), and for
every g the sum over i is turned (giant steps). If items leave half of the slots free, or more, each region of the
slots has only its share of the factors, and the regions are added at the end.

Guarantee: who has no secret key learns nothing of the vectors but how many there are (IND-CPA, ring-LWE with 128
bits of security). Scores are within 1e-6 of the plain ones for vectors of length 5 (within 1e-5 at most).

What the key holder learns of the items: one inner product per item and vector, so d answers about independent
vectors give it the item matrix; limit how many are answered. Nothing beyond that, if it made its keys honestly
(circuit privacy): to each answer the scorer adds an encryption of zero, so that none of what it multiplied shows
in the ciphertext, and uniform noise of +-2^-22 per score, which hides the errors of turning up to a statistical
distance of about 2^-30 per answer. Rescaling comes after both.

What a scorer learns that gets scores back: with the errors of CKKS in them, exact decryptions would give it the
secret key (Li and Micciancio 2021). `decrypt` therefore adds normal noise of 2^-24, about 2^10 times the error; it
takes some 2^33 scores under one key before that much noise averages out. Return places of a top k or rounded
scores where they do, and take a new key now and then.

Not protected: ciphertexts can be changed in transit, integrity comes from the sealed transport. Nor is a key
holder protected against a scorer that answers with other ciphertexts than it computed and gets their decryptions
back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from hushrec.draws import Key
from hushrec.errors import HushrecError, option
from hushrec.limits import MOST_ITEMS
from hushrec.privacy.homomorphic import imported
from hushrec.privacy.seal_bytes import Bytes, bytes_of, padded, value_from

Floats = NDArray[np.float64]

MOST_FACTORS = 128
VECTOR_LIMIT, OFFSET_LIMIT = 100.0, 1000.0  # lengths of a user's and of an item's vector; an item's offset
SCORE_LIMIT = VECTOR_LIMIT**2 + OFFSET_LIMIT
REQUEST_BYTES, ANSWER_BYTES = 113_152, 131_328  # per ciphertext in SEAL's format, padded; sizes vary a little
_PUBLIC_KEY_BYTES, _TURN_KEY_BYTES = 363_520, 361_472  # of a public key, and for each turn; padded as well

_DEGREE = 8192
_SLOTS = _DEGREE // 2
# Two primes of the data and one of the keys, 157 bits; up to 218 have 128 bits of security. The two hold scores of
# 2^14 at the scale of the product, the first alone at the scale of the answer.
_MODULUS_BITS = [60, 37, 60]
_USER_SCALE, _ITEM_SCALE = 2.0**50, 2.0**32
_PRODUCT_SCALE = _USER_SCALE * _ITEM_SCALE
_SCORER_NOISE, _HOLDER_NOISE = 2.0**-22, 2.0**-24
_MAGIC = b"hushrec CKKS 1\n"
_HEADER = Struct(f"<{len(_MAGIC)}sHII")  # magic, number of factors, of items, bytes of the public key


@dataclass(frozen=True)
class Layout:
    """Where factors and items go in the slots; both sides must have the same."""

    num_factors: int
    num_items: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_factors <= MOST_FACTORS:
            raise HushrecError(
                f"encrypted scores need 1 to {MOST_FACTORS} factors, not {self.num_factors}; use fewer"
            )
        if not 1 <= self.num_items <= MOST_ITEMS:
            raise HushrecError(
                f"encrypted scores need 1 to {MOST_ITEMS:,} items, not {self.num_items:,}; use fewer"
            )

    @property
    def num_regions(self) -> int:
        """Equal parts of the slots, each with its share of the factors: as many as leave room for all items."""
        num_regions = 1
        while num_regions < self.num_factors and self.num_items <= 2 * self._num_places(2 * num_regions):
            num_regions *= 2
        return num_regions

    @property
    def share(self) -> int:
        """Factors per region."""
        return -(-self.num_factors // self.num_regions)

    @property
    def num_places(self) -> int:
        """Items in the real parts of a region: as far as turned vectors do not run over its end."""
        return self._num_places(self.num_regions)

    @property
    def num_blocks(self) -> int:
        """Ciphertexts per answer."""
        return -(-self.num_items // (2 * self.num_places))

    @property
    def num_baby_steps(self) -> int:
        """Turned ciphertexts of the user, the one by nothing included: as many as make for the fewest turns."""
        share, num_blocks = self.share, self.num_blocks
        return min(range(1, share + 1), key=lambda steps: steps + num_blocks * -(-share // steps))

    @property
    def turns(self) -> list[int]:
        """By how many slots: baby step, giant step, and those that add regions."""
        return [1, self.num_baby_steps, *(_SLOTS >> k for k in range(1, self.num_regions.bit_length()))]

    def _num_places(self, num_regions: int) -> int:
        return _SLOTS // num_regions - -(-self.num_factors // num_regions) + 1


class KeyHolder:
    """The partner with the user vectors: it encrypts them and decrypts scores.

    Guarantee: the secret key follows from its seed and from nothing else; who keeps the seed (32 secret bytes that
    nobody can guess) can go on after a restart. Ciphertexts, public keys and noise are drawn anew each time.
    """

    def __init__(self, num_factors: int, num_items: int, seed: Key) -> None:
        self.layout = Layout(num_factors, num_items)
        if seed.shape != (8,) or seed.dtype != np.uint32:
            raise HushrecError("the seed of a secret key is 8 words of 32 bits; give the one that was stored")
        self._ckks = _Ckks()
        seal, context = self._ckks.seal, self._ckks.context
        key = seal.KeyGenerator(_context(seal, seed.tolist())).secret_key()
        # Another generator: the one with the seed would use the randomness of the secret key again.
        self._generator = seal.KeyGenerator(context, key)
        self._encryptor = seal.Encryptor(context, key)
        self._decryptor = seal.Decryptor(context, key)

    def public_keys(self) -> bytes:
        """What the scorer needs: the public key and the keys of the turns, always of one size."""
        names = sorted({_turn_name(turn) for turn in self.layout.turns})
        public = self._ckks.row_of(self._public_key, _PUBLIC_KEY_BYTES)
        turns = self._ckks.row_of(lambda: self._generator.create_galois_keys(names), len(names) * _TURN_KEY_BYTES)
        header = _HEADER.pack(_MAGIC, self.layout.num_factors, self.layout.num_items, len(public))
        return header + public.tobytes() + turns.tobytes()

    def _public_key(self) -> Any:
        public_key = self._ckks.seal.PublicKey()
        self._generator.create_public_key(public_key)
        return public_key

    def encrypt(self, vectors: NDArray[np.floating]) -> Bytes:
        """One ciphertext per vector, each a row of REQUEST_BYTES."""
        layout = self.layout
        if vectors.ndim != 2 or vectors.shape[1] != layout.num_factors:
            raise HushrecError(f"user vectors do not have {layout.num_factors} numbers each; give them as rows")
        _check_lengths(vectors, "user")
        factors = np.zeros((len(vectors), layout.num_regions * layout.share))
        factors[:, : layout.num_factors] = vectors
        repeated = np.arange(_SLOTS // layout.num_regions) % layout.share
        rows = np.empty((len(vectors), REQUEST_BYTES), np.uint8)
        for row, vector in zip(rows, factors, strict=True):
            slots = vector.reshape(layout.num_regions, layout.share)[:, repeated]
            plain = self._ckks.encoded(slots.ravel(), _USER_SCALE)
            row[:] = self._ckks.row_of(partial(self._encryptor.encrypt_symmetric, plain), REQUEST_BYTES)
        return rows

    def decrypt(self, answers: Bytes) -> Floats:
        """The scores (rows of `answers`, num_items), with the noise that keeps the key safe."""
        num_blocks, num_places = self.layout.num_blocks, self.layout.num_places
        _check_rows(answers, num_blocks * ANSWER_BYTES, "answers")
        scores = np.empty((len(answers), num_blocks, 2, num_places))
        for number, row in enumerate(answers.reshape(-1, ANSWER_BYTES)):
            slots = self._decrypted(row)
            if not np.abs(slots.view(np.float64)).max() <= SCORE_LIMIT:
                raise HushrecError("an answer decrypts to no scores: damaged or under another key; ask once more")
            halves = scores[divmod(number, num_blocks)]
            halves[0], halves[1] = slots.real[:num_places], slots.imag[:num_places]
        flat: Floats = scores.reshape(len(answers), num_blocks * 2 * num_places)[:, : self.layout.num_items]
        return flat + _HOLDER_NOISE * self._ckks.normal(flat.size).reshape(flat.shape)

    def _decrypted(self, row: Bytes) -> NDArray[np.complex128]:
        ckks, plain = self._ckks, self._ckks.seal.Plaintext()
        answer = ckks.ciphertext(row, ckks.context.last_parms_id(), ckks.answer_scale)
        self._decryptor.decrypt(answer, plain)
        return np.array(ckks.encoder.decode_complex(plain), np.complex128)


class ItemScorer:
    """The partner with the items: it computes with ciphertexts and can read none.

    Set-up keeps a plaintext of 131 KB per factor and 8,000 items, and takes about 1 ms for each.
    """

    def __init__(self, public_keys: bytes, item_factors: Floats, item_offsets: Floats | None = None) -> None:
        self.layout = layout = _checked_layout(item_factors, item_offsets)
        self._ckks = _Ckks()
        self._load_keys(public_keys)
        self._evaluator = self._ckks.seal.Evaluator(self._ckks.context)
        self._baby_turn, self._giant_turn, *self._region_turns = map(_turn_name, layout.turns)
        table = np.zeros((layout.num_blocks * 2 * layout.num_places, layout.num_regions * layout.share + 1))
        table[: layout.num_items, : layout.num_factors] = item_factors
        table[: layout.num_items, -1] = 0 if item_offsets is None else item_offsets
        halves = table.reshape(layout.num_blocks, 2, layout.num_places, -1)
        blocks = halves[:, 0] + 1j * halves[:, 1]
        self._diagonals = [self._encoded_diagonals(block[:, :-1]) for block in blocks]
        self._offsets = [self._ckks.encoded(block[:, -1], _PRODUCT_SCALE) for block in blocks]

    def score(self, ciphertexts: Bytes) -> Bytes:
        """The encrypted scores of all items: for each vector a row, ANSWER_BYTES per 8,000 items."""
        _check_rows(ciphertexts, REQUEST_BYTES, "ciphertexts")
        ckks, num_blocks = self._ckks, self.layout.num_blocks
        answers = np.empty((len(ciphertexts), num_blocks, ANSWER_BYTES), np.uint8)
        first = ckks.context.first_parms_id()
        requests = [ckks.ciphertext(row, first, _USER_SCALE) for row in ciphertexts]
        for of_user, request in zip(answers, requests, strict=True):
            turned = self._turned(request)
            for row, diagonals, offsets in zip(of_user, self._diagonals, self._offsets, strict=True):
                total = self._product(turned, diagonals)
                row[:] = ckks.row_of(partial(self._hidden, total, offsets), ANSWER_BYTES)
        return answers.reshape(len(ciphertexts), num_blocks * ANSWER_BYTES)

    def _load_keys(self, data: bytes) -> None:
        ckks, refusal = self._ckks, "the public keys are damaged; ask the key holder for them once more"
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise HushrecError(refusal)
        _, num_factors, num_items, public_bytes = _HEADER.unpack_from(data)
        if (num_factors, num_items) != (self.layout.num_factors, self.layout.num_items):
            raise HushrecError(
                f"the public keys are for {num_items} items of {num_factors} factors, not for "
                f"{self.layout.num_items} of {self.layout.num_factors}; tell the key holder these numbers"
            )
        num_turns = len({_turn_name(turn) for turn in self.layout.turns})
        if (public_bytes, len(data)) != (
            _PUBLIC_KEY_BYTES,
            _HEADER.size + _PUBLIC_KEY_BYTES + num_turns * _TURN_KEY_BYTES,
        ):
            raise HushrecError(refusal)
        public, turns = data[_HEADER.size :][:public_bytes], data[_HEADER.size + public_bytes :]
        key = value_from(ckks.seal.PublicKey(), ckks.context, public, refusal)
        self._turn_keys = value_from(ckks.seal.GaloisKeys(), ckks.context, turns, refusal)
        if not all(self._turn_keys.has_key(_turn_name(turn)) for turn in self.layout.turns):
            raise HushrecError(refusal)
        self._encryptor = ckks.seal.Encryptor(ckks.context, key)

    def _encoded_diagonals(self, items: NDArray[np.complex128]) -> list[Any]:
        """Diagonal t as a plaintext, turned against the giant step it gets; None where all of it is zero."""
        layout, diagonals = self.layout, []
        shares, places = items.reshape(len(items), layout.num_regions, layout.share), np.arange(len(items))
        for turn in range(layout.share):
            slots = np.zeros((layout.num_regions, _SLOTS // layout.num_regions), np.complex128)
            giant = turn - turn % layout.num_baby_steps
            slots[:, giant : giant + len(items)] = shares[places, :, (places + turn) % layout.share].T
            plain = self._ckks.encoded(slots.ravel(), _ITEM_SCALE)
            diagonals.append(None if plain.is_zero() else plain)  # SEAL refuses to multiply by zero
        return diagonals

    def _turned(self, request: Any) -> list[Any]:
        turned = [request]
        for _ in range(1, self.layout.num_baby_steps):
            turned.append(self._ckks.seal.Ciphertext())
            self._evaluator.apply_galois(turned[-2], self._baby_turn, self._turn_keys, turned[-1])
        return turned

    def _product(self, turned: list[Any], diagonals: list[Any]) -> Any:
        """sum_g turn_g(sum_i diagonal * turned_i), the largest g first; None if all diagonals are zero."""
        total, term = None, self._ckks.seal.Ciphertext()
        for start in range(0, len(diagonals), len(turned))[::-1]:
            if total is not None:
                self._evaluator.apply_galois_inplace(total, self._giant_turn, self._turn_keys)
            for ciphertext, plain in zip(turned, diagonals[start : start + len(turned)], strict=False):
                if plain is None:
                    continue
                self._evaluator.multiply_plain(ciphertext, plain, term)
                if total is None:
                    total, term = term, self._ckks.seal.Ciphertext()
                else:
                    self._evaluator.add_inplace(total, term)
        if total is not None:
            for turn in self._region_turns:
                self._evaluator.apply_galois(total, turn, self._turn_keys, term)
                self._evaluator.add_inplace(total, term)
        return total

    def _hidden(self, total: Any, offsets: Any) -> Any:
        """The answer: the product with offsets, an encryption of zero and noise, at the lowest level."""
        answer = self._ckks.seal.Ciphertext()
        self._encryptor.encrypt_zero(answer)
        answer.scale = _PRODUCT_SCALE
        if total is not None:
            self._evaluator.add_inplace(answer, total)
        self._evaluator.add_plain_inplace(answer, offsets)
        noise = _SCORER_NOISE * self._ckks.uniform(_DEGREE)
        self._evaluator.add_plain_inplace(answer, self._ckks.encoded(noise.view(np.complex128), _PRODUCT_SCALE))
        self._evaluator.rescale_to_next_inplace(answer)
        return answer


class _Ckks:
    """What both sides need of SEAL."""

    def __init__(self) -> None:
        self.seal = imported("tenseal.sealapi", "CKKS encryption", "TenSEAL", "he")
        self.context = _context(self.seal)
        self.encoder = self.seal.CKKSEncoder(self.context)
        dropped = self.context.first_context_data().parms().coeff_modulus()[-1]
        self.answer_scale = _PRODUCT_SCALE / dropped.value()

    def encoded(self, slots: NDArray[np.inexact], scale: float) -> Any:
        """Numbers in the slots of a plaintext."""
        plain = self.seal.Plaintext()
        self.encoder.encode(slots.tolist(), scale, plain)
        return plain

    def ciphertext(self, row: Bytes, level: list[int], scale: float) -> Any:
        """A ciphertext from bytes that another party sent."""
        refusal = "a ciphertext is damaged; ask for it once more"
        loaded = value_from(self.seal.Ciphertext(), self.context, row.tobytes(), refusal)
        fits = loaded.parms_id() == level and loaded.size() == 2 and loaded.is_ntt_form() and loaded.scale == scale
        if not fits or loaded.is_transparent():
            raise HushrecError("a ciphertext is of another kind than the one asked for; ask for it once more")
        return loaded

    def row_of(self, make: Callable[[], Any], size: int) -> Bytes:
        """The bytes of a ciphertext or key, made again if they are too many: compressed sizes vary a little."""
        while True:
            data = bytes_of(make())
            if len(data) <= size:
                return padded(data, size)

    def uniform(self, size: int) -> Floats:
        """Uniform numbers in [-1, 1) that nobody can guess: SEAL has the key from the operating system."""
        return self._stream(8 * size).view("<i8") * 2.0**-63

    def normal(self, size: int) -> Floats:
        """Standard normal numbers from the same source (Box-Muller)."""
        first, second = (self._stream(8 * size).view("<u4").reshape(2, size) + 0.5) * 2.0**-32
        normal: Floats = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
        return normal

    def _stream(self, num_bytes: int) -> Bytes:
        key = b"".join(self.seal.random_uint64().to_bytes(8, "little") for _ in range(4))
        stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor()
        return np.frombuffer(stream.update(bytes(num_bytes)), np.uint8)


def _context(seal: Any, seed: list[int] | None = None) -> Any:
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(_DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(_DEGREE, _MODULUS_BITS))
    if seed is not None:
        parameters.set_random_generator(seal.Blake2xbPRNGFactory(seed))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


def _turn_name(num_slots: int) -> int:
    """SEAL's name of a turn by so many slots."""
    return pow(3, num_slots, 2 * _DEGREE)


def _check_lengths(vectors: NDArray[np.floating], whose: str) -> None:
    if len(vectors) and not np.linalg.norm(vectors.astype(np.float64), axis=1).max() <= VECTOR_LIMIT:
        raise HushrecError(
            f"some {whose} vector is longer than {VECTOR_LIMIT:g} or not finite; use a lower "
            f"{option('learning_rate')}"
        )


def _check_rows(rows: Bytes, width: int, what: str) -> None:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != width:
        raise HushrecError(f"{what} are not rows of {width} bytes; ask for them once more")


def _checked_layout(item_factors: Floats, item_offsets: Floats | None) -> Layout:
    if item_factors.ndim != 2:
        raise HushrecError("item factors are not a matrix; give a row per item")
    num_items, num_factors = item_factors.shape
    layout = Layout(num_factors, num_items)
    _check_lengths(item_factors, "item")
    if item_offsets is not None:
        if item_offsets.shape != (num_items,):
            raise HushrecError(f"{num_items} items need as many offsets; give one per item")
        if not np.abs(item_offsets).max() <= OFFSET_LIMIT:
            raise HushrecError(
                f"some item offset is beyond +-{OFFSET_LIMIT:g}; use a lower {option('learning_rate')}"
            )
    return layout
