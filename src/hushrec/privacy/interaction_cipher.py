"""Interactions on their way from users to an owner of the item: AES-GCM, a key per owner, numbered in order.

What is encrypted is the tuple (user, item) of one interaction, or several of them that travel together, filled
up to one size. Whether an interaction is positive stays outside, as published, or goes inside. The number of a
message is its nonce and, with the owner's number and the flags outside, its associated data: nothing of a message
can be changed, and a message that was read once is never read again.

Guarantee: who has no key learns how many messages there are, when, their one size and the flags outside. All users
share the key of an owner: one user can read what another sent, if it gets hold of it. There is no forward secrecy.
"""

from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from hushrec.errors import HushrecError

KEY_BYTES = 16
TAG_BYTES = 16
_NONCE_BYTES = 12
_EMPTY = 2**32 - 1  # the user of a place that is only there to fill up

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Form:
    """How interactions are packed."""

    batch: int = 1  # interactions in a message
    is_flag_inside: bool = False
    is_encrypted: bool = True

    @property
    def plain_bytes(self) -> int:
        """Of what is encrypted."""
        return self.batch * (9 if self.is_flag_inside else 8)

    @property
    def message_bytes(self) -> int:
        """Of the result."""
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


@dataclass(frozen=True)
class Opened:
    """What an owner could read."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    is_positive: NDArray[np.bool_]
    is_sound: NDArray[np.bool_]  # of each message; the others are left out above
    message_of: NDArray[np.int64]  # of each interaction


def seal_interactions(
    key: bytes,
    owner: int,
    form: Form,
    first_sequence: int,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    is_positive: NDArray[np.bool_],
) -> Letters:
    """Pack and encrypt interactions for one owner, numbered from `first_sequence` on.

    A key and a number must never meet another content: who calls counts on, also over restarts.
    """
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
    encrypt = AESGCM(key).encrypt
    nonces, data, bound = _nonces(sequences), plain.tobytes(), _associated(owner, sequences, outside)
    size, bound_size = form.plain_bytes, 12 + outside.shape[1]
    sealed = [
        encrypt(
            nonces[_NONCE_BYTES * row : _NONCE_BYTES * (row + 1)],
            data[size * row : size * (row + 1)],
            bound[bound_size * row : bound_size * (row + 1)],
        )
        for row in range(num_messages)
    ]
    contents = np.frombuffer(b"".join(sealed), np.uint8).reshape(num_messages, form.message_bytes)
    return Letters(sequences, outside, contents)


def open_interactions(key: bytes, owner: int, form: Form, letters: Letters) -> Opened:
    """Decrypt; messages that were altered, or are under another key or for another owner, are not sound."""
    num_messages = len(letters.sequences)
    width = 0 if form.is_flag_inside else form.batch
    if letters.contents.shape != (num_messages, form.message_bytes) or letters.flags.shape != (
        num_messages,
        width,
    ):
        raise HushrecError("interactions are packed in another way than was agreed on; use the same settings")
    plain, is_sound = letters.contents, np.ones(num_messages, np.bool_)
    if form.is_encrypted:
        plain, is_sound = _decrypted(key, owner, form, letters)
    rows = plain.reshape(num_messages * form.batch, -1)
    pairs = np.ascontiguousarray(rows[:, :8]).view("<u4")
    flags = rows[:, 8] if form.is_flag_inside else letters.flags.ravel()
    message_of = np.repeat(np.arange(num_messages), form.batch)
    is_there = (pairs[:, 0] != _EMPTY) & is_sound[message_of]
    users, items = pairs[is_there].astype(np.int32).T
    return Opened(users, items, flags[is_there] != 0, is_sound, message_of[is_there])


def _decrypted(key: bytes, owner: int, form: Form, letters: Letters) -> tuple[Bytes, NDArray[np.bool_]]:
    decrypt, num_messages = AESGCM(key).decrypt, len(letters.sequences)
    nonces, bound = _nonces(letters.sequences), _associated(owner, letters.sequences, letters.flags)
    data, size, bound_size = letters.contents.tobytes(), form.message_bytes, 12 + letters.flags.shape[1]

    def opened(row: int) -> bytes:
        return decrypt(
            nonces[_NONCE_BYTES * row : _NONCE_BYTES * (row + 1)],
            data[size * row : size * (row + 1)],
            bound[bound_size * row : bound_size * (row + 1)],
        )

    is_sound = np.ones(num_messages, np.bool_)
    try:
        parts = [opened(row) for row in range(num_messages)]
    except InvalidTag:
        parts = []
        for row in range(num_messages):
            try:
                parts.append(opened(row))
            except InvalidTag:
                parts.append(bytes(form.plain_bytes))
                is_sound[row] = False
    return np.frombuffer(b"".join(parts), np.uint8).reshape(num_messages, form.plain_bytes), is_sound


def _nonces(sequences: NDArray[np.int64]) -> bytes:
    words = np.zeros((len(sequences), 3), "<u4")
    words[:, :2] = sequences.astype("<u8")[:, None].view("<u4")
    return words.tobytes()


def _associated(owner: int, sequences: NDArray[np.int64], flags: Bytes) -> bytes:
    bound = np.empty((len(sequences), 12 + flags.shape[1]), np.uint8)
    bound[:, :4] = np.array([owner], "<u4").view(np.uint8)
    bound[:, 4:12] = sequences.astype("<u8")[:, None].view(np.uint8)
    bound[:, 12:] = flags
    return bound.tobytes()
