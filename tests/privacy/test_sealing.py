"""Sealed mail opens only where it was meant to, and is HPKE as RFC 9180 has it."""

import hmac
import struct
from dataclasses import replace
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.privacy.sealing import (
    SEAL_BYTES,
    Binding,
    SealError,
    new_private_key,
    open_sealed,
    pad,
    peel,
    public_key_of,
    seal,
    unpad,
    wrap,
)

PRIVATE = bytes(range(1, 33))
PUBLIC = public_key_of(PRIVATE)
BINDING = Binding(run_id=bytes(range(16)), round_number=7, sequence=1 << 40, message_code=0xDEADBEEF, addressee=42)

# RFC 9180, appendix A.1.1 and A.1.1.1, sequence number 0.
VECTOR = {
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "skRm": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "pkRm": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "skEm": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "enc": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "base_nonce": "56d890e5accaaf011cff4b7d",
    "aad": "436f756e742d30",
    "pt": "4265617574792069732074727574682c20747275746820626561757479",
    "ct": "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
}

numbers = st.integers(0, (1 << 32) - 1)
bindings = st.builds(
    Binding,
    run_id=st.binary(min_size=16, max_size=16),
    round_number=numbers,
    sequence=st.integers(0, (1 << 64) - 1),
    message_code=numbers,
    addressee=numbers,
)
frames = st.binary(max_size=300)
keys = st.binary(min_size=32, max_size=32)


def slow_key_and_nonce(dh: bytes, enc: bytes, public_key: bytes, info: bytes) -> tuple[bytes, bytes]:
    """RFC 9180, sections 4, 4.1 and 5.1, base mode, with an HMAC and nothing else."""

    def extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")

    def expand(suite: bytes, secret: bytes, label: bytes, context: bytes, length: int) -> bytes:
        labeled = struct.pack(">H", length) + b"HPKE-v1" + suite + label + context
        return hmac.digest(secret, labeled + b"\1", "sha256")[:length]

    kem, hpke = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    shared = expand(kem, extract(kem, b"", b"eae_prk", dh), b"shared_secret", enc + public_key, 32)
    context = b"\0" + extract(hpke, b"", b"psk_id_hash", b"") + extract(hpke, b"", b"info_hash", info)
    secret = extract(hpke, shared, b"secret", b"")
    return expand(hpke, secret, b"key", context, 16), expand(hpke, secret, b"base_nonce", context, 12)


def slow_open(sealed: bytes, private_key: bytes, info: bytes, aad: bytes = b"") -> bytes:
    key = X25519PrivateKey.from_private_bytes(private_key)
    enc = sealed[:32]
    dh = key.exchange(X25519PublicKey.from_public_bytes(enc))
    aes_key, nonce = slow_key_and_nonce(dh, enc, key.public_key().public_bytes_raw(), info)
    return AESGCM(aes_key).decrypt(nonce, sealed[32:], aad)


def slow_seal(frame: bytes, public_key: bytes, ephemeral: bytes, info: bytes, aad: bytes = b"") -> bytes:
    key = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = key.public_key().public_bytes_raw()
    dh = key.exchange(X25519PublicKey.from_public_bytes(public_key))
    aes_key, nonce = slow_key_and_nonce(dh, enc, public_key, info)
    return enc + AESGCM(aes_key).encrypt(nonce, frame, aad)


def test_the_slow_way_gives_the_published_vector() -> None:
    v = {name: bytes.fromhex(digits) for name, digits in VECTOR.items()}
    assert public_key_of(v["skRm"]) == v["pkRm"]
    assert public_key_of(v["skEm"]) == v["enc"]
    dh = X25519PrivateKey.from_private_bytes(v["skRm"]).exchange(X25519PublicKey.from_public_bytes(v["enc"]))
    assert slow_key_and_nonce(dh, v["enc"], v["pkRm"], v["info"]) == (v["key"], v["base_nonce"])
    assert slow_seal(v["pt"], v["pkRm"], v["skEm"], v["info"], v["aad"]) == v["enc"] + v["ct"]
    assert slow_open(v["enc"] + v["ct"], v["skRm"], v["info"], v["aad"]) == v["pt"]


@given(frames, keys, keys, bindings)
def test_a_seal_is_hpke_both_ways(frame: bytes, private: bytes, ephemeral: bytes, binding: Binding) -> None:
    public = public_key_of(private)
    assert slow_open(seal(frame, public, binding), private, binding.info()) == frame
    assert open_sealed(slow_seal(frame, public, ephemeral, binding.info()), private, binding) == frame


@given(frames, keys, bindings)
def test_a_seal_opens_and_hides(frame: bytes, private: bytes, binding: Binding) -> None:
    sealed = seal(memoryview(frame), public_key_of(private), binding)
    assert len(sealed) == len(frame) + SEAL_BYTES
    assert open_sealed(memoryview(sealed), private, binding) == frame
    assert seal(frame, public_key_of(private), binding) != sealed
    if len(frame) > 8:
        assert frame not in sealed


def test_new_keys_differ_and_fit() -> None:
    first, second = new_private_key(), new_private_key()
    assert len(first) == len(public_key_of(first)) == 32
    assert first != second
    assert open_sealed(seal(b"hello", public_key_of(first), BINDING), first, BINDING) == b"hello"


def test_every_changed_byte_is_noticed() -> None:
    sealed = seal(bytes(100), PUBLIC, BINDING)
    for place in range(len(sealed)):
        for change in (1, 0x80, 0xFF):
            altered = bytearray(sealed)
            altered[place] ^= change
            with pytest.raises(SealError, match="does not open"):
                open_sealed(bytes(altered), PRIVATE, BINDING)


def test_every_truncation_and_addition_is_noticed() -> None:
    sealed = seal(bytes(20), PUBLIC, BINDING)
    for end in range(len(sealed)):
        with pytest.raises(SealError, match="does not open"):
            open_sealed(sealed[:end], PRIVATE, BINDING)
    for longer in (sealed + b"\0", b"\0" + sealed, sealed + sealed):
        with pytest.raises(SealError, match="does not open"):
            open_sealed(longer, PRIVATE, BINDING)


@given(bindings, bindings)
def test_a_seal_opens_under_its_own_binding_only(binding: Binding, other: Binding) -> None:
    sealed = seal(b"noise", PUBLIC, binding)
    # Each field on its own, and all at once.
    changed = [replace(binding, **{name: value}) for name, value in vars(other).items()]
    for wrong in [other, *changed]:
        if wrong != binding:
            assert wrong.info() != binding.info()
            with pytest.raises(SealError, match="does not open"):
                open_sealed(sealed, PRIVATE, wrong)


@pytest.mark.parametrize(
    "field", [{"run_id": bytes(16)}, {"round_number": 8}, {"sequence": 0}, {"message_code": 1}, {"addressee": 43}]
)
def test_each_field_binds(field: dict[str, int]) -> None:
    with pytest.raises(SealError, match="does not open"):
        open_sealed(seal(b"noise", PUBLIC, BINDING), PRIVATE, replace(BINDING, **field))


def test_info_is_what_it_says() -> None:
    expected = b"hushrec mail v1" + bytes(range(16)) + struct.pack("<IQII", 7, 1 << 40, 0xDEADBEEF, 42)
    assert BINDING.info() == expected
    assert len(expected) == 51


@pytest.mark.parametrize(
    "field",
    [
        {"run_id": bytes(15)},
        {"run_id": bytes(17)},
        {"round_number": -1},
        {"round_number": 1 << 32},
        {"sequence": -1},
        {"sequence": 1 << 64},
        {"message_code": 1 << 32},
        {"addressee": -1},
        {"addressee": 1 << 32},
    ],
)
def test_a_binding_out_of_range_is_refused(field: dict[str, int]) -> None:
    with pytest.raises(SealError, match="16 bytes"):
        replace(BINDING, **field)


@given(keys)
def test_another_key_does_not_open(private: bytes) -> None:
    if public_key_of(private) != PUBLIC:
        with pytest.raises(SealError, match="does not open"):
            open_sealed(seal(b"noise", PUBLIC, BINDING), private, BINDING)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(32), b"\1" + bytes(31)])
def test_nobody_seals_to_a_bad_public_key(key: bytes) -> None:
    """The last two are points of low order: everybody would know the secret."""
    with pytest.raises(SealError, match="key card"):
        seal(b"noise", key, BINDING)
    with pytest.raises(SealError, match="key card"):
        wrap(bytes(SEAL_BYTES), 1, key, BINDING)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_a_private_key_of_another_size_is_refused(key: bytes) -> None:
    with pytest.raises(SealError, match="32 bytes"):
        public_key_of(key)
    with pytest.raises(SealError, match="32 bytes"):
        open_sealed(seal(b"noise", PUBLIC, BINDING), key, BINDING)


def test_a_sender_of_low_order_is_refused() -> None:
    with pytest.raises(SealError, match="does not open"):
        open_sealed(bytes(SEAL_BYTES + 5), PRIVATE, BINDING)


def test_errors_are_one_line_and_name_no_secret() -> None:
    with pytest.raises(SealError) as caught:
        open_sealed(seal(b"noise", PUBLIC, BINDING), PRIVATE, replace(BINDING, addressee=31337))
    text = str(caught.value)
    assert "\n" not in text
    assert not any(secret in text for secret in ("31337", "42", PRIVATE.hex(), "noise"))
    assert caught.value.__suppress_context__


@given(frames, st.integers(1, 400))
def test_padding_comes_off_again(frame: bytes, size_bytes: int) -> None:
    padded = pad(memoryview(frame), size_bytes)
    assert len(padded) % size_bytes == 0
    assert 4 + len(frame) <= len(padded) < 4 + len(frame) + size_bytes
    assert unpad(padded) == unpad(memoryview(padded)) == frame


def test_padding_by_hand() -> None:
    assert pad(b"abc", 8) == b"\3\0\0\0abc\0"
    assert pad(b"abcd", 8) == b"\4\0\0\0abcd"
    assert pad(b"abcde", 8) == b"\5\0\0\0abcde" + bytes(7)
    assert pad(b"", 16) == bytes(16)


def test_all_frames_up_to_the_size_look_alike() -> None:
    sizes = {len(seal(pad(bytes(length), 256), PUBLIC, BINDING)) for length in range(253)}
    assert sizes == {256 + SEAL_BYTES}


@pytest.mark.parametrize(
    "padded",
    [b"", b"\0\0\0", b"\1\0\0\0", b"\4\0\0\0abc", b"\xff\xff\xff\xffabc", b"\3\0\0\0abc\1", b"\0\0\0\0\0\1\0"],
)
def test_bad_padding_is_refused(padded: bytes) -> None:
    with pytest.raises(SealError, match="drop it"):
        unpad(padded)


@given(frames, st.integers(1, 64), st.data())
def test_a_changed_byte_of_the_padding_is_noticed(frame: bytes, size_bytes: int, data: st.DataObject) -> None:
    padded = bytearray(pad(frame, size_bytes))
    if len(padded) > 4 + len(frame):
        padded[data.draw(st.integers(4 + len(frame), len(padded) - 1))] = data.draw(st.integers(1, 255))
        with pytest.raises(SealError, match="zeros"):
            unpad(bytes(padded))


@pytest.mark.parametrize("size_bytes", [0, -8])
def test_padding_needs_a_size(size_bytes: int) -> None:
    with pytest.raises(SealError, match="at least 1"):
        pad(b"abc", size_bytes)


@given(frames, numbers, keys, keys, bindings, bindings)
def test_an_onion_peels_to_its_core(
    frame: bytes, addressee: int, relay: bytes, private: bytes, relay_binding: Binding, binding: Binding
) -> None:
    inner = seal(pad(frame, 64), public_key_of(private), binding)
    outer = wrap(inner, addressee, public_key_of(relay), relay_binding)
    assert len(outer) == len(inner) + 4 + SEAL_BYTES
    assert inner not in outer
    assert peel(memoryview(outer), relay, relay_binding) == (addressee, inner)
    assert unpad(open_sealed(inner, private, binding)) == frame


def test_the_relay_cannot_open_the_core() -> None:
    relay = new_private_key()
    _, inner = peel(wrap(seal(b"noise", PUBLIC, BINDING), 42, public_key_of(relay), BINDING), relay, BINDING)
    with pytest.raises(SealError, match="does not open"):
        open_sealed(inner, relay, BINDING)


def test_layers_do_not_pass_for_each_other() -> None:
    """Even if a relay's binding and an addressee's were one and the same."""
    inner = seal(bytes(SEAL_BYTES + 4), PUBLIC, BINDING)
    with pytest.raises(SealError, match="does not open"):
        peel(inner, PRIVATE, BINDING)
    with pytest.raises(SealError, match="does not open"):
        open_sealed(wrap(inner, 42, PUBLIC, BINDING), PRIVATE, BINDING)


def test_every_changed_byte_of_an_onion_is_noticed() -> None:
    outer = wrap(seal(b"noise", PUBLIC, BINDING), 42, PUBLIC, BINDING)
    for place in range(len(outer)):
        altered = bytearray(outer)
        altered[place] ^= 1
        with pytest.raises(SealError, match="does not open"):
            peel(bytes(altered), PRIVATE, BINDING)


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_an_onion_of_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(SealError):
        peel(garbage, PRIVATE, BINDING)
    with pytest.raises(SealError):
        open_sealed(garbage, PRIVATE, BINDING)


def test_an_onion_without_a_core_is_refused() -> None:
    with pytest.raises(SealError, match="too short"):
        peel(wrap(bytes(SEAL_BYTES - 1), 42, PUBLIC, BINDING), PRIVATE, BINDING)
    for addressee in (-1, 1 << 32):
        with pytest.raises(SealError, match="32 bits"):
            wrap(bytes(SEAL_BYTES), addressee, PUBLIC, BINDING)


def test_a_large_frame_survives() -> None:
    frame = sha256(b"frame").digest() * (1 << 15)
    assert unpad(open_sealed(seal(pad(frame, 4096), PUBLIC, BINDING), PRIVATE, BINDING)) == frame
