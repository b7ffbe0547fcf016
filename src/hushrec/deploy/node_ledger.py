"""What a node gave away, over all runs: a file that only grows, and the budgets that stop it.

`private/ledger.jsonl` has a line for each run that was opened, each round that was answered and each run that
ended, each with a digest of itself and of all before. A line is on disk before the reply that it is about leaves.
A process that is killed while it writes leaves a line without an end, whose reply never left: it is dropped. Any
other damage is refused.

A run is charged at its opening with the most that it may cost, and with what it did cost when it has ended. So all
runs together stay within a budget, whatever is killed, and however many go on at once: who writes holds a lock,
and first reads what others wrote.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hushrec.errors import HushrecError, LostForGoodError, PublicError
from hushrec.files import locked_as, make_private_folder
from hushrec.privacy.ledger import DELTA, epsilon_of_gaussian
from hushrec.protocol import Spending

EPSILON, ROUNDS = "epsilon", "rounds"
_SLACK = 1e-9  # of a budget: what adding up floats may be off by


class OverBudget(PublicError):
    """What a node's owner has not agreed to give away."""


# --- What a run costs ------------------------------------------------------------------------------------------


class Cost(msgspec.Struct, frozen=True):
    """Rounds, and what their noise promises at `DELTA`."""

    rounds: int
    epsilon: float | None = None  # None: no noise bounds what is told
    multiplier: float = 0.0  # of Gaussian noise, all of the run taken as one release; 0: other noise


def cost_of(rounds: int, spending: Spending | None) -> Cost:
    """The cost of so many rounds. What is promised at a larger delta than ours is no promise."""
    if spending is None or not rounds:
        return Cost(rounds, None if spending is None else 0.0)
    if spending.multiplier:
        return Cost(rounds, epsilon_of_gaussian(spending.multiplier, DELTA), spending.multiplier)
    return Cost(rounds, spending.epsilon if spending.delta <= DELTA or not spending.epsilon else None)


def total_rounds(costs: Iterable[Cost]) -> int:
    """Of all runs."""
    return sum(cost.rounds for cost in costs)


def total_epsilon(costs: Iterable[Cost]) -> float:
    """Of all runs with noise together, an upper bound.

    Guarantee: Gaussian releases are together exactly as one with the sum of their 1/z^2; what else there is counts
    by the plain sum. Runs may be adaptive. Each of the two parts is at `DELTA`.
    """
    noisy = [cost for cost in costs if cost.epsilon is not None]
    gaussian = sum(cost.multiplier**-2 for cost in noisy if cost.multiplier)
    plain = sum((cost.epsilon or 0.0 for cost in noisy if not cost.multiplier), 0.0)
    return plain + (epsilon_of_gaussian(1 / math.sqrt(gaussian), DELTA) if gaussian else 0.0)


# --- Lines of the file -----------------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A run that the node takes part in, and the most that it may cost."""

    run: str
    time: str
    system: str
    settings: dict[str, Any]
    consent: str  # why it was agreed to
    cost: Cost


class Answered(msgspec.Struct, frozen=True, tag="round"):
    """A round of which something left the node."""

    run: str
    time: str
    round_number: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A run in which nothing new is answered any more, and what it cost."""

    run: str
    time: str
    cost: Cost


Line = Opened | Answered | Ended


@dataclass
class RunEntry:
    """All lines of one run."""

    opened: Opened
    rounds: set[int] = field(default_factory=set)
    ended: Ended | None = None

    @property
    def cost(self) -> Cost:
        """What it is charged with."""
        return self.opened.cost if self.ended is None else self.ended.cost


# --- Budgets ---------------------------------------------------------------------------------------------------

Budget = Mapping[str, float]  # "epsilon", "rounds", "fedrec:rounds": the most of it


def parse_budget(texts: Iterable[str], systems: Iterable[str]) -> dict[str, float]:
    """Budgets as they are typed: `epsilon=8`, `rounds=500`, `fedrec:rounds=100`."""
    known, budget = set(systems), dict[str, float]()
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        system, _, what = name.rpartition(":")
        try:
            most = float(number)
        except ValueError:
            most = math.nan
        if what not in (EPSILON, ROUNDS) or not 0 <= most < math.inf:
            raise HushrecError(f"--budget {text!r}: write epsilon=8, rounds=500 or fedrec:rounds=100")
        if system and system not in known:
            raise HushrecError(f"--budget {text!r}: this node does not take part in {system}; leave it out")
        budget[name] = most
    return budget


def is_of(name: str, system: str) -> bool:
    """Whether a budget is for a system, or for all."""
    of, _, _ = name.rpartition(":")
    return of in ("", system)


def spent_of(name: str, entries: Iterable[RunEntry]) -> float:
    """How much of a budget runs are charged with."""
    costs = [entry.cost for entry in entries if is_of(name, entry.opened.system)]
    return float(total_rounds(costs)) if name.endswith(ROUNDS) else total_epsilon(costs)


def check_budget(budget: Budget, entries: Mapping[str, RunEntry], new: Opened) -> None:
    """Refuse a run that could cost more than is left."""
    others = [entry for run, entry in entries.items() if run != new.run]
    entry = entries.get(new.run, RunEntry(new))
    for name, most in budget.items():
        if not is_of(name, new.system):
            continue
        if name.endswith(EPSILON) and entry.cost.epsilon is None:
            raise OverBudget(
                f"this node has a budget of {name} {most:g}, and no noise bounds what this run tells; "
                f"order it with --epsilon-total, if {new.system} has that"
            )
        if spent_of(name, [*others, entry]) > most * (1 + _SLACK):
            left = max(most - spent_of(name, others), 0.0)
            cost = spent_of(name, [entry])
            raise OverBudget(f"this run may cost {name} {cost:.4g}, and of this node's budget {left:.4g} is left")


# --- The file --------------------------------------------------------------------------------------------------


class NodeLedger:
    """The ledger in a file, which several processes may keep."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, RunEntry] = {}
        self._read_bytes, self._num_lines, self._digest = 0, 0, ""

    def entries(self) -> Mapping[str, RunEntry]:
        """All runs, the oldest first."""
        self._catch_up()
        return self._entries

    def check_open(self, new: Opened, budget: Budget) -> None:
        """Refuse a run that is another one than before, or that could cost more than is left."""
        self._catch_up()
        self._check_open(new, budget)

    def open(self, new: Opened, budget: Budget) -> None:
        """Charge a run; one that is known is not charged again."""
        with self._alone():
            self._check_open(new, budget)
            if new.run not in self._entries:
                self._append(new)

    def _check_open(self, new: Opened, budget: Budget) -> None:
        known = self._entries.get(new.run)
        if known is not None and (known.opened.system, known.opened.settings) != (new.system, new.settings):
            raise OverBudget("the same run with other settings than this node has in its ledger; order a new run")
        check_budget(budget, self._entries, new)

    def check_round(self, run: str, round_number: int) -> None:
        """Refuse a round that the run was not charged for."""
        self._catch_up()
        self._check_round(run, round_number)

    def _check_round(self, run: str, round_number: int) -> RunEntry:
        entry = self._entries.get(run)
        if entry is None:
            raise OverBudget("a round of a run that is not in this node's ledger; order it anew")
        if round_number in entry.rounds:
            return entry
        if entry.ended is not None:
            raise OverBudget(f"round {round_number} of a run that has ended on this node; order a new run")
        if not 1 <= round_number <= entry.opened.cost.rounds:
            raise OverBudget(f"round {round_number} of a run of {entry.opened.cost.rounds}; order a new run")
        return entry

    def note_round(self, run: str, round_number: int, time: str) -> None:
        """Write down that a round is answered; once, however often it is."""
        known = self._entries.get(run)
        if known is not None and round_number in known.rounds:
            return
        with self._alone():
            if round_number not in self._check_round(run, round_number).rounds:
                self._append(Answered(run, time, round_number))

    def end(self, run: str, spending: Spending | None, time: str) -> None:
        """Give back what a run was charged with and has not used; nothing new is answered in it from now on."""
        with self._alone():
            entry = self._entries.get(run)
            if entry is not None and entry.ended is None:
                self._append(Ended(run, time, cost_of(len(entry.rounds), spending)))

    def close(self, run: str, time: str) -> None:
        """End a run that its operator gave up, by how its id begins. Of epsilon, all or nothing is given back."""
        with self._alone():
            found = [one for one in self._entries.values() if one.opened.run.startswith(run) and not one.ended]
            if len(found) != 1:
                raise HushrecError(
                    f"--close {run}: {len(found)} runs that go on begin so; hushrec deploy status shows them"
                )
            [entry] = found
            most, used = entry.opened.cost, len(entry.rounds)
            cost = msgspec.structs.replace(most, rounds=used) if used else cost_of(0, None)
            self._append(Ended(entry.opened.run, time, cost))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes, and all that others wrote is read."""
        make_private_folder(self._path.parent)
        lock = self._path.with_suffix(".lock")
        os.close(os.open(lock, os.O_CREAT | os.O_WRONLY, 0o600))
        with locked_as(lock, ""):
            self._catch_up()
            if self._path.exists() and self._path.stat().st_size > self._read_bytes:
                os.truncate(self._path, self._read_bytes)  # what a killed process had begun to write
            yield

    def _catch_up(self) -> None:
        """Read what is new, up to the last line that has an end."""
        if not self._path.exists():
            if self._read_bytes:
                raise self._damaged("is gone")
            return
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._read_bytes:
                raise self._damaged("has become shorter")
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        for line in whole.split(b"\n") if whole else []:
            self._take(line)

    def _take(self, line: bytes) -> None:
        digest, _, body = line.partition(b" ")
        try:
            if digest.decode() != self._digest_with(body):
                raise ValueError
            entry = msgspec.json.decode(body, type=Line)
            self._enter(entry)
        except (ValueError, KeyError, msgspec.MsgspecError):
            raise self._damaged(f"is damaged in line {self._num_lines + 1}") from None
        self._digest, self._num_lines = digest.decode(), self._num_lines + 1
        self._read_bytes += len(line) + 1

    def _enter(self, line: Line) -> None:
        if isinstance(line, Opened):
            self._entries[line.run] = RunEntry(line)
        elif isinstance(line, Answered):
            self._entries[line.run].rounds.add(line.round_number)
        else:
            self._entries[line.run].ended = line

    def _append(self, entry: Line) -> None:
        body = msgspec.json.encode(entry)
        line = f"{self._digest_with(body)} ".encode() + body + b"\n"
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb", 0) as file:
            if file.write(line) != len(line):
                raise HushrecError(f"{self._path} cannot be written; make room on the disk")
            os.fsync(file.fileno())
        self._take(line[:-1])

    def _digest_with(self, body: bytes) -> str:
        return sha256(self._digest.encode() + body).hexdigest()

    def _damaged(self, how: str) -> LostForGoodError:
        return LostForGoodError(
            f"{self._path} {how}: what this node gave away is not known now; put a copy back, or move it away, "
            "to count from nothing"
        )
