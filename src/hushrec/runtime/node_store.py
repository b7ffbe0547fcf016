"""The private state of a node's parties on its own disk: all kept arrays in one file, written at every ask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.protocol import NO_MARK, AnySystem, ReplayMark, Store, kept_arrays, restore
from hushrec.runtime.checkpoint import from_file, in_file, read_arrays, write_arrays


class ArrayStore:
    """One file, which is also what `hushrec recommend` reads."""

    def __init__(self, path: Path) -> None:
        self._path, self.mark = path, NO_MARK
        if path.exists():
            arrays = read_arrays(path)
            sequence, round_number = arrays["last"].tolist()
            memory = arrays["memory"].tobytes() if "memory" in arrays else b""
            self.mark = ReplayMark(sequence, round_number, arrays["digest"].tobytes(), memory)

    def restore(self, private: Any) -> None:
        """Put the arrays back; before the first ask there are none."""
        if self._path.exists():
            restore(private, from_file("private", read_arrays(self._path)))

    def save(self, private: Any, mark: ReplayMark) -> None:
        """Write all arrays, and the mark."""
        arrays = in_file("private", kept_arrays(private))
        arrays["last"] = np.array([mark.sequence, mark.round_number], np.int64)
        arrays["digest"] = np.frombuffer(mark.digest, np.uint8)
        arrays["memory"] = np.frombuffer(mark.memory, np.uint8)
        write_arrays(self._path, arrays)
        self.mark = mark


def open_store(system: AnySystem, folder: Path, enrol: Callable[[], Any], is_new: bool) -> Store[Any]:
    """The store of a node, as the system keeps it; `enrol` makes the private state, if the system asks for it."""
    if system.open_store is not None:
        own = system.open_store(folder, enrol(), is_new)
        if own is not None:
            return own
    return ArrayStore(folder / "state.npz")
