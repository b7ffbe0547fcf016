"""The reader of captures and the search in them, on captures made by hand: it must find what is there."""

import importlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SYN, ACK = 0x02, 0x10


@pytest.fixture(scope="module")
def wiretap() -> Iterator[Any]:
    """The program that reads captures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])
        yield importlib.import_module("benchmarks.wiretap")


def packet(sequence: int, payload: bytes, flags: int = ACK, ports: tuple[int, int] = (5000, 8002)) -> bytes:
    """A TCP segment in IPv4 in Ethernet."""
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence % (1 << 32), 0, 5 << 4, flags, 0, 0, 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return bytes(12) + b"\x08\x00" + ip + tcp + payload


def capture(path: Path, packets: list[bytes]) -> Path:
    """A file as tcpdump writes it."""
    content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
    for data in packets:
        content += struct.pack("<IIII", 0, 0, len(data), len(data)) + data
    path.write_bytes(content)
    return path


def test_segments_are_joined_in_any_order_and_once(wiretap: Any, tmp_path: Path) -> None:
    start = (1 << 32) - 3  # so that sequence numbers wrap
    packets = [
        packet(start, b"", SYN),
        packet(start + 1, b"one "),
        packet(start + 9, b"three"),
        packet(start + 5, b"two "),
        packet(start + 5, b"two "),
    ]
    [stream] = wiretap.read_streams(capture(tmp_path / "a.pcap", packets))
    assert stream.data.tobytes() == b"one two three"
    assert stream.is_whole
    assert stream.missing_bytes == 0
    assert stream.uses(8002)
    assert not stream.uses(80)


def test_a_gap_is_counted(wiretap: Any, tmp_path: Path) -> None:
    packets = [packet(10, b"", SYN), packet(11, b"abc"), packet(20, b"xyz")]
    [stream] = wiretap.read_streams(capture(tmp_path / "a.pcap", packets))
    assert stream.missing_bytes == 6


def test_a_needle_is_found_across_segments_at_any_offset(wiretap: Any, tmp_path: Path) -> None:
    row = np.arange(1, 21, dtype=np.float32) / 7
    header = b"HR\x01\x00\xaa\xbb\xcc\xdd"
    needles = wiretap.Needles(
        {"rows": wiretap.rows_of(row[None]), "headers": [header], "absent": [bytes(range(16))]}
    )
    assert needles.counts == {"rows": 1, "headers": 1, "absent": 1}
    for shift in range(9):
        sent = bytes([7] * shift) + row.tobytes() + b"zz" + header
        packets = [packet(0, b"", SYN)]
        packets += [packet(1 + place, sent[place : place + 5]) for place in range(0, len(sent), 5)]
        streams = wiretap.read_streams(capture(tmp_path / "a.pcap", packets))
        assert needles.hits(streams) == {"rows": 1, "headers": 1, "absent": 0}


def test_all_sixteen_bytes_must_be_there(wiretap: Any, tmp_path: Path) -> None:
    needle = bytes(range(1, 17))
    needles = wiretap.Needles({"key": [needle]})
    for sent, count in ((needle, 1), (needle[:15], 0), (needle[:15] + b"\xff", 0), (needle + needle, 2)):
        packets = [packet(0, b"", SYN), packet(1, sent)]
        assert needles.hits(wiretap.read_streams(capture(tmp_path / "a.pcap", packets))) == {"key": count}


def test_rows_that_tell_nothing_are_left_out(wiretap: Any) -> None:
    rows = np.array([[0, 0, 0, 0], [1, 1, 2, 3], [1, 2, 3, 4]], np.float32)
    assert list(wiretap.rows_of(rows)) == [rows[2].tobytes()]
    assert len(list(wiretap.runs_of(np.arange(10, dtype=np.int32), 4))) == 7


def test_tls_records_are_told_from_plain_text(wiretap: Any, tmp_path: Path) -> None:
    hello, data = b"\x16\x03\x01\x00\x04abcd", b"\x17\x03\x03\x00\x06secret"
    packets = [packet(0, b"", SYN), packet(1, hello + data)]
    [stream] = wiretap.read_streams(capture(tmp_path / "a.pcap", packets))
    assert wiretap.tls_bytes(stream) == (20, 11)
    [stream] = wiretap.read_streams(
        capture(tmp_path / "b.pcap", [packet(0, b"", SYN), packet(1, hello + b"GET / HTTP/1.1")])
    )
    assert wiretap.tls_bytes(stream) == (9, 0)
