"""Training from the first round to the last, in this process, with checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushrec.data import Interactions, owned
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models import pmf
from hushrec.protocol import Numbers, Scorer, System, Transcript
from hushrec.runtime.checkpoint import Progress, load_progress, save_progress
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.rounds import run_rounds


def data_for(system: System[Any, Any, Any], data: Interactions) -> Interactions:
    """The data as a system takes it: with ratings, without, or with good and bad only."""
    if system.feedback == "implicit":
        return data.as_implicit()
    if system.feedback == "signed":
        return _with_owners(system, data.as_signed())
    if data.ratings is None:
        raise HushrecError(f"{system.name} needs ratings, {data.name} has none; choose data with explicit ratings")
    return data


def _with_owners(system: System[Any, Any, Any], data: Interactions) -> Interactions:
    """Data whose items are owned: by one, or as they are already, or by genre, or by five owners at random."""
    if system.parties == "owner" and (data.owners is None or len(data.owners.names) > 1):
        return owned(data, "1", 0)
    if data.owners is not None:
        return data
    return owned(data, str(min(5, data.num_items)) if data.genres is None else "genre", 0)


def enrolled(
    system: System[Any, Any, Any], numbers: Numbers, data: Interactions, config: Any, draws: Draws
) -> Any:
    """The private state of those parties whose data this is."""
    if system.parties == "partners" and data.partners is None:
        raise HushrecError(
            f"{system.name} needs data of partners, {data.name} is in one piece: deal it (--split partners, or "
            "hushrec.data.copies), or join several files (hushrec.data.join)"
        )
    rows_of = {"users": data.by_user, "partners": data.by_partner, "owners": data.by_owner, "owner": data.by_owner}
    return system.enrol(numbers, rows_of[system.parties](), data.num_items, config, draws)


def num_parties(system: System[Any, Any, Any], data: Interactions) -> int:
    """How many parties hold the data."""
    if system.parties == "partners" and data.partners is not None:
        return len(data.partners.names)
    if system.parties in ("owners", "owner") and data.owners is not None:
        return len(data.owners.names) + data.owners.has_users
    return data.num_users


@dataclass(frozen=True)
class Job:
    """One training: a system, its settings, a seed and the data of all parties."""

    system: System[Any, Any, Any]
    config: Any
    seed: int
    train: Interactions
    party: Literal["all", "server", "node"] = "all"  # whose state there is

    def start(self, keep_payloads: bool = False) -> Progress:
        """Before the first round."""
        train, draws = data_for(self.system, self.train), Draws(self.seed)
        if not len(train):
            raise HushrecError(f"{train.name} has no rating to train on")
        numbers = np.arange(num_parties(self.system, train), dtype=np.int32)
        state = self.system.init(len(numbers), train.num_items, self.config, draws)
        private = enrolled(self.system, numbers, train, self.config, draws)
        return Progress(state, private, Transcript(keep_payloads))

    def scorer(self, progress: Progress) -> Scorer:
        """The model as it is after the last finished round."""
        rating_range = data_for(self.system, self.train).rating_range
        if self.party == "node":
            assert self.system.own_model is not None
            return self.system.own_model(progress.private, self.config, rating_range)
        return self.system.model(progress.state, progress.private, self.config, rating_range)


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Say that the first run takes longer, if the kernels are not compiled yet."""
    if not any(Path(pmf.train_kernel_cache()).glob("*.nbi")):
        tell("compiling the kernels; this takes half a minute once, then they are cached")


def check_signs(system: System[Any, Any, Any], data: Interactions) -> None:
    """Refuse to learn from what was only liked, or only not, where both are needed."""
    ratings = data_for(system, data).ratings
    if system.feedback == "signed" and ratings is not None and len(np.unique(ratings)) == 1:
        raise HushrecError(
            f"{data.name} does not tell what users liked from what they did not, and {system.name} needs both; "
            "choose data with ratings, or draw what users passed over (hushrec run ... --passed-over 1)"
        )


OnRound = Callable[[Progress], None]


def run_job(
    job: Job,
    options: RuntimeOptions,
    checkpoint: Path | None = None,
    on_round: OnRound | None = None,
) -> Progress:
    """Train to the end. With a checkpoint: go on from it if it is there, and write it after every round."""
    check_signs(job.system, job.train)
    progress = job.start(options.keep_payloads)
    if checkpoint is not None and checkpoint.exists():
        progress = load_progress(checkpoint, job.system, progress)
    runtime = InProcess(job.system, job.config, Draws(job.seed), progress.private, progress.transcript, options)

    def after_round(progress: Progress) -> None:
        if on_round is not None:
            on_round(progress)
        if checkpoint is not None:
            save_progress(checkpoint, job.system, progress)

    try:
        run_rounds(job.system, job.config, progress, runtime, after_round)
    finally:
        runtime.close()
    return progress
