"""Attacks on a system or on a run, side by side, beside blind guessing.

A run's folder holds no messages, so a run is made again from its settings and training data, and attacked round by
round; no round is kept longer than the attacks look at it. Ctrl-C ends an audit with what was found so far.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rich.table import Table

from hushrec.audit.attacks import attacks_named
from hushrec.audit.colluders import parse_colluders, usable_by
from hushrec.audit.driver import AuditInterruptedError, OnLook, audit
from hushrec.audit.kept import FILE as KEPT
from hushrec.audit.kept import KeptAudit, audit_to_keep, write_audit
from hushrec.audit.scoreboard import Attack, Finding
from hushrec.audit.verdicts import verdicts
from hushrec.cli.audit import AuditOptions, FolderOptions
from hushrec.cli.console import note, print_json, results, show, watching
from hushrec.cli.endings import Interrupted
from hushrec.cli.options import parse_numbers, runtime_options
from hushrec.cli.work.audit_jobs import job_to_audit
from hushrec.cli.work.audit_liars import audit_liars, is_of_liars
from hushrec.errors import HushrecError
from hushrec.experiments.drift_thresholds import (
    ThresholdRow,
    attacks_of_orchestrator,
    audit_threshold,
    conclusion,
)
from hushrec.handover.tracking import tell_leakage, tracked_in
from hushrec.protocol import AnySystem, Role
from hushrec.registry import SYSTEMS
from hushrec.report.audit_figure import audit_figure
from hushrec.report.canvas import check_picture, write_picture
from hushrec.report.numbers import format_metric, format_number, format_share
from hushrec.report.tables import name_of_data
from hushrec.runs.folds import load_fold
from hushrec.runs.watching import FoldProgress, Watch
from hushrec.runtime.checkpoint import Progress, model_digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job
from hushrec.survey.costs import cost_of
from hushrec.systems.drift import system as drift
from hushrec.workbench import check_repeatable


def audit_system(system: AnySystem, values: dict[str, Any], options: AuditOptions) -> None:
    """Run a system in this process, and attack it."""
    check_picture(options.picture)
    system.configure(values)  # for what it refuses, before data is read
    runtime = runtime_options(options.threads)
    thetas = parse_thetas(options.thetas, system)
    if is_of_liars(system, options):
        audit_liars(system, values, options, runtime)
        return
    chosen = _chosen(system, options.attacks, options.colluders)
    job = job_to_audit(system, values, options).job
    if thetas and options.picture is not None:
        raise HushrecError("--picture draws the rounds of one audit; leave it or --thetas out")
    if thetas:
        _compare(job, thetas, runtime, options.as_json)
    else:
        _audit(job, chosen, runtime, options.as_json, options.picture)


class _Chosen(NamedTuple):
    """Which attacks, and who makes them; nobody named: each has its own roles."""

    attacks: list[Attack[Any]]
    colluders: tuple[Role, ...]


def _chosen(system: AnySystem, names: str | None, colluders: str | None) -> _Chosen:
    """Of what was typed; it is an error if those who are named can make none of the attacks that are named."""
    roles = parse_colluders(colluders, system)
    attacks = attacks_named(names, system, Role.ACTIVE_SERVER in roles)
    usable = usable_by(attacks, roles)
    if attacks and not usable:
        by = ", ".join(sorted({attack.role for attack in attacks}))
        raise HushrecError(f"--as {colluders}: no attack here is made by these; there are some by {by}")
    return _Chosen(usable, roles)


def parse_thetas(text: str | None, system: AnySystem) -> tuple[int, ...]:
    """The thresholds to compare, of `1,2,5`; only DRIFT and what has its settings can be compared so."""
    if text is None:
        return ()
    if not (drift.has_drift_rounds(system) and issubclass(system.config, drift.Config)):
        raise HushrecError(f"--thetas {text}: {system.name} has no threshold; leave it out")
    thetas = parse_numbers(text, "--thetas", "1,2,5,20")
    if min(thetas) < 1:
        raise HushrecError(f"--thetas {text}: a threshold is at least 1; write --thetas 1,2,5,20")
    return thetas


def audit_folder(run: Path, options: FolderOptions) -> None:
    """Make a run again from its settings and its training data, and attack it."""
    if not run.exists():
        raise HushrecError(f"{run} is neither a system ({', '.join(SYSTEMS)}) nor the folder of a run")
    runtime = runtime_options(options.threads)
    check_picture(options.picture)
    check_repeatable(run)
    job, before = load_fold(run, options.fold)
    chosen = _chosen(job.system, options.attacks, options.colluders)

    def check(again: Progress) -> None:
        digests = {model_digest(one.state, one.private) for one in (again, before)}
        if len(digests) > 1:
            note("made again, the run ended in other numbers than those kept: versions or machine differ")

    found = _audit(job, chosen, runtime, options.as_json, options.picture, check)
    if options.attacks is None and options.colluders is None:
        write_audit(run, found)
        note(f"kept for hushrec report in {run / KEPT}")
        for line in tell_leakage(run, found) if options.track else _not_told(run):
            note(line)


def _not_told(run: Path) -> list[str]:
    """Of the trackers that a folder names. It may come from elsewhere, so that they are told when asked for."""
    named = ""
    with suppress(HushrecError):  # damaged, and not needed
        named = ", ".join(tracked_in(run))
    return [f"not told to the trackers that the folder names ({named}); --track tells them"] if named else []


def _audit(
    job: Job,
    chosen: _Chosen,
    runtime: RuntimeOptions,
    as_json: bool,
    picture: Path | None = None,
    check: Callable[[Progress], None] | None = None,
) -> KeptAudit:
    if not chosen.attacks:
        _show(job, [], as_json)
        return audit_to_keep([], 0)
    num_rounds = job.config.num_rounds
    try:
        with watching(f"audit {job.system.name}", num_rounds, 1) as watch:
            done = audit(job, runtime, _telling(watch, 1, 1, num_rounds), *chosen)
    except AuditInterruptedError as interrupted:
        findings, after = interrupted.found.findings, interrupted.num_rounds
        if findings or as_json:
            _show(job, findings, as_json, after)
        late = f"; the last was not shown to: {', '.join(interrupted.behind)}" if interrupted.behind else ""
        _end_interrupted(f"{after} of {num_rounds} rounds{late}", bool(findings))
    for name, reason in done.left_out.items():
        note(f"{name}: left out, as {reason}")
    if check is not None:
        check(done.progress)
    _show(job, done.findings, as_json)
    kept = audit_to_keep(done.findings, num_rounds)
    if picture is not None:
        write_picture(audit_figure(kept.findings, f"{job.system.name} on {job.train.name}, "), picture)
        note(f"picture: {picture}")
    return kept


def _show(job: Job, findings: list[Finding], as_json: bool, interrupted_after: int | None = None) -> None:
    if not as_json:
        _print_findings(job, findings, job.config.num_rounds if interrupted_after is None else interrupted_after)
        return
    told: dict[str, Any] = {"attacks": [_described(finding) for finding in findings]}
    if interrupted_after is not None:
        told["interrupted_after"] = interrupted_after
    print_json(told)


def _end_interrupted(after: str, has_found: bool) -> NoReturn:
    """Say how far an audit came, and end as an interrupted command does."""
    raise Interrupted(
        f"interrupted after {after}; {'above is what was found' if has_found else 'nothing was found yet'}"
    )


def _telling(watch: Watch, run: int, num_runs: int, num_rounds: int) -> OnLook:
    """Tell the progress line where an audit is."""

    def on_look(progress: Progress, scores: Mapping[str, float]) -> None:
        sent = sum(progress.transcript.sent_bytes().values())
        watch(FoldProgress(run, num_runs, progress.round_number, num_rounds, dict(scores), sent))

    return on_look


def _described(finding: Finding) -> dict[str, Any]:
    told = {
        "name": finding.attack.name,
        "role": finding.attack.role,
        "measure": finding.attack.measure,
        "score": finding.score,
        "chance": finding.chance,
        "interval": finding.interval,
        "rounds": finding.rounds,
    }
    return {**told, "refused": finding.refusal} if finding.refusal else told


def _print_findings(job: Job, findings: list[Finding], num_rounds: int) -> None:
    out = results()
    data = name_of_data(job.train.name, job.train.is_synthetic)
    heading = f"{job.system.name} on {data}, seed {job.seed}, {num_rounds} rounds"
    out.print(heading)
    if not findings:
        out.print("no attack here learns from this system's messages; that is no proof that they reveal nothing")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("attack", "by", "guesses", "measure"):
        table.add_column(heading)
    for heading in ("score", "95%", "chance", "of", "round 1", "last"):
        table.add_column(heading, justify="right")
    for finding in findings:
        attack, low_high = finding.attack, finding.interval
        interval = format_metric(None) if low_high is None else "..".join(format_metric(end) for end in low_high)
        numbers = (finding.score, finding.chance, finding.rounds[0], finding.rounds[-1])
        score, chance, first, last = (format_metric(number) for number in numbers)
        by = f"{attack.role} (stand-in)" if finding.is_of_stand_in else attack.role
        told = (score, interval, chance, str(finding.num_victims), first, last)
        table.add_row(attack.name, by, attack.guesses, attack.measure, *told)
    show(table)
    for finding in findings:
        out.print(f"{finding.attack.name}: {finding.said()}", soft_wrap=True)
    if any(finding.is_of_stand_in for finding in findings):
        out.print(
            "stand-in: sent in the clear here, encrypted in a real run, whose server sees less", soft_wrap=True
        )
    for line in verdicts(findings, job.config, job.system.about.repairs, _cost_on(job)):
        out.print(line, soft_wrap=True)


def _cost_on(job: Job) -> Callable[[str], str]:
    """What switches cost on the data, if all systems were compared on it."""
    return lambda switch: cost_of(job.system.name, switch, job.train.sha256)


def _compare(job: Job, thetas: tuple[int, ...], runtime: RuntimeOptions, as_json: bool) -> None:
    """Audit each threshold, counted in blocks and in users, for both readings of a block, for one epoch."""
    ways = [
        (theta, threshold, blocks)
        for blocks in ("pairs", "literal")
        for theta in thetas
        for threshold in ("blocks", "users")
    ]
    rows, num_rounds = [], job.config.plan.parts
    with (
        suppress(AuditInterruptedError),
        watching(f"audit {job.system.name}", num_rounds, len(ways)) as watch,
    ):
        for number, (theta, threshold, blocks) in enumerate(ways, start=1):
            on_look = _telling(watch, number, len(ways), num_rounds)
            rows.append(audit_threshold(job, theta, threshold, runtime, on_look, blocks))
    if as_json:
        print_json({"thresholds": [asdict(row) for row in rows]})
    elif rows:
        _print_thresholds(job, rows)
    if len(rows) < len(ways):
        _end_interrupted(f"{len(rows)} of {len(ways)} thresholds", bool(rows))


def _print_thresholds(job: Job, rows: list[ThresholdRow]) -> None:
    out = results()
    data = name_of_data(job.train.name, job.train.is_synthetic)
    out.print(f"{job.system.name} on {data}, seed {job.seed}, one epoch each")
    table = Table(box=None, pad_edge=False)
    names = [attack.name for attack in attacks_of_orchestrator(job.system)]
    shares = ("one user", "one learned")
    for heading in ("blocks", "theta", "counts", "groups", "users", *shares, *names, "chance"):
        table.add_column(heading, justify="left" if heading in ("blocks", "counts") else "right")
    for row in rows:
        numbers = [*(row.scores.get(name) for name in names), row.chances.get(names[0])]
        of_groups = (format_share(share) for share in (row.one_user_share, row.one_moved_share))
        groups = (str(row.num_groups), format_number(row.users_per_group), *of_groups)
        shown = (format_metric(number) for number in numbers)
        table.add_row(row.blocks, str(row.theta), row.threshold, *groups, *shown)
    show(table, num_keys=3)
    out.print(
        "precision of guesses about a user; of interactions read, recall; chance: a blind guess among "
        "the owner's items",
        soft_wrap=True,
    )
    out.print(
        "blocks: pairs drops positives without a negative before them, literal is Algorithm 2 as printed; users: "
        "of a group; one user, one learned: groups with one user, and with at most one who has pairs",
        soft_wrap=True,
    )
    out.print(conclusion(rows), soft_wrap=True)
