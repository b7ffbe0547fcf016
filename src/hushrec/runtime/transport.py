"""What an engine must do for us: carry bytes to nodes and bring their replies back. Losses are data."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Protocol

Buffer = bytes | memoryview


@dataclass(frozen=True)
class Delivery:
    """What becomes of one call: replies by node, and why the others sent none (one line each).

    Replies that come one by one, as they arrive, are an iterator; `lost` is complete when the last was taken. Of
    those, a transport holds as few as it can, and whoever takes them one at a time.
    """

    replies: Mapping[str, Buffer] | Iterator[tuple[str, Buffer]]
    lost: dict[str, str] = field(default_factory=dict)

    def arriving(self) -> Iterator[tuple[str, Buffer]]:
        """The replies, one after the other."""
        return iter(self.replies.items()) if isinstance(self.replies, Mapping) else self.replies


class Requests(Mapping[str, bytes]):
    """Packets to nodes, each of which is made when it is looked up, as a whole or part by part."""

    def __init__(self, names: Iterable[str], pieces_of: Callable[[str], Iterator[bytes]]) -> None:
        self._names, self._pieces_of = tuple(names), pieces_of

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        data = BytesIO()  # which gives its bytes away without a copy
        for piece in self._pieces_of(name):
            data.write(piece)
        return data.getvalue()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def only(self, names: Collection[str]) -> "Requests":
        """Those to some of the nodes."""
        return Requests([name for name in self._names if name in names], self._pieces_of)

    def parts(self, name: str, part_bytes: int) -> Iterator[bytes]:
        """A packet in parts of this size but for the last; no more of it than one part is in memory."""
        part: list[memoryview] = []
        room = part_bytes
        for whole_piece in self._pieces_of(name):
            piece = memoryview(whole_piece)
            while len(piece) > room:
                part.append(piece[:room])
                yield b"".join(part)
                piece, part, room = piece[room:], [], part_bytes
            part.append(piece)
            room -= len(piece)
        yield b"".join(part)


class Transport(Protocol):
    """Carries packets between the driving side and nodes. It knows nothing of recommenders."""

    def call(self, phase: str, requests: Requests, round_number: int, timeout_seconds: float) -> Delivery:
        """Send each node its packet, all at once, and hand over the replies as they come; a late one is lost."""
        ...
