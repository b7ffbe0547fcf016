"""An owner that dies between any two statements comes back with no block lost and none counted twice."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import owned, synthetic
from hushrec.data.holdings.owners import owners_of, rows_of_owners
from hushrec.errors import HushrecError, LostForGoodError
from hushrec.protocol import NO_MARK, ReplayMark, kept_arrays
from hushrec.systems.drift.blocks import Groups
from hushrec.systems.drift.cipher import Form
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.members import COUNTS, Members, Owner
from hushrec.systems.drift.store import OwnerStore

NUM_OWNERS, NUM_ROUNDS, NUM_WINDOWS, WINDOW, THETA = 3, 4, 4, 30, 5
FORM = Form(batch=3, is_encrypted=False)  # three interactions with one number
DATA = owned(synthetic(10, 30, 200).as_signed(), str(NUM_OWNERS), 0)
ROWS = rows_of_owners(DATA)
RNG = np.random.default_rng(0)
EVENTS = RNG.integers(0, len(ROWS.users), NUM_ROUNDS * NUM_WINDOWS * WINDOW)


class Killed(BaseException):
    """The process ends here."""


class Fragile:
    """A connection that is told of every statement before it runs."""

    def __init__(self, file: sqlite3.Connection, before: Callable[[], None]) -> None:
        self.file, self._before = file, before

    def execute(self, *words: Any) -> sqlite3.Cursor:
        self._before()
        return self.file.execute(*words)

    def executemany(self, *words: Any) -> sqlite3.Cursor:
        self._before()
        return self.file.executemany(*words)

    @property
    def in_transaction(self) -> bool:
        return False  # a dead process rolls nothing back

    def close(self) -> None:
        self.file.close()


def no_one() -> Members:
    """The owners as they start."""
    held = np.split(ROWS.held, ROWS.held_starts[1:-1])
    owners = [Owner(number, items, b"") for number, items in enumerate(held)]
    return Members(np.arange(NUM_OWNERS, dtype=np.int32), owners, None)


@dataclass
class Play:
    """Rounds of asks to owners who keep what they have in a store; the users' side lives on."""

    path: Path
    before_statement: Callable[[], None] = lambda: None
    gateway: Gateway = field(init=False)
    members: Members = field(init=False)
    store: OwnerStore = field(init=False)
    sequence: int = 0
    learned: dict[tuple[int, int], list[Groups]] = field(default_factory=dict)
    num_killed: int = 0

    def __post_init__(self) -> None:
        users, items, is_positive = (column[EVENTS] for column in (ROWS.users, ROWS.items, ROWS.is_positive))
        self.gateway = Gateway(NUM_OWNERS, users, items, is_positive, ROWS.num_users)
        OwnerStore.create(self.path)
        self.start()

    def start(self) -> None:
        """A new process."""
        self.members, self.store = no_one(), OwnerStore(self.path)
        self.store.restore(self.members)
        self.store._file = Fragile(self.store._file, self.before_statement)  # type: ignore[assignment]

    def save(self, round_number: int) -> None:
        self.sequence += 1
        self.store.save(self.members, ReplayMark(self.sequence, round_number, b"packet"))

    def round(self, round_number: int) -> None:
        """Register, then all windows."""
        for owner in self.members.owners:
            owner.begin(round_number, round_number - 1)
        self.save(round_number)
        held = owners_of(DATA)
        self.gateway.begin(round_number, held.starts, held.owners)
        for window in range(NUM_WINDOWS):
            first = ((round_number - 1) * NUM_WINDOWS + window) * WINDOW
            letters = self.gateway.window(window, first, first + WINDOW, {}, FORM)
            groups = [
                owner.take_in(
                    window, [letters[owner.number]] if owner.number in letters else [], FORM, THETA, "blocks"
                )
                for owner in self.members.owners
            ]
            self.save(round_number)
            self.learned[round_number, window] = groups
            self.save(round_number)  # vectors change nothing

    def run(self) -> "Play":
        """All rounds; one in which the process is killed begins again."""
        round_number = 1
        while round_number <= NUM_ROUNDS:
            try:
                self.round(round_number)
                round_number += 1
            except Killed:
                self.num_killed += 1
                self.store.close()  # without a commit: what was not committed is gone
                self.start()
        return self


def contents(members: Members) -> dict[str, Any]:
    return {"entries": members.entries.tolist(), "states": members.owner_states.tolist()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return Play(tmp_path_factory.mktemp("store") / "owners.sqlite").run()


def assert_same_learning(one: Play, other: Play) -> None:
    assert one.learned.keys() == other.learned.keys()
    for moment, groups in one.learned.items():
        for ours, theirs in zip(groups, other.learned[moment], strict=True):
            for column, expected in zip(ours[:-1], theirs[:-1], strict=True):
                np.testing.assert_array_equal(column, expected, err_msg=str(moment))
    for ours, theirs in zip(one.members.owners, other.members.owners, strict=True):
        assert ours.counts[COUNTS.accepted] == theirs.counts[COUNTS.accepted]
        assert ours.counts.tolist() == theirs.counts.tolist()


def test_there_is_something_to_learn(reference: Play) -> None:
    """Else the tests below could not fail: blocks over several rounds, and messages that hold several."""
    num_blocks = sum(part.num_blocks for groups in reference.learned.values() for part in groups)
    assert num_blocks > 50
    added = reference.members.entries["added"]
    assert len(np.unique(added)) == NUM_ROUNDS
    deliveries = int(np.diff(owners_of(DATA).starts)[ROWS.items[EVENTS]].sum())
    assert sum(int(owner.counts[COUNTS.accepted]) for owner in reference.members.owners) == deliveries


def test_all_that_owners_learn_is_kept() -> None:
    """What is new among these must be in the file, too, if it is an owner's."""
    assert tuple(kept_arrays(no_one())) == ("entries", "owner_states", "gateway_state", "table")


def test_a_file_gives_back_what_was_saved(reference: Play) -> None:
    again = no_one()
    store = OwnerStore(reference.path)
    store.restore(again)
    assert store.mark == ReplayMark(reference.sequence, NUM_ROUNDS, b"packet")
    kept = contents(reference.members)
    assert contents(again) == kept
    assert len(kept["entries"]) > 50


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_before_any_statement_loses_nothing(tmp_path: Path, reference: Play, seed: int) -> None:
    """Killed before some ten statements anywhere in the run; each time the round begins again."""
    calls, chance = 0, np.random.default_rng(seed)
    next_kill = int(chance.integers(1, 60))

    def before() -> None:
        nonlocal calls, next_kill
        calls += 1
        if calls == next_kill:
            next_kill = calls + int(chance.integers(1, 160))
            raise Killed

    play = Play(tmp_path / "owners.sqlite", before).run()
    assert play.num_killed >= 5
    assert_same_learning(play, reference)


def test_what_is_copied_at_any_moment_is_what_was_answered_last(tmp_path: Path) -> None:
    """A copy of the files between any two statements holds the last transaction as a whole, and no half of one."""
    chance, answered, num_copies = np.random.default_rng(2), contents(no_one()), 0

    def before() -> None:
        nonlocal num_copies
        if chance.random() < 0.9:
            return
        copy = tmp_path / f"copy-{num_copies}"
        copy.mkdir()
        for path in tmp_path.glob("owners.sqlite*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy / path.name)
        found, store = no_one(), OwnerStore(copy / "owners.sqlite")
        store.restore(found)
        store.close()
        assert contents(found) == answered
        num_copies += 1

    play = Play(tmp_path / "owners.sqlite", before)
    save = play.save

    def save_and_note(round_number: int) -> None:
        save(round_number)
        answered.update(contents(play.members))

    play.save = save_and_note  # type: ignore[method-assign]
    play.run()
    assert num_copies > 30


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    """A window adds its interactions and stamps blocks; an ask that changes nothing touches no interaction."""
    play = Play(tmp_path / "owners.sqlite")
    play.round(1)
    with closing(sqlite3.connect(play.path)) as file:
        before = file.execute("SELECT count(*), max(id) FROM interactions").fetchone()
        play.save(1)
        assert file.execute("SELECT count(*), max(id) FROM interactions").fetchone() == before
    changes = play.store._file.file.total_changes  # type: ignore[attr-defined]
    play.save(1)
    done = play.store._file.file.total_changes - changes  # type: ignore[attr-defined]
    assert done == NUM_OWNERS + 2  # states, and the mark: one deleted, one added


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        play = Play(tmp_path / "private" / "owners.sqlite")
        play.round(1)
    finally:
        os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in play.path.parent.iterdir()}
    assert modes == dict.fromkeys(("owners.sqlite", "owners.sqlite-wal", "owners.sqlite-shm"), 0o600)
    assert play.path.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_written_is_on_the_disk_before_the_answer(tmp_path: Path) -> None:
    store = Play(tmp_path / "owners.sqlite").store
    assert store._file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._file.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_half_made_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "owners.sqlite"
    path.write_bytes(b"half")
    OwnerStore.create(path)
    assert OwnerStore(path).mark == NO_MARK


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        LostForGoodError, match=r"owners.sqlite is missing: put it back from where it was, or order a new"
    ):
        OwnerStore(tmp_path / "owners.sqlite")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 300)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\xff" * (len(data) - 4096 * 2)
    path.write_bytes(data)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _of_another_program(path: Path) -> None:
    path.unlink()
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE mark (a)")
    file.commit()
    file.close()


def _with_impossible_numbers(path: Path) -> None:
    file = sqlite3.connect(path)
    file.execute("UPDATE interactions SET user = 1 << 40")
    file.commit()
    file.close()


def _with_texts(path: Path) -> None:
    file = sqlite3.connect(path)
    file.execute("UPDATE interactions SET item = 'x'")
    file.commit()
    file.close()


@pytest.mark.parametrize(
    "harm",
    [_garbage, _cut, _overwritten, _empty, _of_another_program, _with_impossible_numbers, _with_texts],
    ids=lambda harm: harm.__name__.strip("_"),
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    play = Play(tmp_path / "owners.sqlite").run()
    play.store.close()
    harm(play.path)
    with pytest.raises(LostForGoodError, match=r"owners.sqlite is damaged: put a good copy back, or order"):
        OwnerStore(play.path).restore(no_one())


def test_a_file_of_other_owners_is_refused(tmp_path: Path) -> None:
    play = Play(tmp_path / "owners.sqlite")
    play.round(1)
    others = no_one()
    others.owners = others.owners[:2]
    with pytest.raises(LostForGoodError, match="is of other owners; put the right one back"):
        OwnerStore(play.path).restore(others)


def test_two_processes_do_not_write_to_one_file(tmp_path: Path) -> None:
    """One that did not see what the other wrote is refused, and nothing of it is written."""
    one = Play(tmp_path / "owners.sqlite")
    one.round(1)
    late, parties = OwnerStore(one.path), no_one()
    late.restore(parties)
    one.round(2)
    for owner in parties.owners:
        owner.begin(2, 1)
    with pytest.raises(HushrecError, match="was changed by another process; end it"):
        late.save(parties, ReplayMark(99, 2, b""))
    found, store = no_one(), OwnerStore(one.path)
    store.restore(found)
    assert contents(found) == contents(one.members)


def test_a_full_disk_is_no_damage(tmp_path: Path, reference: Play) -> None:
    """What could not be written is written with the next ask."""
    play = Play(tmp_path / "owners.sqlite")
    play.round(1)
    real = play.store._file
    play.store._file = Fragile(real.file, _full)  # type: ignore[assignment, attr-defined]
    for owner in play.members.owners:
        owner.begin(2, 1)
    with pytest.raises(HushrecError, match=r"cannot be used \(database or disk is full\); see to its disk"):
        play.save(2)
    play.store._file = real
    for round_number in range(2, NUM_ROUNDS + 1):
        play.round(round_number)
    assert_same_learning(play, reference)


def _full() -> None:
    raise sqlite3.OperationalError("database or disk is full")
