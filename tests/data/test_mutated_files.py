"""Files with random faults: whatever is wrong, the reader says so in one line, and never fails otherwise.

All of them: `python -m pytest tests/data/test_mutated_files.py -m slow`.
"""

import gzip
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import Interactions, Reading, read
from hushrec.errors import HushrecError

NUM_QUICK, NUM_ALL = 300, 4_000
TOKENS = [
    b"", b"NaN", b"-inf", b"1e999", b"\0", b"\xff\xfe", b'"', b"\n", b"\r", b",", b"\t", b"::", b"{", b"[]",
    b"null", b"9" * 30, b"-", b"0007", b"\xef\xbb\xbf", b"2024-01-31T00:00:00Z", b"PAR1", b"\x1f\x8b",
    b"PK\3\4", b"\\ud800", "\u202e\u00e9".encode(), b"user", b"rating", b"true",
]  # fmt: skip
OPTIONS = [
    *[{}, {"duplicates": "last"}] * 5,
    {"missing": "drop", "duplicates": "mean"},
    {"missing": "3"},
    {"decimal": ","},
    {"encoding": "latin-1"},
    {"encoding": "utf-16"},
    {"implicit": True, "one_user": True},
    {"columns": {"user": "item", "item": "user"}},
    {"rating_range": (1.0, 5.0)},
]


def whole_files() -> dict[str, bytes]:
    """The same small set in every form."""
    generator = np.random.default_rng(5)
    pairs = generator.permutation(12 * 9)[:40]
    rows = [
        {
            "user": f"u{pair // 9}",
            "item": int(pair % 9),
            "rating": float(generator.integers(2, 11)) / 2,
            "ts": int(pair),
        }
        for pair in pairs
    ]
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    csv, tsv = ("\n".join(mark.join(line) for line in lines).encode() for mark in (",", "\t"))
    jsonl = "\n".join(json.dumps(row) for row in rows).encode()
    parquet = io.BytesIO()
    pa_parquet.write_table(pa.Table.from_pylist(rows), parquet)
    files = {"a.csv": csv, "a.tsv": tsv, "a.jsonl": jsonl, "a.parquet": parquet.getvalue()}
    return files | {"a.csv.gz": gzip.compress(csv), "a.jsonl.gz": gzip.compress(jsonl)}


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """The content with one to three faults: bytes or digits changed, cut out, doubled, or tokens put in."""
    found = bytearray(content)
    for _ in range(generator.integers(1, 4)):
        start = int(generator.integers(0, len(found) + 1))
        end = min(len(found), start + int(generator.integers(1, 30)))
        match int(generator.integers(0, 8)):
            case 0:
                found[start:end] = generator.bytes(end - start)
            case 1:
                del found[start:end]
            case 2:
                found[start:start] = found[start:end] * int(generator.integers(1, 4))
            case 3:
                found[start:start] = TOKENS[generator.integers(len(TOKENS))]
            case 4:
                found[start:end] = TOKENS[generator.integers(len(TOKENS))]
            case 5:
                del found[start:]
            case _:
                digit = b"%d" % generator.integers(10)
                found[start:end] = found[start:end].replace(b"1", digit)
    return bytes(found)


def mutants(number: int) -> tuple[str, bytes, dict]:
    """The name, the content and the options of a mutated file; half of the packed ones were mutated first."""
    generator = np.random.default_rng([17, number])
    files = whole_files()
    name = list(files)[number % len(files)]
    if name.endswith(".gz") and generator.random() < 0.5:
        content = gzip.compress(mutated(files[name.removesuffix(".gz")], generator))
    else:
        content = mutated(files[name], generator)
    return name, content, OPTIONS[generator.integers(len(OPTIONS))]


def outcome(path: Path, options: dict) -> str:
    """Read, or refused in one line."""
    try:
        data = read(path, Reading(**options))
    except HushrecError as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    assert isinstance(data, Interactions)
    assert len(data) == len(data.items) > 0
    return "read"


def read_mutants(folder: Path, numbers: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in numbers:
        name, content, options = mutants(number)
        path = folder / name
        path.write_bytes(content)
        try:
            found[outcome(path, options)] += 1
        except Exception as error:
            error.add_note(f"file {number}: {name}, {options}")
            raise
    return found


def test_whole_files_are_read(tmp_path: Path) -> None:
    for name, content in whole_files().items():
        (tmp_path / name).write_bytes(content)
        assert outcome(tmp_path / name, {}) == "read"


def test_some_mutated_files(tmp_path: Path) -> None:
    found = read_mutants(tmp_path, range(NUM_QUICK))
    assert found["read"] + found["refused"] == NUM_QUICK
    assert min(found["read"], found["refused"]) > NUM_QUICK / 30, "faults are neither all fatal nor all harmless"


@pytest.mark.slow
def test_all_mutated_files(tmp_path: Path) -> None:
    found = read_mutants(tmp_path, range(NUM_ALL))
    assert found["read"] + found["refused"] == NUM_ALL
