"""What went over a network: a capture by tcpdump, its TCP streams put together, and a search in them."""

import os
import shutil
import signal
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

_MICROSECONDS, _NANOSECONDS, _ETHERNET = 0xA1B2C3D4, 0xA1B23C4D, 1
_IPV4, _IPV6, _TCP, _SYN = 0x0800, 0x86DD, 6, 0x02
# Handshake, alert, change of cipher, application data; every record says version 3.1 to 3.3.
_TLS_TYPES, _TLS_APPLICATION_DATA = (20, 21, 22, 23), 23
_FILTER_BITS = 26
_BUFFER_KIB = 512 << 10  # so that tcpdump may be late


# --- Capturing -------------------------------------------------------------------------------------------


@contextmanager
def capturing(interface: str, path: Path, prefix: Sequence[str] = ()) -> Iterator[None]:
    """Record all packets of an interface into a file; `prefix` leads the command into a network namespace."""
    if shutil.which("tcpdump") is None:
        raise SystemExit("tcpdump is missing; use: apt install tcpdump")
    user = ("-Z", "root") if os.geteuid() == 0 else ()
    command = [
        *prefix,
        "tcpdump",
        "-i",
        interface,
        "-s",
        "0",
        "-B",
        str(_BUFFER_KIB),
        "-U",
        "-w",
        str(path),
        *user,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        if "listening on" not in first:
            process.kill()
            raise SystemExit(f"tcpdump does not listen on {interface}: {first.strip()}")
        try:
            yield
        finally:
            time.sleep(1.0)  # for packets that are still on their way to it
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
    dropped = [line for line in said.splitlines() if "dropped" in line and not line.strip().startswith("0 ")]
    if dropped:
        raise SystemExit(f"the capture is not complete: {dropped[0].strip()}; try again")


# --- Streams ---------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """One direction of a TCP connection."""

    source: bytes
    source_port: int
    target: bytes
    target_port: int


@dataclass(frozen=True)
class Stream:
    """What was sent one way, and how many bytes of it the capture missed."""

    way: Way
    data: np.ndarray  # of bytes
    missing_bytes: int
    is_whole: bool = True  # whether the capture saw the connection's beginning

    def uses(self, port: int) -> bool:
        """Whether one end of the connection is this port."""
        return port in (self.way.source_port, self.way.target_port)


def read_streams(path: Path) -> list[Stream]:
    """The TCP streams of a capture in the format of tcpdump, put together by their sequence numbers."""
    data = path.read_bytes()
    if len(data) < 24:
        raise SystemExit(f"{path} is no capture")
    magic, *_, link = struct.unpack_from("<IHHiIII", data)
    if magic not in (_MICROSECONDS, _NANOSECONDS) or link != _ETHERNET:
        raise SystemExit(f"{path} is no capture of an Ethernet or loopback interface by tcpdump")
    starts: dict[Way, int] = {}
    parts: defaultdict[Way, list[tuple[int, int, int]]] = defaultdict(list)  # sequence number, place, length
    place = 24
    while place + 16 <= len(data):
        captured = struct.unpack_from("<I", data, place + 8)[0]
        segment = _segment(data, place + 16, place + 16 + captured)
        place += 16 + captured
        if segment is None:
            continue
        way, sequence, is_first, start, length = segment
        if is_first:
            if parts[way]:
                raise SystemExit("a port was used again within the capture; capture for a shorter time")
            starts[way] = sequence + 1
        if length:
            parts[way].append((sequence, start, length))
    return [_joined(data, way, starts.get(way), found) for way, found in parts.items() if found]


def _segment(data: bytes, start: int, end: int) -> tuple[Way, int, bool, int, int] | None:
    """Way, sequence number, whether it opens the connection, place and length of the payload; None if not TCP."""
    kind = struct.unpack_from(">H", data, start + 12)[0]
    packet = start + 14
    if kind == _IPV4 and data[packet + 9] == _TCP:
        total = struct.unpack_from(">H", data, packet + 2)[0]
        source, target = data[packet + 12 : packet + 16], data[packet + 16 : packet + 20]
        segment = packet + 4 * (data[packet] & 15)
    elif kind == _IPV6 and data[packet + 6] == _TCP:
        total = 40 + struct.unpack_from(">H", data, packet + 4)[0]
        source, target = data[packet + 8 : packet + 24], data[packet + 24 : packet + 40]
        segment = packet + 40
    else:
        return None
    source_port, target_port, sequence = struct.unpack_from(">HHI", data, segment)
    payload = segment + 4 * (data[segment + 12] >> 4)
    length = min(packet + total, end) - payload
    is_first = bool(data[segment + 13] & _SYN)
    return Way(source, source_port, target, target_port), sequence, is_first, payload, max(length, 0)


def _joined(data: bytes, way: Way, start: int | None, parts: list[tuple[int, int, int]]) -> Stream:
    first = parts[0][0] if start is None else start
    # Sequence numbers wrap; a part that comes again lies a little behind the last one, not 4 GB before it.
    places, last = [], 0
    for sequence, place, length in parts:
        offset = last + (sequence - first - last + (1 << 31)) % (1 << 32) - (1 << 31)
        last = max(last, offset)
        places.append((offset, place, length))
    low = min(0, min(offset for offset, _, _ in places))
    size = max(offset + length for offset, _, length in places) - low
    joined, is_there = np.zeros(size, np.uint8), np.zeros(size, np.bool_)
    for offset, place, length in places:
        joined[offset - low : offset - low + length] = np.frombuffer(data, np.uint8, length, place)
        is_there[offset - low : offset - low + length] = True
    return Stream(way, joined, size - int(np.count_nonzero(is_there)), start is not None)


def tls_bytes(stream: Stream) -> tuple[int, int]:
    """How many bytes of a stream lie in TLS records, from its first byte on, and in those of encrypted data."""
    data, place, encrypted = stream.data, 0, 0
    while place + 5 <= len(data):
        kind, major, minor = (int(number) for number in data[place : place + 3])
        if kind not in _TLS_TYPES or major != 3 or not 1 <= minor <= 3:
            return place, encrypted
        length = (int(data[place + 3]) << 8) + int(data[place + 4])
        end = min(place + 5 + length, len(data))
        encrypted += end - place if kind == _TLS_APPLICATION_DATA else 0
        place = end
    return place, encrypted


# --- Searching -------------------------------------------------------------------------------------------


class Needles:
    """Strings of 8 bytes or of 16 and more, of which the first 16 count, by the name of what they are."""

    def __init__(self, kinds: Mapping[str, Iterable[bytes]]) -> None:
        self.names = list(kinds)
        rows = [
            (*struct.unpack("<QQ", needle[:16].ljust(16, b"\0")), len(needle) >= 16, kind)
            for kind, needles in enumerate(kinds.values())
            for needle in set(needles)
        ]
        assert rows, "nothing to search for"
        table = np.array(sorted(rows), dtype=[("first", "u8"), ("second", "u8"), ("long", "?"), ("kind", "i8")])
        self._columns = [np.ascontiguousarray(table[name]) for name in ("first", "second", "long", "kind")]
        self.counts = dict(zip(self.names, np.bincount(table["kind"], minlength=len(kinds)).tolist(), strict=True))
        self._filter = np.zeros(1 << (_FILTER_BITS - 3), np.uint8)
        _fill(self._filter, self._columns[0])

    def hits(self, streams: Iterable[Stream]) -> dict[str, int]:
        """How often each kind occurs, at any byte of any stream."""
        found = np.zeros(len(self.names), np.int64)
        for stream in streams:
            _search(stream.data, self._filter, *self._columns, found)
        return dict(zip(self.names, found.tolist(), strict=True))


@numba.njit(inline="always")
def _slot(key):
    return (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _FILTER_BITS)


@numba.njit
def _fill(bits, keys):
    for key in keys:
        slot = _slot(key)
        bits[slot >> np.uint64(3)] |= np.uint8(1) << np.uint8(slot & np.uint64(7))


@numba.njit
def _search(data, bits, first, second, is_long, kind, found):
    """Count needles at every offset: eight bytes through a filter, then exactly."""
    if data.size < 8:
        return
    key = np.uint64(0)
    for place in range(8):
        key |= np.uint64(data[place]) << np.uint64(8 * place)
    for place in range(data.size - 7):
        if place:
            key = (key >> np.uint64(8)) | (np.uint64(data[place + 7]) << np.uint64(56))
        slot = _slot(key)
        if not (bits[slot >> np.uint64(3)] >> np.uint8(slot & np.uint64(7))) & np.uint8(1):
            continue
        row = np.searchsorted(first, key)
        while row < first.size and first[row] == key:
            is_same = True
            if is_long[row]:
                is_same = place + 16 <= data.size
                for more in range(8 if is_same else 0):
                    expected = (second[row] >> np.uint64(8 * more)) & np.uint64(255)
                    is_same = is_same and np.uint64(data[place + 8 + more]) == expected
            if is_same:
                found[kind[row]] += 1
            row += 1


def runs_of(values: np.ndarray, length: int) -> Iterator[bytes]:
    """Every run of so many neighbours in a column of numbers, as bytes."""
    data, size = np.ascontiguousarray(values).tobytes(), values.dtype.itemsize
    for place in range(0, len(data) - size * length + 1, size):
        yield data[place : place + size * length]


def rows_of(values: np.ndarray) -> Iterator[bytes]:
    """The start of every row of a table of numbers, without rows that begin with equal or zero numbers."""
    table = np.ascontiguousarray(values)
    is_telling = (table[:, :4] != 0).all(axis=1) & (table[:, 0] != table[:, 1])
    data = np.ascontiguousarray(table[is_telling][:, : 16 // table.dtype.itemsize]).tobytes()
    for place in range(0, len(data), 16):
        yield data[place : place + 16]
