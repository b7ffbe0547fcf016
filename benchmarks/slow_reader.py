"""A second reader of frames, slow and plain, to compare the decoder's verdicts with.

Written with struct from the description of the layout alone; it shares no code with the decoder but the codes of
message types. A frame that both accept must hold the same numbers for both, and encode to the same bytes again.
"""

import math
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hushrec.protocol import FieldKind, Message
from hushrec.runtime.wire import Frame, WireError, code_of, encode

LETTERS = {"b1": "B", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "f2": "e", "f4": "f", "f8": "d"}
LETTERS |= {"u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
REASONS = (
    "is larger than",
    "shorter than its header",
    "not a frame of this version",
    "type that is not expected",
    "bytes too early",
    "padding that is not zero",
    "number of a party is below zero",
    "not finite",
    "neither 0 nor 1",
    "holds a number below",
    "holds a number above",
    "impossible shape",
    "are left over",
)


class Refusal(Exception):
    """The slow reader's reason not to take a frame, one of `REASONS`."""


class WrongVerdict(Exception):
    """The decoder and the slow reader do not agree, or the decoder broke."""


@dataclass
class Outline:
    """What the slow reader finds in a frame. Sections are (struct letter or name, start, end)."""

    message_type: type[Message]
    round_number: int
    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    columns: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]
    sections: list[tuple[str, int, int]]


def read_slowly(data: bytes, types: Sequence[type[Message]], max_bytes: int) -> Outline:
    """The frame in `data`, or a `Refusal`."""
    if len(data) > max_bytes:
        raise Refusal("is larger than")
    if len(data) < 16:
        raise Refusal("shorter than its header")
    if data[:4] != b"HR\x01\x00":
        raise Refusal("not a frame of this version")
    code, round_number, num_parties = struct.unpack("<III", data[4:16])
    message_type = next((known for known in types if code_of(known) == code), None)
    if message_type is None:
        raise Refusal("type that is not expected")
    found = Outline(message_type, round_number, (), (), {}, [("head", 0, 16)])
    found.numbers = take(data, found, "numbers", "i", num_parties)
    if any(number < 0 for number in found.numbers):
        raise Refusal("number of a party is below zero")
    if any(kind.layout == "ragged" for kind in message_type.kinds()):
        found.lengths = take(data, found, "lengths", "I", num_parties)
    for kind in message_type.kinds():
        if kind.layout == "each":
            shape: tuple[int, ...] = (num_parties,)
        elif kind.layout == "shared":
            shape = take(data, found, "sizes", "I", kind.num_dims)
        else:
            shape = (sum(found.lengths), *take(data, found, "sizes", "I", kind.num_dims - 1))
        letter = LETTERS[kind.dtype.str[1:]]
        values = take(data, found, letter, letter, math.prod(shape))
        check(values, kind)
        if math.prod([size for size in shape if size]) * kind.dtype.itemsize > max_bytes:
            raise Refusal("impossible shape")
        found.columns[kind.name] = shape, values
    if found.sections[-1][2] != len(data):
        raise Refusal("are left over")
    return found


def take(data: bytes, found: Outline, section: str, letter: str, count: int) -> tuple[Any, ...]:
    """The next section's numbers; its padding must be there and be zero."""
    start = found.sections[-1][2]
    end = start + count * struct.calcsize(f"<{letter}")
    padded = end + (4 - end % 4) % 4
    if padded > len(data):
        raise Refusal("bytes too early")
    if data[end:padded] != b"\0" * (padded - end):
        raise Refusal("padding that is not zero")
    found.sections.append((section, start, padded))
    return struct.unpack(f"<{count}{letter}", data[start:end])


def check(values: tuple[Any, ...], kind: FieldKind) -> None:
    """Refuse what the kind does not allow."""
    if kind.dtype.kind == "f" and not all(map(math.isfinite, values)):
        raise Refusal("not finite")
    if kind.dtype == bool and any(value > 1 for value in values):
        raise Refusal("neither 0 nor 1")
    if kind.low is not None and any(value < kind.low for value in values):
        raise Refusal("holds a number below")
    if kind.high is not None and any(value > kind.high for value in values):
        raise Refusal("holds a number above")


Decoder = Callable[[bytes | memoryview, Sequence[type[Message]], int], Frame]


def verdict(
    data: bytes, view: bytes | memoryview, types: Sequence[type[Message]], max_bytes: int, decoder: Decoder
) -> tuple[str, float]:
    """What both say of a frame: a reason or "accepted"; and the decoder's seconds of CPU."""
    try:
        outline = read_slowly(data, types, max_bytes)
        expected = "accepted"
    except Refusal as refusal:
        expected = str(refusal)
    frame, started = None, time.process_time()
    try:
        frame = decoder(view, types, max_bytes)
        seconds, said = time.process_time() - started, "accepted"
    except WireError as error:
        seconds, text = time.process_time() - started, str(error)
        said = next((reason for reason in REASONS if reason in text), text)
    except Exception as error:
        raise WrongVerdict(f"the decoder broke: {error!r}; slow reader: {expected}") from error
    if said != expected:
        raise WrongVerdict(f"decoder: {said}; slow reader: {expected}")
    if frame is not None:
        compare(frame, outline, data)
    return said, seconds


def compare(frame: Frame, outline: Outline, data: bytes) -> None:
    """Both must have read the same."""
    message = frame.message
    same = type(message) is outline.message_type and frame.round_number == outline.round_number
    same = same and frame.numbers.tolist() == list(outline.numbers)
    starts = [0]
    for length in outline.lengths:
        starts.append(starts[-1] + length)
    for kind in message.kinds():
        shape, values = outline.columns[kind.name]
        column = getattr(message, kind.name)
        if kind.layout == "ragged":
            same = same and column.starts.tolist() == starts
            column = column.values
        same = same and column.dtype == kind.dtype and column.shape == shape and column.flags.aligned
        same = same and column.reshape(-1).tolist() == list(values)
    if not same:
        raise WrongVerdict("decoder and slow reader accept a frame but do not read the same in it")
    if encode(message, frame.round_number, frame.numbers) != data:
        raise WrongVerdict("an accepted frame encodes to other bytes")
