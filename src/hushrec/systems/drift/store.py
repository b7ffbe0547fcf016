"""What owners hold, on disk: SQLite, changed a little at every ask, in one transaction.

The file has all interactions that were not learned from yet and those of the round that runs, so that all blocks
can be built again, and what each owner counts. A transaction is there as a whole or not at all, and it is on the
disk before an answer leaves: whatever ends the process, between any two statements, what was answered is there.
"""

import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, LostForGoodError
from hushrec.files import make_private_file
from hushrec.protocol import NO_MARK, ReplayMark
from hushrec.systems.drift.blocks import Entries
from hushrec.systems.drift.members import COUNTS, Members, Owner

_VERSION = 1
_COLUMNS = ("sequence", "user", "item", "is_positive", "added", "stamp", "block")  # as in `Entries`
_STATE = ("round_number", "window_number", "last", *COUNTS._fields, *(f"{name}_before" for name in COUNTS._fields))


def _integers(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}" INTEGER NOT NULL' for name in names)


_SCHEMA = (
    "CREATE TABLE mark (sequence INTEGER NOT NULL, round_number INTEGER NOT NULL, digest BLOB NOT NULL)",
    f"CREATE TABLE owners (number INTEGER PRIMARY KEY, {_integers(_STATE)})",
    f"CREATE TABLE interactions (id INTEGER PRIMARY KEY, {_integers(('owner', *_COLUMNS))})",
    "CREATE INDEX of_owner ON interactions (owner)",
    f"PRAGMA user_version = {_VERSION}",
)
_INSERT_STATE = f"INSERT OR REPLACE INTO owners VALUES ({', '.join('?' * (1 + len(_STATE)))})"
_INSERT = f"INSERT INTO interactions VALUES ({', '.join('?' * (2 + len(_COLUMNS)))})"
_BUSY_SECONDS = 5.0
SYNCHRONOUS = "FULL"  # also a power cut loses nothing that was answered


class _Kept(NamedTuple):
    """What the file has of one owner's interactions, in the order of its blocks."""

    ids: NDArray[np.int64]
    stamps: NDArray[np.int64]


class OwnerStore:
    """The file of the owners of one node, in one run."""

    def __init__(self, path: Path) -> None:
        """Open what `create` made."""
        self.path = path
        if not path.exists():
            raise LostForGoodError(f"{path} is missing: put it back from where it was, or order a new run")
        with self._blamed():
            self._file = _connected(path)
            weakref.finalize(self, self._file.close)
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            (found,) = self._file.execute("PRAGMA quick_check(1)").fetchone()
            if version != _VERSION or found != "ok":
                raise sqlite3.DatabaseError
            mark = self._file.execute("SELECT * FROM mark").fetchone()
            (self._last_id,) = self._file.execute("SELECT ifnull(max(id), 0) FROM interactions").fetchone()
        self.mark = NO_MARK if mark is None else ReplayMark(*mark)
        self._kept: dict[int, _Kept] = {}

    @classmethod
    def create(cls, path: Path) -> None:
        """A new file, readable by its owner only; a half-made one is replaced."""
        for old in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            old.unlink(missing_ok=True)
        make_private_file(path)  # SQLite's own files get its mode, too
        file = _connected(path)
        file.execute("BEGIN")
        for statement in _SCHEMA:
            file.execute(statement)
        file.execute("COMMIT")
        file.close()

    def close(self) -> None:
        """End, with nothing left to write."""
        self._file.close()

    def restore(self, parties: Members) -> None:
        """Put everything back into the owners of a node that starts."""
        with self._blamed():
            rows = self._file.execute(f"SELECT owner, id, {', '.join(_COLUMNS)} FROM interactions ORDER BY id")
            table = np.array(rows.fetchall(), np.int64).reshape(-1, 2 + len(_COLUMNS))
            states = np.array(self._file.execute("SELECT * FROM owners ORDER BY number").fetchall(), np.int64)
        numbers = np.array([owner.number for owner in parties.owners])  # ascending
        if len(states) and not np.array_equal(states[:, 0], numbers):
            raise LostForGoodError(f"{self.path} is of other owners; put the right one back, or order a new run")
        packed = np.empty(len(table), parties.entries.dtype)
        packed["owner"] = np.searchsorted(numbers, table[:, 0])
        for name, column in zip(Entries._fields, table.T[2:], strict=True):
            packed[name] = column
            if not np.array_equal(packed[name], column):
                raise LostForGoodError(f"{self.path} is damaged: put a good copy back, or order a new run")
        parties.entries = packed
        if len(states):
            parties.owner_states = states[:, 1:]
        for owner in parties.owners:
            is_own = table[:, 0] == owner.number
            self._kept[owner.number] = _Kept(table[is_own, 1], packed["stamps"][is_own])

    def save(self, parties: Members, mark: ReplayMark) -> None:
        """Write what an ask changed, and that it was served."""
        last_id = self._last_id
        kept = {}
        with self._blamed(), self._transaction():
            for owner, state in zip(parties.owners, parties.owner_states.tolist(), strict=True):
                self._file.execute(_INSERT_STATE, (owner.number, *state))
                kept[owner.number], last_id = self._save_interactions(owner, last_id)
            self._file.execute("DELETE FROM mark")
            self._file.execute("INSERT INTO mark VALUES (?, ?, ?)", mark[:3])
        self.mark, self._kept, self._last_id = mark, kept, last_id

    def _save_interactions(self, owner: Owner, last_id: int) -> tuple[_Kept, int]:
        """Add what came and change what was learned from; where a round begins, write all that is left."""
        blocks = owner.blocks
        known = self._kept.get(owner.number)
        if known is None or owner.clock[1] < 0:
            self._file.execute("DELETE FROM interactions WHERE owner = ?", (owner.number,))
            known = _Kept(np.empty(0, np.int64), np.empty(0, np.int64))
        size, entries = len(known.ids), blocks.entries
        changed = np.flatnonzero(entries.stamps[:size] != known.stamps)
        if len(changed):
            columns = (entries.stamps[changed], entries.blocks[changed], known.ids[changed])
            update = "UPDATE interactions SET stamp = ?, block = ? WHERE id = ?"
            self._file.executemany(update, zip(*(column.tolist() for column in columns), strict=True))
        added = entries.take(slice(size, blocks.size))
        ids = np.arange(last_id + 1, last_id + 1 + blocks.size - size)
        if len(ids):
            owners = np.full(len(ids), owner.number)
            self._file.executemany(
                _INSERT, zip(*(column.tolist() for column in (ids, owners, *added)), strict=True)
            )
        stamps = entries.stamps[: blocks.size].copy()
        return _Kept(np.concatenate([known.ids, ids]), stamps), last_id + len(ids)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; refused if another process wrote since."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            found = self._file.execute("SELECT * FROM mark").fetchone()
            if (NO_MARK if found is None else ReplayMark(*found)) != self.mark:
                raise HushrecError(f"{self.path} was changed by another process; end it")
            yield
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # a full disk, a lock: the file itself is sound
            raise HushrecError(f"{self.path} cannot be used ({error}); see to its disk, then go on") from None
        except (sqlite3.Error, ValueError, TypeError, OverflowError):
            raise LostForGoodError(f"{self.path} is damaged: put a good copy back, or order a new run") from None


def _connected(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        file.execute("PRAGMA secure_delete = ON")  # what was learned from is gone
    except sqlite3.Error:
        file.close()
        raise
    return file


def open_store(folder: Path, members: Members, is_new: bool) -> OwnerStore | None:
    """The owners' file; None on the node of the users' side, which has no owner."""
    if not members.owners:
        return None
    path = folder / "owners.sqlite"
    if is_new:
        OwnerStore.create(path)
    return OwnerStore(path)
