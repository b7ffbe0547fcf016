import hmac
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from hushrec.errors import HushrecError
from hushrec.systems.drift.cipher import (
    KEY_BYTES,
    TAG_BYTES,
    Form,
    Letters,
    open_interactions,
    salt_numbers,
    salt_of,
    seal_interactions,
)

KEY, OTHER_KEY = bytes(range(KEY_BYTES)), bytes(KEY_BYTES)
OWNER = 7
FORMS = [
    Form(batch, is_flag_inside, is_encrypted)
    for batch in (1, 3)
    for is_flag_inside in (False, True)
    for is_encrypted in (True, False)
]
ENCRYPTED = [form for form in FORMS if form.is_encrypted]


def interactions(size: int, seed: int = 0) -> tuple[Any, Any, Any]:
    draws = np.random.default_rng(seed)
    users, items = draws.integers(0, 2**31 - 1, (2, size)).astype(np.int32)
    return users, items, draws.random(size) < 0.5


def sealed(form: Form, size: int = 5, first: int = 11, seed: int = 0) -> Letters:
    return seal_interactions(KEY, OWNER, form, first, *interactions(size, seed))


def soundness(form: Form, letters: Letters, key: bytes = KEY, owner: int = OWNER) -> list[bool]:
    """Of each message; nothing of one that is not sound is read."""
    opened = open_interactions(key, owner, form, letters)
    assert opened.is_sound[opened.message_of].all()
    return opened.is_sound.tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, 3, 5])
def test_what_is_sealed_can_be_opened(form: Form, size: int) -> None:
    users, items, is_positive = interactions(size)
    letters = sealed(form, size)
    num_messages = -(-size // form.batch)
    assert letters.sequences.tolist() == list(range(11, 11 + num_messages))
    assert letters.flags.shape == (num_messages, 0 if form.is_flag_inside else form.batch)
    opened = open_interactions(KEY, OWNER, form, letters)
    np.testing.assert_array_equal(opened.users, users)
    np.testing.assert_array_equal(opened.items, items)
    np.testing.assert_array_equal(opened.is_positive, is_positive)
    np.testing.assert_array_equal(opened.message_of, np.arange(size) // form.batch)
    assert opened.is_sound.all()
    assert (opened.users.dtype, opened.items.dtype, opened.is_positive.dtype) == (np.int32, np.int32, np.bool_)


def test_a_message_by_hand() -> None:
    """Plain: user 258 and item 3, 4 bytes each, low one first. Nonce: the number 5, 8 bytes, and 4 zeros.

    Bound to it: owner 7 (4 bytes), the number (8 bytes), the flag. The salt is an HMAC of what is bound and plain,
    the key one of the salt.
    """
    letters = seal_interactions(
        KEY, OWNER, Form(), 5, np.array([258], np.int32), np.array([3], np.int32), np.array([True])
    )
    plain, nonce = bytes([2, 1, 0, 0, 3, 0, 0, 0]), bytes([5, *[0] * 11])
    bound = bytes([7, 0, 0, 0, 5, *[0] * 7, 1])
    salt = hmac.new(KEY, b"hushrec drift salt v1\0" + bound + plain, "sha256").digest()[:16]
    key = hmac.new(KEY, b"hushrec drift letters v1\0" + salt, "sha256").digest()[:16]
    assert letters.contents.tobytes() == AESGCM(key).encrypt(nonce, plain, bound)
    assert letters.salt == salt == salt_of(*salt_numbers(salt))
    assert letters.flags.tolist() == [[1]]


@pytest.mark.parametrize("form", ENCRYPTED)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7), message=st.integers(0, 1))
def test_a_changed_bit_of_a_content_is_noticed(form: Form, place: int, bit: int, message: int) -> None:
    """And the other message can be read."""
    letters = sealed(form, 2 * form.batch)
    contents = letters.contents.copy()
    contents[message, place % form.message_bytes] ^= 1 << bit
    assert soundness(form, replace(letters, contents=contents)) == [message == 1, message == 0]


@pytest.mark.parametrize("form", ENCRYPTED)
def test_other_numbers_owners_and_keys_are_noticed(form: Form) -> None:
    letters = sealed(form, 2 * form.batch)
    assert soundness(form, letters) == [True, True]
    assert soundness(form, replace(letters, sequences=letters.sequences + np.array([0, 1]))) == [True, False]
    swapped = Letters(letters.sequences, letters.flags[::-1], letters.contents[::-1], letters.salt)
    assert soundness(form, swapped) == [False, False]
    assert soundness(form, letters, owner=OWNER + 1) == [False, False]
    assert soundness(form, letters, key=OTHER_KEY) == [False, False]
    assert soundness(form, replace(letters, salt=bytes(16))) == [False, False]
    with pytest.raises(HushrecError, match="the salt of interactions has not 16 bytes"):
        soundness(form, replace(letters, salt=b""))
    assert not len(open_interactions(OTHER_KEY, OWNER, form, letters).users)


@pytest.mark.parametrize("form", [form for form in ENCRYPTED if not form.is_flag_inside])
def test_changed_flags_are_noticed(form: Form) -> None:
    letters = sealed(form, 2 * form.batch)
    for place in range(form.batch):
        flags = letters.flags.copy()
        flags[1, place] ^= 1
        assert soundness(form, replace(letters, flags=flags)) == [True, False]


@pytest.mark.parametrize("form", FORMS)
def test_all_messages_have_one_size(form: Form) -> None:
    """Whatever is in them, and also if they are not full."""
    size = form.batch * (8 + form.is_flag_inside) + TAG_BYTES * form.is_encrypted
    for users, items in ((0, 0), (2**31 - 1, 2**31 - 1), (1, 70_000)):
        columns = [np.array([number], np.int32) for number in (users, items)]
        letters = seal_interactions(KEY, OWNER, form, 1, *columns, np.array([True]))
        assert letters.contents.shape == (1, size) == (1, form.message_bytes)


def test_what_fills_up_is_not_told_from_the_rest() -> None:
    """Flags of empty places are 0; of three places one is filled, and one is read."""
    form = Form(batch=3)
    letters = seal_interactions(
        KEY, OWNER, form, 1, np.array([4], np.int32), np.array([2], np.int32), np.array([True])
    )
    assert letters.flags.tolist() == [[1, 0, 0]]
    opened = open_interactions(KEY, OWNER, form, letters)
    assert (opened.users.tolist(), opened.items.tolist()) == ([4], [2])


@pytest.mark.parametrize("form", ENCRYPTED)
def test_nothing_can_be_read_without_the_key(form: Form) -> None:
    """The same 200 interactions under other numbers are other bytes; bits are set in half of the places.

    200 messages have at least 200 * 8 * 24 bits: 6 standard deviations are below 0.016.
    """
    users = items = np.full(200 * form.batch, 5, np.int32)
    letters = seal_interactions(KEY, OWNER, form, 1, users, items, np.ones(len(users), np.bool_))
    assert len(np.unique(letters.contents, axis=0)) == 200
    assert abs(np.unpackbits(letters.contents).mean() - 0.5) < 0.016


def test_the_same_again_is_the_same() -> None:
    """So that a repeated request gives the same bytes."""
    form = Form(3, is_flag_inside=True)
    np.testing.assert_array_equal(sealed(form).contents, sealed(form).contents)


@pytest.mark.parametrize(
    ("sent", "agreed"),
    [(Form(1), Form(3)), (Form(1), Form(1, is_flag_inside=True)), (Form(3), Form(3, is_encrypted=False))],
)
def test_another_form_than_agreed_on_is_refused(sent: Form, agreed: Form) -> None:
    with pytest.raises(HushrecError, match=r"\Ainteractions are packed in another way.*; use the same settings\Z"):
        open_interactions(KEY, OWNER, agreed, sealed(sent))
