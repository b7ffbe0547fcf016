"""Sources: the bytes of a file, whatever it is packed in, and text as UTF-8, whatever it is written in."""

import bz2
import codecs
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hushrec.errors import HushrecError, option

EXPECTED = "expected .inter, u.data, ratings.dat, CSV, TSV, JSON lines or Parquet"
PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz", ".zip")

_PARQUET = b"PAR1"
_PART = "part"  # how the names of parts begin, as Spark, Dask and Arrow write them
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FAULTS = (OSError, EOFError, RuntimeError, ValueError, NotImplementedError, zlib.error, lzma.LZMAError)
_FAULTS_OF_ZIP = (*_FAULTS, zipfile.BadZipFile, KeyError)


@dataclass(frozen=True)
class Source:
    """What a file holds once it is unpacked: a Parquet file, or text in UTF-8 without a mark in front."""

    path: Path
    content: pa.Buffer
    is_parquet: bool


def sources_of(path: Path, encoding: str | None = None) -> list[Source]:
    """The file, or the parts of a folder such as Spark writes, in the order of their names."""
    if not is_there(path) or not path.is_dir():
        return [_source(path, encoding)]
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._" and file.is_file())
    if not files or not all(file.name.startswith(_PART) for file in files):
        raise HushrecError(
            f"{path} is a folder; give the file of ratings in it (a folder of part-* files can be read)"
        )
    return [_source(file, encoding) for file in files if file.stat().st_size]


def is_there(path: Path) -> bool:
    """Whether there is a file or folder; what can be no path is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or a null byte
        return False


def _source(path: Path, encoding: str | None) -> Source:
    content = _unpacked(path, _mapped(path))
    head = bytes(content[:8])
    if head.startswith(_PARQUET) or path.suffix == ".parquet":
        return Source(path, content, is_parquet=True)
    return Source(path, _as_utf8(path, content, encoding), is_parquet=False)


def _mapped(path: Path) -> pa.Buffer:
    if not is_there(path):
        raise HushrecError(f"{path}: no such file; check the path")
    if not path.is_file():
        raise HushrecError(f"{path} is no file; give one that holds ratings")
    if not os.access(path, os.R_OK):
        raise HushrecError(f"{path}: may not be read; check its permissions")
    if not path.stat().st_size:
        raise HushrecError(f"{path}: the file is empty; {EXPECTED}")
    try:
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except OSError as error:
        raise HushrecError(f"{path} cannot be read ({error.strerror}); check it") from None


# --- Packed files ----------------------------------------------------------------------------------------


def _zstd(packed: pa.Buffer) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        return bytes(stream.read())


_PACKERS: dict[bytes, tuple[str, Callable[[pa.Buffer], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"\x28\xb5\x2f\xfd": ("Zstandard", _zstd),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ\0": ("xz", lzma.decompress),
}


def _unpacked(path: Path, content: pa.Buffer) -> pa.Buffer:
    head = bytes(content[:8])
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return _only_member(path)
    for magic, (name, unpack) in _PACKERS.items():
        if head.startswith(magic):
            try:
                unpacked = unpack(content)
            except _FAULTS:
                raise HushrecError(f"{path}: a damaged {name} file, or not all of it; copy it again") from None
            return _not_empty(path, unpacked)
    return content


def _only_member(path: Path) -> pa.Buffer:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            names = [name for name in names if not name.startswith("__MACOSX/")]
            if len(names) == 1:
                return _not_empty(path, archive.read(names[0]))
    except _FAULTS_OF_ZIP:
        raise HushrecError(
            f"{path}: a damaged zip file, or one that needs a password; unpack it and give the file in it"
        ) from None
    told = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    raise HushrecError(
        f"{path} holds {len(names)} files: {told or 'none'}; unpack it and give the one with the ratings"
    )


def _not_empty(path: Path, unpacked: bytes) -> pa.Buffer:
    if not unpacked:
        raise HushrecError(f"{path}: there is an empty file in it; {EXPECTED}")
    return pa.py_buffer(unpacked)


# --- Encodings -------------------------------------------------------------------------------------------


def _as_utf8(path: Path, content: pa.Buffer, encoding: str | None) -> pa.Buffer:
    """The text in UTF-8; a mark of the byte order goes before what was guessed, and is taken off."""
    head = bytes(content[:4])
    mark, marked = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", None))
    name = _codec(encoding or marked or "utf-8")
    if name == "utf-8":
        return content[len(mark) :] if mark == codecs.BOM_UTF8 else content
    try:
        text = codecs.decode(bytes(content), name)
    except UnicodeError:
        raise HushrecError(
            f"{path}: not text in {name}; name its encoding, as in {option('encoding', 'latin-1')}"
        ) from None
    return _not_empty(path, text.removeprefix("\ufeff").encode("utf-8", "replace"))


def check_encoding(name: str) -> None:
    """Refuse a name that is no encoding's."""
    _codec(name)


def _codec(name: str) -> str:
    """The usual name of an encoding; with or without a mark it is the same."""
    try:
        "".encode(name)  # what turns no text into bytes is refused here
        usual = codecs.lookup(name).name
    except (LookupError, ValueError, TypeError):
        raise HushrecError(
            f"{option('encoding', name)} is unknown; choose for example utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return "utf-8" if usual in ("utf-8-sig", "ascii") else usual
