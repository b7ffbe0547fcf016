"""Training from the first round to the last, in this process, with checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.feedback import positive_from
from hushrec.protocol import AnySystem, Scorer, Transcript
from hushrec.runtime.checkpoint import Progress, load_progress, save_progress
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.rounds import IsEnough, run_rounds


@dataclass(frozen=True)
class Job:
    """One training: a system, its settings, a seed and the data of all parties, as the system takes it."""

    system: AnySystem
    config: Any
    seed: int
    train: Interactions  # prepared: see `job_for`
    party: Literal["all", "server", "node"] = "all"  # whose state there is
    test: Interactions | None = None  # for probes only, which measure what an attacker could have predicted

    def start(self, keep_payloads: bool = False) -> Progress:
        """Before the first round. A server has the driving side's state only."""
        system, train, draws = self.system, self.train, Draws(self.seed)
        if not len(train) and self.party != "server":
            raise HushrecError(f"{train.name} has no rating to train on")
        numbers = np.arange(system.holders.num_parties(train), dtype=np.int32)
        state = system.start(len(numbers), train.num_items, self.config, draws)
        if self.party == "server":
            return Progress(state, None, Transcript(keep_payloads))
        private = system.enrol(numbers, system.holders.rows(train), train.num_items, self.config, draws)
        return Progress(state, private, Transcript(keep_payloads))

    def scorer(self, progress: Progress) -> Scorer:
        """The model as it is after the last finished round."""
        result, rating_range = self.system.result, self.train.rating_range
        if self.party == "node":
            assert result.party is not None
            return result.party(progress.private, self.config, rating_range)
        if self.party == "server":
            assert result.server is not None
            return result.server(progress.state, self.config, rating_range)
        return result.whole(progress.state, progress.private, self.config, rating_range)


def prepared(system: AnySystem, data: Interactions, config: Any = None) -> Interactions:
    """Data as a system takes it: with the feedback that it learns from, in the hands of its parties."""
    return system.holders.held(system.feedback.prepare(data, system.name, positive_from(config)))


def job_for(system: AnySystem, config: Any, seed: int, data: Interactions) -> Job:
    """The job of training a system on data, which is prepared for it here, once."""
    return Job(system, config, seed, prepared(system, data, config))


OnRound = Callable[[Progress], None]


def run_job(
    job: Job,
    options: RuntimeOptions,
    checkpoint: Path | None = None,
    on_round: OnRound | None = None,
    is_enough: IsEnough | None = None,
) -> Progress:
    """Train to the end, or until it is enough.

    With a checkpoint: go on from it if it is there, and write it after every round. What is kept of messages is
    what parties really see: then nothing is a stand-in.
    """
    if options.keep_payloads:
        job = replace(job, config=job.system.in_full(job.config))
    job.system.feedback.check_trainable(job.train, job.system.name)
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
        run_rounds(job.system, job.config, progress, runtime, after_round, is_enough)
    finally:
        runtime.close()
    return progress
