import importlib
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.protocol import Message, Ragged, Role, each, ragged, shared
from hushrec.registry import SYSTEMS
from hushrec.runtime import wire
from hushrec.runtime.wire import WireError, code_of, decode, encode, frame_bytes
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


@dataclass(frozen=True, eq=False)
class Marks(Message):
    """Truth values, and rows whose numbers alone say how many they are."""

    sender, receiver = Role.CLIENT, Role.SERVER
    marks: Any = ragged(np.bool_, 2)
    total: Any = shared(np.float64, 0)


TYPES = [*sorted({kind for system in SYSTEMS.values() for kind in system.messages}, key=code_of), Odd, Marks]


def array_of(kind: Any, shape: tuple[int, ...], draws: np.random.Generator) -> np.ndarray:
    """Random bits within the declared range; all floats but NaN and the infinities."""
    if kind.dtype.kind == "f":
        values = draws.integers(0, 256, (*shape, kind.dtype.itemsize), np.uint8).view(kind.dtype)[..., 0]
        values = np.where(np.isfinite(values), values, 0).astype(kind.dtype)
        return values if kind.low is None else np.clip(values, kind.low, kind.high)
    if kind.dtype.kind == "b":
        return draws.integers(0, 2, shape).astype(np.bool_)
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
            first = (int(draws.integers(0, 5)),) if kind.num_dims else ()
            columns[kind.name] = array_of(kind, (*first, *further), draws)
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
    absent = message.missing_bytes(num_parties)
    assert frame_bytes(message, num_parties) == sum(len(part) for part in parts) + absent


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


def test_frames_beyond_what_the_receiver_takes_are_refused() -> None:
    _, data = sample()
    decode(data, TYPES, max_bytes=len(data))
    with pytest.raises(WireError, match=f"a frame of {len(data)} bytes is larger than {len(data) - 1}"):
        decode(data, TYPES, max_bytes=len(data) - 1)


def test_frames_beyond_the_largest_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    message, data = sample()
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", len(data) - 1)
    with pytest.raises(WireError, match=r"larger than .*; send smaller batches"):
        encode(message, 7, np.arange(3, dtype=np.int32))


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


@pytest.mark.parametrize(
    "sizes", [(0, 2**32 - 1, 2**32 - 1), (2**32 - 1, 0, 1), (1, 0, 2**31 + 1), (2**16, 2**16, 0)]
)
def test_sizes_beside_a_zero_are_refused_where_no_frame_could_fill_them(sizes: tuple[int, ...]) -> None:
    """Such an array has no bytes, so the frame's length says nothing; loops over its rows would go on for long."""
    odd = replace(sample(Odd, 1)[0], cube=np.zeros((0, 1, 1), np.int8))
    data = encode(odd, 1, np.zeros(1, np.int32))[:-12]
    with pytest.raises(WireError, match="impossible shape"):
        decode(data + np.array(sizes, "<u4").tobytes(), TYPES)
    assert decode(data + np.array([0, 2, 2**30], "<u4").tobytes(), TYPES).message.cube.shape == (0, 2, 2**30)
    with pytest.raises(WireError, match="impossible shape"):
        decode(data + np.array([0, 2, 2**30], "<u4").tobytes(), TYPES, max_bytes=2**31 - 1)


def test_rows_without_numbers_are_refused_where_no_frame_could_fill_them() -> None:
    """Two parties with 2^32 - 1 rows each, of no numbers: no bytes."""
    header = b"HR\x01\x00" + np.array([code_of(Marks), 1, 2, 0, 1], "<u4").tobytes()
    for length, is_accepted in ((2**20, True), (2**32 - 1, False)):
        data = header + np.array([length, length, 0], "<u4").tobytes() + bytes(8)
        if is_accepted:
            assert decode(data, TYPES).message.marks.values.shape == (2 * length, 0)
        else:
            with pytest.raises(WireError, match="impossible shape"):
                decode(data, TYPES)


def test_truth_values_are_0_or_1() -> None:
    starts = np.array([0, 1])
    message = Marks(Ragged(starts, np.array([[True, False, True, True]])), np.array(0.5))
    data = encode(message, 1, np.zeros(1, np.int32))
    assert data[28:32] == b"\1\0\1\1"
    assert_same_message(decode(data, TYPES).message, message)
    with pytest.raises(WireError, match="marks holds a truth value that is neither 0 nor 1"):
        decode(replaced(data, 29, b"\2"), TYPES)


def test_columns_of_different_lengths_are_not_sent() -> None:
    """Two parties with rows split as [2, 0] in one column and [1, 1] in the other."""
    items = Ragged(np.array([0, 2, 2]), np.array([1, 2], np.int32))
    gradients = Ragged(np.array([0, 1, 2]), np.zeros((2, 3), np.float32))
    with pytest.raises(WireError, match="gradients has other lengths"):
        encode(ItemGradients(items, gradients), 1, np.arange(2, dtype=np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shorts": np.zeros(3, np.int32)}, "shorts is int32 in 1 dimensions; declared is int16 in 1"),
        ({"table": np.zeros(3)}, "table is float64 in 1 dimensions; declared is float64 in 2"),
        ({"shorts": np.zeros(2, np.int16)}, "shorts has 2 numbers for 3 parties"),
        ({"cube": np.zeros((2**32, 0, 1), np.int8)}, "impossible shape"),
    ],
)
def test_columns_that_are_not_as_declared_are_not_sent(changes: dict[str, Any], message: str) -> None:
    odd, _ = sample(Odd)
    with pytest.raises(WireError, match=message):
        encode(replace(odd, **changes), 1, np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([1, 2, 3], "items has rows that belong to no party"),
        ([0, 1, 2], "items has rows that belong to no party"),
        ([0, 1, 4], "items has rows that belong to no party"),
        ([0, 4, 3], "items is not cut into one slice for each of 2 parties"),
        ([0, 3], "items is not cut into one slice for each of 2 parties"),
    ],
)
def test_slices_that_are_not_the_parties_rows_are_not_sent(starts: list[int], message: str) -> None:
    """3 rows; the starts leave out the first or the last, promise a fourth, go back, or are for one party only."""
    slices = [Ragged(np.array(starts), np.zeros((3, 1)[:dims], kind)) for dims, kind in ((1, "i4"), (2, "f4"))]
    with pytest.raises(WireError, match=message):
        encode(ItemGradients(*slices), 1, np.arange(2, dtype=np.int32))


def test_columns_in_another_order_of_memory_are_sent_as_they_read() -> None:
    factors = np.arange(6, dtype=np.float32).reshape(2, 3)
    zeros = np.zeros(1, np.int32)
    for other in (np.asfortranarray(factors), np.repeat(factors, 2, axis=1)[:, ::2]):
        assert encode(ItemFactors(other, zeros, zeros), 1, zeros) == encode(
            ItemFactors(factors, zeros, zeros), 1, zeros
        )


# --- Memory ----------------------------------------------------------------------------------------------


def gradients_of(num_rows: int) -> bytes:
    starts = np.array([0, num_rows])
    items, rows = np.arange(num_rows, dtype=np.int32), np.ones((num_rows, 20), np.float32)
    return encode(ItemGradients(Ragged(starts, items), Ragged(starts, rows)), 1, np.zeros(1, np.int32))


def sums_of(num_rows: int) -> bytes:
    starts = np.array([0, num_rows])
    items, rows = np.arange(num_rows, dtype=np.int32), np.ones((num_rows, 20), np.int64)
    slices = [Ragged(starts, column) for column in (items, rows, items)]
    return encode(DenoisingSums(*slices), 1, np.zeros(1, np.int32))


def address_of(values: np.ndarray) -> int:
    return int(values.__array_interface__["data"][0])


def test_decoded_columns_are_views_of_the_frame_where_it_is_aligned() -> None:
    """A party with one row: 64-bit sums begin at 20 + 4 + 4 + 4 = 32. With two they begin at 36 and are copied."""
    for data, names in ((gradients_of(2), {"items", "gradients"}), (sums_of(1), {"items", "sums", "counts"})):
        first = address_of(np.frombuffer(data, np.uint8))
        message = decode(data, TYPES).message
        places = {kind.name: address_of(getattr(message, kind.name).values) - first for kind in message.kinds()}
        assert {name for name, place in places.items() if 0 <= place < len(data)} == names
    assert decode(sums_of(1), TYPES).message.sums.values.base is not None
    copied = decode(sums_of(2), TYPES).message.sums.values
    assert copied.flags.aligned
    assert copied.tolist() == [[1] * 20] * 2


def peak_of(work: Callable[[], object]) -> int:
    """Most bytes that a piece of work had in use at once."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_decoding_takes_no_memory_for_views_and_at_most_the_frame_for_copies() -> None:
    data = gradients_of(100_000)
    assert len(data) > 8_000_000
    assert peak_of(lambda: decode(data, TYPES)) < 500_000
    unaligned = memoryview(b"x" + data)[1:]
    assert peak_of(lambda: decode(unaligned, TYPES)) < len(data) + 500_000
    numbers = np.arange(200_000, dtype=np.int32)
    starts = np.zeros(len(numbers) + 1, np.int64)
    empty = ItemGradients(Ragged(starts, np.empty(0, np.int32)), Ragged(starts, np.empty((0, 5), np.float32)))
    many = encode(empty, 1, numbers)
    assert peak_of(lambda: decode(many, TYPES)) < len(many) + 10_000


def test_encoding_takes_the_memory_of_the_frame_once() -> None:
    starts = np.array([0, 100_000])
    message = ItemGradients(
        Ragged(starts, np.zeros(100_000, np.int32)), Ragged(starts, np.ones((100_000, 20), np.float32))
    )
    numbers = np.zeros(1, np.int32)
    assert peak_of(lambda: encode(message, 1, numbers)) < len(encode(message, 1, numbers)) + 10_000


@pytest.mark.parametrize("message_type", TYPES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_claims_of_a_frame_cost_nothing(message_type: type[Message]) -> None:
    """All words of a small frame, one after the other, set to huge and to negative values."""
    _, data = sample(message_type)

    def work() -> None:
        for place in range(8, len(data), 4):
            for word in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\x10"):
                try:
                    decode(replaced(data, place, word), TYPES)
                except WireError:
                    continue

    assert peak_of(work) < 50_000


# --- Random and mutated frames ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzing() -> Iterator[Any]:
    """The program that makes the frames and judges the decoder by a slow reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])
        yield importlib.import_module("benchmarks.frames")


def test_random_and_mutated_frames_are_judged_as_by_the_slow_reader(fuzzing: Any) -> None:
    """One million of them: `python -m benchmarks.frames --fuzz 1000000`."""
    counts, _ = fuzzing.fuzz(20_000, seed=11)
    assert counts.total() == 20_000
    assert 3_000 < counts["accepted"] < 7_000
    assert set(counts) == {"accepted", *fuzzing.REASONS}


def wrapping_starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.uint32)]).astype(np.int64)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("_check_values", lambda _values, _kind: None),
        ("_check_sizes", lambda _shape, _dtype, _max_bytes: None),
        ("_all_finite", lambda values: not np.isnan(values).any()),
        ("_starts", wrapping_starts),
        ("_padded", lambda num_bytes: (num_bytes + 7) // 8 * 8),
    ],
)
def test_the_slow_reader_finds_planted_faults(
    fuzzing: Any, monkeypatch: pytest.MonkeyPatch, name: str, fault: Any
) -> None:
    assert callable(getattr(wire, name))
    monkeypatch.setattr(wire, name, fault)
    with pytest.raises(fuzzing.WrongVerdict, match="slow reader"):
        fuzzing.fuzz(5_000, seed=1)


def test_the_slow_reader_finds_decoders_that_break_or_change_something(fuzzing: Any) -> None:
    def breaking(data: Any, types: Any, max_bytes: int) -> Any:
        return decode(data, types, max_bytes) if len(data) > 15 else np.empty(0)[len(data)]

    def changing(data: Any, types: Any, max_bytes: int) -> Any:
        frame = decode(data, types, max_bytes)
        return replace(frame, round_number=frame.round_number + 1)

    with pytest.raises(fuzzing.WrongVerdict, match="the decoder broke: IndexError"):
        fuzzing.fuzz(1_000, seed=1, decoder=breaking)
    with pytest.raises(fuzzing.WrongVerdict, match="do not read the same"):
        fuzzing.fuzz(1_000, seed=1, decoder=changing)
