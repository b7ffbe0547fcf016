"""A run of a system in this process, and what is printed of it."""

from statistics import fmean, pstdev
from typing import Any

from rich.table import Table

from hushrec.cli.console import note, print_json, results, show, warn, watching
from hushrec.cli.endings import if_interrupted
from hushrec.cli.options import RunOptions, runtime_options
from hushrec.experiments.published import published_for
from hushrec.handover.tracking import Following
from hushrec.protocol import AnySystem
from hushrec.registry import system_named
from hushrec.report.numbers import format_bytes, format_given, format_metric, format_seconds
from hushrec.report.tables import name_of_data, shown_metrics
from hushrec.report.verdict import alike_line, lists_line, shown_beside, unbeaten_lines
from hushrec.runs.beside import Beside, main_length
from hushrec.runs.record import Run
from hushrec.runs.suiting import plan_of_run, run_suited
from hushrec.ui.address import page_of


def run_system(system: AnySystem, values: dict[str, Any], options: RunOptions) -> None:
    """Run a system in this process, measure it, and print what came out."""
    runtime = runtime_options(options.threads, options.cohort_size)
    system.configure(values)  # for what it refuses, before data is read
    following = Following(options.track, options.out, warn)
    for name, place in following.places().items():
        note(f"tracked by {name} in {place}")
    data = options.source.load()
    settings = options.settings(system, data)
    plan = plan_of_run(system, values, data, settings, options.stop_early, options.out, options.resume)
    for choice in plan.chosen:
        note(choice.why)
    for line in system.result.warnings(plan.config):
        warn(line)
    beside = Beside(options.baselines, note)
    address = page_of(options.out) if options.out else None
    if address:
        note(f"to watch it: {address}")
    with if_interrupted(_left_of(options)):
        done = run_suited(
            plan,
            data,
            settings,
            runtime,
            options.out,
            options.resume,
            watching,
            note,
            beside,
            options.said.command,
            following if options.track else None,
        )
    for line in _cautions(done, options):
        warn(line)
    if options.as_json:
        print_json(done.summary())
        return
    print_run(done)
    if done.chosen:
        note(f"the same run at once, with nothing left to choose: add {' '.join(one.flag for one in done.chosen)}")
    if options.out:
        note(f"kept in {options.out}")
    else:
        note("not kept; add --out DIR to keep it for recommend, compare and report")


def _left_of(options: RunOptions) -> str:
    """What an interrupted run leaves."""
    if options.out is None:
        return "interrupted; nothing is kept, as there was no --out"
    return "interrupted; the same command goes on with --resume"


def print_run(done: Run) -> None:
    """Metrics, with the published ones beside, and bytes."""
    out, fold = results(), done.folds[0]
    data = name_of_data(done.data, done.provenance.is_synthetic)
    part = ", validation" if done.provenance.measure == "validation" else ""
    heading = f"{done.system} on {data}, seed {done.seed}, {len(done.folds)} fold(s){part}"
    out.print(heading)
    for line in _holding_lines(done):
        out.print(line, soft_wrap=True)
    if fold.metrics or fold.curve:
        show(_metric_table(done))
        _print_beside(done)
    elif done.party == "server":
        out.print("accuracy was not measured: no node has both a model and test ratings")
    party, num_parties = done.party_name, done.num_parties
    parties = f"{num_parties} {party}{'s' if num_parties > 1 else ''}"
    out.print(f"sent in fold {fold.fold}, {fold.num_rounds} rounds, {parties}:")
    ways = Table(box=None, pad_edge=False, show_header=False)
    for way, num_bytes in fold.sent_bytes.items():
        per_round = num_bytes / fold.num_rounds / num_parties
        ways.add_row(f"  {way}", format_bytes(num_bytes), f"{format_bytes(per_round)} per {party} and round")
    show(ways)
    if fold.facts:
        facts = Table(box=None, pad_edge=False, show_header=False)
        facts.add_column()
        facts.add_column(justify="right")
        for name, value in fold.facts.items():
            facts.add_row(f"{name}:", format_given(float(value)))
        show(facts)
    clients = f", digest of the {party}s {fold.clients_sha256[:16]}" if fold.clients_sha256 else ""
    same = "the same ones" if clients else "the same one"
    told = f"two runs with {same} are the same to the last bit"
    out.print(f"model digest {fold.model_sha256[:16]}{clients}: {told}", soft_wrap=True)
    cpu = sum(result.cpu_seconds for result in done.folds)
    cold = [result.num_cold for result in done.folds if result.num_cold is not None]
    each = cpu / sum(result.num_rounds for result in done.folds) / num_parties
    out.print(f"{format_seconds(cpu)} of CPU, {format_seconds(each)} per {party} and round")
    if fold.metrics and cold:
        num_warm = sum(result.num_test for result in done.folds) - sum(cold)
        warm = f" (cold), {num_warm} have not (warm)" if sum(cold) else ""
        out.print(f"{sum(cold)} test ratings have a user or item without training ratings{warm}")


def _cautions(done: Run, options: RunOptions) -> list[str]:
    """What nobody should overlook in a finished run."""
    usual, used = system_named(done.system).feedback.usual_min_raters, done.provenance.min_raters
    alike = alike_line(done)
    can = "an item with 1" if used else "every item"
    fallen = f"fewer than {max(done.at)} items have {usual} raters in training: {can} can be listed"
    has_fallen = options.min_raters is None and used is not None and used < usual
    has_lists = any(name.startswith("NDCG@") for name in done.mean)
    limit = done.provenance.relevance_limit
    wanted = "" if limit is None else f" rated {limit:g} or more"
    unmeasured = f"no lists are measured: in a fold no user has a test row{wanted}; --relevant-from lowers that"
    return [
        *([fallen] if has_fallen else []),
        *([alike] if alike else []),
        *([unmeasured] if limit is not None and not has_lists else []),
    ]


def _print_beside(done: Run) -> None:
    """What lists are like, and the baselines."""
    out, metrics = results(), shown_beside(done)
    if done.lists:
        out.print(lists_line(done.lists, main_length(done.at)), soft_wrap=True)
    if not done.baselines:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("beside centralised baselines")
    for name in metrics:
        table.add_column(name, justify="right")
    for name, values in {done.system: done.mean, **done.baselines}.items():
        table.add_row(f"  {name}", *(format_metric(values.get(metric)) for metric in metrics))
    show(table)
    for line in unbeaten_lines(done):
        out.print(line, soft_wrap=True)


def _metric_table(done: Run) -> Table:
    """The metrics; of systems that learn from a stream, also as they were after the first epoch, and the loss."""
    published, is_stream = published_for(done), system_named(done.system).about.is_online
    curves = [fold.curve for fold in done.folds] if is_stream else []
    measured = {name: [curve[name] for curve in curves if name in curve] for name in (curves[0] if curves else ())}
    firsts = {name: fmean(values[0] for values in found) for name, found in measured.items()}
    lasts = {name: [values[-1] for values in found] for name, found in measured.items() if "loss" in name}
    means = done.mean | {name: fmean(values) for name, values in lasts.items()}
    deviations = done.std | {name: pstdev(values) for name, values in lasts.items()}
    table = Table(box=None, pad_edge=False)
    more = (*(("published", "std") if published else ()), *(("epoch 1",) if firsts else ()))
    for heading in ("metric", "mean", "std", *more):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name in (*shown_metrics([done]), *lasts):
        std = deviations[name] if len(done.folds) > 1 else None
        cells = [name, format_metric(means[name]), format_metric(std)]
        if published and name in published.values:
            cells += [format_metric(number) for number in published.values[name]]
        if name in firsts:
            cells.append(format_metric(firsts[name]))
        table.add_row(*cells)
    return table


def _holding_lines(done: Run) -> list[str]:
    """Who holds what, and what was drawn."""
    drawn = done.provenance.passed_over
    passed_over = [f"{drawn} passed-over item(s) drawn at random before each that was taken"] if drawn else []
    return [*done.provenance.holding, *passed_over]
