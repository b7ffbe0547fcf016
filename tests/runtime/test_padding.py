from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.protocol import Message, Numbers, Ragged, Role, each, ragged
from hushrec.protocol.padding import Padding, padded_size, padded_sizes, padding_of
from hushrec.registry import SYSTEMS
from hushrec.runtime.wire import WireError, decode, encode, frame_bytes, frame_sizes


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: rows."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Flat(Message):
    """Reveals: a number of each."""

    sender, receiver = Role.CLIENT, Role.SERVER
    counts: Numbers = each(np.int32)


def rows(*lengths: int) -> Rows:
    starts = np.cumsum([0, *lengths])
    return Rows(Ragged(starts, np.arange(starts[-1], dtype=np.int32)))


@pytest.mark.parametrize(
    ("padding", "size", "expected"),
    [
        ("none", 1000, 1000),
        # Padme: E = floor(log2 9) = 3, S = floor(log2 3) + 1 = 2: the last bit is zero.
        ("padme", 9, 10),
        # E = 9, S = 4: the last 5 bits are zero.
        ("padme", 1000, 1024),
        ("padme", 961, 992),
        ("padme", 992, 992),
        # E = 16, S = 5: the last 11 bits are zero.
        ("padme", 100_000, 100_352),
        ("powers", 1000, 1024),
        ("powers", 1024, 1024),
        ("powers", 1025, 2048),
        ("powers", 1, 1),
        ("64k", 1, 65_536),
        ("64k", 65_537, 131_072),
        ("256k", 141_320, 262_144),
        ("1m", 1 << 20, 1 << 20),
    ],
)
def test_classes_by_hand(padding: Padding, size: int, expected: int) -> None:
    assert padded_size(size, padding) == expected


@given(st.sampled_from(["padme", "powers", "64k", "256k", "1m"]), st.integers(1, 1 << 31), st.integers(1, 1 << 31))
def test_classes_hold_their_sizes_and_keep_their_order(padding: Padding, one: int, other: int) -> None:
    low, high = sorted((one, other))
    sizes = padded_sizes(np.array([low, high]), padding)
    assert sizes[0] >= low
    assert sizes[0] <= sizes[1]
    assert padded_sizes(sizes, padding).tolist() == sizes.tolist()
    if padding == "padme":
        assert low < 8 or sizes[0] <= 1.12 * low
    if padding == "powers":
        assert sizes[0] < 2 * low


def test_a_frame_by_hand() -> None:
    """Header 16, number 4, length 4, three items 12: 36 bytes, padded to 64 with zeros."""
    numbers = np.array([7], np.int32)
    plain, padded = (encode(rows(3), 1, numbers, padding) for padding in ("none", "powers"))
    assert len(plain) == 36
    assert padded == plain + bytes(28)
    frame = decode(padded, (Rows,), padding="powers")
    assert frame.message.column("items").values.tolist() == [0, 1, 2]
    assert frame_sizes(rows(3, 0, 12), 3).tolist() == [36, 24, 72]
    assert frame_sizes(rows(3, 0, 12), 3, "powers").tolist() == [64, 32, 128]
    assert frame_bytes(rows(3, 0, 12), 3, "powers") == 224


def test_what_has_one_length_is_not_padded() -> None:
    message, numbers = Flat(np.array([1], np.int32)), np.array([7], np.int32)
    assert encode(message, 1, numbers, "256k") == encode(message, 1, numbers)
    assert frame_bytes(message, 1, "256k") == frame_bytes(message, 1)


def test_who_expects_padding_takes_nothing_else() -> None:
    numbers = np.array([7], np.int32)
    plain, padded = (encode(rows(3), 1, numbers, padding) for padding in ("none", "powers"))
    with pytest.raises(WireError, match="not padded to 64"):
        decode(plain, (Rows,), padding="powers")
    with pytest.raises(WireError, match="28 bytes are left over"):
        decode(padded, (Rows,))
    with pytest.raises(WireError, match="4 bytes are left over"):
        decode(padded + bytes(4), (Rows,), padding="powers")
    with pytest.raises(WireError, match="padding that is not zero"):
        decode(padded[:-1] + b"\x01", (Rows,), padding="powers")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS.is_built_in(name)])
def test_every_system_has_the_switch_and_tells_nodes_of_it(name: str) -> None:
    system = SYSTEMS[name]
    entry = {entry.name: entry for entry in fields(system.config)}["padding"]
    assert not entry.metadata["is_secret"]
    assert padding_of(system.configure({})) == "none"
    assert padding_of(system.configure({"padding": "padme"})) == "padme"
