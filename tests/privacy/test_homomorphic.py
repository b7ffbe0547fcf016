from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy import homomorphic
from hushrec.privacy.homomorphic import (
    MOST_ADDITIONS,
    SUM_LIMIT,
    BfvAdder,
    BfvKey,
    EncryptedSum,
    PaillierKey,
    SecretKey,
    num_blocks,
    to_blocks,
)
from hushrec.protocol import Ragged

SEED = Draws(0).key("a key")
OTHER_SEED = Draws(1).key("a key")


@cache
def key_of(scheme: str) -> SecretKey:
    """For Paillier a key that is too short to be safe, to spare time."""
    if scheme == "bfv":
        return BfvKey.from_seed(SEED)
    return PaillierKey.from_seed(SEED, bits=512)


BOTH = pytest.mark.parametrize("scheme", ["bfv", "paillier"])


def block(key: SecretKey, numbers: list[int]) -> np.ndarray:
    return to_blocks(np.array(numbers, np.int64), key.adder.slots)[0]


@BOTH
@settings(deadline=None, max_examples=25)
@given(
    pairs=st.lists(
        st.tuples(
            st.integers(-SUM_LIMIT // 2, SUM_LIMIT // 2),
            st.integers(-SUM_LIMIT // 4, SUM_LIMIT // 4),
            st.integers(-SUM_LIMIT // 4, SUM_LIMIT // 4),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_encrypted_add_is_add(scheme: str, pairs: list[tuple[int, int, int]]) -> None:
    key = key_of(scheme)
    one, other, plain = (block(key, list(column)) for column in zip(*pairs, strict=True))
    adder = key.adder
    total = adder.add(adder.load(key.encrypt(one)), adder.load(key.encrypt(other)))
    total = adder.save(adder.add_plain(total, plain))
    np.testing.assert_array_equal(key.decrypt(total), one + other + plain)
    assert total.nbytes == adder.sum_bytes


@BOTH
def test_the_ends_of_the_range_come_out_and_beyond_is_refused(scheme: str) -> None:
    key = key_of(scheme)
    ends = block(key, [SUM_LIMIT, -SUM_LIMIT, 0, -1, 1])
    np.testing.assert_array_equal(key.decrypt(key.encrypt(ends)), ends)
    for beyond in (SUM_LIMIT + 1, -SUM_LIMIT - 1, 2**40):
        with pytest.raises(HushrecError, match="a number to encrypt is not within ±2147352576; use a lower"):
            key.encrypt(block(key, [beyond]))


@BOTH
def test_ciphertexts_have_one_size_and_never_repeat(scheme: str) -> None:
    key = key_of(scheme)
    rows = [key.encrypt(block(key, [number])) for number in (0, 0, 1, SUM_LIMIT)]
    assert {row.nbytes for row in rows} == {key.adder.fresh_bytes}
    assert len({row.tobytes() for row in rows}) == 4


@BOTH
def test_only_the_same_seed_gives_the_key(scheme: str) -> None:
    key, numbers = key_of(scheme), block(key_of(scheme), [3, -4])
    again = BfvKey.from_seed(SEED) if scheme == "bfv" else PaillierKey.from_seed(SEED, bits=512)
    other = BfvKey.from_seed(OTHER_SEED) if scheme == "bfv" else PaillierKey.from_seed(OTHER_SEED, bits=512)
    row = key.encrypt(numbers)
    np.testing.assert_array_equal(again.decrypt(row), numbers)
    if scheme == "bfv":
        assert (other.decrypt(row) != numbers).mean() > 0.99
    else:
        assert other.adder.public_key != key.adder.public_key  # type: ignore[attr-defined]


@BOTH
def test_damaged_ciphertexts_are_refused(scheme: str) -> None:
    adder = key_of(scheme).adder
    for garbage in (np.zeros(adder.fresh_bytes, np.uint8), np.full(adder.sum_bytes, 255, np.uint8)):
        with pytest.raises(HushrecError, match="a ciphertext is damaged; leave it out"):
            adder.load(garbage)


def test_the_noise_of_bfv_is_as_small_as_the_bound_says() -> None:
    """Summands that are all alike have the worst noise: 2^17 of them, 22 each at most, are below q / 2t = 2^22.

    Independent ones have the square root of that: 64 of them take about 3 bits and not 6.
    """
    key = key_of("bfv")
    assert isinstance(key, BfvKey)
    adder, numbers = key.adder, block(key, [5, -7])
    fresh = key.encrypt(numbers)
    total = adder.load(fresh)
    for _ in range(17):
        total = adder.add(total, total)
    np.testing.assert_array_equal(key.decrypt(adder.save(total)), numbers << 17)
    total = adder.load(fresh)
    for _ in range(63):
        total = adder.add(total, adder.load(key.encrypt(numbers)))
    assert key.noise_budget(fresh) >= 17
    assert key.noise_budget(fresh) - key.noise_budget(adder.save(total)) <= 5
    assert MOST_ADDITIONS == 2**21


@dataclass(frozen=True)
class Upload:
    places: Ragged
    blocks: Ragged


def upload(places: list[int], rows: list[np.ndarray]) -> Upload:
    starts = np.array([0, len(places)])
    return Upload(Ragged(starts, np.array(places, np.int32)), Ragged(starts, np.stack(rows)))


@BOTH
def test_uploads_add_up_block_by_block_in_any_order(scheme: str) -> None:
    key, one = key_of(scheme), np.zeros(1, np.int32)
    first = upload([0, 2], [key.encrypt(block(key, [1, -2])), key.encrypt(block(key, [10]))])
    second = upload([2], [key.encrypt(block(key, [-30]))])
    sums = EncryptedSum(key.adder, 3)
    fork = sums.fork()
    fork.add(one, second)
    sums.add(one, first)
    other_way = EncryptedSum(key.adder, 3)
    other_way.add(one, second)
    other_way.add(one, first)
    sums.merge(fork)
    assert sums.counts == other_way.counts == {0: 1, 2: 2}
    for place, expected in ((0, [1, -2]), (2, [-20])):
        rows = [key.adder.save(total.sums[place]) for total in (sums, other_way)]
        np.testing.assert_array_equal(rows[0], rows[1])
        np.testing.assert_array_equal(key.decrypt(rows[0]), block(key, expected))


@BOTH
def test_uploads_of_other_sizes_or_places_are_refused(scheme: str) -> None:
    key, one = key_of(scheme), np.zeros(1, np.int32)
    row = key.encrypt(block(key, [1]))
    with pytest.raises(HushrecError, match="ciphertexts do not have"):
        EncryptedSum(key.adder, 3).add(one, upload([0], [row[:-1]]))
    with pytest.raises(HushrecError, match="a block that is not of the catalogue"):
        EncryptedSum(key.adder, 3).add(one, upload([3], [row]))


@BOTH
def test_a_block_counts_once_per_client(scheme: str) -> None:
    key, one = key_of(scheme), np.array([8], np.int32)
    row = key.encrypt(block(key, [1]))
    with pytest.raises(HushrecError, match="client 8 sends a block twice; leave it out"):
        EncryptedSum(key.adder, 3).add(one, upload([0, 2, 2], [row, row, row]))


def test_ciphertexts_that_seal_cannot_add_are_refused() -> None:
    """All zeros, which anybody could read; in another form; and two that cancel each other out."""
    key, adder = BfvKey.from_seed(SEED), BfvAdder()
    plain, opposite = adder.load(key.encrypt(block(key, [1]))), adder.seal.Ciphertext()
    evaluator = adder.seal.Evaluator(adder.context)
    evaluator.negate(plain, opposite)
    other_form = adder.load(key.encrypt(block(key, [1])))
    evaluator.transform_to_ntt_inplace(other_form)
    nothing = adder.seal.Ciphertext(adder.context)
    nothing.resize(2)
    for ciphertext in (other_form, nothing):
        with pytest.raises(HushrecError, match="of another kind than the one asked for; leave it out"):
            adder.load(adder.save(ciphertext))
    with pytest.raises(HushrecError, match="cancel each other out"):
        adder.add(plain, opposite)


def test_blocks_hold_all_numbers_in_order() -> None:
    numbers = np.arange(10).reshape(5, 2)
    assert to_blocks(numbers, 4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 0]]
    assert [num_blocks(size, 4) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("scheme", "module", "message"),
    [
        ("bfv", "tenseal.sealapi", r"BFV encryption needs TenSEAL; install it with: pip install '\.\[he\]'"),
        ("paillier", "phe", r"Paillier encryption needs phe; install it with: pip install '\.\[paillier\]'"),
    ],
)
def test_a_missing_extra_names_the_command(
    scheme: str, module: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        assert name == module
        raise ImportError(name)

    monkeypatch.setattr(homomorphic, "import_module", missing)
    with pytest.raises(HushrecError, match=message):
        homomorphic.secret_key(scheme, Draws(99).key("never used"))  # type: ignore[arg-type]
