# mypy: allow-untyped-defs, allow-untyped-calls
"""Interactions on their way from users to an owner of the item: AES-GCM, a key per owner, numbered in order.

What is encrypted is the tuple (user, item) of one interaction, or several of them that travel together, filled
up to one size. Whether an interaction is positive stays outside, as published, or goes inside. The number of a
message is its nonce and, with the owner's number and the flags outside, its associated data: nothing of a message
can be changed, and a message that was read once is never read again.

Messages that are sealed at once have a key of their own. It follows from the owner's key and their salt, and the
salt from the owner's key and all that is sealed, numbers included, by HMAC-SHA256. So a key and a nonce that
come again come with the same content, whatever is asked for twice, in another order, or after a restart that lost
count.

Guarantee: who has no key learns how many messages there are, when, their one size and the flags outside; and
whether two lots of messages with the same numbers are the same. Two lots share a key with a chance of 2^-128 for
each pair of them. All users share the key of an owner: one user can read what another sent, if it gets hold of it.
There is no forward secrecy.
"""

import hmac
from dataclasses import dataclass

import numba
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from hushrec.errors import HushrecError

KEY_BYTES = 16
TAG_BYTES = 16
SALT_BYTES = 16
_SALT_TAG, _KEY_TAG = b"hushrec drift salt v1\0", b"hushrec drift letters v1\0"
_EMPTY = 2**32 - 1  # the user of a place that is only there to fill up

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Form:
    """How interactions are packed into messages; all parties agree on it."""

    batch: int = 1  # interactions in a message
    is_flag_inside: bool = False
    is_encrypted: bool = True

    @property
    def key_bytes(self) -> int:
        """Bytes of an owner's key."""
        return KEY_BYTES if self.is_encrypted else 0

    @property
    def plain_bytes(self) -> int:
        """Bytes of the plain text of a message."""
        return self.batch * (9 if self.is_flag_inside else 8)

    @property
    def message_bytes(self) -> int:
        """Bytes of a message as it is sent."""
        return self.plain_bytes + (TAG_BYTES if self.is_encrypted else 0)

    def num_messages(self, num_interactions: int) -> int:
        """How many messages hold so many interactions."""
        return -(-num_interactions // self.batch)


@dataclass(frozen=True)
class Letters:
    """Messages to one owner, a row each."""

    sequences: NDArray[np.int64]
    flags: Bytes  # (messages, batch), or (messages, 0) if they are inside
    contents: Bytes  # (messages, bytes)
    salt: bytes = b""  # of their key; empty if they are in the clear


@dataclass(frozen=True)
class Opened:
    """The interactions that an owner could read out of its messages."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    is_positive: NDArray[np.bool_]
    message_of: NDArray[np.int64]  # of each interaction
    is_sound: NDArray[np.bool_]  # of each message; what is not sound is left out above


def seal_interactions(
    key: bytes,
    owner: int,
    form: Form,
    first_sequence: int,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    is_positive: NDArray[np.bool_],
) -> Letters:
    """Pack and encrypt interactions for one owner, numbered from `first_sequence` on."""
    num_messages = form.num_messages(len(users))
    places = np.full((num_messages * form.batch, 2), _EMPTY, "<u4")
    places[: len(users), 0], places[: len(users), 1] = users, items
    flags = np.zeros(num_messages * form.batch, np.uint8)
    flags[: len(users)] = is_positive
    plain = places.view(np.uint8).reshape(-1, 8)
    if form.is_flag_inside:
        plain = np.concatenate([plain, flags[:, None]], axis=1)
    plain = plain.reshape(num_messages, form.plain_bytes)
    sequences = np.arange(first_sequence, first_sequence + num_messages, dtype=np.int64)
    outside = flags.reshape(num_messages, form.batch)[:, : 0 if form.is_flag_inside else form.batch]
    if not form.is_encrypted:
        return Letters(sequences, outside, plain)
    bound = _associated(owner, sequences, outside)
    salt = hmac.digest(key, b"".join((_SALT_TAG, *bound, plain.tobytes())), "sha256")[:SALT_BYTES]
    sealed = map(AESGCM(letters_key(key, salt)).encrypt, _nonces(sequences), _cut(plain), bound)
    contents = np.frombuffer(b"".join(sealed), np.uint8).reshape(num_messages, form.message_bytes)
    return Letters(sequences, outside, contents, salt)


def salt_numbers(salt: bytes) -> tuple[int, int]:
    """A salt as two numbers of 64 bits, for a message; zeros if there is none."""
    return int.from_bytes(salt[:8], "little"), int.from_bytes(salt[8:], "little")


def salt_of(low: int, high: int) -> bytes:
    """The salt that `salt_numbers` took apart."""
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def letters_key(key: bytes, salt: bytes) -> bytes:
    """The key of the messages that were sealed at once."""
    return hmac.digest(key, _KEY_TAG + salt, "sha256")[:KEY_BYTES]


def open_interactions(key: bytes, owner: int, form: Form, letters: Letters) -> Opened:
    """Decrypt; messages that were altered, or are under another key or for another owner, are not sound."""
    num_messages = len(letters.sequences)
    width = 0 if form.is_flag_inside else form.batch
    if letters.contents.shape != (num_messages, form.message_bytes) or letters.flags.shape != (
        num_messages,
        width,
    ):
        raise HushrecError("interactions are packed in another way than was agreed on; use the same settings")
    if form.is_encrypted and len(letters.salt) != SALT_BYTES:
        raise HushrecError(f"the salt of interactions has not {SALT_BYTES} bytes; use the same settings")
    plain, is_sound = letters.contents, np.ones(num_messages, np.bool_)
    if form.is_encrypted:
        plain, is_sound = _decrypted(key, owner, form, letters)
    users, items, is_positive, message_of = _unpacked(
        plain, letters.flags, is_sound, form.batch, form.is_flag_inside
    )
    return Opened(users, items, is_positive, message_of, is_sound)


@numba.njit(nogil=True, cache=True)
def _unpacked(plain, flags, is_sound, batch, is_flag_inside):
    """Users, items, whether they are positive, and the message of each interaction that is really there."""
    most, size = plain.shape[0] * batch, plain.shape[1] // batch
    users, items = np.empty(most, np.int32), np.empty(most, np.int32)
    is_positive, message_of = np.empty(most, np.bool_), np.empty(most, np.int64)
    num_there = 0
    for message in range(plain.shape[0]):
        if not is_sound[message]:
            continue
        for place in range(batch):
            user, item = np.uint32(0), np.uint32(0)
            for byte in range(4):
                user |= np.uint32(plain[message, size * place + byte]) << np.uint32(8 * byte)
                item |= np.uint32(plain[message, size * place + 4 + byte]) << np.uint32(8 * byte)
            if user == np.uint32(_EMPTY):
                continue
            flag = plain[message, size * place + 8] if is_flag_inside else flags[message, place]
            users[num_there], items[num_there] = np.int32(user), np.int32(item)
            is_positive[num_there], message_of[num_there] = flag != 0, message
            num_there += 1
    return users[:num_there], items[:num_there], is_positive[:num_there], message_of[:num_there]


def _decrypted(key: bytes, owner: int, form: Form, letters: Letters) -> tuple[Bytes, NDArray[np.bool_]]:
    decrypt, num_messages = AESGCM(letters_key(key, letters.salt)).decrypt, len(letters.sequences)
    nonces, contents = _nonces(letters.sequences), _cut(letters.contents)
    bound = _associated(owner, letters.sequences, letters.flags)
    is_sound = np.ones(num_messages, np.bool_)
    try:
        parts = list(map(decrypt, nonces, contents, bound))
    except InvalidTag:
        parts = [bytes(form.plain_bytes)] * num_messages
        for row, message in enumerate(zip(nonces, contents, bound, strict=True)):
            try:
                parts[row] = decrypt(*message)
            except InvalidTag:
                is_sound[row] = False
    return np.frombuffer(b"".join(parts), np.uint8).reshape(num_messages, form.plain_bytes), is_sound


def _nonces(sequences: NDArray[np.int64]) -> list[bytes]:
    words = np.zeros((len(sequences), 3), "<u4")
    words[:, :2] = sequences.astype("<u8")[:, None].view("<u4")
    return _cut(words.view(np.uint8))


def _associated(owner: int, sequences: NDArray[np.int64], flags: Bytes) -> list[bytes]:
    bound = np.empty((len(sequences), 12 + flags.shape[1]), np.uint8)
    bound[:, :4] = np.array([owner], "<u4").view(np.uint8)
    bound[:, 4:12] = sequences.astype("<u8")[:, None].view(np.uint8)
    bound[:, 12:] = flags
    return _cut(bound)


def _cut(rows: Bytes) -> list[bytes]:
    """The rows of a table, as bytes each."""
    cut: list[bytes] = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    return cut
