import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.evaluation import feedback
from hushrec.protocol import result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import RunSettings, settings_for
from hushrec.runtime.checkpoint import Progress, digest, load_progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job
from systems.runs import SMALL, as_options, held, settings_of

DATA = "synthetic:users=80,items=50,ratings=1500"
NUM_ROUNDS = 8

# Few clients per round and few denoisers: what a client did last, and when, must survive too.
FEW = {"participation": 0.4, "denoisers": 4, "memory": "accumulate", "predict_after": 3, "clients_per_step": 10}
SETTINGS: dict[str, dict[str, Any]] = {name: {**SMALL[name], **settings_of(name, FEW)} for name in SYSTEMS}
NAMES = list(SYSTEMS)
EXPLICIT = [name for name in NAMES if SYSTEMS[name].feedback is feedback.EXPLICIT]


class Outcome(NamedTuple):
    """What must not depend on how a run was driven."""

    model_sha256: str
    clients_sha256: str
    sent_bytes: dict[str, int]
    tallies: dict[Any, Any]
    curve: list[list[float]]


def job_of(name: str, **values: Any) -> Job:
    system = SYSTEMS[name]
    sizes = settings_of(name, {"num_rounds": NUM_ROUNDS, "num_factors": 5})
    config = system.configure({**sizes, **SETTINGS[name], **values})
    return job_for(system, config, 3, held(name, hushrec.load(DATA)))


class StopError(Exception):
    """Somebody pulls the plug."""


def train(
    job: Job, options: RuntimeOptions, checkpoint: Path | None = None, stop_in: int | None = None
) -> Outcome:
    """Train with a curve of one number per round; `stop_in` stops in that round, before it is written."""

    def on_round(progress: Progress) -> None:
        row = job.scorer(progress).predict(job.train.users[:2], job.train.items[:2])[None].astype(np.float64)
        progress.curve = row if progress.curve is None else np.concatenate([progress.curve, row])
        if progress.round_number == stop_in:
            raise StopError

    progress = run_job(job, options, checkpoint, on_round)
    return outcome(job, progress)


def outcome(job: Job, progress: Progress) -> Outcome:
    assert progress.curve is not None
    return Outcome(
        digest(result_arrays(progress.state)),
        digest(result_arrays(progress.private)),
        progress.transcript.sent_bytes(),
        progress.transcript.tallies,
        progress.curve.tolist(),
    )


ONE_THREAD = RuntimeOptions(threads=1)


@pytest.fixture(scope="module")
def whole() -> dict[str, Outcome]:
    """Every system, without an interruption."""
    return {name: train(job_of(name), ONE_THREAD) for name in NAMES}


# --- Interruption ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stop_in"),
    [
        (name, stop_in)
        for name in NAMES
        for stop_in in (range(1, NUM_ROUNDS + 1) if name in EXPLICIT else (2, NUM_ROUNDS))
    ],
)
def test_a_run_stopped_in_any_round_ends_as_if_it_was_not(
    name: str, stop_in: int, whole: dict[str, Outcome], tmp_path: Path
) -> None:
    job, path = job_of(name), tmp_path / "state.npz"
    with pytest.raises(StopError):
        train(job, ONE_THREAD, path, stop_in)
    assert path.exists() == (stop_in > 1), "the round in which it stopped must not be written"
    if stop_in > 1:
        assert load_progress(path, job.system, job.start()).round_number == stop_in - 1
    assert train(job, ONE_THREAD, path) == whole[name]
    assert len(whole[name].curve) == NUM_ROUNDS


@pytest.mark.parametrize("name", NAMES)
def test_a_run_stopped_again_and_again_gets_there(name: str, whole: dict[str, Outcome], tmp_path: Path) -> None:
    job, path = job_of(name), tmp_path / "state.npz"
    for stop_in in (2, 2, 3, 6, 8, 8):
        with pytest.raises(StopError):
            train(job, ONE_THREAD, path, stop_in)
    assert train(job, ONE_THREAD, path) == whole[name]


def test_a_finished_run_is_not_run_again(whole: dict[str, Outcome], tmp_path: Path) -> None:
    job, path = job_of("fedrec"), tmp_path / "state.npz"
    train(job, ONE_THREAD, path)
    before = path.read_bytes()
    assert train(job, ONE_THREAD, path, stop_in=NUM_ROUNDS) == whole["fedrec"]
    assert path.read_bytes() == before


def test_time_goes_on_where_it_stopped(tmp_path: Path) -> None:
    job, path = job_of("fedrec"), tmp_path / "state.npz"
    with pytest.raises(StopError):
        train(job, ONE_THREAD, path, 5)
    before = load_progress(path, job.system, job.start())
    after = run_job(job, ONE_THREAD, path)
    assert 0 < before.wall_seconds < after.wall_seconds
    assert 0 < before.cpu_seconds < after.cpu_seconds


# --- Threads and cohorts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "threads", "cohort_size"),
    [
        (name, *options)
        for name in NAMES
        for options in ([(1, 1), (1, 7), (2, None), (3, 5), (4, 80)] if name in EXPLICIT else [(3, 5)])
    ],
)
def test_threads_and_cohorts_do_not_matter(
    name: str, threads: int, cohort_size: int | None, whole: dict[str, Outcome]
) -> None:
    assert train(job_of(name), RuntimeOptions(threads, cohort_size)) == whole[name]


def test_seed_and_settings_do_matter(whole: dict[str, Outcome]) -> None:
    job = job_of("fedrec")
    others = [replace(job, seed=4), job_of("fedrec", rho=1), job_of("fedrec", resample="once")]
    digests = {train(other, ONE_THREAD).model_sha256 for other in others}
    assert len(digests | {whole["fedrec"].model_sha256}) == 4


def test_threads_end_with_the_run() -> None:
    before = threading.active_count()
    with pytest.raises(StopError):
        train(job_of("fedrec"), RuntimeOptions(threads=3), stop_in=2)
    assert threading.active_count() == before


@pytest.mark.parametrize(("options", "told"), [({"threads": 0}, "threads="), ({"cohort_size": 0}, "cohort_size=")])
def test_no_thread_and_no_client_at_once_are_refused(options: dict[str, int], told: str) -> None:
    with pytest.raises(HushrecError, match=f"{told} must be at least 1"):
        RuntimeOptions(**options)


# --- What cannot be trained --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if SYSTEMS[name].feedback is feedback.IMPLICIT])
def test_ratings_do_not_matter_where_feedback_is_implicit(name: str, whole: dict[str, Outcome]) -> None:
    job = job_of(name)
    job = job_for(job.system, job.config, job.seed, hushrec.load(DATA, implicit=True))
    assert train(job, ONE_THREAD) == whole[name]


@pytest.mark.parametrize("name", EXPLICIT)
def test_implicit_data_is_refused(name: str) -> None:
    job, implicit = job_of(name), hushrec.load(DATA, implicit=True)
    for refuses in (
        lambda: job_for(job.system, job.config, job.seed, implicit),
        lambda: run(job.system, job.config, implicit, RunSettings(), ONE_THREAD),
    ):
        with pytest.raises(
            HushrecError, match=r"^\S+ needs ratings, synthetic has none; name their column with columns="
        ):
            refuses()


@pytest.mark.parametrize("name", NAMES)
def test_empty_data_is_refused(name: str) -> None:
    job = job_of(name)
    empty = replace(job, train=job.train.select(np.zeros(len(job.train), bool)))
    with pytest.raises(HushrecError, match=r"^synthetic has no rating to train on$"):
        run_job(empty, ONE_THREAD)


@pytest.mark.parametrize("name", [name for name in EXPLICIT if settings_of(name, {"learning_rate": 1.0})])
@pytest.mark.parametrize("learning_rate", [50.0, 1e6, 1e20])
def test_divergence_is_refused_with_the_round(name: str, learning_rate: float) -> None:
    job = job_of(name, learning_rate=learning_rate, decay=1.0)
    with pytest.raises(HushrecError, match=r"^round \d: .*use a learning_rate= below ") as caught:
        run_job(job, ONE_THREAD)
    assert "nan" not in str(caught.value).lower()


def test_divergence_in_the_last_round_is_refused() -> None:
    """With such a gamma the only round makes V infinite; no later update tells."""
    job = job_of("pmf", num_rounds=1, learning_rate=3e300)
    with np.errstate(all="ignore"), pytest.raises(HushrecError, match=r"^round 1: the model is not finite"):
        run_job(job, ONE_THREAD)


@pytest.mark.parametrize("name", ["pmf", "fedrec", "fedrec++"])
def test_divergence_within_one_round_is_refused_with_the_round(name: str) -> None:
    job = job_of(name, learning_rate=1e38)
    with pytest.raises(HushrecError, match=r"^round 1: .*use a learning_rate= below "):
        run(job.system, job.config, job.train, RunSettings(), ONE_THREAD)


# --- A real end of a process -------------------------------------------------------------------------------

# Two folds so that the end may come in either, and enough rounds for the test to be in time.
KILLED = ["--data", DATA, "--folds", "2", "--threads", "2"]
LONG = {"num_rounds": 150, "num_factors": 5}


def command(name: str, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "hushrec.cli.app", "run", name, *KILLED, "--out", str(out), *more]


@pytest.mark.parametrize(
    "name",
    [
        "pmf",
        "fedrec++",
        *(pytest.param(name, marks=pytest.mark.slow) for name in EXPLICIT if name not in ("pmf", "fedrec++")),
    ],
)
def test_a_killed_process_goes_on_to_the_same_end(name: str, tmp_path: Path) -> None:
    values = {**settings_of(name, LONG), **SETTINGS[name]}
    options = as_options(name, values)
    options += ["--preset", "paper"] if SYSTEMS[name].about.presets else []
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(name, out, *options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wanted = out / "fold-2" / "state.npz"
    for _ in range(6000):
        if wanted.exists() or process.poll() is not None:
            break
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    printed, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    assert printed == b""
    assert [fold.fold for fold in read_run(out).folds] == [1]

    system = SYSTEMS[name]
    arguments = (
        system,
        system.configure(values),
        hushrec.load(DATA),
        settings_for(system, num_folds=2, min_raters=None),
    )
    rounds_run: list[tuple[int, int]] = []
    resumed = run(
        *arguments, ONE_THREAD, out, resume=True, watch=lambda now: rounds_run.append((now.fold, now.round_number))
    )
    assert {fold for fold, _ in rounds_run} <= {2}
    assert len(rounds_run) < 150, "it must go on, not begin again"
    uninterrupted = run(*arguments, ONE_THREAD)
    for one, other in itertools.zip_longest(resumed.folds, uninterrupted.folds):
        # The command line measures lists and baselines besides.
        same: dict[str, Any] = {
            "cpu_seconds": 0.0,
            "wall_seconds": 0.0,
            "lists": {},
            "thirds": {},
            "baselines": {},
        }
        assert replace(one, **same) == replace(other, **same)
    assert json.loads((out / "run.json").read_text())["folds"][1]["model_sha256"] == resumed.folds[1].model_sha256
