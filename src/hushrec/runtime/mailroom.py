"""Sealed letters between their writing and their delivery: the driving side holds them, on its disk, unread.

Mail is as large as all uploads together, and none of it can be delivered before its addressees are asked. So it
waits in a file without a name, which is gone with the process; beside it only the outsides are in memory.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hushrec.errors import HushrecError
from hushrec.runtime.packets import Buffer, Mail, Packet, packet_head

_IN_MEMORY_BYTES = 4 << 20  # a round with less mail than this makes no file
_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 32  # the ephemeral key of a seal: no two letters have the same


class NoRoom(HushrecError):
    """The driving side cannot keep mail; nobody else is at fault."""


@dataclass(frozen=True)
class Held:
    """One letter that waits."""

    mail: Mail
    place: int  # in the file
    size: int
    head: bytes
    writer: str  # the node that handed it in; with an onion, for the second time: the relay
    is_relayed: bool = False  # whether `writer` only passed it on


class Mailroom:
    """The letters of one round."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._size = folder, 0
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None

    def keep(self, mail: Mail, letter: Buffer, writer: str, is_relayed: bool = False) -> Held:
        """Hold a letter; of its bytes, nothing stays in memory."""
        if self._file is None:
            folder = None if self._folder is None else str(self._folder)
            self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=folder)  # noqa: SIM115
        held = Held(mail, self._size, len(letter), bytes(letter[:_HEAD_BYTES]), writer, is_relayed)
        try:
            self._file.seek(self._size)
            self._file.write(letter)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise NoRoom(
                f"mail cannot be kept in {where} ({error.strerror}); make room there, then use --resume"
            ) from None
        self._size += len(letter)
        return held

    def pieces(self, packet: Packet, letters: Sequence[Held]) -> Iterator[bytes]:
        """The packet's bytes, with these letters behind its own sections: read piece by piece, as they are due."""
        own = (packet.about, *packet.sections)
        yield packet_head(packet, [*map(len, own), *(held.size for held in letters)])
        for section in own:
            yield bytes(section) + bytes(-len(section) % 8)
        for held in letters:
            for start in range(0, held.size, _PIECE_BYTES):
                yield self._read(held.place + start, min(_PIECE_BYTES, held.size - start))
            yield bytes(-held.size % 8)

    def _read(self, place: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(place)
        piece = self._file.read(size)
        if len(piece) != size:
            raise NoRoom("mail that was kept cannot be read again; look at the server's disk, then use --resume")
        return piece

    def empty(self) -> None:
        """Forget all letters."""
        if self._file is not None:
            self._file.close()
        self._file, self._size = None, 0
