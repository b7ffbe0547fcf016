"""Packets come out as they went in; anything else is refused, and no byte of one is without meaning."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.runtime.packets import (
    MAX_SECTIONS,
    Contents,
    Kind,
    Mail,
    Packet,
    Refusal,
    about,
    contents_of,
    decode_packet,
    encode_packet,
    writable,
)
from hushrec.runtime.wire import WireError

RUN = bytes(range(16))


def same(one: Packet, other: Packet) -> bool:
    def plain(packet: Packet) -> tuple[object, ...]:
        sections = tuple(map(bytes, packet.sections))
        return packet.kind, packet.run_id, packet.round_number, packet.sequence, bytes(packet.about), sections

    return plain(one) == plain(other)


def example(**values: object) -> Packet:
    mail = [Mail(7, 99, 5), Mail(-1, 99, 5, "node-2")]
    contents = msgspec.msgpack.encode(Contents(1, mail, {"seal": 0.5}))
    known = {"kind": Kind.ASK, "run_id": RUN, "round_number": 3, "sequence": 5, "about": contents}
    return Packet(**{**known, "sections": (b"frame", b"letter 1", b"letter two"), **values})  # type: ignore[arg-type]


packets = st.builds(
    Packet,
    st.sampled_from(Kind),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=40),
    st.lists(st.binary(max_size=40), max_size=6).map(tuple),
)


@given(packets)
def test_packets_come_out_as_they_went_in(packet: Packet) -> None:
    data = encode_packet(packet)
    assert len(data) % 8 == 0
    assert same(decode_packet(data), packet)
    assert same(decode_packet(memoryview(data)), packet)


def test_layout_is_what_it_was() -> None:
    """Worked by hand from the layout in the module's docstring."""
    header = b"HP" + bytes([2, 4]) + struct.pack("<I", 2) + RUN + struct.pack("<IIQ", 3, 0, 5)
    lengths = struct.pack("<QQ", 1, 9)
    expected = header + lengths + b"a" + bytes(7) + b"123456789" + bytes(7)
    assert encode_packet(Packet(Kind.ASK, RUN, 3, 5, b"a", (b"123456789",))) == expected


def test_sections_are_views_and_copied_only_where_they_cannot_be_written_to() -> None:
    """Numba takes arrays that cannot be written to for another type, and compiles anew."""
    data = encode_packet(example())
    section = decode_packet(data).sections[1]
    assert isinstance(section, memoryview)
    assert section.obj is data
    copy = writable(section)
    copy[0] = ord("L")  # type: ignore[index]
    assert b"letter 1" in data
    own = bytearray(data)
    section = decode_packet(memoryview(own)).sections[1]
    assert writable(section) is section
    assert section.obj is own  # type: ignore[union-attr]


def test_what_is_nested_without_end_is_refused() -> None:
    nested = b"\x82\xa1x" + b"\x91" * 200_000 + b"\xc0" + b"\xaanum_frames\x01"
    with pytest.raises(WireError):
        about(example(about=nested), Contents)


def test_every_shorter_or_longer_packet_is_refused() -> None:
    data = encode_packet(example())
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode_packet(data[:end])
    for more in (b"\0", bytes(8), data):
        with pytest.raises(WireError, match="left over"):
            decode_packet(data + more)


def test_no_byte_can_change_unseen() -> None:
    """A changed byte is refused, or it is a change of what the packet says."""
    packet = example()
    data = encode_packet(packet)
    for place in range(len(data)):
        for change in (1, 0x80, 0xFF):
            altered = bytearray(data)
            altered[place] ^= change
            try:
                found = decode_packet(bytes(altered))
            except WireError:
                continue
            assert not same(found, packet), place


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_packet(data)
    with pytest.raises(WireError):
        decode_packet(b"HP\x01\x04" + data)


def test_too_large_is_refused_before_anything_else() -> None:
    data = encode_packet(example())
    assert same(decode_packet(data, len(data)), example())
    with pytest.raises(WireError, match=f"{len(data)} bytes is larger than {len(data) - 1}"):
        decode_packet(data, len(data) - 1)
    with pytest.raises(WireError, match="larger than"):
        decode_packet(bytes(100), 99)


@pytest.mark.parametrize("count", [0, 5, MAX_SECTIONS + 1, 2**32 - 1])
def test_a_wrong_number_of_sections_is_refused(count: int) -> None:
    data = bytearray(encode_packet(example()))
    data[4:8] = struct.pack("<I", count)
    with pytest.raises(WireError):
        decode_packet(bytes(data))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64 - 8, 10**6])
def test_lengths_that_lie_are_refused(length: int) -> None:
    data = bytearray(encode_packet(example()))
    data[40:48] = struct.pack("<Q", length)
    with pytest.raises(WireError, match="too early"):
        decode_packet(bytes(data))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_other_magics_and_versions_are_refused(place: int) -> None:
    data = bytearray(encode_packet(example()))
    data[place] += 1
    with pytest.raises(WireError, match="not a packet of this version"):
        decode_packet(bytes(data))


@pytest.mark.parametrize("kind", [0, 10, 255])
def test_unknown_kinds_are_refused(kind: int) -> None:
    data = bytearray(encode_packet(example()))
    data[3] = kind
    with pytest.raises(WireError, match="not a packet"):
        decode_packet(bytes(data))


def test_what_a_packet_says_is_checked() -> None:
    for content in (b"", b"\xc1", b"\x01", msgspec.msgpack.encode({"num_frames": "1"})):
        with pytest.raises(WireError, match="does not say what a ask must say"):
            about(example(about=content), Contents)
    for content in (b"\x80", b"\x81\xa6reason\xa1\xff", b"\x81\xa6reason\x01"):
        with pytest.raises(WireError, match="refusal"):
            about(example(kind=Kind.REFUSAL, about=content), Refusal)


@pytest.mark.parametrize("num_frames", [-1, 0, 2, 4, 2**63 - 1])
def test_frames_and_letters_must_add_up(num_frames: int) -> None:
    content = msgspec.msgpack.encode(Contents(num_frames, [Mail(7, 99, 5)] * 2))
    with pytest.raises(WireError, match="more or fewer sections"):
        contents_of(example(about=content))


def test_frames_and_letters_come_apart() -> None:
    frames, letters = contents_of(decode_packet(encode_packet(example())))
    assert list(map(bytes, frames)) == [b"frame"]
    assert [(mail.addressee, mail.relay, bytes(letter)) for mail, letter in letters] == [
        (7, "", b"letter 1"),
        (-1, "node-2", b"letter two"),
    ]


def test_a_reply_answers_its_own_request_only() -> None:
    request = example()
    reply, refusal = request.reply(Contents()), request.refusal(Refusal("no"))
    assert (reply.kind, refusal.kind) == (Kind.REPLY, Kind.REFUSAL)
    assert about(refusal, Refusal) == Refusal("no", is_final=False)
    for other in (example(run_id=bytes(16)), example(round_number=4), example(sequence=6)):
        assert reply.is_reply_to(request)
        assert refusal.is_reply_to(request)
        assert not reply.is_reply_to(other)
        assert not refusal.is_reply_to(other)
