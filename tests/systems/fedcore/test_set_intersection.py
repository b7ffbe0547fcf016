"""Partners number the users they have in common, and see of the others no more than tokens."""

from collections import Counter
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.systems.fedcore.set_intersection import (
    blind,
    common_numbers,
    hashed_ids,
    keyed_tokens,
    num_common,
    secret_from,
)

KEY = bytes(range(32))
PRIME = 2**255 - 19
ORDER_EIGHT = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)

number_lists = st.lists(st.integers(0, 25), max_size=15, unique=True)
text_lists = st.lists(st.text("aé0 9", min_size=1, max_size=2).filter(str.strip), max_size=15, unique_by=str.strip)


def secrets_of(num_partners: int) -> list[bytes]:
    return [secret_from(Draws(seed).key("alignment").tobytes()) for seed in range(num_partners)]


def around_the_ring(id_lists: list[np.ndarray]) -> list[np.ndarray]:
    """Each list is blinded by its owner, then by the partners after it."""
    secrets = secrets_of(len(id_lists))
    return [
        reduce(lambda values, secret: blind(secret, values), secrets[owner:] + secrets[:owner], hashed_ids(ids))
        for owner, ids in enumerate(id_lists)
    ]


def as_ids(values: list[int] | list[str]) -> np.ndarray:
    if values and isinstance(values[0], str):
        return np.array(values, np.str_)
    return np.array(values, np.int64)


def check_against_sets(id_lists: list[np.ndarray], tokens: list[np.ndarray]) -> None:
    texts = [[str(one).strip() for one in ids.tolist()] for ids in id_lists]
    held = Counter(text for owned in texts for text in set(owned))
    common = {text for text, count in held.items() if count > 1}
    number_of: dict[str, int] = {}
    for owner, owned in enumerate(texts):
        numbers = common_numbers(tokens[owner], tokens[:owner] + tokens[owner + 1 :])
        assert numbers.dtype == np.int32
        assert [number >= 0 for number in numbers.tolist()] == [text in common for text in owned]
        for text, number in zip(owned, numbers.tolist(), strict=True):
            if number >= 0:
                assert number_of.setdefault(text, number) == number
    assert sorted(number_of.values()) == list(range(len(common)))
    assert num_common(tokens) == len(common)


@pytest.mark.parametrize("num_partners", [2, 3, 4])
@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_equals_a_plain_intersection(num_partners: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([number_lists, text_lists]))
    id_lists = [as_ids(data.draw(kind)) for _ in range(num_partners)]
    check_against_sets(id_lists, around_the_ring(id_lists))
    check_against_sets(id_lists, [keyed_tokens(KEY, ids) for ids in id_lists])


def test_numbers_align_with_texts() -> None:
    numbers = np.array([196, -3, 7, 2**60], np.int64)
    texts = np.array(["x", " 7", str(2**60), "196", "0196", "-3"])
    for own, other in (around_the_ring([numbers, texts]), [keyed_tokens(KEY, ids) for ids in (numbers, texts)]):
        assert (common_numbers(own, [other]) >= 0).all()
        np.testing.assert_array_equal(common_numbers(other, [own]) >= 0, [False, True, True, True, False, True])


def test_composed_and_decomposed_letters_align() -> None:
    np.testing.assert_array_equal(hashed_ids(np.array(["Zo\u00eb"])), hashed_ids(np.array(["Zoe\u0308"])))


def test_numbers_are_ranks_of_sorted_tokens() -> None:
    own, other = np.zeros((4, 32), np.uint8), np.zeros((3, 32), np.uint8)
    own[:, 0], own[:, 31] = [9, 1, 5, 1], [0, 0, 7, 1]
    other[:, 0], other[:, 31] = [1, 9, 5], [1, 0, 8]
    np.testing.assert_array_equal(common_numbers(own, [other]), [1, -1, -1, 0])
    np.testing.assert_array_equal(common_numbers(other, [own]), [0, 1, -1])


def test_a_token_that_one_list_repeats_is_not_common() -> None:
    tokens = keyed_tokens(KEY, np.array([1, 1, 2]))
    assert num_common([tokens, tokens[:0]]) == 0
    np.testing.assert_array_equal(common_numbers(tokens, []), [-1, -1, -1])


def test_blinding_commutes_and_keeps_the_order() -> None:
    one, other = secrets_of(2)
    values = hashed_ids(np.arange(20))
    both = blind(one, blind(other, values))
    np.testing.assert_array_equal(both, blind(other, blind(one, values)))
    order = np.random.default_rng(0).permutation(20)
    np.testing.assert_array_equal(both[order], blind(one, blind(other, values[order])))


def test_tokens_of_other_users_share_nothing() -> None:
    """Under different secrets the same users have unlike tokens: bits agree by chance; |z| < 5, 6e-7 a pair."""
    one, other = secrets_of(2)
    values = hashed_ids(np.arange(400))
    seen = [values, blind(one, values), blind(other, values), blind(one, blind(other, values))]
    assert len(np.unique(np.concatenate(seen), axis=0)) == 4 * 400
    for place, tokens in enumerate(seen):
        for others in seen[:place]:
            differing = np.unpackbits(tokens ^ others, axis=1, bitorder="little")[:, :255]
            assert abs(differing.mean() - 0.5) < 5 * 0.5 / np.sqrt(differing.size)


def test_hashes_are_on_the_curve_and_stay_there() -> None:
    """Euler's criterion; else each token would tell on which side, curve or twist, its id's hash is."""
    values = hashed_ids(np.arange(60))
    for tokens in (values, blind(secrets_of(1)[0], values)):
        for row in tokens:
            u = int.from_bytes(row.tobytes(), "little") % 2**255
            assert pow(u**3 + 486662 * u * u + u, (PRIME - 1) // 2, PRIME) == 1


def test_both_sides_of_the_curve_occur_among_plain_hashes() -> None:
    """The chain of hashes is needed: about half of the ids take more than one step."""
    from hashlib import sha256

    firsts = [sha256(b"hushrec alignment v1 point\0" + str(number).encode()).digest() for number in range(200)]
    kept = sum(first == row.tobytes() for first, row in zip(firsts, hashed_ids(np.arange(200)), strict=True))
    assert 60 < kept < 140


@pytest.mark.parametrize(
    ("scalar", "point", "product"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_vectors_of_rfc_7748(scalar: str, point: str, product: str) -> None:
    values = np.frombuffer(bytes.fromhex(point), np.uint8).reshape(1, 32)
    assert blind(bytes.fromhex(scalar), values).tobytes().hex() == product


@pytest.mark.parametrize("low", [0, 1, *ORDER_EIGHT, PRIME - 1, PRIME, PRIME + 1])
def test_points_of_low_order_are_refused(low: int) -> None:
    values = hashed_ids(np.arange(3)).copy()
    values[1] = np.frombuffer(low.to_bytes(32, "little"), np.uint8)
    with pytest.raises(HushrecError, match="low order"):
        blind(secrets_of(1)[0], values)


def test_other_shapes_and_short_keys_are_refused() -> None:
    for wrong in (np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((2, 32), np.int8)):
        with pytest.raises(HushrecError, match="32 bytes per user"):
            blind(KEY, wrong)
        with pytest.raises(HushrecError, match="32 bytes per user"):
            num_common([wrong])
    with pytest.raises(HushrecError, match="at least 16"):
        keyed_tokens(b"short", np.arange(3))
    with pytest.raises(HushrecError, match="secret"):
        blind(b"short", hashed_ids(np.arange(1)))


def test_keys_and_purposes_give_other_tokens() -> None:
    ids = np.arange(10)
    assert not (keyed_tokens(KEY, ids) == keyed_tokens(KEY[::-1], ids)).all(axis=1).any()
    assert len(set(secrets_of(5))) == 5
    assert secret_from(KEY) != KEY


def test_nobody_at_all() -> None:
    empty = hashed_ids(np.array([], np.int64))
    assert empty.shape == (0, 32)
    assert blind(KEY, empty).shape == (0, 32)
    assert common_numbers(empty, [empty]).shape == (0,)
    assert num_common([]) == 0
