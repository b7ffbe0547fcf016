"""Packets: what travels between the driving side and a node. Frames and sealed mail in an envelope.

Layout, little-endian: magic `HP`, version, kind, number of sections, run id (16 bytes), round number, zeros,
sequence number; lengths of the sections (uint64 each); the sections, each padded to 8 bytes with zeros. The first
section is what the packet says about itself (MessagePack, typed), then come frames, then sealed mail.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import msgspec

from hushrec import limits
from hushrec.runtime.wire import WireError

VERSION = 2
MAX_PACKET_BYTES = limits.MOST_PACKET_BYTES
MAX_SECTIONS = limits.MOST_SECTIONS

Buffer = bytes | memoryview

_HEADER = struct.Struct("<2sBBI16sIIQ")
_MAGIC = b"HP"


class Kind(IntEnum):
    """What a packet is for."""

    ENROL = 1  # who is there?
    ASSIGN = 2  # these are your numbers
    START = 3  # these are the others
    ASK = 4  # a request of the system
    RELAY = 5  # pass sealed mail on
    EVALUATE = 6  # how good is it?
    REPLY = 7
    REFUSAL = 8
    AGREE = 9  # these are all signatures of the charter


class Mail(msgspec.Struct, frozen=True):
    """The outside of one sealed letter."""

    addressee: int  # number of the client; -1 while it travels to a relay
    code: int  # type of the message inside
    sequence: int  # of the ask in which it was written
    relay: str = ""  # the node that it goes to first
    writer: str = ""  # the node that wrote it, unless that is hidden


class Contents(msgspec.Struct, frozen=True):
    """What an ask or a reply says about itself."""

    num_frames: int = 0
    mail: list[Mail] = []
    seconds: dict[str, float] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no reply."""

    reason: str
    is_final: bool = False  # whether to ask again is useless
    letter: int = -1  # the place of the letter that cannot be used, if that is why
    declined: list[int] = []  # parties who cannot answer in this round, if that is why; the others can


@dataclass(frozen=True)
class Packet:
    """One packet. `run_id`, `round_number` and `sequence` of a reply are those of the request."""

    kind: Kind
    run_id: bytes
    round_number: int
    sequence: int
    about: Buffer  # MessagePack, its type depends on `kind`
    sections: tuple[Buffer, ...] = ()

    def reply(self, about: object, sections: tuple[Buffer, ...] = ()) -> "Packet":
        """The reply to this request."""
        data = msgspec.msgpack.encode(about)
        return Packet(Kind.REPLY, self.run_id, self.round_number, self.sequence, data, sections)

    def refusal(self, refusal: Refusal) -> "Packet":
        """The reply that says why there is none."""
        data = msgspec.msgpack.encode(refusal)
        return Packet(Kind.REFUSAL, self.run_id, self.round_number, self.sequence, data)

    def is_reply_to(self, request: "Packet") -> bool:
        """Whether this answers exactly that request."""
        own = (self.run_id, self.round_number, self.sequence)
        return own == (request.run_id, request.round_number, request.sequence)


def packet_head(packet: Packet, sizes: Sequence[int]) -> bytes:
    """What stands before the sections of a packet, which have these sizes."""
    header = _HEADER.pack(
        _MAGIC, VERSION, packet.kind, len(sizes), packet.run_id, packet.round_number, 0, packet.sequence
    )
    return header + struct.pack(f"<{len(sizes)}Q", *sizes)


def encode_packet(packet: Packet) -> bytes:
    """The packet's bytes."""
    sections = (packet.about, *packet.sections)
    parts: list[Buffer] = [packet_head(packet, [len(section) for section in sections])]
    for section in sections:
        parts += [section, bytes(-len(section) % 8)]
    return b"".join(parts)


def decode_packet(data: Buffer, max_bytes: int = MAX_PACKET_BYTES) -> Packet:
    """The packet in `data`; its sections are views of it. Anything odd is refused, or too long to be read."""
    max_bytes = min(max_bytes, limits.packet_bytes())
    if len(data) > max_bytes:
        raise WireError(f"a packet of {len(data)} bytes is larger than {max_bytes}")
    view = memoryview(data)
    if len(view) < _HEADER.size:
        raise WireError(f"a packet of {len(view)} bytes is shorter than its header")
    magic, version, kind, num_sections, run_id, round_number, zeros, sequence = _HEADER.unpack_from(view)
    if (magic, version, zeros) != (_MAGIC, VERSION, 0) or kind not in list(Kind):
        raise WireError("not a packet of this version of hushrec")
    start = _HEADER.size + 8 * num_sections
    if not 1 <= num_sections <= MAX_SECTIONS or start > len(view):
        raise WireError(f"a packet cannot have {num_sections} sections")
    lengths = struct.unpack_from(f"<{num_sections}Q", view, _HEADER.size)
    sections = []
    for length in lengths:
        end = start + length
        if end + -length % 8 > len(view):
            raise WireError("a packet ends too early")
        if any(view[end : end + -length % 8]):
            raise WireError("padding that is not zero")
        sections.append(view[start:end])
        start = end + -length % 8
    if start != len(view):
        raise WireError(f"{len(view) - start} bytes are left over at the end of a packet")
    return Packet(Kind(kind), run_id, round_number, sequence, sections[0], tuple(sections[1:]))


About = TypeVar("About")


def writable(section: Buffer) -> Buffer | bytearray:
    """A section whose arrays can be written to, copied if need be.

    Arrays that cannot are another type to Numba: it would compile every kernel again.
    """
    return bytearray(section) if memoryview(section).readonly else section


def about(packet: Packet, kind: type[About]) -> About:
    """What the packet says about itself, checked."""
    try:
        return msgspec.msgpack.decode(packet.about, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise WireError(f"a packet that does not say what a {packet.kind.name.lower()} must say") from None


def contents_of(packet: Packet) -> tuple[list[Buffer], list[tuple[Mail, Buffer]]]:
    """Frames, and sealed letters with their outsides."""
    contents = about(packet, Contents)
    num_frames = contents.num_frames
    if not num_frames >= 0 or num_frames + len(contents.mail) != len(packet.sections):
        raise WireError("a packet with more or fewer sections than it says")
    sealed = packet.sections[num_frames:]
    return list(packet.sections[:num_frames]), list(zip(contents.mail, sealed, strict=True))
