from functools import cache

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy import homomorphic
from hushrec.privacy.seal_bytes import padded
from hushrec.systems.fedcore import encrypted_scores
from hushrec.systems.fedcore.encrypted_scores import (
    ANSWER_BYTES,
    MOST_FACTORS,
    OFFSET_LIMIT,
    REQUEST_BYTES,
    SCORE_LIMIT,
    VECTOR_LIMIT,
    ItemScorer,
    KeyHolder,
    Layout,
)

pytest.importorskip("tenseal")

SEED, OTHER_SEED = Draws(0).key("a key"), Draws(1).key("a key")
RANDOM = Draws(0).generator("tests of encrypted scores")
ITEMS = RANDOM.normal(size=(7, 6))
USERS = RANDOM.normal(size=(3, 6))


def vectors(number: int, num_factors: int, length: float = 2.5) -> np.ndarray:
    drawn = RANDOM.normal(size=(number, num_factors))
    return drawn * (length / np.linalg.norm(drawn, axis=1, keepdims=True))


@cache
def holder() -> KeyHolder:
    return KeyHolder(6, 7, SEED)


@cache
def public_keys() -> bytes:
    return holder().public_keys()


@cache
def scorer() -> ItemScorer:
    return ItemScorer(public_keys(), ITEMS)


@cache
def exchanged() -> tuple[np.ndarray, np.ndarray]:
    requests = holder().encrypt(USERS)
    return requests, scorer().score(requests)


SMALL = [(1, 1), (1, 20), (3, 7), (5, 128), (20, 20), (1682, 20), (2047, 2), (2048, 3), (4096, 5), (8154, 20)]
LARGE = [(8155, 20), (8192, 1), (8193, 1), (10_000, 32), (16_000, 33)]  # the second fills all slots of one


@pytest.mark.parametrize(("num_items", "num_factors"), [*SMALL, *LARGE])
def test_scores_are_those_of_the_plain_product(num_items: int, num_factors: int) -> None:
    key = KeyHolder(num_factors, num_items, SEED)
    users, items = vectors(1, num_factors), vectors(num_items, num_factors)
    requests = key.encrypt(users)
    answers = ItemScorer(key.public_keys(), items).score(requests)
    np.testing.assert_allclose(key.decrypt(answers), users @ items.T, rtol=0, atol=1e-6)
    assert requests.shape == (1, REQUEST_BYTES)
    assert answers.shape == (1, key.layout.num_blocks * ANSWER_BYTES)


def test_several_users_at_once_have_their_own_scores() -> None:
    requests, answers = exchanged()
    np.testing.assert_allclose(holder().decrypt(answers), USERS @ ITEMS.T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(holder().decrypt(answers[1:2]), USERS[1:2] @ ITEMS.T, rtol=0, atol=1e-6)
    assert scorer().score(requests[:0]).shape == (0, ANSWER_BYTES)
    assert holder().decrypt(answers[:0]).shape == (0, 7)
    assert holder().encrypt(USERS[:0].astype(np.float32)).shape == (0, REQUEST_BYTES)


def test_offsets_are_added() -> None:
    offsets = np.array([0.0, -3.25, 1e-3, OFFSET_LIMIT, -OFFSET_LIMIT, 4.0, 5.0])
    answers = ItemScorer(public_keys(), ITEMS, offsets).score(exchanged()[0])
    np.testing.assert_allclose(holder().decrypt(answers), USERS @ ITEMS.T + offsets, rtol=0, atol=1e-6)


@pytest.mark.parametrize("offsets", [None, np.arange(7.0)])
def test_items_and_users_of_zeros(offsets: np.ndarray | None) -> None:
    """SEAL refuses products with zero; some diagonals, or all of them, are left out."""
    expected = np.zeros(7) if offsets is None else offsets
    sparse = np.zeros((7, 6))
    sparse[2, 3] = 1.0
    for items, user in ((np.zeros((7, 6)), USERS[:1]), (ITEMS, np.zeros((1, 6))), (sparse, USERS[:1])):
        scores = holder().decrypt(ItemScorer(public_keys(), items, offsets).score(holder().encrypt(user)))
        np.testing.assert_allclose(scores, user @ items.T + expected, rtol=0, atol=1e-6)


def test_the_longest_vectors_fit() -> None:
    """All scores at the limit are the worst case: then one coefficient has all of it."""
    key = KeyHolder(2, 8190, SEED)
    items, offsets = np.full((8190, 2), VECTOR_LIMIT / np.sqrt(2)), np.full(8190, OFFSET_LIMIT - 0.01)
    scores = key.decrypt(ItemScorer(key.public_keys(), items, offsets).score(key.encrypt(items[:1])))
    np.testing.assert_allclose(scores, items[:1] @ items.T + offsets, rtol=0, atol=1e-5)


def test_small_catalogues_share_factors_among_regions() -> None:
    assert [Layout(20, num_items).num_regions for num_items in (1, 1682, 2040, 2041, 4078, 8154)] == [
        32,
        4,
        4,
        2,
        2,
        1,
    ]
    assert [Layout(20, num_items).num_blocks for num_items in (8154, 8155, 100_000)] == [1, 2, 13]
    assert [Layout(num_factors, 7900).num_regions for num_factors in (1, 128)] == [1, 1]


def test_baby_steps_make_for_the_fewest_turns() -> None:
    """20 factors: 3 + 4 turns for one block, 4 + 2 * 3 for two, 19 + 13 * 0 for 13."""
    assert [Layout(20, num_items).num_baby_steps for num_items in (8154, 10_000, 100_000)] == [4, 5, 20]
    assert Layout(20, 8154).turns == [1, 4]
    assert Layout(20, 1682).turns == [1, 2, 2048, 1024]
    assert Layout(1, 5).turns == [1, 1]


@pytest.mark.slow
def test_a_large_catalogue() -> None:
    key, user, items = KeyHolder(128, 100_000, SEED), vectors(1, 128), vectors(100_000, 128)
    scores = key.decrypt(ItemScorer(key.public_keys(), items).score(key.encrypt(user)))
    np.testing.assert_allclose(scores, user @ items.T, rtol=0, atol=1e-6)


def test_the_same_seed_goes_on_after_a_restart() -> None:
    again = KeyHolder(6, 7, SEED)
    requests, answers = exchanged()
    np.testing.assert_allclose(again.decrypt(answers), USERS @ ITEMS.T, rtol=0, atol=1e-6)
    late = scorer().score(again.encrypt(USERS))  # with the public keys of before
    np.testing.assert_allclose(holder().decrypt(late), USERS @ ITEMS.T, rtol=0, atol=1e-6)
    fresh = ItemScorer(again.public_keys(), ITEMS).score(requests)
    np.testing.assert_allclose(holder().decrypt(fresh), USERS @ ITEMS.T, rtol=0, atol=1e-6)


def test_nothing_repeats() -> None:
    requests, answers = exchanged()
    assert (holder().encrypt(USERS)[0] != requests[0]).mean() > 0.5
    assert (scorer().score(requests)[0] != answers[0]).mean() > 0.5
    assert holder().public_keys() != public_keys()
    first, second = holder().decrypt(answers), holder().decrypt(answers)
    assert 2.0**-26 < (first - second).std() / np.sqrt(2) < 2.0**-23  # the noise that keeps the key safe


def test_answers_do_not_show_what_was_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same product twice: the ciphertexts are independent and the scorer's noise is uniform, +-2^-22."""
    monkeypatch.setattr(encrypted_scores, "_HOLDER_NOISE", 0.0)
    key = KeyHolder(2, 8190, SEED)
    items = vectors(8190, 2)
    own, requests = ItemScorer(key.public_keys(), items), key.encrypt(items[:1])
    differences = key.decrypt(own.score(requests)) - key.decrypt(own.score(requests))
    width = 2.0**-22
    assert np.abs(differences).max() <= 2 * width + 1e-8
    assert differences.std() == pytest.approx(width * np.sqrt(2 / 3), rel=0.05)  # over 5 standard errors


def test_errors_are_a_small_part_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on the secret key in an answer: below 2^-33, a 500th of the key holder's noise."""
    monkeypatch.setattr(encrypted_scores, "_HOLDER_NOISE", 0.0)
    monkeypatch.setattr(encrypted_scores, "_SCORER_NOISE", 0.0)
    key = KeyHolder(5, 8184, SEED)
    own, user = ItemScorer(key.public_keys(), vectors(8184, 5, length=2.0)), vectors(1, 5)
    one, other = (key.decrypt(own.score(key.encrypt(user))) for _ in range(2))
    assert 0 < (one - other).std() / np.sqrt(2) < 2.0**-33


def test_public_keys_hold_no_secret() -> None:
    data = public_keys()
    assert SEED.tobytes() not in data
    with pytest.raises(HushrecError, match="the seed of a secret key is 8 words of 32 bits; give the one"):
        KeyHolder(6, 7, np.frombuffer(data[: len(data) // 4 * 4], np.uint32))
    with pytest.raises(HushrecError, match="the seed of a secret key"):
        KeyHolder(6, 7, SEED.astype(np.int64))
    assert all(str(word) not in repr(holder()) for word in SEED.tolist())


def test_without_the_key_nothing_is_read() -> None:
    other = KeyHolder(6, 7, OTHER_SEED)
    requests, answers = exchanged()
    with pytest.raises(HushrecError, match="an answer decrypts to no scores: damaged or under another key"):
        other.decrypt(answers)
    with pytest.raises(HushrecError, match="an answer decrypts to no scores"):
        holder().decrypt(scorer().score(other.encrypt(USERS)))
    with pytest.raises(HushrecError, match="an answer decrypts to no scores"):
        holder().decrypt(ItemScorer(other.public_keys(), ITEMS).score(requests))


def test_damaged_ciphertexts_are_refused() -> None:
    requests, answers = exchanged()
    for work, row in ((scorer().score, requests[:1]), (holder().decrypt, answers[:1])):
        cut = row.copy()
        cut[:, 50_000:] = 0
        for damaged in (np.zeros_like(row), np.full_like(row, 255), cut, np.roll(row, 1)):
            with pytest.raises(HushrecError, match="a ciphertext is damaged; ask for it once more"):
                work(damaged)
        for other in (row[:, :-1], row[0], row.astype(np.int64), np.hstack([row, row])):
            with pytest.raises(HushrecError, match=r"are not rows of .* bytes; ask for them once more"):
                work(other)


def test_flipped_bits_never_give_scores() -> None:
    """But for those behind its end: a ciphertext's compressed size varies, and the rest of a row is not read."""
    requests, answers = exchanged()
    for place in (30, 120, 200, 5_000, 60_000, 108_000):
        flipped = requests[:1].copy()
        flipped[0, place] ^= 4
        with pytest.raises(HushrecError, match=r"damaged|another kind"):
            holder().decrypt(scorer().score(flipped))
        flipped = answers[:1].copy()
        flipped[0, place] ^= 4
        with pytest.raises(HushrecError, match=r"damaged|another kind"):
            holder().decrypt(flipped)


def test_other_kinds_of_ciphertexts_are_refused() -> None:
    ckks, key = holder()._ckks, holder()
    plain = ckks.encoded(np.ones(4096), 2.0**40)
    other_scale = ckks.row_of(lambda: key._encryptor.encrypt_symmetric(plain), REQUEST_BYTES)[None]
    with pytest.raises(HushrecError, match="a ciphertext is of another kind than the one asked for"):
        scorer().score(other_scale)
    wide = np.zeros((1, ANSWER_BYTES), np.uint8)
    wide[:, :REQUEST_BYTES] = exchanged()[0][:1]  # a request instead of an answer
    with pytest.raises(HushrecError, match="a ciphertext is of another kind"):
        key.decrypt(wide)
    other_scheme = homomorphic.BfvKey.from_seed(SEED).encrypt(np.ones(4096, np.int64))
    with pytest.raises(HushrecError, match="a ciphertext is damaged"):
        scorer().score(padded(other_scheme.tobytes(), REQUEST_BYTES)[None])


def test_wrong_public_keys_are_refused() -> None:
    data = public_keys()
    for damaged in (b"", data[:10], data[:1000], data[:-1], data[:400_000], b"x" + data, 4 * data[:30]):
        with pytest.raises(
            HushrecError, match="the public keys are damaged; ask the key holder for them once more"
        ):
            ItemScorer(damaged, ITEMS)
    with pytest.raises(HushrecError, match="for 7 items of 6 factors, not for 7 of 5; tell the key holder"):
        ItemScorer(data, ITEMS[:, :5])
    with pytest.raises(HushrecError, match="for 7 items of 6 factors, not for 6 of 6"):
        ItemScorer(data, ITEMS[:6])
    fewer_turns = KeyHolder(1, 7, SEED).public_keys()
    forged = data[: encrypted_scores._HEADER.size - 4] + fewer_turns[encrypted_scores._HEADER.size - 4 :]
    with pytest.raises(HushrecError, match="the public keys are damaged"):
        ItemScorer(forged, ITEMS)


def test_numbers_that_would_come_out_wrong_are_refused() -> None:
    for bad in (np.nan, np.inf, 1.1 * VECTOR_LIMIT):
        damaged = ITEMS.copy()
        damaged[1, 2] = bad
        with pytest.raises(HushrecError, match="some user vector is longer than 100 or not finite; use a lower"):
            holder().encrypt(damaged)
        with pytest.raises(HushrecError, match="some item vector is longer than 100 or not finite"):
            ItemScorer(public_keys(), damaged)
        with pytest.raises(HushrecError, match=r"some item offset is beyond \+-1000; use a lower"):
            ItemScorer(public_keys(), ITEMS, np.full(7, 20 * bad))
    with pytest.raises(HushrecError, match="7 items need as many offsets; give one per item"):
        ItemScorer(public_keys(), ITEMS, np.zeros(6))
    for shape in ((3, 5), (6,), (1, 3, 6)):
        with pytest.raises(HushrecError, match="user vectors do not have 6 numbers each; give them as rows"):
            holder().encrypt(np.zeros(shape))
    for num_factors in (0, MOST_FACTORS + 1):
        with pytest.raises(HushrecError, match="encrypted scores need 1 to 128 factors"):
            KeyHolder(num_factors, 7, SEED)
    with pytest.raises(HushrecError, match=r"encrypted scores need 1 to [0-9,]+ items, not 0"):
        ItemScorer(public_keys(), ITEMS[:0])
    with pytest.raises(HushrecError, match="item factors are not a matrix; give a row per item"):
        ItemScorer(public_keys(), ITEMS[0])


def test_scores_beyond_the_limit_are_refused() -> None:
    """A scorer that does not keep to the limits: its scores are read, and are no scores."""
    own = ItemScorer(public_keys(), ITEMS)
    own._offsets = [own._ckks.encoded(np.array([1.01 * SCORE_LIMIT, 0.0]), 2.0**82)]
    with pytest.raises(HushrecError, match="an answer decrypts to no scores"):
        holder().decrypt(own.score(exchanged()[0][:1]))


def test_a_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(homomorphic, "import_module", missing)
    with pytest.raises(HushrecError, match=r"CKKS encryption needs TenSEAL; install it with: pip install"):
        KeyHolder(6, 7, SEED)
