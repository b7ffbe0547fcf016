"""Messages as bytes. A frame is a header, the parties' numbers and the message's columns; nothing is pickled.

Layout, little-endian, every section padded to 4 bytes:
- header: magic `HR`, version, zero byte, code of the message type, round number, number of parties;
- numbers of the parties (int32): senders of a reply, receivers of a request, addressees of mail;
- if the message has ragged fields: how many rows each party has in them (uint32);
- per field: `shared`: shape (uint32 each), data; `each`: data; `ragged`: shape of a row (uint32 each), data;
- with padding, if the message has ragged fields: zeros up to the length of the class.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec import limits
from hushrec.errors import PublicError
from hushrec.protocol import FieldKind, Message, Numbers, Ragged
from hushrec.protocol.padding import Padding, is_padded, padded_size, padded_sizes

VERSION = 1
MAX_FRAME_BYTES = limits.MOST_FRAME_BYTES

Size = TypeVar("Size", int, NDArray[np.int64])

_HEADER = struct.Struct("<2sBBIII")
_MAGIC = b"HR"
_NUMBER, _LENGTH = np.dtype("<i4"), np.dtype("<u4")
# Numbers looked at in one go: the answers about them, a byte each, stay in the cache.
_BLOCK = 1 << 18


class WireError(PublicError):
    """A frame that is not what it should be."""


@dataclass(frozen=True)
class Frame:
    """A decoded frame. Its arrays are views of the bytes it came from, where these are aligned."""

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


@lru_cache(64)
def _by_code(message_types: tuple[Any, ...]) -> dict[int, type[Message]]:
    return {code_of(message_type): message_type for message_type in message_types}


def _is_ragged(message_type: type[Message]) -> bool:
    return any(kind.layout == "ragged" for kind in message_type.kinds())


def _padded(num_bytes: Size) -> Size:
    return (num_bytes + 3) // 4 * 4


def frame_bytes(message: Message, num_parties: int, padding: Padding = "none") -> int:
    """Bytes of a batch when each party's message travels in its own frame, with what a stand-in leaves out."""
    return int(frame_sizes(message, num_parties, padding).sum())


def frame_sizes(message: Message, num_parties: int, padding: Padding = "none") -> NDArray[np.int64]:
    """The same, of each party."""
    fixed = _HEADER.size + 4 + (4 if _is_ragged(type(message)) else 0)
    sizes = np.zeros(num_parties, np.int64)
    for kind in message.kinds():
        value = getattr(message, kind.name)
        if kind.layout == "shared":
            fixed += 4 * kind.num_dims + _padded(value.nbytes)
        elif kind.layout == "each":
            fixed += _padded(kind.dtype.itemsize)
        else:
            fixed += 4 * (kind.num_dims - 1)
            row_bytes = kind.dtype.itemsize * math.prod(value.values.shape[1:])
            sizes += _padded(value.lengths * row_bytes)
    sizes += fixed + message.missing_sizes(num_parties)
    return padded_sizes(sizes, padding) if is_padded(type(message), padding) else sizes


# --- Encoding --------------------------------------------------------------------------------------------


def encode(message: Message, round_number: int, numbers: Numbers, padding: Padding = "none") -> bytes:
    """One frame with the whole batch. Every column is copied once, to its place."""
    parts: list[bytes | memoryview] = [
        _HEADER.pack(_MAGIC, VERSION, 0, code_of(type(message)), round_number, len(numbers))
    ]
    _append(parts, numbers, _NUMBER)
    if _is_ragged(type(message)):
        _append(parts, _common_lengths(message, len(numbers)), _LENGTH)
    for kind in message.kinds():
        value = getattr(message, kind.name)
        values = value.values if kind.layout == "ragged" else value
        _check_column(kind, values, len(numbers))
        if kind.layout != "each":
            sizes = values.shape[1:] if kind.layout == "ragged" else values.shape
            parts.append(struct.pack(f"<{len(sizes)}I", *sizes))
        _append(parts, values, kind.dtype)
    if is_padded(type(message), padding):
        size = sum(memoryview(part).nbytes for part in parts)
        parts.append(bytes(padded_size(size, padding) - size))
    frame = b"".join(parts)
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(frame)} bytes is larger than {MAX_FRAME_BYTES}; send smaller batches")
    return frame


def _append(parts: list[bytes | memoryview], values: NDArray[Any], dtype: np.dtype[Any]) -> None:
    data = np.ascontiguousarray(values, dtype.newbyteorder("<"))
    parts.append(data.data)
    parts.append(bytes(-data.nbytes % 4))


def _common_lengths(message: Message, num_parties: int) -> NDArray[np.int64]:
    """Rows of each party, which all ragged fields must agree on."""
    names = [kind.name for kind in message.kinds() if kind.layout == "ragged"]
    lengths = message.lengths
    first: Ragged = getattr(message, names[0])
    for name in names:
        slices: Ragged = getattr(message, name)
        if slices.starts is not first.starts and not np.array_equal(slices.starts, first.starts):
            raise WireError(f"{name} has other lengths than the columns before it")
        if slices.starts[0] != 0 or slices.starts[-1] != len(slices.values):
            raise WireError(f"{name} has rows that belong to no party")
    if len(lengths) != num_parties or np.minimum.reduce(lengths, initial=0) < 0:
        raise WireError(f"{names[0]} is not cut into one slice for each of {num_parties} parties")
    return lengths


def _check_column(kind: FieldKind, values: NDArray[Any], num_parties: int) -> None:
    num_dims = 1 if kind.layout == "each" else kind.num_dims
    if values.dtype != kind.dtype or values.ndim != num_dims:
        found = f"{values.dtype} in {values.ndim} dimensions"
        raise WireError(f"{kind.name} is {found}; declared is {kind.dtype} in {num_dims}")
    if kind.layout == "each" and len(values) != num_parties:
        raise WireError(f"{kind.name} has {len(values)} numbers for {num_parties} parties")
    _check_sizes(values.shape, kind.dtype, MAX_FRAME_BYTES)


def _check_sizes(shape: tuple[int, ...], dtype: np.dtype[Any], max_bytes: int) -> None:
    """Beside a zero, other sizes cost no bytes; they must not be larger than a frame could fill."""
    if math.prod(size or 1 for size in shape) * dtype.itemsize > max_bytes:
        raise WireError(f"a field of the impossible shape {shape}")


# --- Decoding --------------------------------------------------------------------------------------------


def decode(
    data: bytes | bytearray | memoryview,
    message_types: Iterable[type[Message]],
    max_bytes: int = MAX_FRAME_BYTES,
    padding: Padding = "none",
) -> Frame:
    """The frame in `data`, checked: type, sizes, ranges, finite numbers, nothing left over.

    Takes no more memory than the frame itself has, whatever its counts and sizes claim.
    """
    view = memoryview(data).cast("B")
    if len(view) > max_bytes:
        raise WireError(f"a frame of {len(view)} bytes is larger than {max_bytes}")
    if len(view) < _HEADER.size:
        raise WireError(f"a frame of {len(view)} bytes is shorter than its header")
    magic, version, zero, code, round_number, num_parties = _HEADER.unpack_from(view)
    if (magic, version, zero) != (_MAGIC, VERSION, 0):
        raise WireError("not a frame of this version of hushrec")
    message_type = _by_code(tuple(message_types)).get(code)
    if message_type is None:
        raise WireError("a frame of a type that is not expected here")
    reader = _Reader(view, _HEADER.size, max_bytes)
    numbers = reader.take(num_parties, _NUMBER)
    if num_parties and np.minimum.reduce(numbers) < 0:
        raise WireError("the number of a party is below zero")
    starts = _starts(reader.take(num_parties, _LENGTH)) if _is_ragged(message_type) else None
    columns = {kind.name: _read_field(reader, kind, num_parties, starts) for kind in message_type.kinds()}
    _check_end(view, reader.place, padding if is_padded(message_type, padding) else "none")
    return Frame(message_type(**columns), round_number, numbers)


def _check_end(view: memoryview, end: int, padding: Padding) -> None:
    """Behind the columns there is as much padding as was agreed on, and nothing else."""
    size = padded_size(end, padding)
    if padding != "none" and len(view) < size:
        raise WireError(f"a frame of {len(view)} bytes that is not padded to {size}, as the settings say")
    if len(view) > size:
        raise WireError(f"{len(view) - size} bytes are left over at the end of a frame")
    if np.frombuffer(view[end:], np.uint8).any():
        raise WireError("padding that is not zero")


def _starts(lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
    starts = np.zeros(len(lengths) + 1, np.int64)
    starts[1:] = lengths
    return np.add.accumulate(starts, out=starts)


def _read_field(reader: "_Reader", kind: FieldKind, num_parties: int, starts: NDArray[np.int64] | None) -> Any:
    if starts is not None and kind.layout == "ragged":
        return Ragged(starts, _read(reader, kind, (int(starts[-1]), *reader.take_sizes(kind.num_dims - 1))))
    return _read(reader, kind, (num_parties,) if kind.layout == "each" else reader.take_sizes(kind.num_dims))


def _read(reader: "_Reader", kind: FieldKind, shape: tuple[int, ...]) -> NDArray[Any]:
    values = reader.take(math.prod(shape), kind.dtype)
    if len(values):
        _check_values(values, kind)
    else:
        _check_sizes(shape, kind.dtype, reader.max_bytes)
    return values.reshape(shape)


def _check_values(values: NDArray[Any], kind: FieldKind) -> None:
    if kind.dtype.kind == "f" and not _all_finite(values):
        raise WireError(f"{kind.name} holds a number that is not finite")
    if kind.dtype.kind == "b" and values.view(np.uint8).max() > 1:
        raise WireError(f"{kind.name} holds a truth value that is neither 0 nor 1")
    # As numbers of Python they compare exactly, whatever the types of the bounds.
    if kind.low is not None and np.minimum.reduce(values).item() < kind.low:
        raise WireError(f"{kind.name} holds a number below {kind.low:g}")
    if kind.high is not None and np.maximum.reduce(values).item() > kind.high:
        raise WireError(f"{kind.name} holds a number above {kind.high:g}")


def _all_finite(values: NDArray[Any]) -> bool:
    return all(np.isfinite(values[place : place + _BLOCK]).all() for place in range(0, len(values), _BLOCK))


class _Reader:
    """Takes arrays off a frame, one after the other, without a copy."""

    def __init__(self, view: memoryview, place: int, max_bytes: int) -> None:
        self.view = view
        self.place = place
        self.max_bytes = max_bytes

    def take(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        size = count * dtype.itemsize
        end = self._end(size)
        if end - self.place > size and any(self.view[self.place + size : end]):
            raise WireError("padding that is not zero")
        values = np.frombuffer(self.view, dtype.newbyteorder("<"), count, self.place)
        self.place = end
        return values if values.flags.aligned else values.copy()

    def take_sizes(self, count: int) -> tuple[int, ...]:
        place, self.place = self.place, self._end(4 * count)
        return struct.unpack_from(f"<{count}I", self.view, place)

    def _end(self, size: int) -> int:
        end = self.place + _padded(size)
        if end > len(self.view):
            raise WireError(f"a frame ends {end - len(self.view)} bytes too early")
        return end
