import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from hushrec.draws import BLOCK_WORDS, Draws, chacha_block, normal_pair, uniform_rows

uint32 = st.integers(0, 2**32 - 1)


def block_of(key: np.ndarray, party: int, round_number: int, counter: int, *rounds: int) -> np.ndarray:
    out = np.empty(BLOCK_WORDS, np.uint32)
    chacha_block(key, party, round_number, counter, out, *rounds)
    return out


@given(
    key=st.lists(uint32, min_size=8, max_size=8),
    party=uint32,
    round_number=uint32,
    counter=st.integers(0, 2**63 - 1),
)
@example(key=[0] * 8, party=0, round_number=0, counter=2**32 - 1)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_twenty_rounds_are_a_trusted_librarys_chacha(
    key: list[int], party: int, round_number: int, counter: int
) -> None:
    """Their 16-byte nonce is words 12 to 15: a 64-bit counter, then a 64-bit nonce, here (party, round)."""
    words = np.array(key, np.uint32)
    nonce = counter.to_bytes(8, "little") + party.to_bytes(4, "little") + round_number.to_bytes(4, "little")
    cipher = Cipher(algorithms.ChaCha20(words.astype("<u4").tobytes(), nonce), mode=None)
    expected = np.frombuffer(cipher.encryptor().update(bytes(64)), "<u4")
    np.testing.assert_array_equal(block_of(words, party, round_number, counter, 20), expected)


def test_eight_rounds_are_the_published_chacha8() -> None:
    """First block for an all-zero key and nonce, from the ChaCha test vectors of Strombergson (TC1)."""
    out = block_of(np.zeros(8, np.uint32), 0, 0, 0)
    assert out.astype("<u4").tobytes().hex() == (
        "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"
        "984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42"
    )


def test_keys_differ_by_seed_and_purpose() -> None:
    keys = {tuple(Draws(seed).key(purpose)) for seed in (0, 1, 11) for purpose in ("", "a", "b", "1/a")}
    assert len(keys) == 12
    np.testing.assert_array_equal(Draws(5).key("a"), Draws(5).key("a"))


def test_streams_differ_by_party_round_and_block() -> None:
    key = Draws(0).key("streams")
    blocks = {
        tuple(block_of(key, party, round_number, counter))
        for party in range(3)
        for round_number in range(3)
        for counter in (0, 1, 2**32)
    }
    assert len(blocks) == 27


def test_generators_are_keyed_by_purpose_and_round() -> None:
    draws = Draws(3)
    first = draws.generator("a", 1).random(4)
    np.testing.assert_array_equal(draws.generator("a", 1).random(4), first)
    for other in (draws.generator("a", 2), draws.generator("b", 1), Draws(4).generator("a", 1)):
        assert (other.random(4) != first).all()


@given(
    parties=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8),
    num_columns=st.sampled_from([1, 15, 16, 17, 40]),
    round_number=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_partys_row_does_not_depend_on_the_batch(
    parties: list[int], num_columns: int, round_number: int
) -> None:
    key = Draws(1).key("rows")
    together = uniform_rows(key, np.array(parties, np.int32), num_columns, -2.0, 3.0, round_number)
    for row, party in enumerate(parties):
        alone = uniform_rows(key, np.array([party], np.int32), num_columns, -2.0, 3.0, round_number)
        np.testing.assert_array_equal(together[row], alone[0])


def test_uniform_rows_are_uniform() -> None:
    """Kolmogorov-Smirnov on 200,000 numbers with a fixed seed; false-alarm rate 1e-6. The coordinates of a
    row, the rows of two rounds and those of neighbours are uncorrelated: |z| < 5, false-alarm rate 2e-6.
    """
    key, parties = Draws(2).key("uniform"), np.arange(10_000, dtype=np.int32)
    rows = uniform_rows(key, parties, 20, -0.005, 0.005)
    assert rows.dtype == np.float32
    assert rows.min() > np.float32(-0.005)
    assert rows.max() < np.float32(0.005)
    assert stats.kstest(rows.ravel(), stats.uniform(-0.005, 0.01).cdf).pvalue > 1e-6
    later = uniform_rows(key, parties, 20, -0.005, 0.005, round_number=1)
    for one, other in ((rows[:, 0], rows[:, 17]), (rows[:, 3], later[:, 3]), (rows[1:, 0], rows[:-1, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) * np.sqrt(len(one)) < 5


def test_uniform_rows_are_the_highest_23_bits_and_a_half() -> None:
    key, party, round_number = Draws(2).key("uniform"), 77, 3
    words = np.concatenate([block_of(key, party, round_number, counter) for counter in range(3)])[:40]
    expected = [((int(word) >> 9) + 0.5) / 2**23 for word in words]
    row = uniform_rows(key, np.array([party], np.int32), 40, 0.0, 1.0, round_number)
    assert row[0].tolist() == expected


@pytest.mark.parametrize(
    ("party", "coordinate", "share"), [(346_320, 10, 1 - 2.0**-24), (2_484_972, 11, 2.0**-24)]
)
def test_uniform_rows_stay_strictly_inside(party: int, coordinate: int, share: float) -> None:
    """These words have their 23 highest bits all set, or none, which one in 8 million has. Half a step from the
    ends is (2^23 - 1/2) / 2^23 and 2^-24; both are float32. The first has its 24 highest set, which with 24 bits
    and a half was rounded to `high` itself.
    """
    key, parties = Draws(0).key("uniform"), np.array([party], np.int32)
    assert uniform_rows(key, parties, 16, 0.0, 1.0)[0, coordinate] == share
    for high in (0.005, 1.0, 1.9999999, 3e5):
        assert abs(uniform_rows(key, parties, 16, -high, high)[0, coordinate]) < np.float32(high)
        assert 0 < uniform_rows(key, parties, 16, 0.0, high)[0, coordinate] < np.float32(high)


def test_normal_pairs_are_normal_and_independent() -> None:
    """Kolmogorov-Smirnov on 2 x 100,000 numbers with a fixed seed, false-alarm rate 1e-6 each; the two of a
    pair, and their squares, are uncorrelated: |z| < 5, false-alarm rate 6e-7 each.
    """
    words = np.random.default_rng(0).integers(0, 2**32, (100_000, 2), dtype=np.uint32)
    pairs = np.array([normal_pair(*pair) for pair in words])
    for column in pairs.T:
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-6
    for power in (1, 2):
        assert abs(np.corrcoef(pairs.T**power)[0, 1]) * np.sqrt(len(pairs)) < 5


def test_normal_pair_is_box_muller_and_finite_at_the_ends() -> None:
    """Word 2^31 of the angle is half a turn: (-radius, 0), with radius sqrt(-2 ln u), u = (word + 1/2) / 2^32."""
    for first in (0, 2**31, 2**32 - 1):
        one, other = normal_pair(np.uint32(first), np.uint32(2**31))
        radius = np.sqrt(-2 * np.log((first + 0.5) / 2**32))
        assert np.isfinite([one, other]).all()
        assert one == pytest.approx(-radius, rel=1e-6)
        assert other == pytest.approx(0, abs=1e-6)
