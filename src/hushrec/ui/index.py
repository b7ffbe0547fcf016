"""What is known of all runs below a folder, kept in SQLite so that it need not be read again.

The index can be lost: it is made anew from the runs. What cannot be is not in it: tags are in a file of their own.
A folder is read again if its `run.json`, its audit or what it told of its rounds is another than when it was read.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hushrec.errors import HushrecError
from hushrec.files import make_private_folder
from hushrec.runs.following import Followed
from hushrec.ui.asking import Query, sql_of
from hushrec.ui.rows import COLUMNS, WATCHED, is_better_low, row_of
from hushrec.ui.tags import Tags

_VERSION = 2  # of the tables; another one is made anew
_MOST_DEPTH = 8  # of folders below the one that is shown
_SECONDS_BETWEEN = 1.0  # two looks at all folders
_DELAY_SECONDS = 0.3  # before a look, so that who asked has an answer first
_BATCH = 500  # runs that are written at once
_TABLES = """
create table runs (
  id text primary key, mark text not null, name text not null, system text not null, data text not null,
  seed integer, state text not null, started text, folds integer, num_folds integer, rounds integer,
  bytes integer, seconds real, leakage real, parties integer, fault text not null,
  config text not null, last text not null, best text not null
) without rowid;
create index by_system on runs (system);
create index by_started on runs (started);
create table names (kind text, name text, primary key (kind, name)) without rowid
"""


@dataclass(frozen=True)
class Progressed:
    """How far the index is."""

    revision: int  # another one: something has changed
    num_runs: int
    num_left: int  # folders that are still to be read; 0: all is known
    is_looking: bool


class RunIndex:
    """The runs below a folder. Safe for threads."""

    def __init__(self, runs_folder: Path, state: Path) -> None:
        self._folder, self._state = runs_folder, state
        self._lock = threading.Lock()  # one look at a time
        self._revision, self._num_left, self._is_looking, self._looked_at = 0, 0, False, float("-inf")
        self._look_seconds = 0.0  # that the last look took
        self._tags = Tags(state / "tags.json")

    # --- Asking ----------------------------------------------------------------------------------------------

    def progress(self) -> Progressed:
        """How far it is."""
        with self._open() as database:
            (num_runs,) = database.execute("select count(*) from runs").fetchone()
        return Progressed(self._revision, num_runs, self._num_left, self._is_looking)

    def page(self, query: Query) -> dict[str, Any]:
        """Rows that fit a query, and how many do."""
        with self._open() as database:
            known = self._names_in(database)
            asked = sql_of(query, known, self._tags.read())
            (total,) = database.execute(f"select count(*) from runs where {asked.where}", asked.values).fetchone()
            rows = database.execute(
                f"select {', '.join(COLUMNS)} from runs where {asked.where} order by {asked.order} "
                "limit ? offset ?",
                (*asked.values, query.limit, query.offset),
            ).fetchall()
        return {"total": total, "rows": [self._told(row) for row in rows], **known}

    def groups(self, query: Query, by: str, metric: str) -> list[dict[str, Any]]:
        """How many runs there are for each value of a setting, and the best, mean and worst of a metric."""
        with self._open() as database:
            asked = sql_of(query, self._names_in(database), self._tags.read())
            key, value = asked.expression(by), asked.expression(metric)
            best, worst = ("min", "max") if is_better_low(metric.removeprefix("best:")) else ("max", "min")
            found = database.execute(
                f"select {key}, count(*), {best}({value}), avg({value}), {worst}({value}) "
                f"from runs where {asked.where} group by 1 order by 1 limit 200",
                asked.values,
            ).fetchall()
        names = ("value", "count", "best", "mean", "worst")
        return [dict(zip(names, row, strict=True)) for row in found]

    def ids(self, query: Query, most: int) -> list[str]:
        """The first ids that fit a query."""
        with self._open() as database:
            asked = sql_of(query, self._names_in(database), self._tags.read())
            found = database.execute(
                f"select id from runs where {asked.where} order by {asked.order} limit ?", (*asked.values, most)
            )
            return [run_id for (run_id,) in found]

    def rows_of(self, ids: Iterable[str]) -> list[dict[str, Any]]:
        """What is known of some runs, in this order; those that are not known are left out."""
        wanted = list(ids)
        with self._open() as database:
            marks = ", ".join("?" * len(wanted))
            rows = database.execute(f"select {', '.join(COLUMNS)} from runs where id in ({marks})", wanted)
            found = {row[0]: self._told(row) for row in rows}
        return [found[run_id] for run_id in wanted if run_id in found]

    @staticmethod
    def _names_in(database: sqlite3.Connection) -> dict[str, list[str]]:
        """The settings and the metrics that any run has, or had."""
        found: dict[str, list[str]] = {"settings": [], "metrics": []}
        for kind, name in database.execute("select kind, name from names order by name"):
            found[kind].append(name)
        return found

    def _told(self, row: tuple[Any, ...]) -> dict[str, Any]:
        told = dict(zip(COLUMNS, row, strict=True))
        del told["mark"]
        for name in ("config", "last", "best"):
            told[name] = msgspec.Raw(told[name].encode())
        told["tags"] = self._tags.of(told["id"])
        return told

    def tag(self, run_id: str, tags: Iterable[str]) -> list[str]:
        """Give a run these tags, and no others."""
        kept = self._tags.write(run_id, tags)
        self._revision += 1
        return kept

    # --- Looking ---------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """Look at the folders in a thread, unless that was done a moment ago."""
        pause = max(_SECONDS_BETWEEN, 10 * self._look_seconds)  # so that to look never takes more than a tenth
        if self._is_looking or time.monotonic() - self._looked_at < pause:
            return
        self._is_looking = True
        later = threading.Timer(_DELAY_SECONDS, self._look_quietly)
        later.daemon = True
        later.start()

    def _look_quietly(self) -> None:
        try:
            with suppress(OSError, HushrecError):
                self.look()
        finally:
            self._is_looking = False

    def look(self) -> None:
        """Read what has changed since the last look, and forget what is gone."""
        with self._lock:
            self._is_looking, began = True, time.monotonic()
            try:
                self._look()
            finally:
                self._is_looking, self._num_left, self._looked_at = False, 0, time.monotonic()
                self._look_seconds = min(self._looked_at - began, 1.0)

    def _look(self) -> None:
        with self._open() as database:
            known = dict(database.execute("select id, mark from runs").fetchall())
        there = dict(run_folders(self._folder))
        changed = [run_id for run_id, mark in there.items() if known.get(run_id) != mark]
        gone = [run_id for run_id in known if run_id not in there]
        # A run that is at work may end without a word, if it is killed.
        with self._open() as database:
            running = [run_id for (run_id,) in database.execute("select id from runs where state = 'running'")]
        stale = [
            one for one in running if one in there and one not in changed and not _is_running(self._folder / one)
        ]
        changed += stale
        self._num_left = len(changed)
        for start in range(0, len(changed), _BATCH):
            part = changed[start : start + _BATCH]
            rows = [row_of(self._folder, run_id, there[run_id]) for run_id in part]
            with self._open() as database:
                marks = ", ".join("?" * len(COLUMNS))
                database.executemany(f"insert or replace into runs values ({marks})", rows)
                names = {("settings", name) for row in rows for name in msgspec.json.decode(row[-3])}
                names |= {("metrics", name) for row in rows for name in msgspec.json.decode(row[-2])}
                database.executemany("insert or ignore into names values (?, ?)", sorted(names))
            self._num_left -= len(part)
            self._revision += 1
        if gone:
            with self._open() as database:
                database.executemany("delete from runs where id = ?", [(run_id,) for run_id in gone])
            self._revision += 1

    # --- The file --------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database; one that is damaged, or of another version, is made anew."""
        path = self._state / "index.sqlite"
        try:
            database = _connected(path)
        except sqlite3.DatabaseError:
            _remove(path)
            database = _connected(path)
        try:
            with database:
                yield database
        except sqlite3.OperationalError:  # of others who use it, or of a disk
            raise HushrecError(f"{path} cannot be used now; try again, or free some space") from None
        except sqlite3.DatabaseError:
            _remove(path)
            raise HushrecError("the index was damaged and is made anew; try again") from None
        finally:
            database.close()


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _connected(path: Path) -> sqlite3.Connection:
    make_private_folder(path.parent)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    database = sqlite3.connect(path, timeout=10)
    try:
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = off")  # what is lost is made anew
        (version,) = database.execute("pragma user_version").fetchone()
        if version != _VERSION:
            with database:
                database.execute("drop table if exists runs")
                database.execute("drop table if exists names")
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"pragma user_version = {_VERSION}")
        database.execute("select id, best from runs limit 1").fetchone()
        database.execute("select kind, name from names limit 1").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database


# --- Folders -------------------------------------------------------------------------------------------------


def run_folders(folder: Path) -> Iterator[tuple[str, str]]:
    """The ids of all runs below a folder, and marks that change when a run does; it does not look into runs."""
    waiting = [(str(folder), "", 0)]
    while waiting:
        path, name, depth = waiting.pop()
        below, marks = [], {}
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name in WATCHED:
                        stat = entry.stat()
                        marks[entry.name] = f"{stat.st_mtime_ns}:{stat.st_size}"
                    elif _can_be_named(entry.name) and entry.is_dir(follow_symlinks=False):
                        below.append(entry.name)
        except OSError:  # gone meanwhile, or of somebody else
            continue
        if "run.json" in marks and name:
            yield name, " ".join(marks.get(one, "-") for one in WATCHED)
        elif depth < _MOST_DEPTH:
            waiting += [(f"{path}/{one}", f"{name}/{one}" if name else one, depth + 1) for one in below]


def _can_be_named(folder: str) -> bool:
    """Not what is hidden, nor a name that is no text: no address could hold it."""
    return not folder.startswith(".") and not any("\ud800" <= letter <= "\udfff" for letter in folder)


def _is_running(folder: Path) -> bool:
    followed = Followed(folder)
    followed.look()
    return followed.is_running
