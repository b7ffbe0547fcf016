"""Sealed and signed mail: what one client sends to another through a server that must not read or forge it.

A seal is HPKE (RFC 9180, base mode: X25519, HKDF-SHA256, AES-128-GCM), one fresh ephemeral key per message. It is
bound to the run, round, ask, type of message and addressee, so that it opens nowhere else. An onion is a second
seal around the first, to a relaying node, which then learns the addressee but not the sender or the message.

A letter is a seal that its writer has signed (Ed25519): on the outside, where whoever carries it can check who
wrote it, or inside, where only the addressee sees it. The signature is over the binding, the writer's name, the
letter's place among all that were written in one go, and the content. HPKE's own way to authenticate a sender
(auth mode) is not in the library that is used here, and would convince the addressee alone.

Guarantee: without the addressee's private key nobody reads a frame, and nobody changes one, or moves it to another
run, round, ask, type or addressee, without being noticed. Without a writer's signing key nobody writes in its
name. Computational (about 128 bits), attackers may be active.

Not protected:
- sizes, unless frames are padded to one size, and how many messages there are;
- who sends to whom and when, from a server that relays; with an onion, from a server and a relay that collude,
  or a relay that passes mail on unshuffled;
- who sent what is only sealed: anybody with the public key can do that, the server too; letters are signed;
- a letter left out, or delivered twice within the ask that it is bound to: the addressee has to count;
- anything, if the server could swap public keys: have them signed (`deploy/identity.py`) or compare fingerprints;
- mail of the past, once the addressee's private key is stolen.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from hushrec.errors import PublicError

# What a seal adds to a frame: an X25519 public key and an AES-GCM tag.
SEAL_BYTES = 48
SIGNATURE_BYTES = 64
# What a letter has beside the frame: its place among the writer's, the seal, the signature.
LETTER_BYTES = 4 + SEAL_BYTES + SIGNATURE_BYTES
# What is put before a frame that is signed inside its seal: the writer's place among the hosts, and the same.
INSIDE_BYTES = 4 + 4 + SIGNATURE_BYTES

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_TAG = b"hushrec mail v1"
_INFO = struct.Struct(f"<{len(_TAG)}s16sIQII")
# An outer layer can never pass for mail, nor mail for an outer layer, even under equal bindings.
_RELAY_SUFFIX = b" relay"
_ADDRESSEE = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_PART = struct.Struct("<HH")
_PLACE = struct.Struct("<I")
_OUTSIDE, _INSIDE = b"hushrec letter v1 outside", b"hushrec letter v1 inside"
_NOT_SIGNED = "a letter is not signed by who is said to have written it, for this place; drop it"
_NOT_OPENED = "sealed mail does not open: altered, meant for another place or sealed to another key; drop it"


class SealError(PublicError):
    """Mail that cannot be sealed or opened."""


class ForgedError(SealError):
    """A letter whose signature is not its writer's."""


class PublicKeys(NamedTuple):
    """What others know of a node's keys: where to seal to, and what its signatures are checked with."""

    mail: bytes  # X25519
    signing: bytes  # Ed25519


@dataclass(frozen=True)
class Keys:
    """A node's private keys."""

    mail: bytes
    signing: bytes

    @property
    def public(self) -> PublicKeys:
        """What others may know."""
        return PublicKeys(public_key_of(self.mail), signing_public_key_of(self.signing))


def new_keys() -> Keys:
    """Fresh keys of both kinds."""
    return Keys(new_private_key(), new_signing_key())


@dataclass(frozen=True)
class Written:
    """Who wrote a letter, and which of those it is that were written to the addressee in one go."""

    writer: str
    part: int = 0
    num_parts: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.part < self.num_parts < 1 << 16:
            raise SealError("a letter has no place among those that it says were written; drop it")

    def info(self) -> bytes:
        """As bytes, to be signed and sealed with."""
        return _PART.pack(self.part, self.num_parts) + self.writer.encode(errors="surrogatepass")


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


# --- Letters: signed outside, or inside ---------------------------------------------------------------------


def new_signing_key() -> bytes:
    """A fresh Ed25519 private key, 32 raw bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def signing_public_key_of(private: bytes) -> bytes:
    """The public key that belongs to a private one, 32 raw bytes."""
    return _signing_key(private).public_key().public_bytes_raw()


def sign(content: bytes, signing_key: bytes) -> bytes:
    """A signature of 64 bytes."""
    return _signing_key(signing_key).sign(content)


def is_signed(signature: bytes, content: bytes, public_key: bytes) -> bool:
    """Whether the holder of the key has signed this."""
    try:
        _checking_key(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def write_letter(frame: bytes, public_key: bytes, binding: Binding, written: Written, signing_key: bytes) -> bytes:
    """Part and number of parts, the seal, a signature of both: LETTER_BYTES longer than the frame.

    The seal is bound to the writer, too: nobody can put its own signature to what another one has sealed.
    """
    sealed = _seal(frame, public_key, binding.info() + written.info())
    signature = sign(_signed(_OUTSIDE, binding, written, sealed), signing_key)
    return _PART.pack(written.part, written.num_parts) + sealed + signature


def check_letter(letter: bytes | memoryview, binding: Binding, writer: str, public_key: bytes) -> Written:
    """Refuse a letter that this writer has not signed for this place; who carries letters can do this."""
    written, sealed, signature = _parts_of(letter, writer)
    if not is_signed(signature, _signed(_OUTSIDE, binding, written, sealed), public_key):
        raise ForgedError(_NOT_SIGNED)
    return written


def open_letter(
    letter: bytes | memoryview, private_key: bytes, binding: Binding, writer: str, public_key: bytes
) -> tuple[Written, bytes]:
    """The frame of a letter that its writer has signed, and its place among the writer's."""
    written = check_letter(letter, binding, writer, public_key)
    sealed = bytes(letter[_PART.size : -SIGNATURE_BYTES])
    return written, _open(sealed, private_key, binding.info() + written.info())


def signed_inside(frame: bytes, place: int, binding: Binding, written: Written, signing_key: bytes) -> bytes:
    """What to seal so that only the addressee learns who wrote it: INSIDE_BYTES longer than the frame."""
    signature = sign(_signed(_INSIDE, binding, written, frame), signing_key)
    return _PLACE.pack(place) + _PART.pack(written.part, written.num_parts) + signature + frame


def opened_inside(content: bytes, binding: Binding, hosts: list[tuple[str, bytes]]) -> tuple[Written, bytes]:
    """The same of what was sealed; `hosts` are the names and keys of who may have written it, in their order."""
    if len(content) < INSIDE_BYTES:
        raise SealError("a letter is too short to be signed; drop it")
    (place,) = _PLACE.unpack_from(content)
    if place >= len(hosts):
        raise ForgedError("a letter of a writer that is no host of this run; drop it")
    writer, public_key = hosts[place]
    written = Written(writer, *_PART.unpack_from(content, _PLACE.size))
    start = _PLACE.size + _PART.size
    signature, frame = content[start:INSIDE_BYTES], content[INSIDE_BYTES:]
    if not is_signed(signature, _signed(_INSIDE, binding, written, frame), public_key):
        raise ForgedError(_NOT_SIGNED)
    return written, frame


def _parts_of(letter: bytes | memoryview, writer: str) -> tuple[Written, bytes, bytes]:
    if len(letter) < LETTER_BYTES:
        raise SealError("a letter is too short to be sealed and signed; drop it")
    written = Written(writer, *_PART.unpack_from(letter))
    return written, bytes(letter[_PART.size : -SIGNATURE_BYTES]), bytes(letter[-SIGNATURE_BYTES:])


def _signed(context: bytes, binding: Binding, written: Written, content: bytes) -> bytes:
    # Every part carries its length, so that no two contents read the same.
    parts = (context, binding.info(), written.info(), content)
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


# --- Sizes, and onions ----------------------------------------------------------------------------------------


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


@lru_cache(maxsize=4)
def _signing_key(raw: bytes) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise SealError("a private key for signatures has 32 bytes; make a new one") from None


@lru_cache(maxsize=1024)
def _checking_key(raw: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(raw)


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
