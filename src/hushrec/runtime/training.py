"""Training from the first round to the last, in this process, with checkpoints."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models import pmf
from hushrec.privacy.exact_sum import DivergedError
from hushrec.protocol import Scorer, System, Transcript
from hushrec.runtime.checkpoint import Progress, load_progress, save_progress
from hushrec.runtime.in_process import InProcess, RuntimeOptions


@dataclass(frozen=True)
class Job:
    """One training: a system, its settings, a seed and the data of all parties."""

    system: System[Any, Any, Any]
    config: Any
    seed: int
    train: Interactions

    def start(self, keep_payloads: bool = False) -> Progress:
        """Before the first round."""
        train, draws = self.train, Draws(self.seed)
        if train.ratings is None:
            raise HushrecError(
                f"{self.system.name} needs ratings, {train.name} has none; choose data with explicit ratings"
            )
        if not len(train):
            raise HushrecError(f"{train.name} has no rating to train on")
        numbers = np.arange(train.num_users, dtype=np.int32)
        state = self.system.init(train.num_users, train.num_items, self.config, draws)
        private = self.system.enrol(numbers, train.by_user(), train.num_items, self.config, draws)
        return Progress(state, private, Transcript(keep_payloads))

    def scorer(self, progress: Progress) -> Scorer:
        """The model as it is after the last finished round."""
        return self.system.model(progress.state, progress.private, self.config, self.train.rating_range)


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Say that the first run takes longer, if the kernels are not compiled yet."""
    if not any(Path(pmf.train_kernel_cache()).glob("*.nbi")):
        tell("compiling the kernels; this takes half a minute once, then they are cached")


OnRound = Callable[[Progress], None]


def run_job(
    job: Job,
    options: RuntimeOptions,
    checkpoint: Path | None = None,
    on_round: OnRound | None = None,
) -> Progress:
    """Train to the end. With a checkpoint: go on from it if it is there, and write it after every round."""
    progress = job.start(options.keep_payloads)
    if checkpoint is not None and checkpoint.exists():
        progress = load_progress(checkpoint, job.system, progress)
    runtime = InProcess(job.system, job.config, Draws(job.seed), progress.private, progress.transcript, options)
    try:
        while progress.round_number < job.config.num_rounds:
            cpu, wall = time.process_time(), time.perf_counter()
            with np.errstate(all="ignore"):  # what overflows is not finite, and refused below
                progress.state = runtime.run_round(progress.state, progress.round_number + 1)
            progress.round_number += 1
            progress.cpu_seconds += time.process_time() - cpu
            progress.wall_seconds += time.perf_counter() - wall
            _check_finite(job, progress)
            if on_round is not None:
                on_round(progress)
            if checkpoint is not None:
                save_progress(checkpoint, job.system, progress)
    finally:
        runtime.close()
    return progress


def _check_finite(job: Job, progress: Progress) -> None:
    arrays = [getattr(progress.state, name) for name in job.system.model_arrays]
    arrays += [getattr(progress.private, name) for name in job.system.private_arrays]
    if not all(np.isfinite(array).all() for array in arrays):
        raise diverged(job, progress, "the model is not finite")


def diverged(job: Job, progress: Progress, symptom: str) -> DivergedError:
    """What to say when a round's result cannot be used."""
    return DivergedError(
        f"round {progress.round_number}: {symptom}; the training diverges: use a --learning-rate below "
        f"{job.config.learning_rate:g}"
    )
