"""What a comparison of systems found: a row for each set of settings. Nothing in it is of one person."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from hushrec.errors import HushrecError
from hushrec.files import write_file

FILE = "comparison.json"


@dataclass(frozen=True)
class Leak:
    """The strongest attack of somebody; `advantage`: 0 is a blind guess, 1 is knowing all."""

    attack: str
    role: str
    measure: str
    score: float
    chance: float
    advantage: float
    interval: tuple[float, float] | None = None
    is_of_stand_in: bool = False


@dataclass(frozen=True)
class Look:
    """What came of the attacks that somebody can make."""

    num_attacks: int  # that apply to the system; 0: nobody is there to make one, or none is known
    best: Leak | None = None  # None: there was nothing that they could read
    num_rounds: int = 0
    num_users: int = 0  # whose data the audited run had

    @property
    def advantage(self) -> float | None:
        """Of the strongest attack, 0 if all were at chance or had nothing to read; None: none was tried."""
        if not self.num_attacks:
            return None
        return 0.0 if self.best is None else self.best.advantage


@dataclass(frozen=True)
class Row:
    """One system with one set of settings."""

    system: str
    title: str
    switches: str = ""  # as they are typed; empty: the published settings
    settings: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    accuracy: float | None = None
    split: str = ""
    num_rounds: int = 0
    up_bytes: float = 0.0  # per party and round, see `per`
    down_bytes: float = 0.0
    per: str = ""
    cpu_seconds: float = 0.0  # of all parties and the driving side, per party and round
    model_sha256: str = ""
    has_all_rows: bool = False  # whether the driving side gets the data itself
    has_repair: bool = False  # whether the system declares one
    server: Look = field(default_factory=lambda: Look(0))  # the driving side alone, curious
    others: Look = field(default_factory=lambda: Look(0))  # another party, or one of each role together
    together: Look = field(default_factory=lambda: Look(0))  # the same, with all of a role instead of one
    active: Look = field(default_factory=lambda: Look(0))  # a driving side that lies
    left_out: list[str] = field(default_factory=list)  # what is missing, and why
    fault: str = ""  # why nothing was measured
    spent_seconds: float = 0.0  # of CPU, for this row

    @property
    def key(self) -> tuple[str, str]:
        """What it is of."""
        return self.system, self.switches

    @property
    def name(self) -> str:
        """The system, with its switches."""
        return f"{self.system} {self.switches}".strip()

    @property
    def sent_bytes(self) -> float:
        """Both ways."""
        return self.up_bytes + self.down_bytes

    @property
    def leakage(self) -> float | None:
        """The most that a curious party learns, alone or with another; None: nobody tried."""
        if self.has_all_rows:
            return 1.0
        found = [look.advantage for look in (self.server, self.others) if look.advantage is not None]
        return max(found, default=None)


@dataclass(frozen=True)
class Survey:
    """All rows of one dataset."""

    data: str
    data_sha256: str
    num_users: int
    num_items: int
    num_ratings: int
    seed: int
    date: str
    version: str
    machine: str
    audit_users: int  # of so many at most the audited runs have the data
    is_synthetic: bool = False
    rows: list[Row] = field(default_factory=list)

    def of_system(self, name: str) -> list[Row]:
        """The rows of one system, the published settings first."""
        return [row for row in self.rows if row.system == name]

    def with_row(self, row: Row) -> "Survey":
        """With one more row, or another one in its place."""
        return replace(self, rows=[*(one for one in self.rows if one.key != row.key), row])

    def in_order(self, keys: Sequence[tuple[str, str]]) -> "Survey":
        """With these rows only, in this order."""
        by_key = {row.key: row for row in self.rows}
        return replace(self, rows=[by_key[key] for key in keys if key in by_key])


def to_json(survey: Survey) -> bytes:
    """The record as it is kept and printed."""
    return msgspec.json.format(msgspec.json.encode(survey), indent=1)


def write_survey(folder: Path, survey: Survey) -> None:
    """Keep it, as a whole or not at all."""
    write_file(folder / FILE, to_json(survey), "--out")


def read_survey(path: Path) -> Survey:
    """The record in a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Survey)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise HushrecError(f"{path} is damaged ({error}); delete it and compare again") from None


def read_survey_of(folder: Path) -> Survey:
    """The record that a folder holds."""
    if not (folder / FILE).exists():
        raise HushrecError(
            f"{folder} holds no comparison; make one with: hushrec compare --data NAME --out {folder}"
        )
    return read_survey(folder / FILE)


@cache
def measured_surveys() -> dict[str, Survey]:
    """The records that come with hushrec, by the digest of the data."""
    folder = files("hushrec.survey").joinpath("measured")
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else ():
        if entry.name.endswith(".json"):
            survey = msgspec.json.decode(entry.read_bytes(), type=Survey)
            found[survey.data_sha256] = survey
    return found
