"""Speed of frames; with `--fuzz N`, N random and mutated frames through the decoder, each verdict checked."""

import argparse
import random
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.engine import best
from benchmarks.scale import peak_bytes
from benchmarks.slow_reader import REASONS, Decoder, WrongVerdict, read_slowly, verdict
from hushrec.protocol import FieldKind, Message, Ragged, Role, each, ragged, shared
from hushrec.registry import SYSTEMS
from hushrec.runtime.wire import MAX_FRAME_BYTES, code_of, decode, encode
from hushrec.systems.fedrec import ItemGradients
from hushrec.systems.fedrec_plus_plus import DenoisingSums, ItemFactors, Noise

# --- Messages --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Oddities(Message):
    """What no system sends yet: padding, halves, truth values, three dimensions, upper bounds."""

    sender, receiver = Role.CLIENT, Role.SERVER
    shorts: Any = each(np.int16, low=-5, high=5)
    marks: Any = ragged(np.bool_)
    halves: Any = ragged(np.float16, 2, low=-100.0)
    grades: Any = ragged(np.uint8, high=9)
    cube: Any = shared(np.int8, 3)
    table: Any = shared(np.float64, 2, low=-1.0, high=1.0)


TYPES = (
    *sorted({kind for system in SYSTEMS.values() for kind in system.messages}, key=code_of),
    Oddities,
)


def random_values(kind: FieldKind, shape: tuple[int, ...], draws: np.random.Generator) -> np.ndarray:
    """Within the declared bounds, often at them."""
    if kind.dtype.kind == "f":
        low, high = -100 if kind.low is None else kind.low, 100 if kind.high is None else kind.high
        return np.clip(2 * draws.uniform(low, high, shape), low, high).astype(kind.dtype)
    bounds = np.iinfo(np.uint8 if kind.dtype == bool else kind.dtype)
    low = bounds.min if kind.low is None else int(kind.low)
    high = 1 if kind.dtype == bool else bounds.max if kind.high is None else int(kind.high)
    return draws.integers(low, high, shape, kind.dtype, endpoint=True)


def random_message(
    message_type: type[Message], starts: np.ndarray, num_rows: int, num_factors: int, draws: np.random.Generator
) -> Message:
    """Ragged fields have the slices of `starts`, shared ones `num_rows` rows."""
    columns: dict[str, Any] = {}
    for kind in message_type.kinds():
        further = (num_factors,) * (kind.num_dims - 1)
        if kind.layout == "each":
            columns[kind.name] = random_values(kind, (len(starts) - 1,), draws)
        elif kind.layout == "shared":
            shape = (num_rows, *further) if kind.num_dims else ()
            columns[kind.name] = random_values(kind, shape, draws)
        else:
            columns[kind.name] = Ragged(starts, random_values(kind, (int(starts[-1]), *further), draws))
    return message_type(**columns)


# --- Speed -----------------------------------------------------------------------------------------------


def big_message(message_type: type[Message], num_bytes: int) -> tuple[Message, np.ndarray]:
    """About so many bytes: 20 factors, 100 rows a party (100 parties where rows are shared)."""
    kinds = [kind for kind in message_type.kinds() if kind.layout != "each"]
    row_bytes = sum(kind.dtype.itemsize * (20 if kind.num_dims == 2 else 1) for kind in kinds)
    # An even number of rows puts 64-bit columns at places where they must be copied.
    num_rows = num_bytes // row_bytes // 2 * 2
    num_parties = 100 if kinds[0].layout == "shared" else max(1, num_rows // 100)
    starts = np.linspace(0, num_rows, num_parties + 1).astype(np.int64)
    message = random_message(message_type, starts, num_rows, 20, np.random.default_rng(0))
    return message, np.arange(num_parties, dtype=np.int32)


def repeated(work: Callable[[], object], times: int) -> Callable[[], None]:
    """The same work several times over."""

    def works() -> None:
        for _ in range(times):
            work()

    return works


def speed(sizes: Sequence[int] = (2_000, 100_000, 1_000_000, 10_000_000, 50_000_000), repeats: int = 5) -> None:
    """Print what one core encodes and decodes in a second, beside plain copies of the same bytes."""
    print("frames on one core, MB/s of CPU time")
    print("message              bytes    encode    decode      copy   decoded frames/s")
    for message_type in (ItemGradients, Noise, DenoisingSums, ItemFactors):
        for size in sizes:
            message, numbers = big_message(message_type, size)
            data = encode(message, 1, numbers)
            times = max(1, min(2_000, 50_000_000 // len(data)))
            works = (partial(encode, message, 1, numbers), partial(decode, data, TYPES), partial(bytearray, data))
            found = best(repeats, *(repeated(work, times) for work in works))
            encoding, decoding, copying = (cpu / times for cpu, _ in found)
            rates = "".join(f"{len(data) / seconds / 1e6:>10,.0f}" for seconds in (encoding, decoding, copying))
            print(f"{message_type.__name__:14}{len(data):>12,}{rates}{1 / decoding:>19,.0f}", flush=True)


# --- Mutations -------------------------------------------------------------------------------------------

# Not a number (quiet and signalling), the infinities.
NOT_FINITE = {
    "e": (0x7E00, 0x7C01, 0x7C00, 0xFC00),
    "f": (0x7FC00000, 0x7F800001, 0x7F800000, 0xFF800000),
    "d": (0x7FF8 << 48, (0x7FF0 << 48) + 1, 0x7FF0 << 48, 0xFFF0 << 48),
}
UNSIGNED = {"numbers": "I"} | dict(zip("efdbhiqBHIQ", "HIQBHIQBHIQ", strict=True))
COUNTS = (0, 1, 2, 1 << 8, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


@dataclass(frozen=True)
class Sample:
    """A valid frame and where its sections are."""

    data: bytes
    sections: list[tuple[str, int, int]]

    def part(self, draws: random.Random) -> bytes:
        """One of its sections."""
        _, start, end = draws.choice(self.sections)
        return self.data[start:end]


def new_samples(seed: int, each_type: int = 12) -> list[Sample]:
    """Valid frames of every type, most of 0.2 to 4 KB, some without parties or rows."""
    draws = np.random.default_rng(seed)
    samples = []
    for message_type in TYPES:
        for _ in range(each_type):
            num_parties = int(draws.choice([0, 1, 2, 10, 50, 150]))
            lengths = draws.integers(0, 120 // max(num_parties, 3) + 2, num_parties)
            starts = np.concatenate([[0], np.cumsum(lengths)])
            message = random_message(
                message_type, starts, int(draws.integers(0, 80)), int(draws.integers(1, 9)), draws
            )
            numbers = draws.integers(0, 1 << 31, num_parties).astype(np.int32)
            data = encode(message, int(draws.integers(0, 1 << 32)), numbers)
            samples.append(Sample(data, read_slowly(data, TYPES, MAX_FRAME_BYTES).sections))
    return samples


def put(data: bytearray, place: int, letter: str, number: int) -> None:
    """Write an unsigned number if there is room for it."""
    size = struct.calcsize(f"<{letter}")
    if place + size <= len(data):
        struct.pack_into(f"<{letter}", data, place, number % (1 << 8 * size))


def flip_bits(data: bytearray, _sample: Sample, _other: Sample, draws: random.Random) -> None:
    """One to three bits, anywhere."""
    for _ in range(draws.randint(1, 3) if data else 0):
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)


def set_byte(data: bytearray, _sample: Sample, _other: Sample, draws: random.Random) -> None:
    """One byte, anywhere."""
    if data:
        data[draws.randrange(len(data))] = draws.choice((0, 1, 0x7F, 0x80, 0xFF, draws.randrange(256)))


def truncate(data: bytearray, _sample: Sample, _other: Sample, draws: random.Random) -> None:
    """Cut off the end, or a piece from the middle."""
    place = draws.randrange(len(data) + 1)
    del data[place : len(data) if draws.random() < 0.5 else place + draws.randint(1, 8)]


def extend(data: bytearray, _sample: Sample, other: Sample, draws: random.Random) -> None:
    """More at the end: zeros, anything, or a whole other frame."""
    data += draws.choice((bytes(draws.randint(1, 8)), draws.randbytes(draws.randint(1, 8)), other.data))


def splice(data: bytearray, sample: Sample, other: Sample, draws: random.Random) -> None:
    """A section replaced by another frame's or by one of its own, left out, or there twice."""
    _, start, end = draws.choice(sample.sections)
    section = bytes(data[start:end])
    data[start:end] = draws.choice((other.part(draws), sample.part(draws), b"", section + section))


def change_count(data: bytearray, sample: Sample, _other: Sample, draws: random.Random) -> None:
    """Another number of parties, length or size; two swapped, or both larger by 2^31, which may hide in a sum."""
    places = [12]
    for section, start, end in sample.sections:
        if section in ("lengths", "sizes"):
            places += range(start, end, 4)
    place, second = draws.choice(places), draws.choice(places)
    if max(place, second) + 4 > len(data):
        return
    old, swapped = (struct.unpack_from("<I", data, where)[0] for where in (place, second))
    chance = draws.random()
    if chance < 0.3:
        put(data, second, "I", old)
        put(data, place, "I", swapped)
    elif chance < 0.4:
        put(data, place, "I", old + (1 << 31))
        put(data, second, "I", swapped + (1 << 31))
    else:
        put(data, place, "I", draws.choice((old + 1, old - 1, old * 2, draws.choice(COUNTS))))


def write_number(
    data: bytearray, sample: Sample, draws: random.Random, letters: str, choices: Callable[[str], tuple[int, ...]]
) -> None:
    """Put one of the choices for a letter at the place of some number of such a section."""
    sections = [one for one in sample.sections if one[0] in letters.split() and one[2] > one[1]]
    if sections:
        section, start, end = draws.choice(sections)
        size = struct.calcsize(f"<{UNSIGNED[section]}")
        place = start + draws.randrange((end - start) // size) * size
        put(data, place, UNSIGNED[section], draws.choice(choices(section)))


def not_finite(data: bytearray, sample: Sample, _other: Sample, draws: random.Random) -> None:
    """A NaN or an infinity among floats."""
    write_number(data, sample, draws, "e f d", lambda letter: NOT_FINITE[letter])


def out_of_range(data: bytearray, sample: Sample, _other: Sample, draws: random.Random) -> None:
    """An id, a count or a party's number that may be too low or too high."""
    extremes = (-1, -2, 2, 6, 10, -6, 1 << 31, (1 << 31) - 1, 1 << 63, 1 << 15)
    write_number(data, sample, draws, "numbers b h i q B H I Q", lambda _letter: extremes)


def other_type(data: bytearray, _sample: Sample, other: Sample, _draws: random.Random) -> None:
    """The code of another type."""
    data[4:8] = other.data[4:8]


def random_body(data: bytearray, sample: Sample, _other: Sample, draws: random.Random) -> None:
    """Random bytes, few of them not zero, behind a valid header with few parties."""
    data[:] = sample.data[:16] + bytes(draws.choice((0, 0, 0, 1, 2, draws.randrange(256))) for _ in range(96))
    put(data, 12, "I", draws.randrange(4))
    del data[16 + 4 * draws.randrange(25) :]


def noise(data: bytearray, _sample: Sample, _other: Sample, draws: random.Random) -> None:
    """Random bytes, some with the first four right."""
    data[:] = draws.choice((b"", b"HR\x01\x00")) + draws.randbytes(draws.randrange(400))


def nothing(_data: bytearray, _sample: Sample, _other: Sample, _draws: random.Random) -> None:
    """As it was: accepted."""


MUTATIONS = (
    *(flip_bits, set_byte, truncate, extend, splice, splice, change_count, change_count, change_count),
    *(not_finite, out_of_range, other_type, random_body, noise, nothing),
)


def fuzz(num_frames: int, seed: int, decoder: Decoder = decode) -> tuple[Counter[str], float]:
    """How often the decoder accepted and refused, and why, and its seconds; `WrongVerdict` if it did wrong."""
    draws = random.Random(seed)
    systems = [tuple(system.messages) for system in SYSTEMS.values()]
    counts: Counter[str] = Counter()
    decoding = 0.0
    for number in range(num_frames):
        if number % 20_000 == 0:
            samples = new_samples(draws.getrandbits(32))
        sample, other = draws.choice(samples), draws.choice(samples)
        changed = bytearray(sample.data)
        for _ in range(draws.choice((1, 1, 1, 2))):
            draws.choice(MUTATIONS)(changed, sample, other, draws)
        data = bytes(changed)
        types = draws.choice(systems) if draws.random() < 0.1 else TYPES
        max_bytes = len(data) + draws.choice((-1, 0, 1)) if draws.random() < 0.02 else MAX_FRAME_BYTES
        shift = draws.choice((0, 0, 0, 1, 4))  # most come aligned
        view = memoryview(bytes(shift) + data)[shift:] if shift else data
        try:
            said, seconds = verdict(data, view, types, max_bytes, decoder)
        except WrongVerdict as wrong:
            raise WrongVerdict(f"frame {number} of seed {seed}: {wrong}\n{data.hex(' ', -4)}") from wrong
        counts[said] += 1
        decoding += seconds
    return counts, decoding


def report_fuzz(num_frames: int, seed: int) -> None:
    """Print the verdicts, the seconds and the peak of memory."""
    fuzz(2_000, seed)
    program, started = peak_bytes(), (time.perf_counter(), time.process_time())
    counts, decoding = fuzz(num_frames, seed)
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    print(f"{num_frames:,} random and mutated frames (seed {seed}): no crash, no wrong verdict")
    print(f"{counts['accepted']:>10,}  accepted")
    for reason in REASONS:
        print(f"{counts[reason]:>10,}  refused: {reason}")
    rate = f"{num_frames / decoding:,.0f} frames/s"
    print(f"{seconds:.0f} s, {cpu:.0f} s of CPU, {decoding:.0f} s of it in the decoder ({rate})")
    print(f"peak memory {peak_bytes() / 1e6:.0f} MB, {program / 1e6:.0f} MB of it there before the first frame")


def main() -> int:
    """`python -m benchmarks.frames [--fuzz N] [--seed S]`."""
    parser = argparse.ArgumentParser(prog="benchmarks.frames", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--fuzz", type=int, metavar="N", help="put N random and mutated frames through the decoder"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.fuzz is None:
        speed()
        return 0
    warnings.simplefilter("error")
    try:
        report_fuzz(options.fuzz, options.seed)
    except WrongVerdict as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
