"""`hushrec audit SYSTEM` or `hushrec audit RUN`: attacks side by side, beside blind guessing.

A run's folder holds no messages, so a run is made again from its settings and training data, and attacked round by
round; no round is kept longer than the attacks look at it.
"""

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from typer.core import TyperGroup

from hushrec.audit.attacks import attacks_on
from hushrec.audit.scoreboard import Finding, Watcher
from hushrec.cli.console import announce_compilation, note, results, watching
from hushrec.cli.data import parse_columns, parse_duplicates, parse_rating_range
from hushrec.cli.run import Go, command_for, length_of
from hushrec.data import SplitKind, load
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.experiments.owner_audit import ATTACKS, OwnerAudit, ThresholdRow, audit_threshold
from hushrec.experiments.partner_audit import PartnerAudit
from hushrec.protocol import AnySystem, Role
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import FoldProgress, Watch, load_fold
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import Progress, model_digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems.drift.live_folder import is_live

_FOLDER = "RUN"
_ALL = 0.9995  # as printed: 100.0%
_CERTAIN = 0.95  # of guesses that are right, to say that nothing is hidden


class _SystemOrFolder(TyperGroup):
    """A group whose unknown commands are folders of runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_system = not args or args[0].startswith("-") or args[0] in self.commands
        return super().resolve_command(ctx, args if is_system else [_FOLDER, *args])


app = typer.Typer(
    cls=_SystemOrFolder,
    help="Attack what the server, a partner or an observer saw: of a system on data, or of a run in a folder.",
    no_args_is_help=True,
    epilog="Example: hushrec audit ptf-fedrec --data ml-100k --rounds 5, or: hushrec audit runs/one",
)


def audit_partners(job: Job, options: RuntimeOptions, watch: Watch) -> tuple[list[Finding], Progress]:
    """Train, and have one partner attack another after each round."""
    audit = PartnerAudit(job)

    def on_round(progress: Progress) -> None:
        scores, sent = audit.look(progress), sum(progress.transcript.sent_bytes().values())
        watch(FoldProgress(1, 1, progress.round_number, job.config.num_rounds, scores, sent))

    progress = run_job(job, options, on_round=on_round)
    for name, reason in audit.left_out.items():
        note(f"{name}: left out, as {reason}")
    return audit.findings(), progress


def audit_owners(job: Job, options: RuntimeOptions, watch: Watch) -> tuple[list[Finding], Progress]:
    """Train, and have the orchestrator and an observer attack each round."""
    audit = OwnerAudit(job)

    def on_round(progress: Progress) -> None:
        scores, sent = audit.look(progress), sum(progress.transcript.sent_bytes().values())
        watch(FoldProgress(1, 1, progress.round_number, job.config.num_rounds, scores, sent))

    progress = run_job(job, replace(options, keep_payloads=True), on_round=on_round)
    return audit.findings(), progress


def audit_job(job: Job, options: RuntimeOptions, watch: Watch) -> tuple[list[Finding], Progress]:
    """Train, and have every attack that applies look at each round."""
    watchers = [Watcher(attack, job.train.num_users) for attack in attacks_on(job.system)]

    def on_round(progress: Progress) -> None:
        transcript = progress.transcript
        seen = transcript.seen_by(Role.SERVER)
        transcript.recorded.clear()
        looks = {
            f"{watcher.attack.name} {watcher.attack.measure}": watcher.look(seen, job.train)
            for watcher in watchers
        }
        scores = {name: score for name, score in looks.items() if score is not None}
        sent = sum(transcript.sent_bytes().values())
        watch(FoldProgress(1, 1, progress.round_number, job.config.num_rounds, scores, sent))

    progress = run_job(job, replace(options, keep_payloads=True), on_round=on_round)
    findings = [watcher.finding(Draws(job.seed)) for watcher in watchers]
    for watcher, finding in zip(watchers, findings, strict=True):
        if finding is None:
            note(f"{watcher.attack.name}: left out, as no client sent anything that it could tell apart")
    return [finding for finding in findings if finding is not None], progress


def common(
    data: Annotated[str, typer.Option(help="A dataset's name (hushrec data list) or a file.")],
    seed: Annotated[int, typer.Option(help="Of everything random: split, start, draws.")] = 0,
    split: Annotated[
        SplitKind | None, typer.Option(help="How test ratings are chosen; default: as with `hushrec run`.")
    ] = None,
    test_share: Annotated[float, typer.Option(help="For the splits random and latest.")] = 0.2,
    owners: Annotated[
        str, typer.Option(help="For drift: genre, a number, or a file of items and owners; default: genre or 5.")
    ] = "",
    thetas: Annotated[
        str | None, typer.Option(help="For drift: compare these, as in 1,2,5,20, after one epoch each.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Of a file: user=..,item=..,rating=..,timestamp=..")] = None,
    duplicates: Annotated[str, typer.Option(help="Of a file: error, last or mean.")] = "error",
    rating_range: Annotated[str | None, typer.Option(help="Of a file: LOW,HIGH.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: all cores. Changes no number.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> Go:
    """Options of every system."""

    def go(system: AnySystem, values: dict[str, Any]) -> None:
        config = system.configure(values)
        compared = parse_thetas(thetas, system)
        interactions = load(
            data,
            columns=parse_columns(columns),
            duplicates=parse_duplicates(duplicates),
            rating_range=parse_rating_range(rating_range),
            notify=note,
        )
        settings = settings_for(system, seed, 1, split, test_share, owners=owners, data=interactions)
        job = Job(system, config, seed, next(splits_for(system, interactions, settings)).train)
        if compared:
            _compare(job, compared, threads, as_json)
        else:
            _audit(job, threads, as_json)

    return go


def parse_thetas(text: str | None, system: AnySystem) -> tuple[int, ...]:
    """The thresholds of `1,2,5`."""
    if text is None:
        return ()
    if "theta" not in {entry.name for entry in fields(system.config)}:
        raise HushrecError(f"--thetas {text}: {system.name} has no threshold; leave it out")
    try:
        thetas = tuple(int(theta) for theta in text.split(","))
    except ValueError:
        thetas = (0,)
    if min(thetas) < 1:
        raise HushrecError(f"--thetas {text!r} is not a list of thresholds; write --thetas 1,2,5,20")
    return thetas


def of_folder(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    fold: Annotated[int | None, typer.Option(help="Which fold; default: the first.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: all cores. Changes no number.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Make a run again from its settings and its training data, and attack it."""
    if not run.exists():
        raise HushrecError(f"{run} is neither a system ({', '.join(SYSTEMS)}) nor the folder of a run")
    if is_live(run):
        raise HushrecError(
            f"{run} is of a live run, which cannot be made again from what is kept; audit a system with --data"
        )
    kept = read_run(run)
    if kept.party != "all":
        raise HushrecError(f"{run} is the folder of a {kept.party}, without all clients' data; audit a simulation")
    job, before = load_fold(run, fold)

    def check(again: Progress) -> None:
        digests = {model_digest(one.state, one.private) for one in (again, before)}
        if len(digests) > 1:
            note("made again, the run ended in other numbers than those kept: versions or machine differ")

    _audit(job, threads, as_json, check)


def _audit(job: Job, threads: int | None, as_json: bool, check: Callable[[Progress], None] | None = None) -> None:
    findings: list[Finding] = []
    by_parties = {"partner": audit_partners, "owner": audit_owners}
    if job.system.holders.word in by_parties or attacks_on(job.system):
        announce_compilation()
        options = RuntimeOptions() if threads is None else RuntimeOptions(threads)
        with watching(f"audit {job.system.name}", job.config.num_rounds, 1) as watch:
            findings, progress = by_parties.get(job.system.holders.word, audit_job)(job, options, watch)
        if check is not None:
            check(progress)
    if as_json:
        print(msgspec.json.encode({"attacks": [_described(finding) for finding in findings]}).decode())
    else:
        _print_findings(job, findings)


def _described(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.attack.name,
        "role": finding.attack.role,
        "score": finding.score,
        "chance": finding.chance,
        "interval": finding.interval,
        "rounds": finding.rounds,
    }


def _print_findings(job: Job, findings: list[Finding]) -> None:
    out = results()
    label = " on synthetic data" if job.train.is_synthetic else ""
    heading = f"{job.system.name} on {job.train.name}{label}, seed {job.seed}, {job.config.num_rounds} rounds"
    out.print(heading, markup=False)
    if not findings:
        out.print("no attack here learns from this system's messages; that is no proof that they reveal nothing")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("attack", "by", "guesses", "measure"):
        table.add_column(heading)
    for heading in ("score", "95%", "chance", "round 1", "last"):
        table.add_column(heading, justify="right")
    for finding in findings:
        attack, low_high = finding.attack, finding.interval
        interval = "–" if low_high is None else f"{low_high[0]:.4f}..{low_high[1]:.4f}"
        numbers = (finding.score, finding.chance, finding.rounds[0], finding.rounds[-1])
        score, chance, first, last = ("–" if number is None else f"{number:.4f}" for number in numbers)
        table.add_row(
            attack.name, attack.role, attack.guesses, attack.measure, score, interval, chance, first, last
        )
    out.print(table)
    for finding in findings:
        out.print(f"{finding.attack.name}: {finding.said()}", markup=False, soft_wrap=True)


def _compare(job: Job, thetas: tuple[int, ...], threads: int | None, as_json: bool) -> None:
    """Audit each threshold, counted in blocks and in users, for one epoch."""
    announce_compilation()
    options = RuntimeOptions() if threads is None else RuntimeOptions(threads)
    ways = [(theta, threshold) for theta in thetas for threshold in ("blocks", "users")]
    rows, num_rounds = [], job.config.plan.parts
    with watching(f"audit {job.system.name}", num_rounds, len(ways)) as watch:
        for number, (theta, threshold) in enumerate(ways, start=1):

            def on_round(progress: Progress, number: int = number) -> None:
                sent = sum(progress.transcript.sent_bytes().values())
                watch(FoldProgress(number, len(ways), progress.round_number, num_rounds, {}, sent))

            rows.append(audit_threshold(job, theta, threshold, options, on_round))
    if as_json:
        print(msgspec.json.encode({"thresholds": [asdict(row) for row in rows]}).decode())
    else:
        _print_thresholds(job, rows)


def _print_thresholds(job: Job, rows: list[ThresholdRow]) -> None:
    out = results()
    label = " on synthetic data" if job.train.is_synthetic else ""
    out.print(f"{job.system.name} on {job.train.name}{label}, seed {job.seed}, one epoch each", markup=False)
    table = Table(box=None, pad_edge=False)
    names = [attack.name for attack in ATTACKS if attack.role == Role.ORCHESTRATOR]
    for heading in ("theta", "counts", "groups", "users each", "of one user", *names, "chance"):
        table.add_column(heading, justify="left" if heading == "counts" else "right")
    for row in rows:
        numbers = [*(row.scores.get(name) for name in names), row.chances.get(names[0])]
        groups = (str(row.num_groups), f"{row.users_per_group:.2f}", f"{row.one_user_share:.1%}")
        cells = ("–" if number is None else f"{number:.4f}" for number in numbers)
        table.add_row(str(row.theta), row.threshold, *groups, *cells)
    out.print(table)
    out.print(
        "precision of guesses about a user; of interactions read, recall; chance: a blind guess among "
        "the owner's items",
        soft_wrap=True,
    )
    out.print(_conclusion(rows), markup=False, soft_wrap=True)


def _conclusion(rows: list[ThresholdRow]) -> str:
    """What the threshold protects, in one sentence made of the numbers."""
    some = [row.scores for row in rows if row.num_groups]
    if not some:
        return "No owner completed enough blocks to learn from them: nothing was asked for, and nothing learned."
    watched, fitted = ([scores[name] for scores in some] for name in ("request watching", "gradient direction"))
    share = "all" if min(fitted) > _ALL else f"at least {min(fitted):.1%}"
    said = (
        f"Who only watches requests is right for {min(watched):.1%} to {max(watched):.1%} of the guesses, who "
        f"reads gradients for {share}: "
    )
    if min(fitted) < _CERTAIN:
        return said + "gradients alone do not name every user here, which is no proof that nothing else does."
    return said + (
        "a higher threshold blurs requests, but hides almost no interaction that is learned from: the "
        "orchestrator gets a gradient for each item and knows every user's vector."
    )


for _system in SYSTEMS.values():
    _length = length_of(_system, 5)
    app.command(_system.name, epilog=f"Example: hushrec audit {_system.name} --data ml-100k {_length}")(
        command_for(_system, common)
    )
app.command(_FOLDER, hidden=True, epilog="Example: hushrec audit runs/one")(of_folder)
