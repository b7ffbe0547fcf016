"""A run: one system on one dataset, over the folds of a split, with metrics, bytes and provenance.

A run's folder holds `run.json`, which `Run` describes, and per fold `fold-N/state.npz` and `fold-N/train.npz`.
"""

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushrec.data import (
    Interactions,
    Split,
    alone,
    owners_summary,
)
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Recorded, Role, System, Transcript
from hushrec.runs.quality import (
    check_measurable,
    curve_names,
    final_metrics,
    group_metrics,
    num_cold,
    round_metrics,
)
from hushrec.runs.record import (
    FoldResult,
    MessageCount,
    Provenance,
    Run,
    alone_in,
    open_run,
    read_run,
    write_run,
)
from hushrec.runs.run_settings import NUM_FOLDS, RunSettings, prepared, splits_of
from hushrec.runtime.checkpoint import (
    Progress,
    digest,
    load_progress,
    load_train,
    model_digest,
    private_arrays,
    read_arrays,
    restore_private,
    save_progress,
    save_train,
)
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.rounds import diverged
from hushrec.runtime.training import Job, run_job
from hushrec.settings import to_dict
from hushrec.systems import system_named

Side = Literal["server", "client"]


@dataclass(frozen=True)
class FoldProgress:
    """What a watcher is told after every round."""

    fold: int
    num_folds: int
    round_number: int
    num_rounds: int
    metrics: dict[str, float]
    sent_bytes: int


Watch = Callable[[FoldProgress], None]
Probe = Callable[[Job, Progress], dict[str, float]]  # what it measures after a round
RoundAttack = Callable[[list[Recorded], Interactions], float]  # what the server saw in a round, and the truth


def run(
    system: System[Any, Any, Any],
    config: Any,
    data: Interactions,
    settings: RunSettings,
    options: RuntimeOptions,
    folder: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    attacks: Mapping[str, RoundAttack] | None = None,
    probe: Probe | None = None,
) -> Run:
    """Run the folds; with a folder, keep them there and go on where an interrupted run stopped.

    Attacks see what the server saw in each round: all scores are in the curve, the last is among the metrics. So
    is what a probe measures.
    """
    data = prepared(system, data, settings)
    if data.ratings is None and settings.relevant_from is not None:
        raise HushrecError(f"{system.name} takes no ratings: all items are relevant; leave --relevant-from out")
    planned = planned_run(system, config, data, settings)
    if system.parties == "owners":
        planned = replace(planned, provenance=replace(planned.provenance, owners=owners_summary(data)))
    current = open_run(folder, planned, resume) if folder else planned
    with alone_in(folder) if folder else nullcontext():
        for split in islice(splits_of(data, settings), len(current.folds), None):
            if system.parties == "partners" and split.train.partners is None:
                split = replace(split, train=alone(split.train), test=alone(split.test))
            fold_folder = folder / f"fold-{split.fold}" if folder else None
            job = Job(system, config, settings.seed, split.train)
            result = _run_fold(job, split, current, options, fold_folder, watch, attacks or {}, probe)
            current = replace(current, folds=[*current.folds, result])
            if folder:
                write_run(folder, current)
    return current


def planned_run(system: System[Any, Any, Any], config: Any, data: Interactions, settings: RunSettings) -> Run:
    """A run before its first fold."""
    made = _provenance(data, settings)
    if system.parties == "partners":
        made = replace(made, num_partners=settings.deal.num_partners if settings.split == "partners" else 1)
    if system.feedback == "signed" and data.owners is not None:
        made = replace(made, num_owners=len(data.owners.names))
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
    watch: Watch | None,
    attacks: Mapping[str, RoundAttack],
    probe: Probe | None,
) -> FoldResult:
    check_measurable(job.system, split.test)
    if folder and (folder / "train.npz").exists():
        _check_same_train(folder, split.train)
    elif folder:
        save_train(folder / "train.npz", split.train)
    num_rounds, measured_every = job.config.num_rounds, job.system.measured_every(job.config)
    probed: dict[str, float] = {}
    metrics: dict[str, float] = {}

    def on_round(progress: Progress) -> None:
        if probe is not None:
            probed.update(probe(job, progress))
        if progress.round_number % measured_every == 0:
            try:
                metrics.update(round_metrics(job, progress, split.test, plan.at))
                metrics.update(_attacked(attacks, progress.transcript, split.train))
            except HushrecError as error:
                raise diverged(job.config, progress.round_number, str(error)) from None
            row = np.array([list(metrics.values())])
            progress.curve = row if progress.curve is None else np.concatenate([progress.curve, row])
        if watch:
            sent = sum(progress.transcript.sent_bytes().values())
            told = {name: value for name, value in metrics.items() if np.isfinite(value)}
            watch(FoldProgress(split.fold, plan.num_folds, progress.round_number, num_rounds, told, sent))

    options = replace(options, keep_payloads=options.keep_payloads or bool(attacks))
    if probe is not None and folder:  # what it found is not in checkpoints: an interrupted fold begins again
        (folder / "state.npz").unlink(missing_ok=True)
    progress = run_job(job, options, folder / "state.npz" if folder else None, on_round)
    result = _fold_result(split.fold, job, progress, split.test, plan, tuple(attacks))
    return replace(result, metrics=result.metrics | group_metrics(job, progress, split) | probed)


def _attacked(attacks: Mapping[str, RoundAttack], transcript: Transcript, train: Interactions) -> dict[str, float]:
    """What attacks make of the last round; its messages are forgotten after them."""
    if not attacks:
        return {}
    seen = transcript.seen_by(Role.SERVER)
    transcript.recorded.clear()
    return {name: attack(seen, train) for name, attack in attacks.items()}


def _check_same_train(folder: Path, train: Interactions) -> None:
    """Refuse to go on with other ratings than a fold began with: some of its test could be among them."""
    kept = load_train(folder / "train.npz", train.name, train.sha256, train.is_synthetic)
    columns = zip(
        (kept.users, kept.items, kept.ratings, *_table(kept)), (*_by_user(train), *_table(train)), strict=True
    )
    if not all(np.array_equal(one, other) for one, other in columns if one is not None and other is not None):
        raise HushrecError(f"{folder} was trained on other rows or owners of {train.name}; choose another --out")


def _table(train: Interactions) -> tuple[np.ndarray[Any, Any] | None, ...]:
    """Who holds which item."""
    return (None, None) if train.owners is None else (train.owners.starts, train.owners.owners)


def _by_user(train: Interactions) -> tuple[np.ndarray[Any, Any] | None, ...]:
    rows = train.by_user()
    return np.repeat(np.arange(train.num_users, dtype=np.int32), np.diff(rows.starts)), rows.items, rows.ratings


def _fold_result(
    fold: int,
    job: Job,
    progress: Progress,
    test: Interactions | None,
    plan: Run,
    attacks: tuple[str, ...] = (),
) -> FoldResult:
    train, transcript = job.train, progress.transcript
    metrics = {} if test is None else final_metrics(job, progress, test, plan)
    names = (*curve_names(job.system, plan.at), *attacks)
    curve = np.empty((0, len(names))) if progress.curve is None else progress.curve
    metrics |= {name: float(curve[-1, names.index(name)]) for name in attacks}
    private = private_arrays(job.system, progress.private)
    totals = [(kind, transcript.total(kind)) for kind in job.system.messages]
    return FoldResult(
        fold=fold,
        metrics=metrics,
        model_sha256=model_digest(job.system, progress.state, progress.private),
        clients_sha256=digest(private) if private else None,
        cpu_seconds=progress.cpu_seconds,
        wall_seconds=progress.wall_seconds,
        sent_bytes=transcript.sent_bytes(),
        num_rounds=progress.round_number,
        num_train=len(train),
        num_test=0 if test is None else len(test),
        num_cold=0 if test is None else num_cold(train, test),
        messages=[
            MessageCount(
                kind.__name__, kind.sender, kind.receiver, tally.messages, tally.rows, tally.payload_bytes
            )
            for kind, tally in totals
        ],
        # A part without a completed block has no loss.
        curve={
            name: values.tolist() for name, values in zip(names, curve.T, strict=True) if np.isfinite(values).all()
        },
        facts=dict(job.system.facts(progress.private, job.config)) if job.system.facts else {},
    )


def _provenance(data: Interactions, settings: RunSettings) -> Provenance:
    versions = {name: version(name) for name in ("hushrec", "numpy", "numba", "scipy", "pyarrow")}
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
    )


def save_fitted(folder: Path, job: Job, progress: Progress) -> None:
    """Keep a model that was fitted without a split, as the only fold of a run without test metrics."""
    if (folder / "run.json").exists() and any(fold.num_test for fold in read_run(folder).folds):
        raise HushrecError(f"{folder} holds a run with test metrics; save to another folder")
    plan = planned_run(job.system, job.config, job.train, RunSettings(seed=job.seed))
    save_train(folder / "fold-1" / "train.npz", job.train)
    save_progress(folder / "fold-1" / "state.npz", job.system, progress)
    write_run(folder, replace(plan, folds=[_fold_result(1, job, progress, None, plan)]))


def load_fold(folder: Path, fold: int | None = None, side: Side | None = None) -> tuple[Job, Progress]:
    """A trained fold (the first by default), ready to predict; on one side, where both have a model."""
    kept = read_run(folder)
    system = system_named(kept.system)
    _check_side(system, kept.party, side)
    if kept.party == "server" and not system.server_ranks:
        raise HushrecError(
            f"the server of {system.name} has no client's vector; recommend on a node, from its private/runs"
        )
    number = fold if fold is not None else (kept.folds[0].fold if kept.folds else None)
    if number is None or number not in [result.fold for result in kept.folds]:
        raise HushrecError(
            f"{folder} has no finished fold {number or 1}; finish it with: hushrec run ... --resume"
        )
    place = folder / f"fold-{number}"
    train = load_train(place / "train.npz", kept.data, kept.provenance.data_sha256, kept.provenance.is_synthetic)
    job = Job(system, system.configure(kept.config), kept.seed, train, kept.party)
    if kept.party == "server":
        state = system.init(train.num_users, train.num_items, job.config, Draws(kept.seed))
        return job, load_progress(place / "state.npz", system, Progress(state, None, Transcript()))
    start = job.start()
    if kept.party == "node":
        restore_private(system, start.private, read_arrays(place / "state.npz"))
        return job, start
    party = "node" if side == "client" else kept.party
    return replace(job, party=party), load_progress(place / "state.npz", system, start)


def _check_side(system: System[Any, Any, Any], party: str, side: Side | None) -> None:
    if side == "server" and not system.server_ranks:
        raise HushrecError(f"the server of {system.name} has no client's vector; leave --side server out")
    if side == "client" and system.own_model is None:
        raise HushrecError(f"clients of {system.name} have no model of their own; leave --side client out")
    if (party, side) in (("server", "client"), ("node", "server")):
        raise HushrecError(f"this is the folder of a {party}; the model of a {side} is not in it")
