"""Requests are made when they are looked up, and come in parts that are whole together; mail waits unchanged."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.runtime.mailroom import Mailroom, NoRoom
from hushrec.runtime.packets import Contents, Kind, Mail, Packet, contents_of, decode_packet, encode_packet
from hushrec.runtime.transport import Delivery, Requests


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 25))
def test_parts_are_the_packet(pieces: list[bytes], size: int) -> None:
    requests = Requests(["a"], lambda _name: iter(pieces))
    parts = list(requests.parts("a", size))
    assert b"".join(parts) == requests["a"] == b"".join(pieces)
    assert all(len(part) == size for part in parts[:-1])
    assert len(parts[-1]) <= size


def test_a_request_is_made_when_it_is_looked_up() -> None:
    made = list[str]()

    def pieces_of(name: str) -> object:
        made.append(name)
        return iter([name.encode()])

    requests = Requests(["a", "b", "c"], pieces_of)  # type: ignore[arg-type]
    assert (list(requests), len(requests), made) == (["a", "b", "c"], 3, [])
    assert requests["b"] == b"b"
    assert dict(requests.only({"c"})) == {"c": b"c"}
    assert made == ["b", "c"]
    with pytest.raises(KeyError):
        requests["d"]


def test_replies_come_one_by_one_whether_all_are_there_or_not() -> None:
    assert list(Delivery({"a": b"1", "b": b"2"}).arriving()) == [("a", b"1"), ("b", b"2")]
    assert list(Delivery(iter([("a", b"1")])).arriving()) == [("a", b"1")]


@pytest.mark.parametrize("size", [0, 1, 8, 1 << 20, (5 << 20) + 3])
def test_mail_waits_unchanged_in_a_file_without_a_name(tmp_path: Path, size: int) -> None:
    """The packet is what `encode_packet` makes of the same letters."""
    room, outsides = Mailroom(tmp_path), [Mail(1, 7, 3), Mail(2, 7, 3)]
    letters = [bytes(range(256)) * (size // 256) + bytes(size % 256), b"second letter"]
    held = [room.keep(mail, letter, "node-1") for mail, letter in zip(outsides, letters, strict=True)]
    assert list(tmp_path.iterdir()) == []
    whole = encode_packet(
        Packet(Kind.REPLY, bytes(16), 1, 2, b"").reply(Contents(1, outsides), (b"frame", *letters))
    )
    packet = Packet(Kind.REPLY, bytes(16), 1, 2, decode_packet(whole).about, (b"frame",))
    assert b"".join(room.pieces(packet, held)) == whole
    _, found = contents_of(decode_packet(whole))
    assert [bytes(letter) for _, letter in found] == letters
    room.empty()


def test_a_full_disk_is_nobodys_fault_but_ours(tmp_path: Path) -> None:
    room = Mailroom(tmp_path / "that is not there")
    with pytest.raises(NoRoom, match=r"mail cannot be kept in .*; make room there, then use --resume"):
        room.keep(Mail(1, 7, 3), bytes(5 << 20), "node-1")
    room.empty()
