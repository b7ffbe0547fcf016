"""What a run is on disk: `run.json`, which `Run` describes, written at once or not at all."""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from hushrec.data import Deal, Measure, SplitKind
from hushrec.data.holdings import from_older
from hushrec.errors import HushrecError, is_typed, option
from hushrec.files import clear_leftovers, locked, write_private_file
from hushrec.protocol import AnySystem, result_arrays
from hushrec.registry import system_named
from hushrec.runtime.checkpoint import Progress
from hushrec.settings import to_dict

VALIDATION = "validation"  # in a run's folder: what was tried on a part of the training, to choose settings
COMMAND = "command.txt"
ROUNDS = "rounds.jsonl"  # what a run told while it went on, see `following`
_LOCK = ".lock"
_CHECKSUM = "checksum"  # in `run.json`: of all else in it
_TEMPORARY = (".run.json.", f".{COMMAND}.")
# What must be the same in a run that goes on.
_COMPARED = (
    "data_sha256",
    "rating_range",
    "split",
    "test_share",
    "deal",
    "passed_over",
    "measure",
    "sampled",
    "split_at",
)


@dataclass(frozen=True)
class MessageCount:
    """How much of one type of message a fold sent."""

    type: str
    sender: str
    receiver: str
    messages: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class FoldResult:
    """What came out of one fold."""

    fold: int
    metrics: dict[str, float]
    model_sha256: str
    clients_sha256: str | None
    cpu_seconds: float
    wall_seconds: float
    sent_bytes: dict[str, int]
    num_rounds: int
    num_train: int
    num_test: int
    num_cold: int | None  # test ratings whose user or item has no training rating; None: ratings are on nodes
    messages: list[MessageCount]
    curve: dict[str, list[float]]  # of the test metrics, a value each time they are measured
    facts: dict[str, float] = field(default_factory=dict)  # what else the system tells of the fold
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # CPU by step and party, where it was taken
    digested: tuple[str, ...] = ()  # the arrays that `model_sha256` is of
    lists: dict[str, float] = field(default_factory=dict)  # what they are like, see `hushrec.evaluation.lists`
    thirds: dict[str, float] = field(default_factory=dict)  # metrics of users with few and many training ratings
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics and thirds of each, by its name
    test_sha256: str = ""  # of the users and items of the test rows; "": an older run, or none is known here

    @classmethod
    def of(
        cls,
        fold: int,
        system: AnySystem,
        progress: Progress,
        *,
        model_sha256: str,
        num_train: int,
        clients_sha256: str | None = None,
        metrics: dict[str, float] | None = None,
        num_test: int = 0,
        num_cold: int | None = None,
        curve: dict[str, list[float]] | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> "FoldResult":
        """What came out, with the messages and the time that it took."""
        transcript = progress.transcript
        totals = [(kind, transcript.total(kind)) for kind in system.messages]
        return cls(
            fold, metrics or {}, model_sha256, clients_sha256, progress.cpu_seconds, progress.wall_seconds,
            transcript.sent_bytes(), progress.round_number, num_train, num_test, num_cold,
            [
                MessageCount(
                    kind.__name__, kind.sender, kind.receiver, tally.messages, tally.rows, tally.payload_bytes
                )
                for kind, tally in totals
            ],
            curve or {}, dict(facts or {}), digested=tuple(result_arrays(progress.state)),
        )  # fmt: skip


@dataclass(frozen=True)
class Provenance:
    """What is needed to get the same numbers again."""

    data_sha256: str
    is_synthetic: bool
    num_users: int
    num_items: int
    num_ratings: int
    rating_range: tuple[float, float] | None
    split: SplitKind | Literal["given"]  # given: by whoever fitted the model
    test_share: float
    versions: dict[str, str]
    machine: str
    started: str  # ISO time
    deal: Deal | None = None  # to partners, with the splits partners and pooled
    party: str = "client"  # what a party is called
    num_parties: int = 0  # 0: every user is one
    names: tuple[str, ...] = ()  # of the parties, if they have some
    holding: tuple[str, ...] = ()  # who holds what, in lines for people
    passed_over: int = 0  # items drawn for each one that a user took
    measure: Measure = "test"
    sampled: int = 0  # negatives that one test item was ranked among, as well
    # How many raters an item needs to be listed; None: an older run, which measured lists of all items.
    min_raters: int | None = None
    split_at: str | None = None  # with the split global-time, if it was told
    # From which rating on a test row counts in rankings; None: all do, or an older run, which does not say.
    relevance_limit: float | None = None


@dataclass(frozen=True)
class Choice:
    """A setting that nobody named, and how it came to its value."""

    setting: str  # the name of a setting, or `preset`
    value: str | int | float
    why: str  # in one line

    @property
    def flag(self) -> str:
        """What to type to fix it."""
        return f"--{self.setting.removeprefix('num_').replace('_', '-')} {self.value}"


@dataclass(frozen=True)
class Run:
    """A whole run, as `run.json` keeps it."""

    system: str
    data: str
    seed: int
    config: dict[str, Any]
    provenance: Provenance
    num_folds: int
    at: tuple[int, ...] = (10,)
    relevant_from: float | None = None
    folds: list[FoldResult] = field(default_factory=list)
    party: Literal["all", "server", "node"] = "all"  # whose arrays the folder holds; all: a simulation
    chosen: tuple[Choice, ...] = ()  # what of the config nobody named
    command: str = ""  # what makes it again; empty: it was not made on the command line

    @property
    def mean(self) -> dict[str, float]:
        """Mean of every metric over the folds."""
        return {name: statistics.fmean(values) for name, values in self._values().items()}

    @property
    def std(self) -> dict[str, float]:
        """Population standard deviation of every metric over the folds."""
        return {name: statistics.pstdev(values) for name, values in self._values().items()}

    @property
    def lists(self) -> dict[str, float]:
        """What lists are like: means over the folds."""
        return _means([fold.lists for fold in self.folds])

    @property
    def thirds(self) -> dict[str, float]:
        """Metrics of users with few, some and many training ratings: means over the folds."""
        return _means([fold.thirds for fold in self.folds])

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Means of the metrics of every baseline that stands beside all folds."""
        first = self.folds[0].baselines if self.folds else {}
        names = [name for name in first if all(name in fold.baselines for fold in self.folds)]
        return {name: _means([fold.baselines[name] for fold in self.folds]) for name in names}

    @property
    def party_name(self) -> str:
        """What the parties of the run are called."""
        return self.provenance.party

    @property
    def num_parties(self) -> int:
        """How many there are."""
        return self.provenance.num_parties or self.provenance.num_users

    @property
    def is_done(self) -> bool:
        """Whether all folds are there."""
        return len(self.folds) == self.num_folds

    def _values(self) -> dict[str, list[float]]:
        return _of_all([fold.metrics for fold in self.folds])

    def summary(self) -> dict[str, Any]:
        """The object that `run --json` prints; its names are a contract."""
        names = (
            "fold",
            "metrics",
            "model_sha256",
            "clients_sha256",
            "cpu_seconds",
            "wall_seconds",
            "sent_bytes",
            "facts",
            "lists",
            "thirds",
            "baselines",
        )
        folds = [{name: value for name, value in asdict(fold).items() if name in names} for fold in self.folds]
        folds = [{name: value for name, value in fold.items() if name in names[:-4] or value} for fold in folds]
        chosen = [asdict(choice) | {"flag": choice.flag} for choice in self.chosen]
        return {
            "system": self.system,
            "data": self.data,
            "seed": self.seed,
            "config": self.config,
            "folds": [{k: v for k, v in fold.items() if v is not None} for fold in folds],
            "mean": self.mean,
            "std": self.std,
            **({"lists": self.lists} if self.lists else {}),
            **({"baselines": self.baselines} if self.baselines else {}),
            **({"chosen": chosen} if chosen else {}),
        }


def _of_all(parts: list[dict[str, float]]) -> dict[str, list[float]]:
    """The values of what all parts have."""
    names = [name for name in (parts[0] if parts else ()) if all(name in part for part in parts)]
    return {name: [part[name] for part in parts] for name in names}


def _means(parts: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(values) for name, values in _of_all(parts).items()}


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder: each would write over what the other did.

    A process that is killed lets go.
    """
    lock = folder / _LOCK
    try:
        lock.touch()
    except OSError as error:
        raise HushrecError(
            f"{folder} cannot be written ({error.strerror}); choose another {option('out')}"
        ) from None
    with locked(lock, f"another process works on {folder}; stop it, or choose another {option('out')}"):
        clear_leftovers(folder)
        yield


def kept_run(folder: Path, resume: bool) -> Run | None:
    """The run that a folder holds, if there is one to go on with; a folder that cannot take a run is refused."""
    if folder.exists() and not folder.is_dir():
        raise HushrecError(f"{folder} is a file; choose a folder for --out")
    if not (folder / "run.json").exists():
        # A run that was killed before it wrote its first file leaves only that behind, and what it had tried.
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        if not all(name in (VALIDATION, COMMAND, ROUNDS, _LOCK) or name.startswith(_TEMPORARY) for name in names):
            raise HushrecError(f"{folder} holds something that is not a run; choose an empty or new --out")
        return None
    if not resume:
        raise HushrecError(f"{folder} holds a run already; add --resume to go on with it, or choose another --out")
    return read_run(folder)


def open_run(folder: Path, planned: Run, resume: bool) -> Run:
    """The run to go on with: the planned one, or the one in the folder if it is the same."""
    kept = kept_run(folder, resume)
    if kept is None:
        write_run(folder, planned)
        return planned
    if kept.system == planned.system:  # a setting that did not exist then has its default
        kept = replace(kept, config=to_dict(system_named(kept.system).configure(kept.config)))
    for name in ("system", "data", "seed", "config", "at", "relevant_from"):
        _check_same(folder, name, getattr(kept, name), getattr(planned, name))
    for name in _COMPARED:
        _check_same(folder, name, getattr(kept.provenance, name), getattr(planned.provenance, name))
    raters = [one.provenance.min_raters or 0 for one in (kept, planned)]
    _check_same(folder, "min_raters", *raters)
    _check_same(folder, f"{kept.party_name}s", kept.num_parties, planned.num_parties)
    if kept.provenance.holding:  # the oldest do not say; the rows of what is left to run are compared, too
        kept_lines, planned_lines = ("; ".join(one.provenance.holding) for one in (kept, planned))
        _check_same(folder, "holding", kept_lines, planned_lines)
    if any(fold.num_test == 0 for fold in kept.folds):
        raise HushrecError(f"{folder} holds a model that was fitted to all ratings; choose another --out")
    return replace(kept, num_folds=planned.num_folds, folds=kept.folds[: planned.num_folds])


def _check_same(folder: Path, name: str, kept: object, planned: object) -> None:
    if isinstance(kept, dict) and isinstance(planned, dict):
        for key in planned:
            _check_same(folder, key, kept.get(key), planned[key])
    elif kept != planned:
        raise HushrecError(f"{folder} holds a run with {name} {kept}, not {planned}; choose another --out")


def write_run(folder: Path, kept: Run) -> None:
    """Write `run.json` at once; before it `command.txt`, for people."""
    if kept.command:
        write_private_file(folder / COMMAND, f"{kept.command}\n".encode())
    fields = msgspec.json.decode(msgspec.json.encode(kept))
    data = msgspec.json.encode(fields | {_CHECKSUM: _checksum(fields)})
    write_private_file(folder / "run.json", msgspec.json.format(data, indent=1))


def _checksum(fields: dict[str, Any]) -> str:
    """SHA-256 of a run's fields, whatever their order and the blanks between them."""
    return sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def keep_command(folder: Path, command: str) -> None:
    """Keep what makes a run again with one that others have written."""
    write_run(folder, replace(read_run(folder), command=command))


def read_run(folder: Path) -> Run:
    """The run that a folder holds."""
    path = folder / "run.json"
    if not path.exists():
        below = [kept for where in ("*", "runs/*", "private/runs/*") for kept in folder.glob(f"{where}/run.json")]
        if below:
            newest = max(below, key=lambda kept: kept.stat().st_mtime).parent
            raise HushrecError(f"{folder} is not a run, but holds {len(below)}; name one, as the newest: {newest}")
        remedy = f"hushrec run ... --out {folder}" if is_typed() else f"model.save({str(folder)!r})"
        raise HushrecError(f"{folder} is not a run; make one with: {remedy}")
    try:
        fields = msgspec.json.decode(path.read_bytes())
        told = fields.pop(_CHECKSUM, None)  # runs before this was kept have none
        if told is not None and told != _checksum(fields):
            raise HushrecError(
                f"{path} was changed after it was written, or is damaged; put back a copy of it, or delete its "
                f"folder and run again (without the line {_CHECKSUM!r} it is read as it is)"
            )
        return msgspec.convert(_with_parties(fields), Run)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, KeyError, TypeError, AttributeError,
            RecursionError) as error:  # fmt: skip
        raise HushrecError(f"{path} is damaged ({error}); delete its folder and run again") from None


def _with_parties(kept: Any) -> Any:
    """Older runs say in other words who the parties are and what they hold."""
    if isinstance(kept, dict) and "provenance" in kept:
        kept["provenance"] |= from_older(kept["provenance"])
    return kept
