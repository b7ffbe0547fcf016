"""What an audit of a run found, kept in the run's folder for its report. Nothing in it is of one person."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hushrec.audit.scoreboard import Finding
from hushrec.errors import HushrecError
from hushrec.files import write_private_file

FILE = "audit.json"

# From which advantage on, which words.
_WORDS = ((0.9, "reads it"), (0.5, "reads most"), (0.1, "learns something"), (0.01, "learns a little"))


@dataclass(frozen=True)
class KeptFinding:
    """One attack."""

    name: str
    role: str
    measure: str
    score: float
    chance: float
    interval: tuple[float, float] | None
    rounds: list[float | None]

    @property
    def advantage(self) -> float:
        """How far it is from a blind guess (0) towards knowing all (1)."""
        return (self.score - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0

    @property
    def is_above_chance(self) -> bool:
        """Whether it is better than a blind guess by more than its interval leaves open."""
        return self.score > self.chance and (self.interval is None or self.interval[0] > self.chance)

    @property
    def in_words(self) -> str:
        """What it comes to.

        >>> KeptFinding("age", "server", "accuracy", 0.3, 0.2, (0.25, 0.35), []).in_words
        'learns something'
        >>> KeptFinding("age", "server", "accuracy", 0.3, 0.2, (0.19, 0.4), []).in_words
        'learns nothing beyond chance'
        """
        found = (word for least, word in _WORDS if self.is_above_chance and self.advantage >= least)
        return next(found, "learns nothing beyond chance")

    def curve(self) -> list[float | None]:
        """How far it is from a blind guess (0) towards knowing all (1) after each round."""
        room = 1 - self.chance
        return [None if score is None or room <= 0 else (score - self.chance) / room for score in self.rounds]


@dataclass(frozen=True)
class KeptAudit:
    """What came of the attacks, the strongest first."""

    num_rounds: int
    date: str
    findings: list[KeptFinding]


def audit_to_keep(findings: Sequence[Finding], num_rounds: int) -> KeptAudit:
    """What is kept, with today's date."""
    found = [
        KeptFinding(one.attack.name, one.attack.role, one.attack.measure, one.score, one.chance, one.interval,
                    one.rounds)
        for one in findings
    ]  # fmt: skip
    return KeptAudit(num_rounds, datetime.now(UTC).date().isoformat(), found)


def write_audit(folder: Path, kept: KeptAudit) -> None:
    """Keep it in the folder of its run."""
    write_private_file(folder / FILE, msgspec.json.format(msgspec.json.encode(kept), indent=1))


def read_audit(folder: Path) -> KeptAudit | None:
    """What was found when a run was audited; None: it never was."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptAudit)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise HushrecError(f"{path} is damaged ({error}); audit the run again: hushrec audit {folder}") from None
