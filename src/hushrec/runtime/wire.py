"""Messages as bytes. A frame is a header, the parties' numbers and the message's columns; nothing is pickled.

Layout, little-endian, every section padded to 4 bytes:
- header: magic `HR`, version, zero byte, code of the message type, round number, number of parties;
- numbers of the parties (int32): senders of a reply, receivers of a request, addressees of mail;
- if the message has ragged fields: how many rows each party has in them (uint32);
- per field: `shared`: shape (uint32 each), data; `each`: data; `ragged`: shape of a row (uint32 each), data.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.protocol import FieldKind, Message, Numbers, Ragged

VERSION = 1
MAX_FRAME_BYTES = 1 << 31
# What sealing adds to a frame: an X25519 public key and an AES-GCM tag.
SEAL_BYTES = 48

_HEADER = struct.Struct("<2sBBIII")
_MAGIC = b"HR"


class WireError(HushrecError):
    """A frame that is not what it should be."""


@dataclass(frozen=True)
class Frame:
    """A decoded frame. Its arrays are views of the bytes it came from."""

    message: Message
    round_number: int
    numbers: Numbers


def code_of(message_type: type[Message]) -> int:
    """The number that stands for a message type: a digest of where it is defined and of its fields."""
    return _code_of(message_type)  # type: ignore[arg-type]  # mypy takes a class for its instances here


@cache
def _code_of(message_type: Any) -> int:
    described = [message_type.__module__, message_type.__qualname__]
    described += [f"{kind.name} {kind.layout} {kind.dtype.str} {kind.num_dims}" for kind in message_type.kinds()]
    return int.from_bytes(blake2b("\n".join(described).encode(), digest_size=4).digest(), "little")


def _padded(num_bytes: int) -> int:
    return (num_bytes + 3) // 4 * 4


def frame_bytes(message: Message, num_parties: int) -> int:
    """Bytes of a batch when each party's message travels in a frame of its own."""
    fixed = _HEADER.size + 4 + (4 if _is_ragged(type(message)) else 0)
    total = 0
    for kind in message.kinds():
        value = getattr(message, kind.name)
        if kind.layout == "shared":
            fixed += 4 * kind.num_dims + _padded(value.nbytes)
        elif kind.layout == "each":
            fixed += _padded(kind.dtype.itemsize)
        else:
            fixed += 4 * (kind.num_dims - 1)
            if kind.dtype.itemsize % 4 == 0:
                total += value.values.nbytes
            else:
                row_bytes = kind.dtype.itemsize * math.prod(value.values.shape[1:])
                total += sum(_padded(size) for size in (value.lengths * row_bytes).tolist())
    return total + fixed * num_parties


def encode(message: Message, round_number: int, numbers: Numbers) -> bytes:
    """One frame with the whole batch."""
    parts: list[bytes | memoryview] = [
        _HEADER.pack(_MAGIC, VERSION, 0, code_of(type(message)), round_number, len(numbers))
    ]
    _append(parts, numbers, "<i4")
    if _is_ragged(type(message)):
        _append(parts, _common_lengths(message), "<u4")
    for kind in message.kinds():
        value = getattr(message, kind.name)
        if kind.layout == "shared":
            _append(parts, np.array(value.shape), "<u4")
        elif kind.layout == "ragged":
            value = value.values
            _append(parts, np.array(value.shape[1:]), "<u4")
        _append(parts, value, kind.dtype.newbyteorder("<"))
    return b"".join(parts)


def _common_lengths(message: Message) -> NDArray[np.int64]:
    for kind in message.kinds():
        if kind.layout == "ragged" and not np.array_equal(getattr(message, kind.name).lengths, message.lengths):
            raise WireError(f"{kind.name} has other lengths than the columns before it")
    return message.lengths


def _append(parts: list[bytes | memoryview], values: NDArray[Any], dtype: str | np.dtype[Any]) -> None:
    data = np.ascontiguousarray(values, dtype)
    parts.append(data.reshape(-1).view(np.uint8).data)
    parts.append(bytes(-data.nbytes % 4))


def decode(data: bytes | memoryview, message_types: Iterable[type[Message]]) -> Frame:
    """The frame in `data`, checked: type, sizes, ranges, finite numbers, nothing left over."""
    view = memoryview(data).cast("B")
    if len(view) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(view)} bytes is larger than {MAX_FRAME_BYTES}")
    if len(view) < _HEADER.size:
        raise WireError(f"a frame of {len(view)} bytes is shorter than its header")
    magic, version, zero, code, round_number, num_parties = _HEADER.unpack_from(view)
    if (magic, version, zero) != (_MAGIC, VERSION, 0):
        raise WireError("not a frame of this version of hushrec")
    known = {code_of(message_type): message_type for message_type in message_types}
    if code not in known:
        raise WireError("a frame of a type that is not expected here")
    reader = _Reader(view, _HEADER.size)
    numbers = reader.take(num_parties, np.dtype("<i4"))
    if len(numbers) and numbers.min() < 0:
        raise WireError("the number of a party is below zero")
    starts = np.zeros(num_parties + 1, np.int64)
    if _is_ragged(known[code]):
        np.cumsum(reader.take(num_parties, np.dtype("<u4")), out=starts[1:])
    columns = {kind.name: _read_field(reader, kind, num_parties, starts) for kind in known[code].kinds()}
    if reader.place != len(view):
        raise WireError(f"{len(view) - reader.place} bytes are left over at the end of a frame")
    return Frame(known[code](**columns), round_number, numbers)


def _is_ragged(message_type: type[Message]) -> bool:
    return any(kind.layout == "ragged" for kind in message_type.kinds())


def _read_field(reader: "_Reader", kind: FieldKind, num_parties: int, starts: NDArray[np.int64]) -> Any:
    if kind.layout == "each":
        return _checked(reader.take(num_parties, kind.dtype), kind)
    if kind.layout == "shared":
        shape = tuple(int(size) for size in reader.take(kind.num_dims, np.dtype("<u4")))
        return _checked(reader.take_shaped(shape, kind.dtype), kind)
    further = tuple(int(size) for size in reader.take(kind.num_dims - 1, np.dtype("<u4")))
    return Ragged(starts, _checked(reader.take_shaped((int(starts[-1]), *further), kind.dtype), kind))


def _checked(values: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
    if values.size == 0:
        return values
    if kind.dtype.kind == "f" and not np.isfinite(values).all():
        raise WireError(f"{kind.name} holds a number that is not finite")
    if kind.low is not None and values.min() < kind.low:
        raise WireError(f"{kind.name} holds a number below {kind.low:g}")
    if kind.high is not None and values.max() > kind.high:
        raise WireError(f"{kind.name} holds a number above {kind.high:g}")
    return values


class _Reader:
    """Takes arrays off a frame, one after the other, without a copy."""

    def __init__(self, view: memoryview, place: int) -> None:
        self.view = view
        self.place = place

    def take(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        size = count * dtype.itemsize
        end = self.place + _padded(size)
        if end > len(self.view):
            raise WireError(f"a frame ends {end - len(self.view)} bytes too early")
        if any(self.view[self.place + size : end]):
            raise WireError("padding that is not zero")
        values = np.frombuffer(self.view, dtype.newbyteorder("<"), count, self.place)
        self.place = end
        return values if values.flags.aligned else values.copy()

    def take_shaped(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        values = self.take(math.prod(shape), dtype)
        try:
            return values.reshape(shape)
        except ValueError:
            raise WireError(f"a field of the impossible shape {shape}") from None
