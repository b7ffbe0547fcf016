from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.protocol import Message, Ragged, Role, each, ragged, shared
from hushrec.runtime import wire
from hushrec.runtime.wire import WireError, code_of, decode, encode, frame_bytes
from hushrec.systems import SYSTEMS
from hushrec.systems.fedrec import ItemGradients
from hushrec.systems.fedrec_plus_plus import DenoisingSums, ItemFactors


@dataclass(frozen=True, eq=False)
class Odd(Message):
    """Columns whose sizes are no multiple of 4 bytes."""

    sender, receiver = Role.CLIENT, Role.SERVER
    shorts: Any = each(np.int16, low=-5, high=5)
    flags: Any = ragged(np.uint8, high=9)
    table: Any = shared(np.float64, 2, low=-1.0, high=1.0)
    halves: Any = ragged(np.float16, 2)
    cube: Any = shared(np.int8, 3)


TYPES = [*sorted({kind for system in SYSTEMS.values() for kind in system.messages}, key=code_of), Odd]


def array_of(kind: Any, shape: tuple[int, ...], draws: np.random.Generator) -> np.ndarray:
    """Random bits within the declared range; all floats but NaN and the infinities."""
    if kind.dtype.kind == "f":
        values = draws.integers(0, 256, (*shape, kind.dtype.itemsize), np.uint8).view(kind.dtype)[..., 0]
        values = np.where(np.isfinite(values), values, 0).astype(kind.dtype)
        return values if kind.low is None else np.clip(values, kind.low, kind.high)
    info = np.iinfo(kind.dtype)
    low = info.min if kind.low is None else int(kind.low)
    high = info.max if kind.high is None else int(kind.high)
    return draws.integers(low, high, shape, kind.dtype, endpoint=True)


def message_of(message_type: type[Message], num_parties: int, draws: np.random.Generator) -> Message:
    """All its ragged fields have the same lengths."""
    columns: dict[str, Any] = {}
    starts = np.concatenate([[0], np.cumsum(draws.integers(0, 4, num_parties))]).astype(np.int64)
    for kind in message_type.kinds():
        further = tuple(draws.integers(1, 4, max(kind.num_dims - 1, 0)))
        if kind.layout == "each":
            columns[kind.name] = array_of(kind, (num_parties,), draws)
        elif kind.layout == "shared":
            columns[kind.name] = array_of(kind, (int(draws.integers(0, 5)), *further), draws)
        else:
            columns[kind.name] = Ragged(starts, array_of(kind, (int(starts[-1]), *further), draws))
    return message_type(**columns)


def assert_same_message(one: Message, other: Message) -> None:
    assert type(one) is type(other)
    for kind in one.kinds():
        left, right = getattr(one, kind.name), getattr(other, kind.name)
        if kind.layout == "ragged":
            np.testing.assert_array_equal(left.starts, right.starts)
            left, right = left.values, right.values
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes()


def columns_of(message: Message) -> list[np.ndarray]:
    values = [getattr(message, kind.name) for kind in message.kinds()]
    return [value.values if isinstance(value, Ragged) else value for value in values]


def sample(
    message_type: type[Message] = ItemFactors, num_parties: int = 3, seed: int = 0
) -> tuple[Message, bytes]:
    message = message_of(message_type, num_parties, np.random.default_rng(seed))
    return message, encode(message, 7, np.arange(num_parties, dtype=np.int32))


@pytest.mark.parametrize("message_type", TYPES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
@given(num_parties=st.integers(0, 5), seed=st.integers(0, 2**32), round_number=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_round_trip(message_type: type[Message], num_parties: int, seed: int, round_number: int) -> None:
    """Bit for bit, from bytes at any alignment; as many bytes as counted if each party has a frame of its own."""
    draws = np.random.default_rng(seed)
    message = message_of(message_type, num_parties, draws)
    numbers = draws.integers(0, 2**31, num_parties).astype(np.int32)
    data = encode(message, round_number, numbers)
    assert len(data) % 4 == 0
    for view in (data, memoryview(b"x" + data)[1:], bytearray(data)):
        frame = decode(view, TYPES)
        assert frame.round_number == round_number
        np.testing.assert_array_equal(frame.numbers, numbers)
        assert_same_message(frame.message, message)
        assert all(column.flags.aligned for column in columns_of(frame.message))
    parts = [encode(message.part(k, k + 1), round_number, numbers[k : k + 1]) for k in range(num_parties)]
    assert frame_bytes(message, num_parties) == sum(len(part) for part in parts)


def test_layout_by_hand() -> None:
    """Header: HR, version 1, a zero, the code, round 7, 2 parties. Parties 4 and 5. Lengths 2 and 0, once for both
    fields. Items 8 and 9: a row of them has no shape. 1 factor, gradients 1.0 and -2.0.
    """
    starts = np.array([0, 2, 2])
    message = ItemGradients(
        Ragged(starts, np.array([8, 9], np.int32)), Ragged(starts, np.array([[1], [-2]], np.float32))
    )
    data = encode(message, 7, np.array([4, 5], np.int32))
    numbers = [code_of(ItemGradients), 7, 2, 4, 5, 2, 0, 8, 9, 1]
    expected = b"HR\x01\x00" + b"".join(number.to_bytes(4, "little") for number in numbers)
    assert data == expected + np.array([1, -2], "<f4").tobytes()


def test_layout_of_odd_sizes_by_hand() -> None:
    """Round 1, 3 parties: 0, 1 and 2. The lengths 1, 0 and 2 come before all fields, ragged or not.

    Shorts -1, 2 and 3: 6 bytes and 2 of padding. Flags 7, 8 and 9: 3 and 1. A table of 1 x 2: 16 bytes. Halves, 1
    in a row: 1.0 is 3c00, -2.0 is c000, 0.5 is 3800: 6 and 2. A cube of 1 x 1 x 3: 3 and 1.
    """
    starts = np.array([0, 1, 1, 3])
    odd = Odd(
        shorts=np.array([-1, 2, 3], np.int16),
        flags=Ragged(starts, np.array([7, 8, 9], np.uint8)),
        table=np.array([[0.5, -1.0]]),
        halves=Ragged(starts, np.array([[1], [-2], [0.5]], np.float16)),
        cube=np.array([[[4, 5, -1]]], np.int8),
    )
    numbers = [code_of(Odd), 1, 3, 0, 1, 2, 1, 0, 2]
    expected = b"HR\x01\x00" + b"".join(number.to_bytes(4, "little") for number in numbers)
    expected += bytes.fromhex("ffff 0200 0300 0000")
    expected += bytes.fromhex("07 08 09 00")
    expected += bytes.fromhex("01000000 02000000 000000000000e03f 000000000000f0bf")
    expected += bytes.fromhex("01000000 003c 00c0 0038 0000")
    expected += bytes.fromhex("01000000 01000000 03000000 04 05 ff 00")
    assert encode(odd, 1, np.arange(3, dtype=np.int32)) == expected
    assert_same_message(decode(expected, TYPES).message, odd)


def test_codes_tell_types_and_fields_apart() -> None:
    assert len({code_of(kind) for kind in TYPES}) == len(TYPES)
    assert code_of(ItemFactors) == code_of(ItemFactors)


def replaced(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.mark.parametrize("message_type", [ItemFactors, DenoisingSums, Odd])
def test_truncated_and_extended_frames_are_refused(message_type: type[Message]) -> None:
    _, data = sample(message_type)
    for length in range(len(data)):
        with pytest.raises(WireError, match=r"too early|shorter than its header"):
            decode(data[:length], TYPES)
    for more in (b"\0", b"\0" * 4, data):
        with pytest.raises(WireError, match=f"{len(more)} bytes are left over"):
            decode(data + more, TYPES)


@pytest.mark.parametrize(
    ("place", "new", "message"),
    [
        (0, b"hr", "not a frame of this version"),
        (2, b"\x02", "not a frame of this version"),
        (3, b"\x01", "not a frame of this version"),
        (4, b"\0\0\0\0", "type that is not expected"),
        (12, b"\xff\xff\xff\xff", "too early"),  # number of parties
        (16, b"\xff\xff\xff\xff", "party is below zero"),
        (28, b"\xff\xff\xff\xff\xff\xff\xff\xff", "too early"),  # shape of the item factors
        (28, b"\x00\x00\x00\x80\x00\x00\x00\x80", "too early"),  # 2^62 numbers: their bytes overflow 64 bits
    ],
)
def test_bad_headers_and_sizes_are_refused(place: int, new: bytes, message: str) -> None:
    _, data = sample()
    with pytest.raises(WireError, match=message):
        decode(replaced(data, place, new), TYPES)


def test_types_that_are_not_expected_are_refused() -> None:
    _, data = sample()
    with pytest.raises(WireError, match="type that is not expected"):
        decode(data, [ItemGradients])


def test_frames_beyond_the_largest_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, data = sample()
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", len(data) - 1)
    with pytest.raises(WireError, match="is larger than"):
        decode(data, TYPES)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    factors = ItemFactors(np.array([[1, bad]], np.float32), *[np.zeros(1, np.int32)] * 2)
    with pytest.raises(WireError, match="item_factors holds a number that is not finite"):
        decode(encode(factors, 1, np.zeros(1, np.int32)), TYPES)
    starts = np.array([0, 2])
    gradients = ItemGradients(
        Ragged(starts, np.zeros(2, np.int32)), Ragged(starts, np.array([[0], [bad]], np.float32))
    )
    with pytest.raises(WireError, match="gradients holds a number that is not finite"):
        decode(encode(gradients, 1, np.zeros(1, np.int32)), TYPES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shorts": np.array([0, -6, 0], np.int16)}, "shorts holds a number below -5"),
        ({"shorts": np.array([0, 0, 6], np.int16)}, "shorts holds a number above 5"),
        ({"table": np.array([[1.5]])}, "table holds a number above 1"),
    ],
)
def test_numbers_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    odd, _ = sample(Odd)
    with pytest.raises(WireError, match=message):
        decode(encode(replace(odd, **changes), 1, np.arange(3, dtype=np.int32)), TYPES)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("flags", 10, "flags holds a number above 9"),
        ("halves", np.nan, "halves holds a number that is not finite"),
    ],
)
def test_last_row_of_a_ragged_field_out_of_range_is_refused(name: str, bad: float, message: str) -> None:
    odd, _ = sample(Odd)
    slices: Ragged = getattr(odd, name)
    values = slices.values.copy()
    values[-1] = bad
    with pytest.raises(WireError, match=message):
        decode(
            encode(replace(odd, **{name: Ragged(slices.starts, values)}), 1, np.arange(3, dtype=np.int32)), TYPES
        )


def test_negative_items_and_rounds_are_refused_and_no_denoiser_is_not() -> None:
    one, numbers = np.zeros(1, np.int32), np.zeros(1, np.int32)
    factors = np.zeros((1, 1), np.float32)
    decode(encode(ItemFactors(factors, one, one - 1), 1, numbers), TYPES)
    for bad in (ItemFactors(factors, one - 1, one), ItemFactors(factors, one, one - 2)):
        with pytest.raises(WireError, match="below"):
            decode(encode(bad, 1, numbers), TYPES)
    starts = np.array([0, 1])
    gradients = ItemGradients(Ragged(starts, one - 1), Ragged(starts, factors))
    with pytest.raises(WireError, match="items holds a number below 0"):
        decode(encode(gradients, 1, numbers), TYPES)


def test_padding_must_be_zero() -> None:
    """One party with one row: header and number end at byte 20, its length at 24; its short is padded to 28, its
    flag to 32. The table has no rows: its shape ends at 40. A row of halves has 1 number: its shape ends at 44,
    the half is padded to 48. The cube's shape ends at 60, its one byte is padded to 64.
    """
    starts = np.array([0, 1])
    odd = Odd(
        shorts=np.ones(1, np.int16),
        flags=Ragged(starts, np.array([3], np.uint8)),
        table=np.zeros((0, 1)),
        halves=Ragged(starts, np.ones((1, 1), np.float16)),
        cube=np.full((1, 1, 1), 5, np.int8),
    )
    data = encode(odd, 1, np.zeros(1, np.int32))
    decode(data, TYPES)
    assert (data[24:28], data[28:32], data[60:]) == (b"\1\0\0\0", b"\3\0\0\0", b"\5\0\0\0")
    for place in (26, 27, 29, 30, 31, 46, 47, 61, 62, 63):
        with pytest.raises(WireError, match="padding that is not zero"):
            decode(replaced(data, place, b"\1"), TYPES)


def test_huge_lengths_of_slices_are_refused() -> None:
    """The lengths of 3 parties add up to more than 2^32, or wrap around to what the frame holds."""
    starts = np.array([0, 1, 1, 1])
    message = ItemGradients(Ragged(starts, np.zeros(1, np.int32)), Ragged(starts, np.zeros((1, 2), np.float32)))
    data = encode(message, 1, np.arange(3, dtype=np.int32))
    for lengths in ([2**32 - 1] * 3, [2, 2**32 - 1, 0], [2**31, 2**31, 1]):
        new = np.array(lengths, "<u4").tobytes()
        with pytest.raises(WireError, match="too early"):
            decode(replaced(data, 28, new), TYPES)


def test_mutations_raise_nothing_but_wire_errors() -> None:
    """20,000 frames with some bytes changed, cut, repeated or swapped; some stay valid, most do not."""
    draws = np.random.default_rng(0)
    originals = [sample(kind, parties, seed)[1] for kind in TYPES for parties, seed in ((1, 1), (3, 2))]
    extremes = [b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\0\0\xc0\x7f", b"\0\0\0\0"]
    num_refused = 0
    for _ in range(20_000):
        data = bytearray(originals[draws.integers(len(originals))])
        for _ in range(draws.integers(1, 4)):
            place = int(draws.integers(0, len(data) + 1))
            match draws.integers(4):
                case 0:
                    data[place : place + 1] = draws.bytes(1)
                case 1:
                    word = place // 4 * 4
                    data[word : word + 4] = extremes[draws.integers(len(extremes))]
                case 2:
                    del data[place : place + int(draws.integers(1, 9))]
                case 3:
                    data[place:place] = data[: int(draws.integers(1, 9))]
        try:
            decode(bytes(data), TYPES)
        except WireError:
            num_refused += 1
    assert 10_000 < num_refused < 20_000


@pytest.mark.parametrize(
    ("num_items", "num_gradients", "message"), [(2, 1, "ends 8 bytes too early"), (1, 2, "8 bytes are left over")]
)
def test_columns_of_different_lengths_are_refused(num_items: int, num_gradients: int, message: str) -> None:
    """A frame's lengths count for items and gradients alike; in these frames, written by hand, they do not agree.
    Taken as they are, kernels would read behind the shorter one.
    """
    header = b"HR\x01\x00" + np.array([code_of(ItemGradients), 1, 1, 0, num_items], "<u4").tobytes()
    gradients = np.array([2], "<u4").tobytes() + bytes(8 * num_gradients)
    with pytest.raises(WireError, match=message):
        decode(header + bytes(4 * num_items) + gradients, TYPES)
    agreeing = np.array([2], "<u4").tobytes() + bytes(8 * num_items)
    decoded = decode(header + bytes(4 * num_items) + agreeing, TYPES).message
    assert (decoded.items.lengths.tolist(), decoded.gradients.lengths.tolist()) == ([num_items], [num_items])


def test_sizes_that_overflow_beside_a_zero_are_refused() -> None:
    """An array without elements, but with so large other sizes that NumPy cannot hold their product."""
    data = encode(replace(sample(Odd, 1)[0], cube=np.zeros((0, 1, 1), np.int8)), 1, np.zeros(1, np.int32))
    with pytest.raises(WireError, match=r"impossible shape \(0, 4294967295, 4294967295\)"):
        decode(data[:-8] + b"\xff" * 8, TYPES)


def test_columns_of_different_lengths_are_not_sent() -> None:
    """Two parties with rows split as [2, 0] in one column and [1, 1] in the other."""
    items = Ragged(np.array([0, 2, 2]), np.array([1, 2], np.int32))
    gradients = Ragged(np.array([0, 1, 2]), np.zeros((2, 3), np.float32))
    with pytest.raises(WireError, match="gradients has other lengths"):
        encode(ItemGradients(items, gradients), 1, np.arange(2, dtype=np.int32))
