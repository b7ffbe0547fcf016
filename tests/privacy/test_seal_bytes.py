import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hushrec.errors import HushrecError
from hushrec.privacy import seal_bytes
from hushrec.privacy.seal_bytes import bytes_of, padded, value_from

seal = pytest.importorskip("tenseal.sealapi")

MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST_BLOCK = 131_072 << 3 | 1 << 1  # one byte, 128 KB times


@pytest.fixture(scope="module")
def context() -> object:
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(1024)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(1024, [27]))
    return seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)


@pytest.fixture(scope="module")
def data(context: object) -> bytes:
    return bytes_of(seal.KeyGenerator(context).secret_key())


def refused(context: object, data: bytes) -> bool:
    """Whether the bytes are refused, with the words that were given."""
    with pytest.raises(HushrecError, match=r"^ask again$"):
        value_from(seal.SecretKey(), context, data, "ask again")
    return True


def test_values_survive_and_may_be_padded(context: object, data: bytes) -> None:
    again = value_from(seal.SecretKey(), context, padded(data, len(data) + 100).tobytes(), "ask again")
    assert bytes_of(again) == data


def test_what_is_cut_or_none_of_it_is_refused(context: object, data: bytes) -> None:
    assert all(refused(context, data[:size]) for size in (*range(40), len(data) // 2, len(data) - 1))
    assert refused(context, bytes(len(data)))
    assert refused(context, data[1:])
    assert all(refused(context, data[:5] + bytes([mode]) + data[6:]) for mode in (0, 1, 3))  # other compressions


def test_a_small_message_does_not_inflate_to_a_large_one(context: object, data: bytes) -> None:
    """20,000 blocks of four bytes: 2.6 GB. No frame is behind the first, either."""

    def message(num_blocks: int, after: bytes = b"") -> bytes:
        blocks = (num_blocks - 1) * (LARGEST_BLOCK.to_bytes(3, "little") + b"x")
        frame = MAGIC + b"\x00\x58" + blocks + (LARGEST_BLOCK | 1).to_bytes(3, "little") + b"x" + after
        return data[:8] + (16 + len(frame)).to_bytes(8, "little") + frame

    assert refused(context, message(20_000))
    assert refused(context, message(1, after=message(1)[16:]))
    assert refused(context, message(1))


def test_no_file_stays_open(context: object, data: bytes) -> None:
    before = set(os.listdir("/proc/self/fd"))
    assert refused(context, data[:-1])
    assert bytes_of(value_from(seal.SecretKey(), context, data, "ask again")) == data
    assert set(os.listdir("/proc/self/fd")) == before


KILLED_AT_WORK = """
import os, signal
from hushrec.privacy.seal_bytes import bytes_of

class Value:
    def save(self, path):
        open(path, "wb").write(b"secret")
        os.kill(os.getpid(), signal.SIGKILL)

bytes_of(Value())
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without a name are Linux's")
def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    in_memory = Path("/dev/shm")
    before = set(in_memory.iterdir()) if in_memory.is_dir() else set()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", KILLED_AT_WORK], check=False, timeout=60, env=environment)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
    left = set(in_memory.iterdir()) - before if in_memory.is_dir() else set()
    assert not [path for path in left if path.is_file() and path.read_bytes() == b"secret"]


def test_where_there_are_no_such_files_a_folder_is_used_and_removed(
    context: object, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal_bytes, "_OPEN_FILES", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert bytes_of(value_from(seal.SecretKey(), context, data, "ask again")) == data
    assert list(tmp_path.iterdir()) == []
