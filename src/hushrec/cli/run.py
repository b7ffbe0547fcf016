"""`hushrec run SYSTEM`: one command per system, its options made from the system's config."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from statistics import fmean, pstdev
from typing import Annotated, Any, get_type_hints

import msgspec
import typer
from rich.table import Table

from hushrec.cli.console import announce_compilation, note, results, watching
from hushrec.cli.data import parse_columns, parse_duplicates, parse_rating_range
from hushrec.cli.live import with_live
from hushrec.data import Deal, Measure, SplitKind, load
from hushrec.errors import HushrecError
from hushrec.experiments.published import published_for
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS, system_named
from hushrec.report.tables import format_bytes, shown_metrics
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions

app = typer.Typer(
    help="Run a system in this process and measure it.",
    no_args_is_help=True,
    epilog="Example: hushrec run fedrec++ --data ml-100k --rho 3 --folds 5 --out runs/one",
)


def common(
    data: Annotated[str, typer.Option(help="A dataset's name (hushrec data list) or a file.")],
    folds: Annotated[int, typer.Option(help="How many of the five folds to run.")] = 1,
    seed: Annotated[int, typer.Option(help="Of everything random: split, start, draws.")] = 0,
    split: Annotated[
        SplitKind | None,
        typer.Option(
            help="How test ratings are chosen; default: folds, random if implicit, latest for drift, "
            "partners for fedcore."
        ),
    ] = None,
    test_share: Annotated[float, typer.Option(help="For the splits random and latest.")] = 0.2,
    partners: Annotated[int, typer.Option(help="For the splits partners and pooled: how many.")] = 2,
    common_users: Annotated[float, typer.Option(help="The share of users whom all partners have.")] = 0.5,
    common_items: Annotated[float, typer.Option(help="The share of items that all partners have.")] = 0.5,
    measure: Annotated[
        Measure, typer.Option(help="validation: to choose settings, a part of the training is the test instead.")
    ] = "test",
    owners: Annotated[
        str, typer.Option(help="For drift: genre, a number, or a file of items and owners; default: genre or 5.")
    ] = "",
    passed_over: Annotated[
        int,
        typer.Option(help="For drift, if the data has positives only: draw so many others before each.", min=0),
    ] = 0,
    at: Annotated[
        str | None, typer.Option(help="Lengths of ranked lists; default: 10, 20 if implicit, 1,5,10,20 for drift.")
    ] = None,
    relevant_from: Annotated[
        float | None, typer.Option(help="Ratings that count as relevant; default: the upper quarter.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Of a file: user=..,item=..,rating=..,timestamp=..")] = None,
    duplicates: Annotated[str, typer.Option(help="Of a file: error, last or mean.")] = "error",
    rating_range: Annotated[str | None, typer.Option(help="Of a file: LOW,HIGH.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to keep the run in.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    threads: Annotated[int | None, typer.Option(help="Default: all cores. Changes no number.")] = None,
    cohort_size: Annotated[int | None, typer.Option(help="Clients served at once. Changes no number.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> "Go":
    """Options of every system."""
    if resume and out is None:
        raise HushrecError("--resume needs --out, the folder of the run to go on with")
    options = RuntimeOptions(cohort_size=cohort_size) if threads is None else RuntimeOptions(threads, cohort_size)

    def go(system: AnySystem, values: dict[str, Any]) -> None:
        config = system.configure(values)
        deal = Deal(partners, common_users, common_items)
        interactions = load(
            data,
            columns=parse_columns(columns),
            duplicates=parse_duplicates(duplicates),
            rating_range=parse_rating_range(rating_range),
            notify=note,
        )
        settings = settings_for(
            system, seed, folds, split, test_share, parse_lengths(at), relevant_from, deal, owners, passed_over,
            measure, interactions,
        )  # fmt: skip
        announce_compilation()
        with watching(system.name, config.num_rounds, folds) as watch:
            done = run(system, config, interactions, settings, options, out, resume, watch)
        if as_json:
            print(msgspec.json.encode(done.summary()).decode())
            return
        print_run(done)
        note(f"kept in {out}" if out else "not kept; add --out DIR to keep it for recommend, compare and report")

    return go


def parse_lengths(at: str | None) -> tuple[int, ...] | None:
    """The lengths of `5,10,20`."""
    try:
        return None if at is None else tuple(int(length) for length in at.split(","))
    except ValueError:
        raise HushrecError(f"--at {at!r} is not a list of lengths; write --at 5,10,20") from None


def print_run(done: Run) -> None:
    """Metrics, with the published ones beside, and bytes."""
    out, fold = results(), done.folds[0]
    label = " on synthetic data" if done.provenance.is_synthetic else ""
    part = ", validation" if done.provenance.measure == "validation" else ""
    heading = f"{done.system} on {done.data}{label}, seed {done.seed}, {len(done.folds)} fold(s){part}"
    out.print(heading, markup=False)
    for line in _holding_lines(done):
        out.print(line, markup=False, soft_wrap=True)
    if fold.metrics or fold.curve:
        out.print(_metric_table(done))
    elif done.party == "server":
        out.print("accuracy was not measured: no node has both a model and test ratings")
    party, num_parties = done.party_name, done.num_parties
    parties = f"{num_parties} {party}{'s' if num_parties > 1 else ''}"
    out.print(f"sent in fold {fold.fold}, {fold.num_rounds} rounds, {parties}:")
    ways = Table(box=None, pad_edge=False, show_header=False)
    for way, num_bytes in fold.sent_bytes.items():
        per_round = num_bytes / fold.num_rounds / num_parties
        ways.add_row(f"  {way}", format_bytes(num_bytes), f"{format_bytes(per_round)} per {party} and round")
    out.print(ways)
    if fold.facts:
        facts = Table(box=None, pad_edge=False, show_header=False)
        facts.add_column()
        facts.add_column(justify="right")
        for name, value in fold.facts.items():
            facts.add_row(f"{name}:", f"{value:,.0f}" if value == round(value) else f"{value:.6g}")
        out.print(facts)
    out.print(f"model {fold.model_sha256[:16]}  clients {(fold.clients_sha256 or 'none')[:16]}")
    cpu = sum(result.cpu_seconds for result in done.folds)
    cold = [result.num_cold for result in done.folds if result.num_cold is not None]
    each = 1000 * cpu / sum(result.num_rounds for result in done.folds) / num_parties
    out.print(f"{cpu:.1f} s of CPU, {each:.3g} ms per {party} and round")
    if fold.metrics and cold:
        out.print(f"{sum(cold)} test ratings have a user or item without training ratings")


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
        cells = [name, f"{means[name]:.4f}", f"{deviations[name]:.4f}" if len(done.folds) > 1 else "–"]
        if published and name in published.values:
            cells += [f"{number:.4f}" for number in published.values[name]]
        if name in firsts:
            cells.append(f"{firsts[name]:.4f}")
        table.add_row(*cells)
    return table


def _holding_lines(done: Run) -> list[str]:
    """Who holds what, and what was drawn."""
    drawn = done.provenance.passed_over
    passed_over = [f"{drawn} passed-over item(s) drawn at random before each that was taken"] if drawn else []
    return [*done.provenance.holding, *passed_over]


Go = Callable[[AnySystem, dict[str, Any]], None]


def command_for(system: AnySystem, common: Callable[..., Go]) -> Callable[..., None]:
    """A function whose parameters are the common options and the system's settings."""
    hints = get_type_hints(system.config)
    shared = inspect.signature(common).parameters
    own = [
        inspect.Parameter(
            entry.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=entry.default,
            annotation=Annotated[
                hints[entry.name],
                typer.Option(*flags(entry.name), help=entry.metadata["help"], rich_help_panel="Settings"),
            ],
        )
        for entry in fields(system.config)
    ]
    if system.about.presets:
        own.insert(0, _preset_parameter(system))
    names = {parameter.name for parameter in own}

    def command(context: typer.Context, **values: Any) -> None:
        go = common(**{name: value for name, value in values.items() if name not in names})
        # A setting that was not typed is left to the preset.
        go(system, {name: values[name] for name in sorted(names) if _is_typed(context, name)})

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shared.values()] + own
    parameters.insert(0, context)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = f"{system.about.title}."
    return command


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _preset_parameter(system: AnySystem) -> inspect.Parameter:
    known = ", ".join(system.about.presets)
    option = typer.Option("--preset", help=f"Named settings: {known}.", rich_help_panel="Settings")
    first = next(iter(system.about.presets))
    return inspect.Parameter(
        "preset", inspect.Parameter.KEYWORD_ONLY, default=first, annotation=Annotated[str, option]
    )


def flags(name: str) -> tuple[str, ...]:
    """How a setting is spelled on the command line."""
    flag = f"--{name.replace('_', '-')}"
    return (flag, flag.replace("--num-", "--")) if name == "num_rounds" else (flag,)


def length_of(system: AnySystem, num_rounds: int = 20) -> str:
    """How an example says that a run is short."""
    names = [entry.name for entry in fields(system.config)]
    return f"--rounds {num_rounds}" if "num_rounds" in names else "--epochs 2"


for _system in SYSTEMS.values():
    app.command(_system.name, epilog=f"Example: hushrec run {_system.name} --data ml-100k {length_of(_system)}")(
        command_for(_system, with_live(common) if _system.about.is_online else common)
    )
