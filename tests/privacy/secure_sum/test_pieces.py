"""The pieces of a secure sum: graph, shares, masks."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.graph import ring_neighbours
from hushrec.privacy.secure_sum.masks import Agreements, Streams, draw_secrets, public_key_of, sign_of
from hushrec.privacy.secure_sum.shamir import combine, split

# --- Graph ---


@given(st.integers(3, 60), st.integers(1, 20), st.integers(0, 99))
def test_neighbours_are_mutual_different_and_as_many_as_asked(num_parties: int, half: int, seed: int) -> None:
    degree = min(2 * half, num_parties - 1)
    neighbours = ring_neighbours(num_parties, degree, np.random.default_rng(seed))
    is_neighbour = np.zeros((num_parties, num_parties), bool)
    is_neighbour[np.arange(num_parties)[:, None], neighbours] = True
    assert neighbours.shape == (num_parties, degree)
    assert (is_neighbour == is_neighbour.T).all()
    assert not is_neighbour.diagonal().any()
    assert (is_neighbour.sum(axis=1) == degree).all()
    assert (np.diff(neighbours, axis=1) > 0).all()


def test_a_ring_of_five() -> None:
    """In the order 0 1 2 3 4 each has the one before it and the one after it."""

    class InOrder(np.random.Generator):
        def permutation(self, x: int) -> np.ndarray:  # type: ignore[override,type-arg]
            return np.arange(x)

    neighbours = ring_neighbours(5, 2, InOrder(np.random.PCG64()))
    assert neighbours.tolist() == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]


def test_who_is_whose_neighbour_is_drawn() -> None:
    one, other = (ring_neighbours(50, 6, np.random.default_rng(seed)) for seed in (0, 1))
    assert (one != other).mean() > 0.8


# --- Shares ---


def test_shares_by_hand() -> None:
    """f(x) = 5 + 2 x: f(1) = 5 ^ 2 = 7, f(2) = 5 ^ 4 = 1, f(3) = 5 ^ 6 = 3. And 2 * 0x80 is 0x100 ^ 0x11b."""
    one = split(np.array([[5]], np.uint8), np.array([[[2]]], np.uint8), 3)
    assert one.tolist() == [[[7], [1], [3]]]
    two = split(np.array([[0]], np.uint8), np.array([[[0x80]]], np.uint8), 2)
    assert two.tolist() == [[[0x80], [0x1B]]]


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 8), st.integers(0, 99))
def test_any_t_shares_give_the_secret_back(threshold: int, more: int, seed: int) -> None:
    generator, num_shares = np.random.default_rng(seed), threshold + more
    secrets = generator.integers(0, 256, (3, 7), np.uint8)
    others = generator.integers(0, 256, (3, threshold - 1, 7), np.uint8)
    shares = split(secrets, others, num_shares)
    places = np.stack([generator.permutation(num_shares)[:threshold] for _ in range(3)])
    found = combine(places + 1, shares[np.arange(3)[:, None], places])
    np.testing.assert_array_equal(found, secrets)


def test_t_less_one_shares_are_uniform_whatever_the_secret() -> None:
    """All 65,536 pairs of coefficients: two shares of three take each pair of values once, for any secret."""
    pairs = np.stack(np.meshgrid(np.arange(256), np.arange(256)), axis=-1).reshape(1, -1, 2).astype(np.uint8)
    others = np.moveaxis(pairs, 2, 1)  # (1, 2, 65536): a byte for each pair
    for secret in (0, 1, 77, 255):
        shares = split(np.full((1, 65536), secret, np.uint8), others, 200)[0]
        for one, other in ((0, 1), (4, 199)):
            seen = shares[one].astype(np.int64) * 256 + shares[other]
            assert len(np.unique(seen)) == 65536


# --- Masks ---


def test_two_neighbours_agree_and_a_third_does_not() -> None:
    keys = [draw_secrets(Draws(0).key("test"), number, 0).private_key for number in range(3)]
    public = [public_key_of(key) for key in keys]
    ours = Agreements(keys[0], b"told").mask_key(public[1])
    assert ours == Agreements(keys[1], b"told").mask_key(public[0])
    assert ours != Agreements(keys[1], b"told otherwise").mask_key(public[0])
    assert ours != Agreements(keys[2], b"told").mask_key(public[1])


def test_a_key_of_low_order_is_refused() -> None:
    with pytest.raises(HushrecError, match="not an X25519 key"):
        Agreements(bytes([7] * 32), bytes(32)).mask_key(bytes(32))


def test_secrets_are_of_one_party_one_attempt_and_one_purpose() -> None:
    key = Draws(0).key("test")
    drawn = [draw_secrets(key, number, attempt, 3) for number in (0, 1) for attempt in (0, 1)]
    values = [value for one in drawn for value in (one.private_key, one.seed, one.coefficients)]
    assert len(set(values)) == 12
    assert {len(one.coefficients) for one in drawn} == {128}
    assert draw_secrets(key, 0, 0, 3) == drawn[0]


def test_a_stream_is_chacha20_of_20_rounds() -> None:
    """RFC 8439, A.1, the first test vector: key, nonce and counter of zeros."""
    words = np.zeros(8, np.int64)
    Streams(8).add(words, bytes(32), 1)
    assert words.tobytes().hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    expected = Cipher(ChaCha20(bytes(32), bytes(16)), None).encryptor().update(bytes(64))
    assert words.tobytes() == expected


def test_streams_cancel_to_the_last_bit() -> None:
    words = np.array([1, -(2**63), 2**63 - 1], np.int64)
    streams, before = Streams(3), words.copy()
    streams.add(words, bytes([9] * 32), sign_of(3, 7))
    assert (words != before).all()
    streams.add(words, bytes([9] * 32), sign_of(7, 3))
    np.testing.assert_array_equal(words, before)
