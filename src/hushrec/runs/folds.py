"""A run: one system on one dataset, over the folds of a split, with metrics, bytes and provenance.

A run's folder holds `run.json`, which `Run` describes, `rounds.jsonl` (see `following`), and per fold
`fold-N/state.npz` and `fold-N/train.npz`.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from hushrec import choices
from hushrec.data import Interactions, Split
from hushrec.errors import DivergedError, HushrecError, option
from hushrec.evaluation.candidates import candidates, usable_min_raters
from hushrec.evaluation.feedback import EXPLICIT, relevance_limit
from hushrec.protocol import AnySystem, restore, result_arrays
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.beside import Beside, stopwatch, with_beside
from hushrec.runs.following import Teller
from hushrec.runs.quality import curve_names, final_metrics, group_metrics, num_cold, round_metrics
from hushrec.runs.record import Choice, FoldResult, Provenance, Run, alone_in, open_run, read_run, write_run
from hushrec.runs.run_settings import NUM_FOLDS, RunSettings, check_held_back, data_to_split, splits_for
from hushrec.runs.watching import FoldProgress, Follower, Watch, followed, round_bytes
from hushrec.runtime.checkpoint import (
    Progress,
    digest,
    from_file,
    load_progress,
    load_train,
    model_digest,
    read_arrays,
    save_progress,
    save_train,
)
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.rounds import IsEnough, diverged
from hushrec.runtime.training import Job, run_job
from hushrec.settings import to_dict

Side = choices.Side


Probe = Callable[[Job, Progress], dict[str, float]]  # what it measures after a round, while its messages are there


def run(
    system: AnySystem,
    config: Any,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    probe: Probe | None = None,
    keeps_checkpoint: bool = True,
    is_enough: IsEnough | None = None,
    chosen: tuple[Choice, ...] = (),
    beside: Beside | None = None,
    command: str = "",
    follower: Follower | None = None,
) -> Run:
    """Run the folds; with a folder, keep them there and go on where an interrupted run stopped.

    A fold ends with its last round, or when it is enough. The last of what a probe measures is among the metrics;
    what it measures after every round is a curve. Without `keeps_checkpoint` an interrupted fold begins again; so
    it does with a probe, whose values no checkpoint has. `chosen`: what of the config nobody named. With `beside`,
    lists are measured, and baselines. `command`: what makes the run again. `follower` is told of all that.
    """
    splits = splits_for(system, data, settings, config)
    first = next(splits)
    if first.test.ratings is None and settings.relevant_from is not None:
        raise HushrecError(
            f"{system.name} takes no ratings: all items are relevant; leave {option('relevant_from')} out"
        )
    whole = data_to_split(system, data, settings, config)
    if settings.min_raters is None and resume and folder and (folder / "run.json").exists():
        settings = replace(settings, min_raters=read_run(folder).provenance.min_raters or 0)
    planned = replace(planned_run(system, config, whole, settings, first.train), chosen=chosen, command=command)
    limit = relevance_limit(first.test, settings.relevant_from)
    planned = replace(planned, provenance=replace(planned.provenance, relevance_limit=limit))
    check_held_back(first, settings)
    system.feedback.check_measurable(first.test)  # a folder is for a run that can begin
    candidates(first.train, planned.provenance.min_raters or 0)  # refuses to rank nothing, before the training
    current = open_run(folder, planned, resume) if folder else planned
    followers = [*([follower] if follower else []), *([Teller(folder)] if folder else [])]
    with alone_in(folder) if folder else nullcontext(), followed(followers, lambda: current) as tell_end:
        watchers = [*(one.on_round for one in followers), *([watch] if watch else [])]
        for split in islice(chain([first], splits), len(current.folds), None):
            fold_folder = folder / f"fold-{split.fold}" if folder else None
            job = Job(system, config, settings.seed, split.train)
            check_held_back(split, settings)
            system.feedback.check_measurable(split.test)
            if fold_folder:
                _open_fold(fold_folder, job, keeps_checkpoint and probe is None)
            result = _run_fold(job, split, current, options, fold_folder, watchers, probe, is_enough, beside)
            current = replace(current, folds=[*current.folds, result])
            if folder:
                write_run(folder, current)
        tell_end(current)
    return current


def planned_run(
    system: AnySystem,
    config: Any,
    data: Interactions,
    settings: RunSettings,
    held: Interactions | None = None,
) -> Run:
    """A run before its first fold; `held`: the data as it is in the hands of the parties, if that differs."""
    holders, held = system.holders, data if held is None else held
    min_raters = settings.min_raters
    if min_raters is None:
        usual = EXPLICIT.usual_min_raters if settings.split == "shared" else system.feedback.usual_min_raters
        min_raters = usable_min_raters(usual, held, max(settings.at))
    made = replace(
        _provenance(data, settings),
        min_raters=min_raters,
        party=holders.word,
        num_parties=holders.how_many(held),
        names=tuple(holders.names(held)),
        holding=tuple(holders.lines_for_people(replace(data, holding=held.holding))),
    )
    return Run(
        system.name, data.name, settings.seed, to_dict(config), made,
        settings.num_folds, settings.at, settings.relevant_from,
    )  # fmt: skip


def _run_fold(
    job: Job,
    split: Split,
    plan: Run,
    options: RuntimeOptions,
    folder: Path | None,
    watchers: Sequence[Watch],
    probe: Probe | None,
    is_enough: IsEnough | None,
    beside: Beside | None,
) -> FoldResult:
    seconds = stopwatch()
    num_rounds, measured_every = job.config.num_rounds, job.system.result.measured_every(job.config)
    measure = round_metrics(job, split.test, plan.at, plan.provenance.min_raters or 0)
    judged = replace(job, test=split.test)  # the same in all rounds: a probe tells by it that a run goes on
    probed: dict[str, list[float]] = {}
    metrics: dict[str, float] = {}

    def on_round(progress: Progress) -> None:
        if probe is not None:
            for name, value in probe(judged, progress).items():
                probed.setdefault(name, []).append(value)
            progress.transcript.forget()
        if progress.round_number % measured_every == 0:
            try:
                metrics.update(measure(progress))
            except DivergedError as error:
                raise diverged(job.config, progress.round_number, str(error)) from None
            row = np.array([list(metrics.values())])
            if progress.curve is not None and progress.curve.shape[1] != row.shape[1]:
                raise HushrecError(
                    "another version began this run and measured less; run it anew, in another --out"
                )
            progress.curve = row if progress.curve is None else np.concatenate([progress.curve, row])
        if watchers:
            sent = sum(progress.transcript.sent_bytes().values())
            told = {name: value for name, value in metrics.items() if np.isfinite(value)}
            now = FoldProgress(
                split.fold, plan.num_folds, progress.round_number, num_rounds, told, sent,
                progress.round_number % measured_every == 0, round_bytes(progress), progress.wall_seconds,
            )  # fmt: skip
            for watch in watchers:
                watch(now)

    options = replace(options, keep_payloads=options.keep_payloads or probe is not None)
    progress = run_job(job, options, folder / "state.npz" if folder else None, on_round, is_enough)
    result = _fold_result(split.fold, job, progress, split.test, plan)
    found = group_metrics(job, progress, split) | {name: values[-1] for name, values in probed.items()}
    curves = {name: values for name, values in probed.items() if len(values) == num_rounds > 1}
    result = replace(
        result,
        metrics=result.metrics | found,
        curve=result.curve | curves,
        facts=dict(split.facts) | result.facts,
        test_sha256=_test_digest(split.test),
    )
    if beside is None:
        return result
    spent = max(seconds(), min(progress.cpu_seconds, progress.wall_seconds))  # also that before an interruption
    return with_beside(result, job, job.scorer(progress), split.test, plan, spent, beside)


def _open_fold(folder: Path, job: Job, goes_on: bool) -> None:
    """Keep what is trained on, or check that it is as before; forget the checkpoint unless the fold goes on."""
    if (folder / "train.npz").exists():
        _check_same_train(folder, job)
    else:
        save_train(folder / "train.npz", job.train, job.system)
    if not goes_on:
        (folder / "state.npz").unlink(missing_ok=True)


def _check_same_train(folder: Path, job: Job) -> None:
    """Refuse to go on with other ratings than a fold began with: some of its test could be among them."""
    train = job.train
    kept = load_train(folder / "train.npz", job.system, train.name, train.sha256, train.is_synthetic)
    ours, theirs = _columns(job.system, train), _columns(job.system, kept)
    if not all(np.array_equal(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()):
        raise HushrecError(f"{folder} was trained on other rows or owners of {train.name}; choose another --out")


def _columns(system: AnySystem, train: Interactions) -> dict[str, NDArray[Any]]:
    """Users, items, ratings, and who holds what."""
    rows = train.by_user()
    columns: dict[str, NDArray[Any]] = {"starts": rows.starts, "items": rows.items}
    if rows.ratings is not None:
        columns["ratings"] = rows.ratings
    return columns | system.holders.arrays(train)


def _fold_result(
    fold: int,
    job: Job,
    progress: Progress,
    test: Interactions | None,
    plan: Run,
) -> FoldResult:
    train, names = job.train, curve_names(job.system, plan.at)
    metrics = {} if test is None else final_metrics(job, progress, test, plan)
    curve = {} if progress.curve is None else dict(zip(names, progress.curve.T, strict=True))
    private = result_arrays(progress.private)
    return FoldResult.of(
        fold,
        job.system,
        progress,
        metrics=metrics,
        model_sha256=model_digest(progress.state, progress.private),
        clients_sha256=digest(private) if private else None,
        num_train=len(train),
        num_test=0 if test is None else len(test),
        num_cold=0 if test is None else num_cold(train, test),
        # A part without a completed block has no loss.
        curve={name: values.tolist() for name, values in curve.items() if np.isfinite(values).all()},
        facts={
            **job.system.result.facts(progress.private, job.config),
            **job.system.result.promises(progress.private, job.config),
        },
    )


def _test_digest(test: Interactions) -> str:
    """Of who has which item in the test, whatever is known of the ratings."""
    rows = test.by_user()
    return digest({"starts": rows.starts, "items": rows.items})


def _provenance(data: Interactions, settings: RunSettings) -> Provenance:
    versions = {name: version(name) for name in ("hushrec", "numpy", "numba", "pyarrow")}
    return Provenance(
        data_sha256=data.sha256,
        is_synthetic=data.is_synthetic,
        num_users=data.num_users,
        num_items=data.num_items,
        num_ratings=len(data),
        rating_range=data.rating_range,
        split=settings.split,
        test_share=1 / NUM_FOLDS if settings.split == "folds" or settings.is_dealt else settings.test_share,
        versions={"python": platform.python_version(), **versions},
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        deal=settings.deal if settings.is_dealt else None,
        passed_over=settings.passed_over,
        measure=settings.measure,
        sampled=settings.sampled,
        split_at=settings.split_at,
    )


def save_fitted(
    folder: Path,
    job: Job,
    progress: Progress,
    min_raters: int | None = None,
    chosen: tuple[Choice, ...] = (),
    overwrite: bool = False,
) -> None:
    """Keep a model that was fitted without a split, as the only fold of a run without test metrics."""
    try:
        _check_free(folder, overwrite)
        save_train(folder / "fold-1" / "train.npz", job.train, job.system)
        save_progress(folder / "fold-1" / "state.npz", job.system, progress)
        write_run(folder, fitted_run(job, progress, None, min_raters, chosen))
    except OSError as error:
        raise HushrecError(f"{folder} cannot be written ({error.strerror}); save to another folder") from None


def fitted_run(
    job: Job,
    progress: Progress,
    test: Interactions | None = None,
    min_raters: int | None = None,
    chosen: tuple[Choice, ...] = (),
    at: tuple[int, ...] = (10,),
) -> Run:
    """A model that was fitted as a run of one fold; with test rows, measured on them."""
    settings = RunSettings(seed=job.seed, min_raters=min_raters, at=at)
    plan = planned_run(job.system, job.config, job.train, settings)
    return replace(plan, folds=[_fold_result(1, job, progress, test, plan)], chosen=chosen)


def _check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a place with something in it; what may be overwritten is another fitted model."""
    if folder.exists() and not folder.is_dir():
        raise HushrecError(f"{folder} is a file; save to a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise HushrecError(
            f"{folder} holds something already; save to another folder, or replace it with "
            f"{option('overwrite', True)}"
        )
    if not (folder / "run.json").exists():
        raise HushrecError(f"{folder} holds something that is not a run; save to another folder")
    if any(fold.num_test for fold in read_run(folder).folds):
        raise HushrecError(f"{folder} holds a run with test metrics; save to another folder")


def load_fold(folder: Path, fold: int | None = None, side: Side | None = None) -> tuple[Job, Progress]:
    """A trained fold (the first by default), ready to predict; on one side, where both have a model."""
    kept = read_run(folder)
    if kept.system not in SYSTEMS:
        raise HushrecError(
            f"{folder} is a run of {kept.system}, which is not installed here; install the package that brings it"
        )
    system = system_named(kept.system)
    _check_side(system, kept.party, side)
    if kept.party == "server" and system.result.server is None:
        nodes = folder / "nodes"  # of deploy local
        there = f"from a folder in {nodes}" if nodes.is_dir() else "on a node, from its private/runs"
        raise HushrecError(f"the server of {system.name} has no client's vector; recommend {there}")
    number = fold if fold is not None else (kept.folds[0].fold if kept.folds else 1)
    if number not in [result.fold for result in kept.folds]:
        raise HushrecError(f"{folder} has no finished fold {number}; finish it with: hushrec run ... --resume")
    place = folder / f"fold-{number}"
    made = kept.provenance
    train = load_train(place / "train.npz", system, kept.data, made.data_sha256, made.is_synthetic)
    job = Job(system, system.configure(kept.config), kept.seed, train, kept.party)
    start = job.start()
    if kept.party == "node":
        arrays = from_file("private", read_arrays(place / "state.npz"))
        try:
            restore(start.private, arrays)
        except (KeyError, ValueError, IndexError):
            raise HushrecError(f"{place / 'state.npz'} is not of this run; copy the folder again") from None
        return job, start
    party = "node" if side == "client" else kept.party
    return replace(job, party=party), load_progress(place / "state.npz", system, start)


def _check_side(system: AnySystem, party: str, side: Side | None) -> None:
    if side is not None and side not in get_args(Side):
        raise HushrecError(f"{option('side', side)} is unknown; choose {' or '.join(get_args(Side))}")
    if side == "server" and system.result.server is None:
        raise HushrecError(
            f"the server of {system.name} has no client's vector; leave {option('side', 'server')} out"
        )
    if side == "client" and system.result.party is None:
        raise HushrecError(
            f"clients of {system.name} have no model of their own; leave {option('side', 'client')} out"
        )
    if (party, side) in (("server", "client"), ("node", "server")):
        raise HushrecError(f"this is the folder of a {party}; the model of a {side} is not in it")
