"""`hushrec audit SYSTEM --as client`: what some lying clients make of a model, without defences and with each."""

from typing import Any

from rich.table import Table

from hushrec.audit.spoiling.liars import PLANS
from hushrec.audit.spoiling.measuring import (
    LENGTH,
    Case,
    Spoilt,
    attacks_of_parties,
    cases_of,
    defences_of,
    drawn_target,
    measure,
    organisations_of,
    shares_of,
    usual_length,
)
from hushrec.cli.audit import AuditOptions
from hushrec.cli.console import print_json, results, show, watching
from hushrec.cli.endings import Interrupted
from hushrec.cli.work.audit_jobs import job_to_audit
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem, Role
from hushrec.report.numbers import format_metric, format_share
from hushrec.report.tables import name_of_data
from hushrec.runs.watching import FoldProgress
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job


def is_of_liars(system: AnySystem, options: AuditOptions) -> bool:
    """Whether clients are to lie; attacks of clients that only look are chosen by their names."""
    names = _names(options)
    is_lying = options.colluders == Role.CLIENT and (not names or set(names) <= set(PLANS))
    if options.malicious is not None and not is_lying:
        raise HushrecError(f"--malicious {options.malicious}: clients lie with --as client; add it")
    if options.malicious is not None and is_lying and (role := organisations_of(system)) is not None:
        raise HushrecError(
            f"--malicious {options.malicious}: {system.name} has no clients; one {role} lies, so leave it out"
        )
    return is_lying


def _names(options: AuditOptions) -> list[str]:
    return [name.replace("-", " ") for name in (options.attacks or "").split(",") if name]


def audit_liars(system: AnySystem, values: dict[str, Any], options: AuditOptions, runtime: RuntimeOptions) -> None:
    """Train with liars, one run for each line, and print what came of it."""
    shares, possible = shares_of(options.malicious), attacks_of_parties(system)
    if wrong := [name for name in _names(options) if name not in possible]:
        raise HushrecError(f"--attacks {wrong[0]}: clients of {system.name} can do {', '.join(possible)}")
    if options.picture is not None:
        raise HushrecError("--picture draws attacks round after round; leave it or --as client out")
    job, test = job_to_audit(system, values, options)
    attacks = [name for name in possible if name in (_names(options) or possible)]
    found: list[Spoilt] = []
    num_cases, num_rounds = 0, job.config.num_rounds
    try:
        with watching(f"audit {system.name}", num_rounds, 1) as watch:
            bound = usual_length(job, runtime)
            cases = cases_of(system, job.train.num_users, shares, attacks, bound)
            num_cases = len(cases)
        with watching(f"audit {system.name}", num_rounds, num_cases) as watch:
            for number, case in enumerate(cases, start=1):

                def on_round(now: Progress, number: int = number, case: Case = case) -> None:
                    sent = sum(now.transcript.sent_bytes().values())
                    watch(FoldProgress(number, num_cases, now.round_number, num_rounds, {}, sent))

                found.append(measure(job, test, case, runtime, on_round))
    except KeyboardInterrupt:
        _show(job, found, options.as_json)
        raise Interrupted(f"interrupted after {len(found)} of {num_cases} runs; above is what was found") from None
    _show(job, found, options.as_json)


def _show(job: Job, found: list[Spoilt], as_json: bool) -> None:
    target = drawn_target(job.train, Draws(job.seed))
    num_raters = int((job.train.items == target).sum())
    if as_json:
        print_json(
            {
                "target": str(job.train.item_ids[target]),
                "raters": num_raters,
                "runs": [_told(one) for one in found],
            }
        )
        return
    out = results()
    data = name_of_data(job.train.name, job.train.is_synthetic)
    out.print(f"{job.system.name} on {data}, seed {job.seed}, {job.config.num_rounds} rounds")
    out.print(f"target: item {job.train.item_ids[target]}, which {num_raters} of {job.train.num_users} have")
    names = [name for name in ("RMSE", f"NDCG@{LENGTH}") if any(name in one.metrics for one in found)]
    table = Table(box=None, pad_edge=False)
    for heading in ("attack", "defence"):
        table.add_column(heading)
    for heading in ("liars", "exposure", *names):
        table.add_column(heading, justify="right")
    for one in found:
        shown = "ended" if one.exposure is None else format_share(one.exposure)
        metrics = (format_metric(one.metrics.get(name)) for name in names)
        table.add_row(
            one.case.attack or "none", one.case.defence or "none", str(one.case.num_liars), shown, *metrics
        )
    show(table)
    out.print(
        f"exposure: lists of {LENGTH} with the target, of honest users who do not have it; the metrics are theirs",
        soft_wrap=True,
    )
    for one in found:
        if one.end:
            out.print(f"{one.case.attack}, {one.case.num_liars} liars: the run ended: {one.end}", soft_wrap=True)
    out.print(_told_of_defences(job.system), soft_wrap=True)


_OF_ORGANISATIONS = {
    Role.OWNER: "one owner lies: it moves the vectors of its own items and of users that it names, and nothing "
    "stops it; owners are few, sign for their items, and cannot move items of others",
    Role.PARTNER: "one partner lies: its lists are its own affair, and it spoils common users' vectors at others; "
    "nothing stops it but to leave it out, and partners are few and known by name",
}


def _told_of_defences(system: AnySystem) -> str:
    """What a reader of the table should know, in a line."""
    if (role := organisations_of(system)) is not None:
        return _OF_ORGANISATIONS[role]
    if any(defence for defence, _ in defences_of(system, 1.0, 1)):
        return "defences: see docs/spoiling.md"
    return f"{system.name} adds up no rows: it has no defence that could be measured here"


def _told(one: Spoilt) -> dict[str, Any]:
    case = one.case
    told = {"attack": case.attack or "none", "liars": case.num_liars, "defence": case.defence or "none"}
    told |= {"exposure": one.exposure, **{name: float(number) for name, number in one.metrics.items()}}
    return told | ({"ended": one.end} if one.end else {})
