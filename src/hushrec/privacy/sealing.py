"""Sealed mail: what one client sends to another through a server that must not read it.

A seal is HPKE (RFC 9180, base mode: X25519, HKDF-SHA256, AES-128-GCM), one fresh ephemeral key per message. It is
bound to the run, round, ask, type of message and addressee, so that it opens nowhere else. An onion is a second
seal around the first, to a relaying node, which then learns the addressee but not the sender or the message.

Guarantee: without the addressee's private key nobody reads a frame, and nobody changes one, or moves it to another
run, round, ask, type or addressee, without being noticed. Computational (about 128 bits), attackers may be active.

Not protected:
- sizes, unless frames are padded to one size, and how many messages there are;
- who sends to whom and when, from a server that relays; with an onion, from a server and a relay that collude,
  or a relay that passes mail on unshuffled;
- who sent it: anybody with the public key can seal, the server too;
- a message left out, or delivered twice within the ask that it is bound to: the addressee has to count;
- anything, if the server could swap the public key: have it signed (`deploy/identity.py`) or compare fingerprints;
- mail of the past, once the addressee's private key is stolen.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from hushrec.errors import PublicError

# What a seal adds to a frame: an X25519 public key and an AES-GCM tag.
SEAL_BYTES = 48

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_TAG = b"hushrec mail v1"
_INFO = struct.Struct(f"<{len(_TAG)}s16sIQII")
# An outer layer can never pass for mail, nor mail for an outer layer, even under equal bindings.
_RELAY_SUFFIX = b" relay"
_ADDRESSEE = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_NOT_OPENED = "sealed mail does not open: altered, meant for another place or sealed to another key; drop it"


class SealError(PublicError):
    """Mail that cannot be sealed or opened."""


@dataclass(frozen=True)
class Binding:
    """What a seal is bound to, so that it can be replayed nowhere else."""

    run_id: bytes
    round_number: int
    sequence: int  # number of the ask within the run, over all restarts
    message_code: int
    addressee: int

    def __post_init__(self) -> None:
        is_in_range = (
            len(self.run_id) == 16
            and 0 <= self.round_number < 1 << 32
            and 0 <= self.sequence < 1 << 64
            and 0 <= self.message_code < 1 << 32
            and 0 <= self.addressee < 1 << 32
        )
        if not is_in_range:
            raise SealError(
                "a seal is bound to a run id of 16 bytes and to whole numbers of 32 bits (sequence: 64)"
            )

    def info(self) -> bytes:
        """The binding as HPKE's `info`: 51 bytes."""
        return _INFO.pack(_TAG, self.run_id, self.round_number, self.sequence, self.message_code, self.addressee)


def new_private_key() -> bytes:
    """A fresh X25519 private key, 32 raw bytes."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key_of(private: bytes) -> bytes:
    """The public key that belongs to a private one, 32 raw bytes."""
    return _private_key(private).public_key().public_bytes_raw()


def seal(frame: bytes | memoryview, public_key: bytes, binding: Binding) -> bytes:
    """Ephemeral public key, ciphertext, tag: SEAL_BYTES longer than the frame."""
    return _seal(frame, public_key, binding.info())


def open_sealed(sealed: bytes | memoryview, private_key: bytes, binding: Binding) -> bytes:
    """The frame in a seal made for this key and this binding."""
    return _open(sealed, private_key, binding.info())


def pad(frame: bytes | memoryview, size_bytes: int) -> bytes:
    """Length of the frame, the frame, zeros up to the next multiple of size_bytes."""
    if size_bytes < 1:
        raise SealError(f"mail cannot be padded to multiples of {size_bytes} bytes; use at least 1")
    if len(frame) >= 1 << 32:
        raise SealError("a frame of 4 GB or more cannot be padded; send it in parts")
    num_zeros = -(_LENGTH.size + len(frame)) % size_bytes
    return b"".join((_LENGTH.pack(len(frame)), frame, bytes(num_zeros)))


def unpad(padded: bytes | memoryview) -> bytes:
    """The frame that `pad` was given."""
    content = bytes(padded)
    if len(content) < _LENGTH.size:
        raise SealError("padded mail is too short to hold a length; drop it")
    end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    if end > len(content):
        raise SealError("padded mail is shorter than it says; drop it")
    if content.count(0, end) != len(content) - end:
        raise SealError("padded mail does not end in zeros; drop it")
    return content[_LENGTH.size : end]


def wrap(inner: bytes, addressee: int, relay_public_key: bytes, relay_binding: Binding) -> bytes:
    """The outer layer of an onion: the relay learns the addressee, and gets sealed mail to pass on."""
    if not 0 <= addressee < 1 << 32:
        raise SealError("the addressee of an onion is a whole number of 32 bits")
    return _seal(_ADDRESSEE.pack(addressee) + inner, relay_public_key, relay_binding.info() + _RELAY_SUFFIX)


def peel(outer: bytes | memoryview, relay_private_key: bytes, relay_binding: Binding) -> tuple[int, bytes]:
    """Addressee and inner seal of an onion."""
    content = _open(outer, relay_private_key, relay_binding.info() + _RELAY_SUFFIX)
    if len(content) < _ADDRESSEE.size + SEAL_BYTES:
        raise SealError("an onion is too short to hold sealed mail; drop it")
    return _ADDRESSEE.unpack_from(content)[0], content[_ADDRESSEE.size :]


# A node opens all its mail with one key; loading it takes a third of the time of opening a small frame.
@lru_cache(maxsize=4)
def _private_key(raw: bytes) -> X25519PrivateKey:
    try:
        return X25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise SealError("a private key for mail has 32 bytes; make a new one") from None


def _seal(frame: bytes | memoryview, public_key: bytes, info: bytes) -> bytes:
    try:
        return _SUITE.encrypt(frame, X25519PublicKey.from_public_bytes(public_key), info)
    except ValueError:
        # Not 32 bytes, or a point of low order, with which everybody could read the mail.
        raise SealError("the addressee's public key is not an X25519 key; ask it for another key card") from None


def _open(sealed: bytes | memoryview, private_key: bytes, info: bytes) -> bytes:
    key = _private_key(private_key)
    try:
        return _SUITE.decrypt(sealed, key, info)
    except (InvalidTag, ValueError):
        raise SealError(_NOT_OPENED) from None
