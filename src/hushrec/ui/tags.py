"""Words that somebody gave to runs, in a file for that: an index that is made anew could not bring them back."""

import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hushrec.errors import HushrecError
from hushrec.files import write_private_file

_MOST_TAGS = 20
_MOST_LETTERS = 40


class Tags:
    """The tags of all runs below a folder. Safe for threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, dict[str, list[str]]] = (-1, {})

    def read(self) -> dict[str, list[str]]:
        """All tags, by run."""
        try:
            mark = self._path.stat().st_mtime_ns
            if mark != self._seen[0]:
                self._seen = mark, msgspec.json.decode(self._path.read_bytes(), type=dict[str, list[str]])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError):
            raise HushrecError(f"{self._path} is damaged; put back a copy of it, or delete it") from None
        return self._seen[1]

    def of(self, run_id: str) -> list[str]:
        """The tags of a run."""
        return self.read().get(run_id, [])

    def write(self, run_id: str, tags: Iterable[str]) -> list[str]:
        """Give a run these tags."""
        words = sorted({" ".join(word.split()) for word in tags} - {""})
        if len(words) > _MOST_TAGS or any(len(word) > _MOST_LETTERS for word in words):
            raise HushrecError(f"a run may have {_MOST_TAGS} tags of {_MOST_LETTERS} letters; use fewer")
        with self._lock:
            others = {name: kept for name, kept in self.read().items() if name != run_id}
            write_private_file(self._path, msgspec.json.encode({**others, **({run_id: words} if words else {})}))
        return words
